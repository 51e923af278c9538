"""Workload documents: models, validation with a fix for every problem, and compilation.

The way of a document: `validate` (data -> Document or all its problems), `warnings`, `digest`
(what "the same document" means), `compile_document` (Document -> DagDef).
"""

from headbay.domain.document.advice import warnings
from headbay.domain.document.canon import MAX_DOCUMENT_BYTES, canonical, digest
from headbay.domain.document.compilation import compile_document
from headbay.domain.document.model import API_VERSION, Document
from headbay.domain.document.plain import MAX_DEPTH, MAX_NODES
from headbay.domain.document.problem import DocumentRefusedError, Problem, child_text
from headbay.domain.document.validation import validate

__all__ = [
    "API_VERSION",
    "MAX_DEPTH",
    "MAX_DOCUMENT_BYTES",
    "MAX_NODES",
    "Document",
    "DocumentRefusedError",
    "Problem",
    "canonical",
    "child_text",
    "compile_document",
    "digest",
    "validate",
    "warnings",
]
