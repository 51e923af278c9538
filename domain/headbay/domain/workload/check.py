"""Do the books add up? Counts everything anew; meant for tests and for after a load."""

from itertools import pairwise

from headbay.domain.lifecycle import (
    TERMINAL_STEP_STATES,
    AttemptState,
    StepState,
    WorkloadState,
)
from headbay.domain.workload.books import Books
from headbay.domain.workload.instructions import TimerKind
from headbay.domain.workload.readiness import room_of
from headbay.domain.workload.records import StepRecord

__all__ = ["sanity_check"]


def sanity_check(books: Books) -> None:
    """Recount all counters and check what must hold between events.

    Raises:
        BrokenInvariantError: Something does not add up.
    """
    for step in books.steps:
        _check_joins(books, step)
        _check_attempts(books, step)
    live = [step for step in books.steps if step.live is not None]
    terminal = sum(step.state in TERMINAL_STEP_STATES for step in books.steps)
    _demand(books, books.active == len(live), f"{books.active} active, {len(live)} live")
    _demand(books, books.terminal == terminal, f"{books.terminal} counted, {terminal} terminal")
    limit = books.dag.max_parallel
    _demand(books, limit is None or len(live) <= limit, f"{len(live)} live, at most {limit}")
    ready = {i for i in books.ready_indexes() if books.steps[i].ready}
    marked = {step.index for step in books.steps if step.ready}
    _demand(books, ready == marked, f"ready heap {ready}, marked {marked}")
    _demand(books, not books.settled, "steps are not settled")
    if not books.draining and books.begun and marked:
        _demand(books, room_of(books) == 0, "ready steps wait although there is room")
    finished = books.status is not WorkloadState.RUNNING
    over = books.terminal == len(books.steps) and not live
    _demand(books, not books.begun or finished == over, f"finished {finished}, over {over}")
    if finished:
        _demand(books, not books.timers, f"timers after the end: {list(books.timers)}")


def _check_joins(books: Books, step: StepRecord) -> None:
    above = [books.steps[i] for i in books.graph.upstreams[step.index]]
    done = [s for s in above if s.state in TERMINAL_STEP_STATES]
    bad = sum(s.state is not StepState.SUCCEEDED for s in done)
    counted = (len(above) - len(done), bad)
    _demand(
        books,
        (step.unmet, step.bad) == counted,
        f"{step.name}: unmet, bad are {step.unmet}, {step.bad}, counted {counted}",
    )
    if step.attempts:
        held = not step.unmet and (step.definition.trigger == "all_done" or not step.bad)
        _demand(books, held, f"{step.name} was requested before its trigger held")


def _check_attempts(books: Books, step: StepRecord) -> None:
    states = [attempt.state for attempt in step.attempts]
    before, last = states[:-1], (states[-1] if states else None)
    _demand(
        books,
        all(state is AttemptState.ENDED for state in before),
        f"{step.name}: two attempts at once: {states}",
    )
    expected = {
        StepState.QUEUED: (AttemptState.REQUESTED,),
        StepState.RUNNING: (AttemptState.RUNNING, AttemptState.IN_DOUBT),
    }.get(step.state, (AttemptState.ENDED, None))
    _demand(books, last in expected, f"{step.name} is {step.state}, its last attempt {last}")
    fences = [attempt.fence for attempt in step.attempts if attempt.fence]
    rising = all(a < b for a, b in pairwise(fences))
    _demand(books, rising, f"{step.name}: fences {fences}")
    _demand(books, not fences or step.fence >= fences[-1], f"{step.name}: fence {step.fence}")
    for attempt in step.attempts:
        held = attempt.state in (AttemptState.RUNNING, AttemptState.IN_DOUBT)
        _demand(books, held == (attempt.grant is not None), f"{step.name}: grant of {attempt}")
    doubt = last is AttemptState.IN_DOUBT
    _demand(
        books, doubt == ((TimerKind.LEASE, step.name) in books.timers), f"{step.name}: lease timer"
    )
    if (TimerKind.QUEUE, step.name) in books.timers:
        _demand(books, step.state is StepState.QUEUED, f"{step.name}: queue timer, {step.state}")
    retry = (TimerKind.RETRY, step.name) in books.timers
    waits = step.state is StepState.PENDING and bool(step.attempts) and not step.ready
    _demand(books, retry == waits, f"{step.name}: retry timer {retry}, waits {waits}")


def _demand(books: Books, holds: bool, what: str) -> None:
    if not holds:
        raise books.broken(what)
