"""Moves of slices for waiting jobs and for F, and how a plan tells them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from trencadis.models import Move, Snapshot
from trencadis.models.plan import Reconfigure
from trencadis.solver.migrate.compact import compact
from trencadis.solver.migrate.slice_entry import let_in_slices
from trencadis.solver.migrate.slice_movers import SliceTrip, slice_movers
from trencadis.solver.migrate.slice_yard import SliceYard
from trencadis.solver.model.problem import Facts


@dataclass(slots=True)
class SliceMoves:
    """Moves in an order that works."""

    trips: list[SliceTrip] = field(default_factory=list)
    forced: int = 0
    """So many of the first let waiting jobs in; the others lower F."""
    lets_in: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Waiting job -> the movers that move for it."""
    best: bool = True
    """Whether no other moves of slices lower F by more, beside those that let jobs in."""

    def only_forced(self) -> SliceMoves:
        """Without the moves for F."""
        return SliceMoves(self.trips[: self.forced], self.forced, self.lets_in, best=False)


@dataclass(slots=True)
class Told:
    """What a plan says of moves of slices."""

    moves: list[Move] = field(default_factory=list)
    reconfigures: list[Reconfigure] = field(default_factory=list)
    forced: int = 0
    """GPU-seconds of those that let jobs in, with their layouts."""
    fragmentation: int = 0
    """F after the last."""


def find_slice_moves(read: Facts, taken: Snapshot, most: int) -> SliceMoves:
    """At most so many moves of slices. `taken`: the snapshot with whole jobs moved, and those who
    can start running."""
    movers = slice_movers(read)
    if not movers or not most:
        return SliceMoves(best=not movers)
    yard = SliceYard(read, taken, movers)
    entry = let_in_slices(read, yard, taken, most)
    found = SliceMoves(list(entry.trips), len(entry.trips), entry.lets_in)
    left = most - len(entry.trips)
    if read.profile.off or not left:
        found.best = read.profile.off
        return found
    gone = {trip.mover.name for trip in entry.trips}
    yard.movers = {name: mover for name, mover in yard.movers.items() if name not in gone}
    compaction = compact(yard, left)
    found.trips += compaction.trips
    found.best = compaction.best
    return found


def tell(read: Facts, found: SliceMoves, step: int, fragmentation: int) -> Told:
    """The moves as a plan has them. `step`: the last one before; `fragmentation`: F then."""
    told = Told(fragmentation=fragmentation)
    if not found.trips:
        return told
    yard = SliceYard(read, read.snapshot, slice_movers(read))
    forced = {trip.key for trip in found.trips[: found.forced]}
    waits = _last_of(found)
    for trips in _steps(yard, found.trips):
        step += 1
        layouts = []
        for trip in sorted(trips, key=lambda trip: trip.mover.job.name):
            change, layout = yard.change(trip)
            if layout is not None:
                layouts.append(layout.model_copy(update={"step": step}))
                told.forced += layout.idle_gpu_seconds if trip.key in forced else 0
            told.forced += trip.mover.cost if trip.key in forced else 0
            told.moves.append(
                Move(
                    job=trip.mover.job.name,
                    step=step,
                    to=tuple(yard.tasks[trip.mover.job.name]),
                    idle_gpu_seconds=trip.mover.cost,
                    fragmentation_before=told.fragmentation,
                    fragmentation_after=told.fragmentation + change,
                )
            )
            told.fragmentation += change
            for names, waiting in waits:
                names.discard(trip.mover.name)
                if not names and waiting not in (w for m in told.moves for w in m.lets_in):
                    last = told.moves[-1]
                    told.moves[-1] = last.model_copy(
                        update={"lets_in": (*last.lets_in, waiting)}
                    )
        told.reconfigures += sorted(layouts, key=lambda entry: (entry.node, entry.gpu))
    return told


def _last_of(found: SliceMoves) -> list[tuple[set[str], str]]:
    """The movers after which each waiting job can start: its own, and those for jobs before it."""
    before: set[str] = set()
    waits = []
    for waiting, names in found.lets_in.items():
        before |= set(names)
        waits.append((set(before), waiting))
    return waits


def _steps(yard: SliceYard, trips: Sequence[SliceTrip]) -> list[list[SliceTrip]]:
    """The trips by steps: as many at once as touch different GPUs, are of different jobs, and need
    nothing that another leaves. The yard is left as it was."""
    steps: list[list[SliceTrip]] = []
    made: list[SliceTrip] = []
    for trip in trips:
        if not steps or not _beside(yard, trip, steps[-1]):
            for done in steps[-1] if steps else ():
                yard.change(done)
                made.append(done)
            steps.append([])
        steps[-1].append(trip)
    for done in reversed(made):
        yard.undo(done)
    return steps


def _beside(yard: SliceYard, trip: SliceTrip, step: Sequence[SliceTrip]) -> bool:
    """Whether a trip can go at once with these; none of them has been made."""
    mine = {trip.mover.gpu, trip.gpu}
    for other in step:
        if other.mover.job.name == trip.mover.job.name or mine & {other.mover.gpu, other.gpu}:
            return False
    together = [*step, trip]
    return all(_suffices(yard, one, [o for o in together if o is not one]) for one in together)


def _suffices(yard: SliceYard, trip: SliceTrip, others: Sequence[SliceTrip]) -> bool:
    """Whether CPU and memory suffice, with the others both where they were and where they go."""
    node, own = trip.gpu[0], trip.mover.gpu[0]
    coming = [other.mover.need for other in others if other.gpu[0] == node]
    return all(
        max(0, have + (want if own == node else 0) - sum(need[d] for need in coming)) >= want
        for d, (want, have) in enumerate(
            zip(trip.mover.need, yard.view.free[node], strict=True)
        )
    )
