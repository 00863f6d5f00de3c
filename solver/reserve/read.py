"""The reservations of a plan that is there already."""

from __future__ import annotations

from trencadis.models import Plan
from trencadis.models.base import seconds
from trencadis.solver.model.problem import Facts
from trencadis.solver.reserve.due import with_due
from trencadis.solver.reserve.estimates import Estimates
from trencadis.solver.reserve.kept import Kept, Reservation
from trencadis.solver.reserve.rank import ranks


def kept_of(read: Facts, plan: Plan) -> Kept:
    """What the plan reserves. `read`: the facts of its snapshot."""
    due = with_due(read).kept
    if not plan.reserves:
        return due
    found = tuple(Reservation(e.job, seconds(e.at), e.allocation) for e in plan.reserves)
    return Kept(found, ranks(read), Estimates(read.snapshot)).after(due)
