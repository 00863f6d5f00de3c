"""show(): a page on what one has, in a notebook or to write to a file."""

from __future__ import annotations

from trencadis.models import Plan, Snapshot
from trencadis.whatif.report.page import Report
from trencadis.whatif.report.solved import cluster_report, solve_report


def show(snapshot: Snapshot, plan: Plan | None = None) -> Report:
    """The cluster, or what the plan makes of it. A notebook displays it; `.html()` is the page.

    Raises PlanMismatchError if the plan is for another snapshot; displaying it raises
    ModuleNotFoundError without the extra `report`.
    """
    return cluster_report(snapshot) if plan is None else solve_report(snapshot, plan)
