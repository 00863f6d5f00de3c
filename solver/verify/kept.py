"""Which nodes are reserved for whom, and whom that keeps away (problem.md, 11)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trencadis.models import Job
from trencadis.models.base import seconds
from trencadis.solver.verify.forecast import Forecast


@dataclass(frozen=True, slots=True)
class Kept:
    """A plan's reservations."""

    forecast: Forecast
    at: Mapping[str, int]
    """When each is due, by its job."""
    nodes: Mapping[str, frozenset[str]]
    """Its nodes."""

    def bars(self, job: Job, *, further: bool = False) -> tuple[str, ...]:
        """Jobs on whose reserved nodes the job may not start, nor have `further` tasks: it would
        still be there then, and goes after them (further tasks go before no one)."""
        if not self.at:
            return ()
        forecast = self.forecast
        begin = forecast.situation.now
        if job.on_nodes and job.start is not None:
            begin = seconds(job.start)
        end = begin + forecast.runtime[job.name]
        overdue = end <= forecast.situation.now
        rank = forecast.rank
        return tuple(
            owner
            for owner, at in self.at.items()
            if owner != job.name
            and (end > at or overdue)
            and (further or (job.name in rank and rank[job.name] > rank[owner]))
        )


def kept_of(forecast: Forecast) -> Kept:
    """The reservations of the forecast's plan."""
    reserves = forecast.plan.reserves
    return Kept(
        forecast,
        {entry.job: seconds(entry.at) for entry in reserves},
        {entry.job: frozenset(task.node for task in entry.allocation) for entry in reserves},
    )
