"""What can be proven of an attempt: how it ended, or that it never began, or only that it may have.

The order of the proofs, first match:
  1. an exit record: what it says (a damaged one: UNKNOWN, never success);
  2. no order either: somebody removed the entry, and what it would prove with it;
  3. no begin record: the payload was never executed, since it is durable before exec;
  4. a begin record of another boot: the machine was lost with it;
  5. a begin record of this boot, and no shim: what is left is killed.
"""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headbay.activities.executor.port import Started
from headbay.activities.executor.records import CorruptRecordError
from headbay.activities.executor.shim.cgroup import ROOT, Cgroup, LimitError
from headbay.activities.executor.shim.family import Family
from headbay.activities.executor.shim.kernel import boot_id, start_ticks
from headbay.domain.outcome import Outcome
from headbay.workers.node.spool import ORDER, Entry

__all__ = ["OUTCOME_OF", "Proof", "Remains", "alive", "kill_rest", "prove", "recorded_shim"]

OUTCOME_OF = {
    "cancelled": Outcome.CANCELLED,
    "preempted": Outcome.PREEMPTED,
    "lease_lost": Outcome.LEASE_LOST,
}
"""What a stop order ends an attempt with."""


class Proof:
    """What is known of an attempt whose shim is gone.

    Attributes:
        exit: Its exit record, if there is a whole one.
        outcome, why, began, kill_incomplete: Without an exit record.
        account: What it had used until it was killed, if that is known.
    """

    def __init__(
        self,
        outcome: Outcome = Outcome.UNKNOWN,
        why: str = "",
        *,
        began: bool = False,
        kill_incomplete: bool = False,
        account: dict[str, Any] | None = None,
        exit_record: dict[str, Any] | None = None,
    ) -> None:
        self.outcome = outcome
        self.why = why
        self.began = began
        self.kill_incomplete = kill_incomplete
        self.account = account
        self.exit = exit_record


def recorded_shim(entry: Entry) -> Started | None:
    """The shim that was started for an entry; None if there was none in this boot.

    Pids and start times are used again after a boot, and alike: a boot has much the same
    processes at much the same times.
    """
    row = entry.read("shim")
    if row is None or row["boot_id"] != boot_id():
        return None
    return Started(row["pid"], row["ticks"])


def alive(shim: Started) -> bool:
    """Whether this very process runs."""
    return shim.pid != 0 and start_ticks(shim.pid) == shim.ticks


def prove(  # noqa: PLR0911 - one return a proof, in the order above
    entry: Entry, last_word: Callable[[], str]
) -> Proof:
    """What can be proven now that the shim is gone.

    At once if there is an exit record; else it may take as long as the kill of a tree.

    Args:
        entry: The attempt's entry.
        last_word: What the shim said last, for people.
    """
    try:
        record = entry.read("exit.json")
    except CorruptRecordError as error:
        return Proof(Outcome.UNKNOWN, f"its exit record is damaged: {error}", began=True)
    if record is not None:
        return Proof(exit_record=record)
    try:
        begin = entry.read("begin.json")
    except CorruptRecordError as error:
        rest = kill_rest(entry, None)
        why = f"it began, and its records are damaged: {error}"
        return Proof(
            Outcome.UNKNOWN,
            why,
            began=True,
            kill_incomplete=not rest.complete,
            account=rest.account,
        )
    if begin is None and not entry.exists(ORDER):
        complete = kill_rest(entry, None).complete
        why = f"its spool entry was removed while it ran: {entry.folder}"
        return Proof(Outcome.UNKNOWN, why, began=True, kill_incomplete=not complete)
    if begin is None:
        reason = entry.stop_reason()
        if reason is not None:
            return Proof(OUTCOME_OF[reason], "ended before it was started")
        return Proof(Outcome.NOT_STARTED, f"its supervisor left before it began{last_word()}")
    if begin["boot_id"] != boot_id():
        return Proof(Outcome.NODE_LOST, "the machine was rebooted", began=True)
    rest = kill_rest(entry, tuple(begin["main"]))
    return Proof(
        Outcome.SUPERVISOR_LOST,
        f"its supervisor died; what could be found of it was killed{last_word()}",
        began=True,
        kill_incomplete=not rest.complete,
        account=rest.account,
    )


class Remains:
    """What became of what a shim had left.

    Attributes:
        complete: Whether all of it is gone.
        account: What its control group had used before it was killed; {} if it has none.
    """

    def __init__(self, *, complete: bool, account: dict[str, Any]) -> None:
        self.complete = complete
        self.account = account


def kill_rest(
    entry: Entry, main: tuple[int, int] | None, shim: tuple[int, int] | None = None
) -> Remains:
    """Kill what is left of an attempt: its scope with all that is in it, and what bears its mark.

    What the payload used is read while nothing of it moves: the group vanishes with its last
    process.
    """
    complete = True
    account: dict[str, Any] = {}
    for payload in _cells(entry):
        scope = Cgroup(payload.path.rpartition("/")[0])
        with contextlib.suppress(LimitError):  # It vanishes just now.
            payload.freeze()
        account = payload.account() or account
        complete = scope.end() and complete
    family = Family(entry.unit, shim=shim, main=main)
    return Remains(complete=family.end() and complete, account=account)


def _cells(entry: Entry) -> list[Cgroup]:
    """Control groups of its payload: by its record; if that is damaged, by its name."""
    try:
        begin = entry.read("begin.json")
    except CorruptRecordError:
        found = Path(ROOT).glob(f"**/{entry.unit}.scope/payload")
        return [Cgroup(str(path)) for path in found]
    path = None if begin is None else begin.get("cgroup")
    return [] if path is None else [Cgroup(path)]
