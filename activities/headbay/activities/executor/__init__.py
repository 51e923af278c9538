"""Executors: how payloads are started, and what is promised about their limits."""

from headbay.activities.executor.port import (
    AUTO,
    Capability,
    Executor,
    ExecutorSettings,
    LaunchFailedError,
    Secrets,
    Started,
    load_executor,
    prove_executor,
)

__all__ = [
    "AUTO",
    "Capability",
    "Executor",
    "ExecutorSettings",
    "LaunchFailedError",
    "Secrets",
    "Started",
    "load_executor",
    "prove_executor",
]
