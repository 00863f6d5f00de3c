"""Slices that move so that a waiting job finds a place for its own, the first in order first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from trencadis.models import Job, MigInstance, Snapshot, TaskAllocation
from trencadis.models.units import asks_for_mig
from trencadis.solver.capacity import vector
from trencadis.solver.explain.place import place_of
from trencadis.solver.greedy import order
from trencadis.solver.ledger import Ledger
from trencadis.solver.migrate.slice_movers import Gpu, SliceMover, SliceTrip
from trencadis.solver.migrate.slice_yard import SliceYard
from trencadis.solver.migrate.yard import relocated, started
from trencadis.solver.model.problem import Facts, facts
from trencadis.solver.pieces import MigCut, Piece

MOST_WAITING = 8
"""Waiting jobs that moves are looked for."""
MOST_LEAVING = 4
"""Slices that leave one GPU for a job."""
MOST_TRIES = 4_000
"""Ways to send slices away that are tried for a job."""
MOST_SPARE = 8
"""Other GPUs with room that are tried for a slice, its own node's first."""


@dataclass(slots=True)
class SliceEntry:
    """What was found so far."""

    taken: Snapshot
    """With the moves made, and those who can start running."""
    trips: list[SliceTrip] = field(default_factory=list)
    """In an order that works."""
    lets_in: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Waiting job -> the movers that move for it."""


def let_in_slices(read: Facts, yard: SliceYard, taken: Snapshot, most: int) -> SliceEntry:
    """Moves for jobs of one task that ask for MIG and fit nowhere, where they cost less than the
    waiting does. The yard is left with the moves made, and the room of those let in taken."""
    found = SliceEntry(taken)
    begun = {job.name for job in taken.jobs if job.on_nodes}
    finder, tried = place_of(read.snapshot, read.fabric, read.capacity), 0
    for unit in order(read):
        job = unit[0]
        if len(unit) > 1 or job.group is not None or job.minimum > 1 or job.name in begun:
            continue
        if not asks_for_mig(job.request) or not read.can_run[job.name]:
            continue
        if tried == MOST_WAITING or len(found.trips) >= most:
            break
        if job.exclusive or finder.fits(job, read.capacity.states):
            continue
        tried += 1
        _try(read, yard, found, job, most - len(found.trips))
    return found


def _try(read: Facts, yard: SliceYard, found: SliceEntry, job: Job, most: int) -> None:
    now = facts(found.taken)
    ledger = Ledger(now)
    gone = {trip.mover.name for trip in found.trips}
    search = _Search(read, yard, job, gone)
    for model in sorted(now.can_run[job.name], key=str):
        if model is None or not ledger.may_start([(job, model)]):
            continue
        way = search.fewest(model, most)
        if way is None:
            continue
        trips, task = way
        yard.room.put(job, vector(job, read.capacity.resources), task)
        found.trips += trips
        found.lets_in[job.name] = tuple(sorted(trip.mover.name for trip in trips))
        there = {trip.mover.job.name for trip in trips}
        found.taken = started(
            relocated(found.taken, {name: tuple(yard.tasks[name]) for name in there}),
            {job.name: (task,)},
        )
        return


class _Search:
    """Looks for the fewest moves that let one job in."""

    def __init__(self, read: Facts, yard: SliceYard, job: Job, gone: set[str]) -> None:
        self.read, self.yard, self.job, self.gone = read, yard, job, gone
        self.worth = read.values.worth[job.name].wait
        self.tries = MOST_TRIES
        self._known: dict[tuple[str, Piece], list[Gpu]] = {}

    def fewest(self, model: str, most: int) -> tuple[list[SliceTrip], TaskAllocation] | None:
        """Moves, made in the yard, and where the job then fits."""
        pieces = self.read.capacity.cutter.pieces(self.job.request, model)
        on = self.yard.on()
        targets = [
            gpu
            for gpu, cut in sorted(self.yard.cuts.items())
            if cut.model == model and not cut.fixed and gpu in on and self._admits(gpu[0])
        ]
        for number in range(1, min(most, MOST_LEAVING) + 1):
            for gpu in targets:
                here = [mover for mover in on[gpu] if mover.name not in self.gone]
                for leaving in combinations(here, number):
                    if self.tries < 0:
                        return None
                    if sum(mover.cost for mover in leaving) >= self.worth:
                        continue
                    way = self._away(gpu, leaving, pieces or ())
                    if way is not None:
                        return way
        return None

    def _admits(self, node: str) -> bool:
        admitted = self.read.admission
        if not admitted.masks[self.job.name] >> admitted.column[node] & 1:
            return False
        need = vector(self.job, self.read.capacity.resources)
        return all(
            want <= max(0, have)
            for want, have in zip(need, self.yard.room.free[node], strict=True)
        )

    def _away(
        self, gpu: Gpu, leaving: Sequence[SliceMover], pieces: Sequence[Piece]
    ) -> tuple[list[SliceTrip], TaskAllocation] | None:
        yard = self.yard
        self.tries -= 1
        gone = {mover.instance for mover in leaving}
        stay = sorted(yard.room.used.get(gpu, set()) - gone, key=lambda i: i.start)
        cut = yard.knife.mig_cut(yard.cuts[gpu].model, stay, (), fixed=False)
        if cut is None:
            return None
        for mine, left in _ways(yard, cut, pieces):
            for to in self._seats(gpu, left, leaving):
                self.tries -= 1
                if self.tries < 0:
                    return None
                trips = sequence(yard, to, self.worth)
                if trips is not None:
                    mig = tuple(sorted(mine, key=lambda i: i.start))
                    return trips, TaskAllocation(node=gpu[0], gpus=(gpu[1],) * len(mig), mig=mig)
        return None

    def _seats(
        self, gpu: Gpu, left: MigCut, leaving: Sequence[SliceMover]
    ) -> Iterator[list[SliceTrip]]:
        """Where those that leave could be in the end: on the same GPU, or on others of the model.
        """
        yard = self.yard
        cuts: dict[Gpu, MigCut] = {gpu: left}

        def seat(i: int) -> Iterator[list[SliceTrip]]:
            if i == len(leaving):
                yield []
                return
            mover = leaving[i]
            piece = Piece(mover.instance.profile)
            spare = self._spare(mover.model, piece)
            near = sorted(spare, key=lambda g: (g[0] != gpu[0], g))[:MOST_SPARE]
            for other in [gpu, *(g for g in near if g != gpu)]:
                cut = cuts[other] if other in cuts else yard.cut(other, yard.room)
                for start, after in yard.knife.places(cut, piece):
                    if other == gpu and start == mover.instance.start:
                        continue
                    assert isinstance(after, MigCut)
                    previous = cuts.get(other)
                    cuts[other] = after
                    for rest in seat(i + 1):
                        yield [SliceTrip(mover, other, start), *rest]
                    if previous is None:
                        del cuts[other]
                    else:
                        cuts[other] = previous

        return seat(0)


    def _spare(self, model: str, piece: Piece) -> list[Gpu]:
        """GPUs that can take a piece as they are."""
        key = model, piece
        if key not in self._known:
            yard = self.yard
            self._known[key] = [
                gpu
                for gpu, cut in yard.cuts.items()
                if cut.model == model and yard.knife.most(yard.cut(gpu, yard.room), piece)
            ]
        return self._known[key]


def _ways(
    yard: SliceYard, cut: MigCut, pieces: Sequence[Piece]
) -> Iterator[tuple[list[MigInstance], MigCut]]:
    """Ways to put pieces on a GPU: their instances, and the GPU after."""
    if not pieces:
        yield [], cut
        return
    for start, after in yard.knife.places(cut, pieces[0]):
        assert isinstance(after, MigCut)
        mine = MigInstance(profile=pieces[0].profile, start=start)
        for rest, last in _ways(yard, after, pieces[1:]):
            yield [mine, *rest], last


def sequence(yard: SliceYard, trips: Sequence[SliceTrip], most: int) -> list[SliceTrip] | None:
    """An order in which these moves can be made, for less than `most` GPU-seconds with the layouts
    that change; made then. None if there is none."""
    made: list[SliceTrip] = []

    def rest(left: Sequence[SliceTrip], spent: int) -> bool:
        if not left:
            return spent < most
        for trip in left:
            if not yard.fits(trip):
                continue
            _, layout = yard.change(trip)
            more = trip.mover.cost + (0 if layout is None else layout.idle_gpu_seconds)
            made.append(trip)
            if rest([other for other in left if other is not trip], spent + more):
                return True
            made.pop()
            yard.undo(trip)
        return False

    return made if rest(list(trips), 0) else None
