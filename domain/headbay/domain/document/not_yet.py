"""What a document may say and this version cannot do yet: understood, and refused by name."""

from collections.abc import Iterator
from typing import Any, Final

from headbay.domain.document.problem import Fault, Path

__all__ = ["check_supported", "unsupported_fields"]

_TOP: Final = ("deadline", "maxDuration", "budget", "dynamic")
_SETTINGS: Final = ("condition", "approval", "output", "disconnect")
_STEP: Final = ("array", "gang")
_WITHIN: Final = (
    ("resources", "gpu"),
    ("resources", "exclusive"),
    ("placement", "affinity"),
    ("placement", "strategy"),
)
_TRIGGERS: Final = ("all_success", "all_done")


def check_supported(data: dict[str, Any]) -> Iterator[Fault]:
    """One NOT_YET fault for every field in use that is not supported yet."""
    for field in _TOP:
        if field in data:
            yield _not_yet((field,), f"`{field}`")
    defaults = data.get("defaults")
    if isinstance(defaults, dict):
        yield from _in_settings(defaults, ("defaults",))
    steps = data.get("steps")
    for index, step in enumerate(steps if isinstance(steps, list) else []):
        if isinstance(step, dict):
            yield from _in_step(step, ("steps", index))


def unsupported_fields() -> dict[str, tuple[str, ...]]:
    """Names of fields that are understood and refused, by the model that has them."""
    within = {
        model: tuple(inner for outer, inner in _WITHIN if outer == field)
        for field, model in (
            ("resources", "ResourceClaim"),
            ("placement", "Placement"),
        )
    }
    return {"Document": _TOP, "StepSettings": _SETTINGS, "Step": _SETTINGS + _STEP} | within


def _in_settings(settings: dict[str, Any], path: Path) -> Iterator[Fault]:
    for field in _SETTINGS:
        if field in settings:
            yield _not_yet((*path, field), f"`{field}`")
    for outer, inner in _WITHIN:
        if isinstance(group := settings.get(outer), dict) and inner in group:
            yield _not_yet((*path, outer, inner), f"`{outer}.{inner}`")
    if "trigger" in settings and settings["trigger"] not in _TRIGGERS:
        yield Fault(
            (*path, "trigger"),
            "NOT_YET",
            f"`trigger: {settings['trigger']}` is not yet supported",
            f"use {' or '.join(_TRIGGERS)}",
        )


def _in_step(step: dict[str, Any], path: Path) -> Iterator[Fault]:
    yield from _in_settings(step, path)
    for field in _STEP:
        if field in step:
            yield _not_yet((*path, field), f"`{field}`")
    run = step.get("run")
    if isinstance(run, dict):
        tag = next((tag for tag in ("process", "builtin", "agent") if tag in run), "mapping")
        yield Fault(
            (*path, "run"),
            "NOT_YET",
            f"`run: {{{tag}: …}}` is not yet supported",
            "write a script or an argument list",
        )
    upstreams = step.get("dependsOn")
    for index, name in enumerate(upstreams if isinstance(upstreams, list) else [upstreams]):
        if isinstance(name, str) and name.startswith("spawn:"):
            place = (
                (*path, "dependsOn", index) if isinstance(upstreams, list) else (*path, "dependsOn")
            )
            yield _not_yet(place, f"`{name[:80]}`")


def _not_yet(path: Path, what: str) -> Fault:
    return Fault(path, "NOT_YET", f"{what} is not yet supported", "remove it")
