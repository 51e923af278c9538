"""One workload's life as a pure state machine: events in, instructions out.

`Machine` is the way in; `headbay.domain.workload.events` and
`headbay.domain.workload.instructions` are what goes in and comes out.
"""

from headbay.domain.workload.instructions import Acceptance
from headbay.domain.workload.machine import Machine
from headbay.domain.workload.snapshot import SnapshotError

__all__ = ["Acceptance", "Machine", "SnapshotError"]
