"""Which steps may be requested: joins, ``maxParallel``, and the cascade of skips."""

from headbay.domain.lifecycle import StateReason, StepState
from headbay.domain.workload.books import Books
from headbay.domain.workload.instructions import RequestCapacity, TimerKind
from headbay.domain.workload.orders import step_request
from headbay.domain.workload.records import AttemptRecord, StepRecord
from headbay.domain.workload.stopping import stop_after_failure

__all__ = ["ask", "evaluate", "request_ready", "room_of", "settle"]


def evaluate(books: Books, step: StepRecord) -> None:
    """Decide a join, as soon as its outcome can no longer change.

    ``all_success``: ready when every upstream SUCCEEDED; skipped at the first that ended
    otherwise. ``all_done``: ready when every upstream is terminal, however it ended.
    """
    if step.state is not StepState.PENDING or step.attempts:
        return
    if step.definition.trigger == "all_success" and step.bad:
        books.move_step(
            step,
            StepState.SKIPPED,
            StateReason.UPSTREAM_NOT_SUCCEEDED,
            _culprit(books, step),
        )
        books.record("StepSkipped", step, state=step.state, reason=step.reason)
    elif not step.unmet:
        books.make_ready(step)


def _culprit(books: Books, step: StepRecord) -> str:
    for index in books.graph.upstreams[step.index]:
        upstream = books.steps[index]
        if upstream.state in (StepState.FAILED, StepState.CANCELLED, StepState.SKIPPED):
            return f"{upstream.name} is {upstream.state}"
    return ""


def settle(books: Books) -> None:
    """Tell the downstreams of every step that became terminal, and theirs, until nothing moves."""
    while books.settled:
        step = books.steps[books.settled.popleft()]
        if step.state is StepState.FAILED and books.dag.on_failure == "stop" and not books.stopping:
            stop_after_failure(books, step)
        for index in books.graph.downstreams[step.index]:
            downstream = books.steps[index]
            downstream.unmet -= 1
            downstream.bad += step.state is not StepState.SUCCEEDED
            evaluate(books, downstream)


def request_ready(books: Books) -> None:
    """Request capacity for the ready steps, in document order, as far as ``maxParallel`` allows."""
    if books.draining:
        return
    while (room := room_of(books)) is None or room > 0:
        step = books.next_ready()
        if step is None:
            return
        attempt = books.add_attempt(step)
        books.move_step(step, StepState.QUEUED)
        books.record("StepQueued", step, attempt.number, state=step.state)
        ask(books, step, attempt)
        if step.definition.queue_timeout_ms is not None:
            at_ms = books.now_ms + step.definition.queue_timeout_ms
            books.arm(TimerKind.QUEUE, step, attempt.number, 0, at_ms)


def room_of(books: Books) -> int | None:
    """How many more attempts may be requested now; None for any number."""
    limit = books.dag.max_parallel
    if books.dag.workspace == "shared" and not (books.dag.pin_node or books.pinned):
        limit = 1  # The first grant decides the node of all others.
    return None if limit is None else limit - books.active


def ask(books: Books, step: StepRecord, attempt: AttemptRecord) -> None:
    """Ask the pool, for the first time or again."""
    attempt.asked = True
    books.instruct(RequestCapacity(step_request(books, step, attempt.number)))
