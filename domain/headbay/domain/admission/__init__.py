"""Admission: which pending request starts now, where, and why the others wait.

Pipeline: `classes` (grouping by shape) -> `order` (who is next) -> `placement` (which node) ->
`schedule` (decisions) -> `reasons` (why not). Pure, integers only.
"""

from headbay.domain.admission.classes import Backlog, Pending, Shape
from headbay.domain.admission.placement import NodeView, best_fit
from headbay.domain.admission.reasons import reasons_to_wait, unsatisfiable
from headbay.domain.admission.schedule import RESERVE_AFTER_MS, Placement, schedule

__all__ = [
    "RESERVE_AFTER_MS",
    "Backlog",
    "NodeView",
    "Pending",
    "Placement",
    "Shape",
    "best_fit",
    "reasons_to_wait",
    "schedule",
    "unsatisfiable",
]
