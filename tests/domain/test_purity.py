"""The domain imports little and touches nothing."""

import ast
from pathlib import Path

import pytest
from support.purity import ImpureError

import headbay.domain

ROOT = Path(headbay.domain.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))

ALLOWED = frozenset(
    {
        "ast",
        "base64",
        "bisect",
        "collections",
        "contextlib",
        "copy",
        "dataclasses",
        "datetime",
        "decimal",
        "difflib",
        "enum",
        "fractions",
        "functools",
        "hashlib",
        "heapq",
        "itertools",
        "json",
        "math",
        "operator",
        "re",
        "shlex",
        "string",
        "types",
        "typing",
        "unicodedata",
        "zlib",
        "headbay",
        "pydantic",
        "pydantic_core",
    }
)

BANNED_NAMES = frozenset({"open", "input", "exec", "eval", "__import__", "hash", "print"})
"""``hash`` of a string differs from process to process."""

BANNED_METHODS = frozenset({"now", "utcnow", "today"})


def faults(source: str) -> list[str]:
    """What a module does that a pure one must not."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names):
                found += [a.name for a in names if a.name.split(".")[0] not in ALLOWED]
            case ast.ImportFrom(module=str(module), level=0):
                if module.split(".")[0] not in ALLOWED or (
                    module.startswith("headbay") and not module.startswith("headbay.domain")
                ):
                    found.append(module)
            case ast.Call(func=ast.Name(name)) if name in BANNED_NAMES:
                found.append(f"{name}()")
            case ast.Call(func=ast.Attribute(attr=name)) if name in BANNED_METHODS:
                found.append(f".{name}()")
            case ast.Global():
                found.append("global")
    return found


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_domain_module_imports_only_what_is_pure(module):
    assert faults(module.read_text()) == []


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("import os.path", "os.path"),
        ("from time import time", "time"),
        ("from headbay.activities import places", "headbay.activities"),
        ("import temporalio", "temporalio"),
        ("from datetime import datetime\ndatetime.now()", ".now()"),
        ("open('x')", "open()"),
        ("hash('x')", "hash()"),
        ("def f():\n  global x", "global"),
    ],
)
def test_the_check_of_imports_finds_what_it_looks_for(source, fault):
    assert faults(source) == [fault]


REACHES = [
    "__import__('time').time()",
    "__import__('time').sleep(0)",
    "__import__('random').random()",
    "__import__('os').urandom(1)",
    "__import__('os').environ['PATH']",
    "__import__('os').environ.get('PATH')",
    "__import__('uuid').uuid4()",
    "open('/dev/null').close()",
    "__import__('pathlib').Path('/dev/null').read_text()",
    "__import__('os').listdir('/')",
    "__import__('socket').socket()",
    "__import__('subprocess').run(['true'])",
]


@pytest.mark.parametrize("reach", REACHES)
def test_domain_code_that_reaches_for_the_world_raises(reach):
    with pytest.raises(ImpureError):
        eval(reach, {"__name__": "headbay.domain.fake"})  # noqa: S307 - the literals above


@pytest.mark.parametrize("reach", REACHES[:9])
def test_other_code_goes_on_beside_it(reach):
    eval(reach, {"__name__": "headbay.domains"})  # noqa: S307 - the literals above
