"""Workload documents: models, validation with a fix for every problem, and compilation.

The way of a document: `validate` (data -> Document or all its problems), `warnings`, `digest`
(what "the same document" means), `compile_document` (Document -> DagDef).
"""

from headbay.domain.document.advice import warnings
from headbay.domain.document.canon import MAX_DOCUMENT_BYTES, canonical, digest
from headbay.domain.document.compilation import compile_document
from headbay.domain.document.model import API_VERSION, Document
from headbay.domain.document.problem import DocumentRefusedError, Problem
from headbay.domain.document.validation import validate

__all__ = [
    "API_VERSION",
    "MAX_DOCUMENT_BYTES",
    "Document",
    "DocumentRefusedError",
    "Problem",
    "canonical",
    "compile_document",
    "digest",
    "validate",
    "warnings",
]
