"""What a step claims: known resources by name, everything else a custom counted one."""

from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field

from headbay.domain.document.types import Cpu, Memory, Strict
from headbay.domain.quantity import MAX_INTEGER

__all__ = [
    "DEFAULT_CLAIM",
    "MAX_TASKS",
    "RESOURCE_ALIASES",
    "RESOURCE_NAME_PATTERN",
    "ResourceClaim",
]

MAX_TASKS: Final = 1 << 22
"""Linux has no more process ids (PID_MAX_LIMIT)."""

DEFAULT_CLAIM: Final = {"cpu": 1_000, "memory": 1 << 30, "tasks": 512}
"""What a step reserves of what neither it nor `defaults` name."""

RESOURCE_NAME_PATTERN: Final = r"[a-z](?:[a-z0-9._/-]{0,61}[a-z0-9])?"

RESOURCE_ALIASES: Final = {
    "mem": "memory",
    "ram": "memory",
    "memroy": "memory",
    "memmory": "memory",
    "cpus": "cpu",
    "cores": "cpu",
    "vcpu": "cpu",
    "vcpus": "cpu",
    "cpulimit": "cpuLimit",
    "cpu-limit": "cpuLimit",
    "cpu_limit": "cpuLimit",
    "task": "tasks",
    "pids": "tasks",
    "gpus": "gpu",
}
"""Spellings of known resources that would else pass as custom ones which no node ever has."""

CustomAmount = Annotated[int, Field(ge=1, le=MAX_INTEGER)]


class ResourceClaim(Strict):
    """Amounts that a step reserves; unknown names are custom counted resources."""

    model_config = ConfigDict(extra="allow")

    __pydantic_extra__: dict[str, CustomAmount] = Field(init=False)

    cpu: Annotated[Cpu | None, Field(description="CPUs reserved; 1 unless given.")] = None
    cpu_limit: Annotated[Cpu | None, Field(description="CPUs above which it is throttled.")] = None
    memory: Annotated[Memory | None, Field(description="Reserved and enforced; 1Gi.")] = None
    tasks: Annotated[
        int | None, Field(ge=1, le=MAX_TASKS, description="Processes and threads; 512.")
    ] = None
    gpu: Annotated[int | None, Field(ge=1, le=1024)] = None
    exclusive: Literal[True] | None = None

    def amounts(self) -> dict[str, int]:
        """What was given, in the units of `headbay.domain.resources`."""
        known = {"cpu": self.cpu, "memory": self.memory, "tasks": self.tasks}
        given = {name: amount for name, amount in known.items() if amount is not None}
        return given | (self.__pydantic_extra__ or {})
