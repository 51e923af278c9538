"""Rules between fields that no single field's type can express, checked on the raw data."""

import re
from collections.abc import Iterator
from typing import Any, Final

from headbay.domain.document.near import near_field
from headbay.domain.document.problem import Fault, Path
from headbay.domain.document.resources import RESOURCE_ALIASES, RESOURCE_NAME_PATTERN
from headbay.domain.wording import shown

__all__ = ["KNOWN_RESOURCES", "check_rules"]

KNOWN_RESOURCES: Final = ("cpu", "cpuLimit", "memory", "tasks", "gpu", "exclusive")
_RESOURCE_NAME: Final = re.compile(RESOURCE_NAME_PATTERN)
_PREDICATES: Final = ("outputEquals", "outputContains", "jsonPointer")


def check_rules(data: dict[str, Any]) -> Iterator[Fault]:
    """Faults of combinations of fields."""
    if "deadline" in data and "maxDuration" in data:
        yield _conflict(("maxDuration",), "`deadline` and `maxDuration` exclude each other")
    defaults = data.get("defaults")
    if isinstance(defaults, dict):
        yield from _in_settings(defaults, ("defaults",))
    steps = data.get("steps")
    for index, step in enumerate(steps if isinstance(steps, list) else []):
        if isinstance(step, dict):
            yield from _in_settings(step, ("steps", index))
            yield from _in_step(step, ("steps", index))


def _in_settings(settings: dict[str, Any], path: Path) -> Iterator[Fault]:
    resources = settings.get("resources")
    if isinstance(resources, dict):
        yield from _in_resources(resources, (*path, "resources"))
    placement = settings.get("placement")
    if isinstance(placement, dict) and isinstance(placement.get("tolerations"), list):
        yield from _in_tolerations(placement["tolerations"], (*path, "placement", "tolerations"))
    condition = settings.get("condition")
    if isinstance(condition, dict):
        given = [name for name in _PREDICATES if name in condition]
        if len(given) != 1 or ("jsonPointer" in condition) != ("equals" in condition):
            yield Fault(
                (*path, "condition"),
                "CONFLICT",
                "must say exactly one thing about the output",
                "give one of outputEquals, outputContains, or jsonPointer with equals",
            )


def _in_tolerations(rules: list[Any], path: Path) -> Iterator[Fault]:
    for index, rule in enumerate(rules):
        if isinstance(rule, dict) and rule.get("operator") == "Exists" and "value" in rule:
            yield Fault(
                (*path, index, "value"),
                "CONFLICT",
                "`operator: Exists` tolerates every value",
                "remove `value`, or write `operator: Equal`",
            )


def _in_resources(resources: dict[str, Any], path: Path) -> Iterator[Fault]:
    if "exclusive" in resources and len(resources) > 1:
        yield _conflict((*path, "exclusive"), "`exclusive` means all that the node can give")
    for name in resources:
        if name in KNOWN_RESOURCES:
            continue
        alias = RESOURCE_ALIASES.get(name.lower())
        if alias is None and _RESOURCE_NAME.fullmatch(name) is None:
            alias = near_field(name, KNOWN_RESOURCES)
            if alias is None:
                yield Fault(
                    (*path, name),
                    "BAD_VALUE",
                    f"{shown(name)} is not a resource's name",
                    "use lower-case letters, digits, and inner dots, dashes and slashes",
                )
                continue
        if alias is not None:
            yield Fault(
                (*path, name),
                "UNKNOWN_FIELD",
                f"unknown resource {shown(name)}",
                f"did you mean `{alias}`?",
            )


def _in_step(step: dict[str, Any], path: Path) -> Iterator[Fault]:
    run = step.get("run")
    if isinstance(run, list) and run[:1] == [""]:
        yield Fault((*path, "run", 0), "BAD_VALUE", "the program is empty", "name the program")
    matrix, env = step.get("matrix"), step.get("env")
    if "matrix" in step and "array" in step:
        yield _conflict((*path, "array"), "`matrix` and `array` exclude each other")
    if not isinstance(matrix, dict):
        return
    for name, values in matrix.items():
        if isinstance(env, dict) and name in env:
            yield Fault(
                (*path, "env", name),
                "CONFLICT",
                f"{shown(name)} is set by the matrix too",
                "remove it from one of them",
            )
        texts = (
            [value for value in values if isinstance(value, str)]
            if isinstance(values, list)
            else []
        )
        seen: set[str] = set()
        for index, value in enumerate(texts):
            if value in seen and len(texts) == len(values):
                yield Fault(
                    (*path, "matrix", name, index),
                    "DUPLICATE_VALUE",
                    f"{shown(value)} is listed twice",
                    "remove one",
                )
            seen.add(value)


def _conflict(path: Path, message: str) -> Fault:
    return Fault(path, "CONFLICT", message, "keep one of them")
