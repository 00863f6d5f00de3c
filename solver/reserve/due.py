"""Reservations of the snapshot whose time has come: who comes later keeps off their nodes."""

from __future__ import annotations

from trencadis.models.base import seconds
from trencadis.solver.ledger import Ledger
from trencadis.solver.model.problem import Facts, with_kept
from trencadis.solver.reserve.estimates import Estimates
from trencadis.solver.reserve.kept import Kept, Reservation, may_reserve
from trencadis.solver.reserve.rank import ranks
from trencadis.solver.same_places import on_same_nodes


def with_due(read: Facts) -> Facts:
    """The facts with those who go after a promised job kept off its nodes, where these are free
    for it. So the job starts now, unless someone who goes before it takes its place."""
    snapshot, now = read.snapshot, seconds(read.snapshot.now)
    found = []
    for hold in snapshot.holds:
        job = read.values.eligible.get(hold.job)
        if hold.kind != "reservation" or hold.at > snapshot.now:
            continue
        if job is None or not may_reserve(job):
            continue
        worth = read.values.worth[job.name]
        shape = read.maker.shape(job, worth.tier, worth.size, "")
        nodes = (task.node for task in hold.allocation)
        if on_same_nodes(Ledger(read), job, shape, nodes) is not None:
            found.append(Reservation(job.name, now, hold.allocation))
    if not found:
        return read
    return with_kept(read, Kept(tuple(found), ranks(read), Estimates(snapshot), len(found)))
