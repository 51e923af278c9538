"""How processes log: structlog, for eyes on a terminal, one JSON object a line everywhere else.

Everything goes to standard error: standard output belongs to what a command answers.
"""

import logging
import os
import sys

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

__all__ = ["configure"]

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}

_NOISY = ("asyncio", "temporalio.worker._workflow_instance")
"""Libraries whose INFO lines say nothing to an operator."""


def configure(*, process: str) -> None:
    """Set up structlog and the standard library's logging of this process.

    ``HEADBAY_LOG_LEVEL`` (debug, info, warning, error, critical; default info) sets the level,
    ``HEADBAY_LOG_FORMAT`` (console, json) overrules the choice by terminal, ``NO_COLOR`` is
    respected.

    Args:
        process: What this process is, in every line: ``control``, ``node``, ``dev``, …

    Raises:
        ValueError: One of the two variables has a value that is not listed above.
    """
    level = _level(os.environ.get("HEADBAY_LOG_LEVEL", "info"))
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(["temporal_workflow", "temporal_activity"]),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
        _naming(process),
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.PositionalArgumentsFormatter(),
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_rendering(),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in _NOISY:
        logging.getLogger(name).setLevel(max(level, logging.WARNING))


def _level(name: str) -> int:
    level = _LEVELS.get(name.lower())
    if level is None:
        raise ValueError(f"HEADBAY_LOG_LEVEL={name!r}: use one of {', '.join(_LEVELS)}")
    return level


def _naming(process: str) -> Processor:
    def name(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        event["process"] = process
        return event

    return name


def _rendering() -> list[Processor]:
    chosen = os.environ.get("HEADBAY_LOG_FORMAT", "console" if sys.stderr.isatty() else "json")
    if chosen == "console":
        colors = sys.stderr.isatty() and "NO_COLOR" not in os.environ
        # Rich tracebacks would print local variables, and with them secrets.
        plain = structlog.dev.plain_traceback
        return [structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=plain)]
    if chosen == "json":
        return [
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(ensure_ascii=False),
        ]
    raise ValueError(f"HEADBAY_LOG_FORMAT={chosen!r}: use console or json")
