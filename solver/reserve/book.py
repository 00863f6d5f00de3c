"""Which waiting jobs get a reservation, and which: the heaviest, in order, as early as they can."""

from __future__ import annotations

from collections.abc import Mapping

from trencadis.models.base import seconds
from trencadis.solver.model.problem import Facts
from trencadis.solver.preempt.tally import Exchange
from trencadis.solver.reserve.earliest import Finder
from trencadis.solver.reserve.estimates import Estimates
from trencadis.solver.reserve.forecast import Booking, Forecast
from trencadis.solver.reserve.kept import Kept, Rank, Reservation, may_reserve
from trencadis.solver.reserve.rank import ranks
from trencadis.solver.reserve.tenants import tenants
from trencadis.solver.score import Placement

FURTHER = 4
"""So many more jobs are tried where a heavier one can't have a reservation."""


def promised(read: Facts) -> dict[str, Reservation]:
    """The reservations that the snapshot brings along, by job."""
    return {
        hold.job: Reservation(hold.job, seconds(hold.at), hold.allocation)
        for hold in read.snapshot.holds
        if hold.kind == "reservation"
    }


def reserve(
    read: Facts,
    exchange: Exchange,
    placements: Mapping[str, Placement],
    before: Mapping[str, Reservation],
) -> Kept:
    """Reservations of `policy.reservations` jobs that the round leaves waiting.

    `read`: without reservations. `before`: earlier ones, whose places are kept where that costs no
    time. Each is as early as the estimates of those who go before its job allow.
    """
    order, estimates = ranks(read), Estimates(read.snapshot)
    found: list[Reservation] = []
    candidates = _candidates(read, placements, order)
    for name in candidates[: read.snapshot.policy.reservations + FURTHER]:
        if len(found) == read.snapshot.policy.reservations:
            break
        job = read.values.eligible[name]
        ahead = {other for other in placements if order[other] < order[name]}
        forecast = Forecast(
            read.snapshot,
            read.capacity,
            tenants(read, exchange, placements, ahead, estimates),
        )
        forecast.bookings = [
            Booking(
                read.values.eligible[entry.job],
                entry.at,
                estimates.end_from(read.values.eligible[entry.job], entry.at),
                entry.tasks,
            )
            for entry in found
        ]
        models = {other: placements[other].model for other in sorted(ahead)}
        entry = Finder(read, forecast, estimates, models).find(job, before.get(name))
        if entry is not None:
            found.append(entry)
    return Kept(tuple(found), order, estimates) if found else Kept()


def _candidates(
    read: Facts, placements: Mapping[str, Placement], order: Mapping[str, Rank]
) -> list[str]:
    """Jobs that wait, alone, for whole GPUs or none, and could run on the empty cluster."""
    names = [
        job.name
        for job in read.values.eligible.values()
        if job.name not in placements
        and may_reserve(job)
        and read.can_run[job.name]
    ]
    return sorted(names, key=order.__getitem__)
