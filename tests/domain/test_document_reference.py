"""docs/document.md: complete, and its examples are valid."""

import re
from pathlib import Path

import pytest

from headbay.client.source import read_document
from headbay.domain.document.model import Document
from headbay.domain.document.not_yet import unsupported_fields
from headbay.domain.document.resources import ResourceClaim
from headbay.domain.document.step import (
    BackoffRule,
    Placement,
    RetryRule,
    SecretRef,
    Step,
    TolerationRule,
)

PAGE = (Path(__file__).parents[2] / "docs" / "document.md").read_text()
REFERENCE, _, NOT_YET = PAGE.partition("## Not yet")


@pytest.mark.parametrize(
    "model", [Document, Step, ResourceClaim, RetryRule, Placement, TolerationRule, SecretRef]
)
def test_every_field_is_there(model):
    not_yet = unsupported_fields().get(model.__name__, ())
    for name, field in model.model_fields.items():
        written = field.alias or name
        page = NOT_YET if written in not_yet else REFERENCE
        assert re.search(rf"`(\w+\.)?{written}[`:]", page), f"{written} of {model.__name__}"


def test_every_part_of_a_backoff_is_there():
    assert all(f"`{name}`" in REFERENCE for name in BackoffRule.model_fields)


@pytest.mark.parametrize("text", re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL))
def test_every_example_is_valid(text, tmp_path):
    file = tmp_path / "example.yaml"
    file.write_text(text)
    assert read_document(file).document.steps
