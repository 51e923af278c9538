"""Pydantic's errors in the words of the document's author."""

import re
from collections.abc import Callable, Iterator, Mapping
from types import UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from headbay.domain.document.model import Document
from headbay.domain.document.near import near_field, near_name
from headbay.domain.document.not_yet import unsupported_fields
from headbay.domain.document.problem import Fault, MisfitError, Path, path_text
from headbay.domain.quantity import QuantityError
from headbay.domain.wording import shown

__all__ = ["translate"]

Spelling = Mapping[str, str]
Context = Mapping[str, Any]

_QUOTED: Final = re.compile(r"'([^']*)'")
_NOUNS: Final = {
    "string": "a string",
    "int": "a whole number",
    "bool": "true or false",
    "list": "a list",
    "dict": "a mapping",
    "model": "a mapping",
}
_MOST_QUOTED: Final = 40
_BOUNDS: Final = {
    "ge": "write at least {}",
    "le": "write at most {}",
    "max_length": "write at most {} characters",
}
_EXAMPLES: Final = {
    "steps": "[{name: hello, run: echo hello}]",
    "defaults": "{timeout: 10m}",
    "resources": "{cpu: 2, memory: 4Gi}",
    "retry": "{maxAttempts: 3}",
    "backoff": "{initial: 5s}",
    "when": "[FAILED, OOM_KILLED]",
    "env": "{NAME: value}",
    "matrix": '{PY: ["3.11", "3.12"]}',
    "labels": "{team: core}",
    "placement": "{nodeSelector: {disk: ssd}}",
    "nodeSelector": "{disk: ssd}",
    "tolerations": "[{key: gpu, operator: Exists}]",
    "artifacts": "[dist/*.whl]",
    "dependsOn": "[build, test]",
    "run": "make test",
    "approval": "Publish?",
}


def translate(error: ErrorDetails, data: object, spelling: Spelling) -> Fault:
    """One pydantic error as a fault at its place in the document.

    Args:
        error: From a ValidationError of `Document`.
        data: The raw document it was raised for.
        spelling: Path text -> how a scalar was written where that differs from its value.
    """
    kind, context, value = error["type"], error.get("ctx", {}), error["input"]
    path = _path(error["loc"], data, missing=kind == "missing")
    cause, bound = context.get("error"), _bound(context)
    noun = _NOUNS.get(kind.removesuffix("_type"))
    if isinstance(cause, MisfitError | QuantityError):
        return Fault(path, cause.code, cause.message, cause.fix)
    if kind in _BY_KIND:
        return _BY_KIND[kind](path, value, context)
    if bound is not None:
        return Fault(path, "OUT_OF_BOUNDS", f"{shown(value)} is out of bounds", bound)
    if noun is not None:
        return _type(path, value, noun, spelling.get(path_text(path)))
    return Fault(path, "BAD_VALUE", error["msg"][:200], "see the document's reference")


def _path(loc: tuple[int | str, ...], data: object, *, missing: bool) -> Path:
    """The part of pydantic's location that is in the document: no union tags, no ``[key]``."""
    path: list[int | str] = []
    here: Any = data
    for number, part in enumerate(loc):
        inside = part in here if isinstance(here, dict) else isinstance(here, list)
        if inside and isinstance(part, int if isinstance(here, list) else str):
            here = here[part]
        elif not (missing and number == len(loc) - 1):
            continue
        path.append(part)
    return tuple(path)


def _unknown(path: Path, _value: object, _context: Context) -> Fault:
    name, fields = str(path[-1]), _fields_at(path[:-1])
    near = near_field(name, sorted(fields))
    if name in fields:
        message = f"`{name}` is not possible beside what stands there"
        return Fault(path, "CONFLICT", message, "leave one of them out")
    if near and not fields[near]:
        fix = f"`{near}`, if that is meant, is not yet supported: remove it"
    elif near:
        fix = f"did you mean `{near}`?"
    else:
        fix = f"known here: {', '.join(sorted(f for f, supported in fields.items() if supported))}"
    return Fault(path, "UNKNOWN_FIELD", f"unknown field {shown(name)}", fix)


def _missing(path: Path, _value: object, _context: Context) -> Fault:
    name = str(path[-1])
    examples = {"apiVersion": "headbay/v1", "name": "my-name"} | _EXAMPLES
    fix = f"add `{name}: {examples[name]}`" if name in examples else "add it"
    return Fault(path, "MISSING", f"`{name}` is missing", fix)


