"""Whatever bytes a document is, reading answers with a document or with DocumentRefusedError."""

import json
import os

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.documents import VALID

from headbay.client.source import Read, read_document
from headbay.domain.document import DocumentRefusedError

EXAMPLES = int(os.environ.get("HEADBAY_FUZZ_EXAMPLES", "100"))

fuzz = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

YAML = """\
# a comment
name: ci
labels: &l {team: core, "on": 'x'}
maxParallel: 0o17
defaults:
  env: {LANG: C, PY: "3.10"}
steps:
- name: build
  run: |
    make
    \tmake test
  artifacts: [dist/*.whl]
- name: test
  dependsOn: build
  matrix: {PY: ["3.11", "3.12"], DB: [a, b]}
  run: >-
    tox -e
    py
- name: publish
  dependsOn:
  - build
  - test
  repeat: never
  run: [twine, "\\u00e9\\n"]
  env:
    TOKEN: {secret: pypi}
"""

TEXTS = [YAML, json.dumps(VALID, indent=1), json.dumps(VALID), YAML.replace("\n", "\r\n")]

PIECES = [
    *("\t", "\r", "\n", "\0", "\x07", "\ufeff", "\x85", "\u2028", " ", "  ", "- ", "? ", ": ", ":"),
    *("{", "}", "[", "]", ",", "#", "&a ", "*a", "!", "!!str ", "!!int ", "!x!y ", "|", ">", "|2-"),
    *("'", '"', "%", "%YAML 1.1\n---\n", "%TAG ! x\n", "@", "`", "---\n", "...\n", "~"),
    *("--- ", "<<: ", "- - - "),
    *("\\", '"\\x', '"\\u12', '"\\U00110000"', "\\ud800", "0x", "0o8", "1e999", "-.inf", ".nan"),
    *("null", "true", "3.10", "9" * 50, "name", "steps", "&", "*", "!<", "!<tag:", "? |\n"),
]  # fmt: skip


@st.composite
def mutated(draw):
    """A valid document's text with pieces inserted, removed, repeated."""
    text = draw(st.sampled_from(TEXTS))
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(text)))
        until = min(len(text), at + draw(st.integers(0, 30)))
        piece = draw(st.sampled_from(PIECES) | st.text(max_size=3))
        text = text[:at] + piece + draw(st.sampled_from(["", text[at:until] * 2])) + text[until:]
    return text.encode("utf-8", "surrogatepass")


@st.composite
def mangled(draw):
    """A valid document's bytes with some of them changed."""
    raw = bytearray(draw(st.sampled_from(TEXTS)).encode())
    for _ in range(draw(st.integers(1, 4))):
        raw[draw(st.integers(0, len(raw) - 1))] = draw(st.integers(0, 255))
    return bytes(raw)


def answer(raw, name):
    """What comes of reading; nothing but a refusal may be raised."""
    try:
        return read_document(raw, name=name)
    except DocumentRefusedError as refusal:
        return refusal


def judge(raw, name):
    found = answer(raw, name)
    if isinstance(found, Read):
        assert found.dag().steps
        return
    assert found.problems
    for problem in found.problems:
        assert problem.message
        assert problem.line is None or 1 <= problem.line <= raw.count(b"\n") + raw.count(b"\r") + 2
        assert "\n" not in problem.text(name).encode().decode()


names = st.sampled_from(["w.yaml", "w.json", "-"])


def test_the_texts_that_are_changed_are_valid():
    for text in TEXTS:
        assert isinstance(answer(text.encode(), "w.yaml"), Read)


@fuzz
@given(mutated(), names)
def test_a_mutated_text_is_refused_or_read(raw, name):
    judge(raw, name)


@fuzz
@given(mangled(), names)
def test_mangled_bytes_are_refused_or_read(raw, name):
    judge(raw, name)


@fuzz
@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=2), max_size=25).map("".join), names)
@example('a: "\\UFFFFFFFF"', "w.yaml")
def test_any_text_is_refused_or_read(text, name):
    judge(text.encode("utf-8", "surrogatepass"), name)


@fuzz
@given(st.binary(max_size=100), names)
def test_any_bytes_are_refused_or_read(raw, name):
    judge(raw, name)
