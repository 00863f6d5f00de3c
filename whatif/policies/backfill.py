"""EASY backfill: the first job that doesn't fit gets a reservation that no other may delay.

Lifka, The ANL/IBM SP scheduling system, JSSPP 1995; as Slurm's `sched/backfill` does for the head.
"""

from __future__ import annotations

from dataclasses import dataclass

from trencadis.models import Job, TaskAllocation
from trencadis.whatif.cluster import ClusterState
from trencadis.whatif.decisions import Decision, Draft, View
from trencadis.whatif.policies.order import by_priority
from trencadis.whatif.policies.ranking import BestFit
from trencadis.whatif.runs import MICRO, JobRun


@dataclass(slots=True)
class Reservation:
    """When the head starts at the latest, if all end by their estimates, and where it could."""

    head: JobRun
    at: int
    then: ClusterState
    """What is free at that time, backfilled jobs that are still running then taken out."""
    places: tuple[TaskAllocation, ...]


class Easy:
    """By tier and age; behind a reservation, whoever doesn't delay it. Estimates decide."""

    name = "backfill"

    def decide(self, view: View) -> Decision:
        """Starts in order, reserves for the first that waits, then backfills."""
        draft, ranking = view.draft(), BestFit()
        reservation: Reservation | None = None
        reserved = False
        for run in by_priority(view.pending):
            if draft.limited(run):
                continue
            if not reserved:
                if not draft.try_start(run, ranking):
                    reservation, reserved = reserve(view, draft, run, ranking), True
            elif reservation is None:
                draft.try_start(run, ranking)  # when the head could start can't be foreseen
            else:
                self._backfill(view, draft, run, reservation, ranking)
        return draft.decision()

    def _backfill(
        self, view: View, draft: Draft, run: JobRun, reservation: Reservation, ranking: BestFit
    ) -> None:
        places = draft.fit(run, ranking)
        if places is None:
            return
        if ends_at(view, run, places) <= reservation.at:
            draft.start(run, places)
        elif self._fits_beside(view, run.job, places, reservation, ranking):
            self._start_beside(draft, run, places, reservation)
        else:
            # Best fit would take the head's places; perhaps others are left.
            rest = draft.state.copy()
            rest.take(reservation.head.job, reservation.places)
            other = view.placer.place(rest, run.job, view.now, ranking)
            if other is not None and self._fits_beside(view, run.job, other, reservation, ranking):
                self._start_beside(draft, run, other, reservation)

    def _fits_beside(
        self,
        view: View,
        job: Job,
        places: tuple[TaskAllocation, ...],
        reservation: Reservation,
        ranking: BestFit,
    ) -> bool:
        """Whether the head still fits at its time; if so, its places are found anew."""
        then = reservation.then.copy()
        then.take(job, places)
        found = view.placer.place(then, reservation.head.job, reservation.at, ranking)
        if found is None:
            return False
        reservation.places = found
        return True

    def _start_beside(
        self,
        draft: Draft,
        run: JobRun,
        places: tuple[TaskAllocation, ...],
        reservation: Reservation,
    ) -> None:
        draft.start(run, places)
        reservation.then.take(run.job, places)


def ends_at(view: View, run: JobRun, places: tuple[TaskAllocation, ...]) -> int:
    """When a job that starts now would end by its estimate."""
    if run.estimate_left is None:
        return 1 << 60
    rate = MICRO * (1_000 - view.placer.slowdown(run.job, places)) // 1_000
    return view.now + -(-run.estimate_left // max(1, rate))


def reserve(view: View, draft: Draft, head: JobRun, ranking: BestFit) -> Reservation | None:
    """The earliest time at which the head fits, as jobs end by their estimates; None if unknown."""
    by_name = {run.name: run for run in view.pending}
    ends = [
        (run.expected_end(view.now), run.index, run.job, run.allocation)
        for run in view.running
        if run.index not in draft.gone
    ]
    ends += [(run.began + run.restart, run.index, run.job, run.allocation) for run in view.draining]
    for action in draft.starts:
        run = by_name[action.job]
        end = ends_at(view, run, action.allocation)
        ends.append((end, run.index, run.job, action.allocation))
    then = draft.state.copy()
    known = sorted(
        ((end, index, job, places) for end, index, job, places in ends if end is not None),
        key=lambda entry: entry[:2],
    )
    for position, (end, _, job, places) in enumerate(known):
        then.release(job, places)
        if position + 1 < len(known) and known[position + 1][0] == end:
            continue  # all that end at one instant count together
        found = view.placer.place(then, head.job, end, ranking)
        if found is not None:
            return Reservation(head, end, then, found)
    return None
