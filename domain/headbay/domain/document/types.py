"""Scalars of a document: annotated types whose validators say what to write instead."""

import re
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, core_schema

from headbay.domain.document.problem import MisfitError
from headbay.domain.ids import STEP_NAME
from headbay.domain.quantity import (
    parse_cpu,
    parse_duration,
    parse_instant,
    parse_memory,
    parse_money,
    parse_permille,
)
from headbay.domain.wording import shown

__all__ = [
    "Argument",
    "Cpu",
    "Dependency",
    "EnvName",
    "EnvText",
    "Factor",
    "Glob",
    "Grace",
    "Instant",
    "Jitter",
    "LabelKey",
    "LabelText",
    "Lease",
    "Memory",
    "Money",
    "PathText",
    "PoolText",
    "Prose",
    "QueueText",
    "ResourceName",
    "ScriptText",
    "SecretName",
    "Span",
    "StepText",
    "Strict",
    "UserName",
    "WorkloadText",
]

MAX_SCRIPT_BYTES: Final = 64 * 1024
"""The kernel takes at most 128 KiB in one argument (MAX_ARG_STRLEN)."""


class Strict(BaseModel):
    """A part of a document: frozen, camelCase outside, unknown fields and coercions refused."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, alias_generator=to_camel, title=None
    )


@dataclass(frozen=True)
class Shape:
    """Restricts a string; ``noun`` and ``hint`` make the message.

    Attributes:
        pattern: What the whole string must match; None for free text.
        most_bytes: Bound of its UTF-8 form.
    """

    noun: str
    hint: str
    pattern: re.Pattern[str] | None = None
    least: int = 1
    most_bytes: int = 256

    def check(self, value: str) -> str:
        """The value itself.

        Raises:
            MisfitError: It does not fit.
        """
        size = len(value) if value.isascii() else len(value.encode("utf-8", "surrogatepass"))
        if size > self.most_bytes:
            raise MisfitError(
                f"is {size} bytes long", f"write at most {self.most_bytes}", "OUT_OF_BOUNDS"
            )
        if len(value) < self.least or (self.least and not value.strip()):
            raise MisfitError("is empty", self.hint)
        if self.pattern is not None and self.pattern.fullmatch(value) is None:
            raise MisfitError(f"{shown(value)} is not {self.noun}", self.suggestion(value))
        return value

    def suggestion(self, value: str) -> str:
        """The hint, or a corrected spelling for the names that are slugs."""
        if self.pattern is STEP_NAME:
            slug = re.sub(r"[^a-z0-9]+", "-", value.lower()).strip("-")[:64].strip("-")
            if slug:
                return f"did you mean '{slug}'? {self.hint}"
        return self.hint

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        json_schema = handler(schema) | {"maxLength": self.most_bytes}
        if self.least:
            json_schema["minLength"] = self.least
        if self.pattern is not None:
            json_schema["pattern"] = f"^(?:{self.pattern.pattern})$"
        return json_schema


_DASHES: Final = "use 1 to 64 lower-case letters, digits and inner dashes"

StepText = Annotated[str, Shape("a step name", _DASHES, STEP_NAME)]
PoolText = Annotated[str, Shape("a pool's name", _DASHES, STEP_NAME)]
Dependency = Annotated[
    str,
    Shape("a step's name", _DASHES, re.compile(r"(?:spawn:)?[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")),
]
WorkloadText = Annotated[
    str,
    Shape(
        "a workload name",
        "use 1 to 63 letters, digits, and inner dots, dashes and underscores",
        re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"),
    ),
]
QueueText = Annotated[
    str,
    Shape(
        "a queue's name",
        "use letters, digits, and inner dots, dashes, underscores and slashes",
        re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,126}[A-Za-z0-9])?"),
    ),
]
LabelKey = Annotated[
    str,
    Shape(
        "a label's key",
        "use letters, digits, and inner dots, dashes, underscores and slashes",
        re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,126}[A-Za-z0-9])?"),
    ),
]
LabelText = Annotated[str, Shape("a label", "write a short text", least=0)]
EnvName = Annotated[
    str,
    Shape(
        "a name for an environment variable that is yours to set",
        "use letters, digits and underscores, no digit first, not beginning with HEADBAY_",
        re.compile(r"(?!HEADBAY_)[A-Za-z_][A-Za-z0-9_]{0,127}"),
    ),
]
EnvText = Annotated[str, Shape("text", "write a text", least=0, most_bytes=MAX_SCRIPT_BYTES)]
SecretName = Annotated[
    str,
    Shape(
        "a secret's name",
        "use letters, digits, and inner dots, dashes and underscores",
        re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9])?"),
    ),
]
UserName = Annotated[
    str,
    Shape(
        "a user's name",
        "write a user of the node, by name or by number",
        re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}\$?|[0-9]{1,10}"),
    ),
]
ResourceName = Annotated[
    str,
    Shape(
        "a resource's name",
        "use lower-case letters, digits, and inner dots, dashes, underscores and slashes",
        re.compile(r"cpuLimit|[a-z](?:[a-z0-9._/-]{0,61}[a-z0-9])?"),
    ),
]
ScriptText = Annotated[
    str,
    Shape(
        "a script",
        "write the commands to run, or put long ones into a file",
        most_bytes=MAX_SCRIPT_BYTES,
    ),
]
Argument = Annotated[
    str, Shape("an argument", "write the argument", least=0, most_bytes=MAX_SCRIPT_BYTES)
]
Prose = Annotated[str, Shape("text", "write a text", most_bytes=8192)]
PathText = Annotated[str, Shape("a path", "write a path such as src", most_bytes=4095)]
Glob = Annotated[
    str,
    Shape(
        "a glob below the working directory",
        "write a relative one without .. such as dist/*.whl",
        re.compile(r"(?!/)(?!.*(?:^|/)\.\.(?:/|$)).*", re.DOTALL),
        most_bytes=1024,
    ),
]


def _lease(value: object) -> int:
    return 30_000 if value == "short" else parse_duration(value, least_ms=5_000, most_ms=86_400_000)


_DURATION: Final = WithJsonSchema(
    {
        "description": "Seconds, or parts with units: 30s, 5m, 1h30m, 250ms.",
        "anyOf": [
            {"type": "number", "minimum": 0},
            {"type": "string", "pattern": r"^[0-9.]+$|^([0-9.]+(ms|s|m|h|d))+$"},
        ],
    }
)
_NUMBER: Final = WithJsonSchema(
    {"anyOf": [{"type": "number"}, {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?$"}]}
)

Cpu = Annotated[
    int,
    BeforeValidator(parse_cpu),
    WithJsonSchema(
        {
            "description": "CPUs, such as 2, 0.5 or 250m.",
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0, "maximum": 100_000},
                {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?m?$"},
            ],
        }
    ),
]
Memory = Annotated[
    int,
    BeforeValidator(parse_memory),
    WithJsonSchema(
        {
            "description": "Bytes, or a number with a unit: 512Mi, 4Gi, 1G.",
            "anyOf": [
                {"type": "integer", "minimum": 1 << 20, "maximum": 1 << 50},
                {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)? ?([kMGTP]|[KMGTP]i)?$"},
            ],
        }
    ),
]
Span = Annotated[int, BeforeValidator(lambda value: parse_duration(value, least_ms=1)), _DURATION]
Grace = Annotated[
    int, BeforeValidator(lambda value: parse_duration(value, most_ms=3_600_000)), _DURATION
]
Lease = Annotated[
    int,
    BeforeValidator(_lease),
    WithJsonSchema(
        {
            "description": "short (30 s), or a duration from 5s to 24h.",
            "anyOf": [
                {"type": "number", "minimum": 5, "maximum": 86_400},
                {"type": "string", "pattern": r"^short$|^[0-9.]+$|^([0-9.]+(ms|s|m|h|d))+$"},
            ],
        }
    ),
]
Instant = Annotated[
    int, BeforeValidator(parse_instant), WithJsonSchema({"type": "string", "format": "date-time"})
]
Money = Annotated[
    int,
    BeforeValidator(parse_money),
    WithJsonSchema({"type": "string", "pattern": r"^[0-9]+(\.[0-9]{1,6})?$"}),
]
Factor = Annotated[
    int,
    BeforeValidator(lambda value: parse_permille(value, least=1_000, most=100_000)),
    _NUMBER,
]
Jitter = Annotated[
    int, BeforeValidator(lambda value: parse_permille(value, least=0, most=1_000)), _NUMBER
]
