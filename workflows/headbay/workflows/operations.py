"""How handlers take what people and foreign programs send: raw JSON in, never an exception out.

A typed signal with bad JSON is dropped silently by the SDK, a validation error in a handler blocks
the workflow for ever, and an application error in a signal handler fails it. So handlers take
anything, parse it here, and record what they refuse for the query `refusals`.
"""

from collections import deque
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from temporalio import workflow

__all__ = ["Mailbox", "Parsed", "answer"]

Model = TypeVar("Model", bound=BaseModel)

Parsed = tuple[Model | None, dict[str, Any]]

KEPT_REFUSALS = 50


def answer(accepted: bool, code: str = "OK", message: str = "") -> dict[str, Any]:
    """The answer to every operation sent as an update."""
    return {"accepted": accepted, "code": code, "message": message}


class Mailbox:
    """Parses operations and remembers the refused ones."""

    def __init__(self) -> None:
        self._refused: deque[dict[str, Any]] = deque(maxlen=KEPT_REFUSALS)

    def parse(self, operation: str, model: type[Model], raw: Any) -> Parsed[Model]:
        """The order in ``raw``, or None and the answer that says why not."""
        try:
            return model.model_validate({} if raw is None else raw), answer(accepted=True)
        except ValidationError as error:
            problems = "; ".join(
                f"{'.'.join(map(str, e['loc'])) or 'argument'}: {e['msg']}"
                for e in error.errors(include_url=False, include_context=False)
            )
            return None, self.refuse(operation, "BAD_ARGUMENT", problems)

    def refuse(self, operation: str, code: str, message: str) -> dict[str, Any]:
        """Remember a refusal and return it as an answer."""
        refusal = answer(accepted=False, code=code, message=f"{operation}: {message}")
        self._refused.append(
            {"operation": operation, "at_ms": now_ms(), "code": code, "message": message}
        )
        return refusal

    def refusals(self) -> list[dict[str, Any]]:
        """The last refused operations, oldest first."""
        return list(self._refused)


def now_ms() -> int:
    """Unix milliseconds of the current workflow task."""
    return workflow.time_ns() // 1_000_000
