"""The canonical form and its digest: what "the same document" means."""

import copy
import hashlib
import json

import pytest
from support.documents import VALID, document, one

from headbay.domain.document import DocumentRefusedError, canonical, digest, validate


def test_the_digest_of_a_known_document_never_changes():
    data = {"apiVersion": "headbay/v1", "name": "w", "steps": [{"name": "a", "run": "é ☃"}]}
    text = '{"apiVersion":"headbay/v1","name":"w","steps":[{"name":"a","run":"é ☃"}]}'
    assert canonical(data) == text.encode()
    assert digest(data) == hashlib.sha256(text.encode()).hexdigest()


def test_the_digest_of_a_document_with_a_secret_is_what_it_was_before_there_was_as():
    """It is taken of what was written: a way of delivery that was not named is not in it."""
    data = one(env={"T": {"secret": "s"}})
    assert b'"env":{"T":{"secret":"s"}}' in canonical(data)
    assert digest(data) != digest(one(env={"T": {"secret": "s", "as": "env"}}))


def reversed_keys(value):
    if isinstance(value, dict):
        return {key: reversed_keys(value[key]) for key in reversed(value)}
    return [reversed_keys(item) for item in value] if isinstance(value, list) else value


def test_the_order_of_keys_does_not_matter():
    assert list(reversed_keys(VALID)) != list(VALID)
    assert digest(reversed_keys(VALID)) == digest(VALID)


def test_the_order_of_lists_matters():
    other = copy.deepcopy(VALID)
    other["steps"].reverse()
    assert digest(other) != digest(VALID)


@pytest.mark.parametrize(
    ("one_way", "other_way", "same"),
    [
        ({"timeout": 90}, {"timeout": 90.0}, True),
        ({"timeout": 90}, {"timeout": "90s"}, False),
        ({"timeout": 90}, {}, False),
        ({"grace": "10s"}, {}, False),
        ({"resources": {"cpu": 0.5}}, {"resources": {"cpu": 0.50}}, True),
        ({"resources": {"cpu": 1}}, {"resources": {"cpu": "1"}}, False),
    ],
)
def test_it_is_taken_before_defaults_and_quantities_are_read(one_way, other_way, same):
    assert (digest(one(**one_way)) == digest(one(**other_way))) is same


def test_it_does_not_change_the_document():
    data = copy.deepcopy(VALID)
    canonical(data)
    validate(data)
    assert data == VALID


def test_it_survives_being_sent_as_json():
    assert digest(json.loads(json.dumps(VALID))) == digest(VALID)
    assert json.loads(canonical(VALID)) == VALID


@pytest.mark.parametrize("value", [float("nan"), b"x", "\ud800", {1: 2}, object(), 2**60])
def test_what_is_no_document_has_none(value):
    with pytest.raises(DocumentRefusedError):
        canonical(document() | {"labels": value})