def _choice(path: Path, value: object, context: Context) -> Fault:
    choices = _QUOTED.findall(context["expected"]) or [str(context["expected"]).lower()]
    near = None
    if isinstance(value, str):
        near = near_field(value, choices) or near_name(value[:80], choices)
    fix = f"did you mean `{near}`?" if near else f"write {_listed(choices)}"
    return Fault(path, "BAD_VALUE", f"{shown(value)} is not possible here", fix)


def _form(path: Path, value: object, _context: Context) -> Fault:
    if path[-1:] == ("run",):
        message = "must be a script, an argument list, or one of process, builtin and agent"
        return Fault(path, "WRONG_TYPE", f"{message}, not {shown(value)}", "write `run: make test`")
    message = f"must be true, a message, or a mapping, not {shown(value)}"
    return Fault(path, "WRONG_TYPE", message, "write `approval: true` or remove it")


def _length(path: Path, _value: object, context: Context) -> Fault:
    most, least, actual = (context.get(k) for k in ("max_length", "min_length", "actual_length"))
    if most is not None:
        size = f"has {actual} entries" if actual is not None else "has too many entries"
        return Fault(path, "OUT_OF_BOUNDS", size, f"at most {most} are allowed")
    return Fault(path, "OUT_OF_BOUNDS", "is empty", f"write at least {least}, or remove the field")


def _bound(context: Context) -> str | None:
    for key, words in _BOUNDS.items():
        if key in context:
            return words.format(context[key])
    return None


def _type(path: Path, value: object, noun: str, spelt: str | None) -> Fault:
    field = path[-1] if path else ""
    example = _EXAMPLES.get(field) if isinstance(field, str) else None
    text = spelt if spelt is not None else shown(value)
    if noun == "a string" and isinstance(value, bool | int | float):
        kind = "the boolean" if isinstance(value, bool) else "the number"
        message = f"must be a string, not {kind} {text}"
        return Fault(path, "WRONG_TYPE", message, f'quote it: "{text}"')
    if noun == "a whole number" and isinstance(value, str) and value.lstrip("-").isdecimal():
        fix = f"write {value[:20]} without quotes"
    elif noun == "a list" and isinstance(value, str):
        fix = f'write `["{value}"]`' if len(value) <= _MOST_QUOTED else f"write `{example or noun}`"
    elif example:
        fix = f"write `{field}: {example}`"
    else:
        fix = f"write {noun}"
    return Fault(path, "WRONG_TYPE", f"must be {noun}, not {shown(value)}", fix)


def _listed(choices: list[str]) -> str:
    return choices[0] if len(choices) == 1 else f"{', '.join(choices[:-1])} or {choices[-1]}"


def _fields_at(path: Path) -> dict[str, bool]:
    """Names of the fields that the models allow at ``path``, and whether they are supported."""
    places: list[Any] = [Document]
    for part in path:
        if isinstance(part, str):
            places = [inner for place in places for inner in _inside(place, part)]
        places = [leaf for place in places for leaf in _leaves(place)]
    unsupported = unsupported_fields()
    found: dict[str, bool] = {}
    for place in places:
        if isinstance(place, type) and issubclass(place, BaseModel):
            for name, field in place.model_fields.items():
                named = field.alias or name
                found[named] = named not in unsupported.get(place.__name__, ())
    return found


def _inside(place: Any, key: str) -> Iterator[Any]:
    """What the type ``place`` says of the value of ``key``."""
    if isinstance(place, type) and issubclass(place, BaseModel):
        for name, field in place.model_fields.items():
            if (field.alias or name) == key:
                yield field.annotation
    elif get_origin(place) is dict:
        yield get_args(place)[1]


def _leaves(annotation: Any) -> Iterator[Any]:
    """The models and mappings of an annotation, unions, lists and annotations looked through."""
    if get_origin(annotation) is Annotated:
        yield from _leaves(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, UnionType, list):
        for argument in get_args(annotation):
            yield from _leaves(argument)
    else:
        yield annotation


_BY_KIND: Final[dict[str, Callable[[Path, object, Context], Fault]]] = {
    "extra_forbidden": _unknown,
    "missing": _missing,
    "literal_error": _choice,
    "enum": _choice,
    "union_tag_not_found": _form,
    "union_tag_invalid": _form,
    "too_long": _length,
    "too_short": _length,
}
