"""Everything that a payload started, wherever it went: found and signalled by pidfd.

Two nets: the tree below the shim, which is a subreaper, so that daemons stay below it; and the
attempt's marker in the environment, for what is outside of that tree (or whose shim is dead).
"""

import os
import signal
import time

from .kernel import process_stat, send_signal

TYPE_CHECKING = False
if TYPE_CHECKING:  # costs milliseconds at every start
    from collections.abc import Callable

__all__ = ["KILL_WITHIN_S", "Family"]

KILL_WITHIN_S = 10.0
SETTLE_S = 0.02
FREEZE_ROUNDS = 8
SNATCH_S = 0.2


class Family:
    """The processes of one attempt.

    Args:
        marker: Its unit: value of ``HEADBAY_ATTEMPT`` in their environment.
        shim: (pid, start ticks) of the subreaper; what is below it belongs to the attempt.
        main: (pid, start ticks) of the main process; it, what is below it and its session belong
            to the attempt, also when the shim is dead.

    Attributes:
        met: The most that `end` ever saw alive.
    """

    def __init__(
        self,
        marker: str,
        *,
        shim: "tuple[int, int] | None" = None,
        main: "tuple[int, int] | None" = None,
    ) -> None:
        self._marker = f"\0HEADBAY_ATTEMPT={marker}\0".encode()
        self.met = 0
        self._shim = shim
        self._main = main

    def members(self) -> "list[tuple[int, int]]":
        """Pairs (pid, start ticks) of live members, zombies left out."""
        stats = {}
        children: dict[int, list[int]] = {}
        for name in os.listdir("/proc"):
            stat = process_stat(int(name)) if name.isdigit() else None
            if stat is not None:
                stats[int(name)] = stat
                children.setdefault(stat[1], []).append(int(name))
        found: set[int] = set()
        roots = []
        if self._shim is not None and self._is(stats, self._shim):
            roots.append(self._shim[0])
        if self._main is not None and self._is(stats, self._main):
            # Its session's number cannot be another's while it lives.
            session = [pid for pid, stat in stats.items() if stat[2] == self._main[0]]
            found.update(session)
            roots += session
        while roots:
            for pid in children.get(roots.pop(), ()):
                if pid not in found:
                    found.add(pid)
                    roots.append(pid)
        spared = os.getpid() if self._shim is None else self._shim[0]
        found.update(pid for pid in stats if pid not in found and self._marked(pid))
        found.discard(spared)
        return [(pid, stats[pid][3]) for pid in found if stats[pid][0] not in "ZX"]

    @staticmethod
    def _is(stats: "dict[int, tuple[str, int, int, int]]", who: "tuple[int, int]") -> bool:
        stat = stats.get(who[0])
        return stat is not None and stat[3] == who[1]

    def _marked(self, pid: int) -> bool:
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                return self._marker in b"\0" + file.read()
        except OSError:
            return False

    def signal(self, number: int) -> int:
        """Signal every member; how many there were."""
        members = self.members()
        for pid, ticks in members:
            send_signal(pid, ticks, number)
        return len(members)

    def end(
        self,
        meanwhile: "Callable[[], bool]" = lambda: True,
        within_s: float = KILL_WITHIN_S,
    ) -> bool:
        """Kill all members, until none is left; False if some are, after ``within_s``.

        A first round kills. Whoever is left after it was born meanwhile: from then on everyone is
        stopped first, until a look finds nobody who still runs, and killed then. A fork bomb loses
        that race, since the stopped keep its places occupied.

        One empty look proves nothing: a child born during it is missed if its parent left before
        it was looked at. The shim asks ``meanwhile`` whether the kernel knows of no child any more.

        Args:
            meanwhile: Called between rounds; whether nobody is left as far as it can tell.
            within_s: Bound.
        """
        deadline = time.monotonic() + within_s
        first = True
        while True:
            members = self.members()
            alone = meanwhile()
            if not members and alone:
                return True
            if time.monotonic() > deadline:
                return False
            if not first:
                self._snatch(meanwhile)
                members = self._freeze(members)
            first = False
            self.met = max(self.met, len(members), 1)  # A child that no look shows counts too.
            for pid, ticks in members:
                send_signal(pid, ticks, signal.SIGKILL)
            meanwhile()
            time.sleep(SETTLE_S)

    def _snatch(self, meanwhile: "Callable[[], bool]") -> None:
        """Kill the shim's own children again and again, without looking at anybody else.

        A process that forks and leaves at once is gone before a walk over all processes comes to
        it. Each of its kind becomes a child of the shim, whose children are one short read; and a
        child's pid is not used again before its parent has collected it.
        """
        if self._shim is None or self._shim[0] != os.getpid():
            return
        until = time.monotonic() + SNATCH_S
        while time.monotonic() < until:
            try:
                with open(f"/proc/self/task/{self._shim[0]}/children", encoding="ascii") as file:
                    children = file.read().split()
            except OSError:
                return  # A kernel without CONFIG_PROC_CHILDREN.
            for child in children:
                os.kill(int(child), signal.SIGKILL)
            if meanwhile():
                return

    def _freeze(self, members: "list[tuple[int, int]]") -> "list[tuple[int, int]]":
        stopped: set[tuple[int, int]] = set()
        for _ in range(FREEZE_ROUNDS):
            running = [member for member in members if member not in stopped]
            if not running:
                break
            for pid, ticks in running:
                send_signal(pid, ticks, signal.SIGSTOP)
            stopped.update(running)
            members = self.members()
        return members
