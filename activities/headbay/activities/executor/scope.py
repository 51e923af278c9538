"""Names and properties of an attempt's systemd scope; pure.

A scope carries loose limits, which hold the shim as well; the payload's own are below it and tight
(`shim.cgroup`). Attributes of the scope itself are systemd's: nobody else writes them.

Source: systemd.scope(5), systemd.resource-control(5), org.freedesktop.systemd1(5).
"""

from typing import Any

__all__ = ["escaped", "lease_unit", "loose_limits", "node_slice", "scope_properties"]

SHIM_BYTES = 32 << 20
SHIM_TASKS = 8
LADDER_US = 30_000_000
"""How much later than the shim's own deadline systemd ends a scope: the last of three layers."""
US_PER_MS = 1_000

_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789:_.")


def escaped(name: str) -> str:
    """A name as part of a unit's name: `-` separates levels of slices, so it is escaped too.

    Source: systemd-escape(1).
    """
    return "".join(
        character
        if character in _PLAIN
        else "".join(f"\\x{byte:02x}" for byte in character.encode())
        for character in name
    )


def node_slice(node: str) -> str:
    """The slice of one node worker's attempts, below ``headbay.slice``."""
    return f"headbay-{escaped(node)}.slice"


def lease_unit(node: str, lease_ms: int) -> str:
    """The service whose end ends every scope of that lease class."""
    return f"headbay-lease-{escaped(node)}-{lease_ms}.service"


def loose_limits(scope: dict[str, Any]) -> dict[str, str]:
    """Limits of the scope itself, by their files in the control group."""
    limits = {}
    if scope["memory"] is not None:
        page = 4096
        limits["memory.max"] = str((scope["memory"] + SHIM_BYTES) // page * page)
    if scope["tasks"] is not None:
        limits["pids.max"] = str(scope["tasks"] + SHIM_TASKS)
    return limits


def scope_properties(unit: str, pid: int, launch: dict[str, Any]) -> list[list[Any]]:
    """Properties of a transient scope around a blocked shim: [name, D-Bus signature, value].

    Args:
        unit: The attempt's name.
        pid: Its shim.
        launch: What the shim is to launch; its ``scope`` is what the executor put there.
    """
    scope = launch["scope"]
    loose = loose_limits(scope)
    ladder_us = launch["grace_ms"] * US_PER_MS + LADDER_US
    timeout_ms = launch["timeout_ms"]
    properties: list[list[Any]] = [
        ["Description", "s", f"Headbay {unit}"],
        ["PIDs", "au", [pid]],
        ["Slice", "s", scope["slice"]],
        ["Delegate", "b", True],
        ["OOMPolicy", "s", "continue"],
        ["CollectMode", "s", "inactive-or-failed"],
        ["TimeoutStopUSec", "t", max(1_000_000, launch["grace_ms"] * US_PER_MS)],
        ["CPUAccounting", "b", True],
        ["MemoryAccounting", "b", True],
        ["TasksAccounting", "b", True],
        ["IOAccounting", "b", True],
        ["CPUWeight", "t", scope["cpu_weight"]],
    ]
    if "memory.max" in loose:
        properties += [
            ["MemoryMax", "t", int(loose["memory.max"])],
            ["MemorySwapMax", "t", 0],
        ]
    if "pids.max" in loose:
        properties.append(["TasksMax", "t", int(loose["pids.max"])])
    if timeout_ms is not None:
        properties.append(["RuntimeMaxUSec", "t", timeout_ms * US_PER_MS + ladder_us])
    if scope["lease_unit"] is not None:
        properties += [[name, "as", [scope["lease_unit"]]] for name in ("BindsTo", "After")]
    return properties
