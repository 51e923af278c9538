"""Gives orders to workloads and nodes, and shows what became of them."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Literal

from headbay.client.cli.console import say
from headbay.client.cli.exits import FAILED, OK
from headbay.client.cli.output import Output, emit
from headbay.client.cli.problems import BadCommandLineError
from headbay.client.cli.session import resolve_id, with_client
from headbay.client.errors import NotFoundError
from headbay.client.models import Answer

if TYPE_CHECKING:
    from headbay.client.client import HeadbayClient

__all__ = ["cancel_all", "order_node", "resolve_step"]


def cancel_all(workloads: Sequence[str], reason: str, output: Output) -> int:
    """Cancel each; the exit code."""
    if not workloads:
        raise BadCommandLineError("which workload? Give its id, or `last`")
    ids = [resolve_id(workload) for workload in workloads]

    async def one(client: "HeadbayClient", workload: str) -> Answer:
        """Every one gets its try, whatever becomes of those before it."""
        try:
            return await client.cancel(workload, reason)
        except NotFoundError as error:
            return Answer(accepted=False, code=error.code, message=str(error))

    async def work(client: "HeadbayClient") -> list[Answer]:
        return [await one(client, workload) for workload in ids]

    code = OK
    for workload, answer in zip(ids, with_client(work), strict=True):
        show_answer(answer, output, f"{workload}: cancel requested", workload)
        if answer.code == NotFoundError.code:
            code = FAILED
    return code


def resolve_step(
    workload: str,
    step: str,
    verdict: Literal["retry", "success", "failure"],
    reason: str,
    output: Output,
) -> int:
    """Decide a step; the exit code."""
    chosen = resolve_id(workload)
    answer = with_client(lambda client: client.resolve(chosen, step, verdict, reason))
    show_answer(answer, output, f"{chosen}: {step} resolved as {verdict}", chosen)
    return OK if answer.accepted else FAILED


def order_node(
    give: Callable[["HeadbayClient"], Awaitable[Answer]], node: str, done: str, output: Output
) -> int:
    """Give a node an order; the exit code."""
    answer = with_client(give)
    show_answer(answer, output, f"node {node}: {done}", node)
    return OK if answer.accepted else FAILED


def show_answer(answer: Answer, output: Output, done: str, name: str) -> None:
    """Print an answer: the deed in one line, or why not."""
    if output != "table":
        emit(answer, output, table=list, quiet=[name] if answer.accepted else [])
    if not answer.accepted:
        finished = answer.code == "ALREADY_FINISHED"
        say(answer.message or answer.code, kind="" if finished else "error")
        return
    if output == "table":
        emit(answer, output, table=lambda: [done])
    if answer.code == "RECORDED":
        say(answer.message, kind="warning")
