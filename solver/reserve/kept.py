"""What is reserved, and whom that keeps away: who would still be there when it is due."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from trencadis.models import Job, Missing, TaskAllocation
from trencadis.models.plan import Reserve
from trencadis.models.units import asks_for_mig
from trencadis.solver.reserve.estimates import Estimates

Rank = tuple[bool, int, int, int, str]
"""Smaller goes first."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """Places of a waiting job from an instant on."""

    job: str
    at: int
    tasks: tuple[TaskAllocation, ...]
    """GPUs without indices: which ones, the round of its start decides."""

    @property
    def nodes(self) -> frozenset[str]:
        """The nodes that it has."""
        return frozenset(task.node for task in self.tasks)

    def record(self) -> Reserve:
        """As the plan lists it."""
        at = datetime.fromtimestamp(self.at, UTC)
        return Reserve(job=self.job, at=at, allocation=self.tasks)


def may_reserve(job: Job) -> bool:
    """Whether it starts alone, and on whole GPUs or none; a repair is no start."""
    request = job.request
    if isinstance(job, Missing):
        return False
    return job.group is None and request.share is None and not asks_for_mig(request)


@dataclass(frozen=True, slots=True)
class Kept:
    """Reservations, and who may use their nodes until then."""

    reservations: Sequence[Reservation] = ()
    ranks: Mapping[str, Rank] = field(default_factory=dict)
    estimates: Estimates | None = None
    due: int = 0
    """So many of the first are earlier ones that are due now, and no part of the plan."""
    growth: bool = False
    """For further tasks, which go before nobody."""

    def bars(self, job: Job) -> frozenset[int]:
        """Reservations whose nodes the job may not use: it comes after their job, and would not
        have ended by then."""
        if not self.reservations or self.estimates is None:
            return frozenset()
        if job.on_nodes:
            end = self.estimates.end(job)
        else:
            end = self.estimates.end_from(job, self.estimates.now)
        return frozenset(
            i
            for i, entry in enumerate(self.reservations)
            if entry.job != job.name
            and (end is None or end > entry.at)
            and (self.growth or self.ranks[job.name] > self.ranks[entry.job])
        )

    def on(self, node: str) -> frozenset[int]:
        """Reservations that have the node."""
        return frozenset(i for i, entry in enumerate(self.reservations) if node in entry.nodes)

    def for_growth(self) -> Kept:
        """The same for further tasks of elastic jobs."""
        return replace(self, growth=True)

    def planned(self) -> Sequence[Reservation]:
        """Those that the plan makes."""
        return self.reservations[self.due :]

    def after(self, earlier: Kept) -> Kept:
        """These with earlier ones that are due before them."""
        if not earlier.reservations:
            return self
        both = (*earlier.reservations, *self.reservations)
        return replace(earlier, reservations=both, due=len(earlier.reservations))


NOTHING_KEPT = Kept()
