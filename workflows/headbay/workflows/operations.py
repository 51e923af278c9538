"""How handlers take what people and foreign programs send: raw JSON in, never an exception out.

A typed signal with bad JSON is dropped silently by the SDK, a validation error in a handler blocks
the workflow for ever, as an argument too many does, and an application error in a signal handler
fails it. So handlers take any number of anything (`*raw`), parse it here, and record what they
refuse for the query `refusals`.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from temporalio import workflow

__all__ = ["Mailbox", "Parsed", "answer", "argument"]

Model = TypeVar("Model", bound=BaseModel)

Parsed = tuple[Model | None, dict[str, Any]]

KEPT_REFUSALS = 50


def answer(accepted: bool, code: str = "OK", message: str = "") -> dict[str, Any]:
    """The answer to every operation sent as an update."""
    return {"accepted": accepted, "code": code, "message": message}


def argument(raw: Sequence[Any]) -> Any:
    """The first argument that came, None if there was none."""
    return raw[0] if raw else None


class Mailbox:
    """Parses operations and remembers the refused ones."""

    def __init__(self) -> None:
        self._refused: deque[dict[str, Any]] = deque(maxlen=KEPT_REFUSALS)

    def parse(self, operation: str, model: type[Model], raw: Sequence[Any]) -> Parsed[Model]:
        """The order in ``raw``, or None and the answer that says why not.

        Args:
            operation: Its name.
            model: What it takes.
            raw: The arguments that came: one, or none where everything has a default.
        """
        if len(raw) > 1:
            return None, self.refuse(
                operation, "BAD_ARGUMENT", f"takes one JSON object, {len(raw)} arguments came"
            )
        return self._model(operation, model, argument(raw))

    def parse_all(self, operation: str, model: type[Model], raw: Sequence[Any]) -> list[Model]:
        """The orders in ``raw``: lists of them, or single ones; what is refused is left out."""
        items = [item for one in raw for item in (one if isinstance(one, list) else [one])]
        parsed = [self._model(operation, model, item)[0] for item in items]
        return [order for order in parsed if order is not None]

    def _model(self, operation: str, model: type[Model], item: Any) -> Parsed[Model]:
        try:
            return model.model_validate({} if item is None else item), answer(accepted=True)
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
