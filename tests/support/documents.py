"""Documents for tests: a valid one that uses every supported field, and ways to change it."""

import copy
from typing import Any

import pytest

from headbay.domain.document import DocumentRefusedError, validate

VALID: dict[str, Any] = {
    "apiVersion": "headbay/v1",
    "name": "ci",
    "queue": "team/ci",
    "priority": 3,
    "labels": {"team": "core"},
    "maxParallel": 4,
    "workspace": "private",
    "onFailure": "stop",
    "defaults": {
        "timeout": "10m",
        "resources": {"memory": "512Mi"},
        "env": {"LANG": "C"},
        "retry": {"maxAttempts": 2, "backoff": {"initial": "1s", "factor": 1.5}},
        "placement": {
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
        },
    },
    "steps": [
        {"name": "build", "run": "make", "artifacts": ["dist/*.whl"], "workdir": "."},
        {
            "name": "test",
            "dependsOn": "build",
            "matrix": {"PY": ["3.11", "3.12"], "DB": ["a", "b"]},
            "resources": {"cpu": 0.5, "memory": "4Gi", "tasks": 9, "licence": 1},
            "run": ["tox", "-e", "py"],
            "lease": "short",
            "grace": 0,
            "trigger": "all_done",
        },
        {
            "name": "publish",
            "dependsOn": ["build", "test"],
            "repeat": "never",
            "run": "twine",
            "env": {"TOKEN": {"secret": "pypi"}},
            "queueTimeout": 60,
            "require": "enforced",
        },
    ],
}


def document(*steps: dict[str, Any], **top: Any) -> dict[str, Any]:
    """A document with these steps; one that runs `true` if none are given."""
    given = [copy.deepcopy(step) for step in steps] or [{"name": "only", "run": "true"}]
    return {"apiVersion": "headbay/v1", "name": "w", **top, "steps": given}


def one(**fields: Any) -> dict[str, Any]:
    """A document of one step with these fields."""
    return document({"name": "only", "run": "true", **fields})


def problems(data: object) -> list[tuple[str, str]]:
    """(path, code) of everything that is wrong with a document, in order; at least one."""
    return [(problem.path, problem.code) for problem in refusal(data).problems]


def refusal(data: object) -> DocumentRefusedError:
    """The refusal of a document."""
    with pytest.raises(DocumentRefusedError) as caught:
        validate(data)
    return caught.value


def only_problem(data: object) -> str:
    """The text of the one problem of a document."""
    found = refusal(data).problems
    assert len(found) == 1, found
    return found[0].text()
