"""Executors: how payloads are started, and what is promised about their limits."""

from headbay.activities.executor.port import (
    Capability,
    Executor,
    ExecutorSettings,
    LaunchFailedError,
    Secrets,
    Started,
    load_executor,
)

__all__ = [
    "Capability",
    "Executor",
    "ExecutorSettings",
    "LaunchFailedError",
    "Secrets",
    "Started",
    "load_executor",
]
