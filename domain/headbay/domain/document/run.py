"""What a step runs: a script, an argument list, or one of the tagged forms."""

from typing import Annotated, Any

from pydantic import Discriminator, Field, JsonValue, Tag

from headbay.domain.document.types import Argument, Prose, ScriptText, StepText, Strict

__all__ = ["AgentRun", "AgentSpec", "Argv", "BuiltinRun", "ProcessRun", "Run"]

Argv = Annotated[list[Argument], Field(min_length=1, max_length=1024)]


class ProcessRun(Strict):
    """A program that speaks the step protocol over stdin and stdout."""

    process: Argv


class BuiltinRun(Strict):
    """A registered Python handler."""

    builtin: Prose
    with_: Annotated[dict[str, JsonValue] | None, Field(alias="with")] = None


class AgentSpec(Strict):
    """Which agent, driven how, to what end."""

    ref: Prose
    driver: StepText | None = None
    command: Argv | None = None
    goal: Prose | None = None
    child_agents: Annotated[list[Prose] | None, Field(max_length=256)] = None


class AgentRun(Strict):
    """An agent behind a driver."""

    agent: AgentSpec


def _form(value: Any) -> str | None:
    if isinstance(value, str):
        return "<script>"
    if isinstance(value, list):
        return "<argv>"
    if isinstance(value, dict):
        return next((f"<{tag}>" for tag in ("process", "builtin", "agent") if tag in value), None)
    return None


Run = Annotated[
    Annotated[ScriptText, Tag("<script>")]
    | Annotated[Argv, Tag("<argv>")]
    | Annotated[ProcessRun, Tag("<process>")]
    | Annotated[BuiltinRun, Tag("<builtin>")]
    | Annotated[AgentRun, Tag("<agent>")],
    Discriminator(_form),
]
