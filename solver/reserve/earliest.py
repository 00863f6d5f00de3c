"""The earliest instant, and the places, at which a job that waits fits a forecast.

Where nodes only empty, what fits at an instant fits at every later one, so the instant is found by
bisection between the instants at which nodes are taken away: the starts of other reservations and
of maintenance. At each instant the job is placed as the greedy starter would place it alone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace

from trencadis.models import Job, TaskAllocation
from trencadis.models.base import seconds
from trencadis.solver.greedy import complete
from trencadis.solver.ledger import Bundles, Ledger
from trencadis.solver.model.problem import Facts, at_instant
from trencadis.solver.reserve.estimates import Estimates
from trencadis.solver.reserve.forecast import Forecast
from trencadis.solver.reserve.kept import Reservation
from trencadis.solver.same_places import on_same_nodes

PROBES = 60
"""Instants at which a job is tried; one that needs more gets no reservation."""


@dataclass(slots=True)
class Finder:
    """Finds room in time for one job after the other."""

    read: Facts
    """Without reservations."""
    forecast: Forecast
    estimates: Estimates
    before: Mapping[str, str | None]
    """Starts that go before, with their GPU models: limits count them."""
    left: int = 0

    def find(self, job: Job, promised: Reservation | None) -> Reservation | None:
        """The earliest reservation later than now; None if the job fits now (so the round has
        chosen not to start it), if no known instant suits, or if limits forbid.

        Its places so far are kept, where they are free at that instant.
        """
        self.left = PROBES
        now = self.estimates.now
        if self._fits(job, now, promised) is not None:
            return None
        breaks = self._breaks(job)
        segments: dict[int, list[int]] = {}
        for instant in self._instants():
            segments.setdefault(bisect_left(breaks, instant), []).append(instant)
        for _, instants in sorted(segments.items()):
            found = self._first(job, instants, promised)
            if found is not None:
                return found
        return None

    def _first(
        self, job: Job, instants: list[int], promised: Reservation | None
    ) -> Reservation | None:
        best = self._fits(job, instants[-1], promised)
        if best is None:
            return None
        low, high = 0, len(instants) - 1
        while low < high:
            middle = (low + high) // 2
            found = self._fits(job, instants[middle], promised)
            if found is None:
                low = middle + 1
            else:
                best, high = found, middle
        return best

    def _instants(self) -> list[int]:
        """When nodes gain room."""
        ends = self.forecast.ends()
        for node in self.read.snapshot.nodes:
            ends |= {seconds(window.end) for window in node.maintenance}
        return sorted(end for end in ends if end > self.estimates.now)

    def _breaks(self, job: Job) -> list[int]:
        """The last instants at which a start would end before something comes in the way."""
        starts = {entry.start for entry in self.forecast.bookings}
        for node in self.read.snapshot.nodes:
            starts |= {seconds(window.start) for window in node.maintenance}
            if node.free_until is not None:
                starts.add(seconds(node.free_until))
        runtime = self.estimates.runtime(job)
        return [] if runtime is None else sorted(start - runtime for start in starts)

    def _fits(self, job: Job, at: int, promised: Reservation | None) -> Reservation | None:
        """The job at this instant, if it fits then and until it ends."""
        if self.left <= 0:
            return None
        self.left -= 1
        read, worth = at_instant(self.read, job, at), self.read.values.worth[job.name]
        shape = read.maker.shape(job, worth.tier, worth.size, "")
        states = self.forecast.states(at, self.estimates.end_from(job, at))
        read = replace(read, capacity=replace(read.capacity, states=states))
        ledger = Ledger(read)
        for name, model in self.before.items():
            ledger.start(read.values.eligible[name], model, [])
        places = None
        if promised is not None and any(
            ledger.may_start([(job, alternative.way.need.model)])
            for alternative in shape.alternatives
        ):
            places = on_same_nodes(ledger, job, shape, (task.node for task in promised.tasks))
        if places is None:
            complete(ledger, lambda _: shape, [(job,)])
            if job.name not in ledger.started:
                return None
            places = ledger.started[job.name]
        return Reservation(job.name, at, _tasks(places[1]))


def _tasks(bundles: Bundles) -> tuple[TaskAllocation, ...]:
    """The tasks, in order of node."""
    return tuple(
        TaskAllocation(node=name, gpus=None if need.gpus else ())
        for name, need in sorted(bundles, key=lambda entry: entry[0])
        for _ in range(need.sets)
    )
