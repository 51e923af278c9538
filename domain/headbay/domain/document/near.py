"""Names that were probably meant."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

__all__ = ["near_field", "near_name"]

_SYNONYMS: Final = {
    "needs": "dependsOn",
    "depends": "dependsOn",
    "after": "dependsOn",
    "dependencies": "dependsOn",
    "command": "run",
    "cmd": "run",
    "script": "run",
    "exec": "run",
    "args": "run",
    "environment": "env",
    "envs": "env",
    "id": "name",
    "title": "name",
    "jobs": "steps",
    "tasks": "steps",
    "step": "steps",
    "retries": "retry",
    "attempts": "maxAttempts",
    "timeoutminutes": "timeout",
    "timeoutseconds": "timeout",
    "if": "condition",
    "when": "condition",
    "parallelism": "maxParallel",
    "concurrency": "maxParallel",
    "cwd": "workdir",
    "workingdirectory": "workdir",
    "outputs": "output",
    "tags": "labels",
    "version": "apiVersion",
    "kind": "apiVersion",
    "limits": "resources",
    "requests": "resources",
    "delay": "initial",
}
"""What other tools call the same thing."""


def near_field(name: str, known: Iterable[str]) -> str | None:
    """The field of ``known`` that ``name`` was probably meant to be."""
    by_bare = {_bare(field): field for field in known}
    bare = _bare(name[:64])
    if bare in by_bare:
        return by_bare[bare]
    if _SYNONYMS.get(bare) in by_bare.values():
        return _SYNONYMS[bare]
    close = get_close_matches(bare, by_bare, n=1, cutoff=0.7)
    return by_bare[close[0]] if close else None


def near_name(name: str, known: Iterable[str]) -> str | None:
    """The name of ``known`` that is closest to ``name``, if any is close."""
    close = get_close_matches(name, known, n=1, cutoff=0.6)
    return close[0] if close else None


def _bare(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "").replace(" ", "")
