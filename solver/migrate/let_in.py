"""Moves that make room for waiting jobs, one after the other, the first in order first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trencadis.models import Job, Snapshot, TaskAllocation
from trencadis.solver.explain.move import Mover as Finder
from trencadis.solver.explain.place import place_of
from trencadis.solver.greedy import complete, order
from trencadis.solver.ledger import Ledger
from trencadis.solver.migrate.movers import Mover
from trencadis.solver.migrate.yard import Trip, Yard, moved, started
from trencadis.solver.model.problem import Facts, facts
from trencadis.solver.report import seat_all
from trencadis.solver.shapes import Shape

MOST_TRIED = 8
"""Waiting jobs that moves are looked for: each takes a search of its own."""


@dataclass(slots=True)
class Entry:
    """What was found so far."""

    snapshot: Snapshot
    """With the moves made."""
    taken: Snapshot
    """The same, and those who can start running: their room is theirs."""
    trips: list[Trip] = field(default_factory=list)
    """In an order that works."""
    lets_in: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Waiting job -> the jobs moved for it."""


def let_in(read: Facts, movers: Mapping[str, Mover], most: int) -> Entry:
    """Moves for waiting jobs that fit nowhere, where they cost less than the waiting does."""
    snapshot = read.snapshot
    waiting = order(read)
    begun = _start(read, waiting)
    found = Entry(snapshot, started(snapshot, begun))
    place, tried = place_of(snapshot, read.fabric, read.capacity), 0
    for unit in waiting:
        job = unit[0]
        if len(unit) > 1 or job.group is not None or job.name in begun or not job.request.gpus:
            continue
        if tried == MOST_TRIED or len(found.trips) >= most:
            break
        if not read.can_run[job.name] or place.fits(job, read.capacity.states):
            continue
        tried += 1
        _try(read, found, job, movers, most - len(found.trips))
    return found


def _try(read: Facts, found: Entry, job: Job, movers: Mapping[str, Mover], most: int) -> None:
    """Adds the moves that let a job in, if there are any that pay."""
    now = facts(found.taken)
    ledger = Ledger(now)
    models = [m for m in sorted(now.can_run[job.name], key=str) if ledger.may_start([(job, m)])]
    gone = {trip.mover.job.name for trip in found.trips}
    stay = {
        other.name
        for other in found.taken.jobs
        if other.on_nodes and (other.name not in movers or other.name in gone)
    }
    finder = Finder(found.taken, place_of(found.taken), now.capacity.states, stay)
    moves = finder.fewest(job, models) if models else None
    if moves is None or not 0 < len(moves.relocations) <= most:
        return
    to = {r.job: r.to[0].node for r in moves.relocations}
    if sum(movers[name].cost for name in to) >= read.values.worth[job.name].wait:
        return
    yard = Yard(read, found.snapshot, found.taken, {name: movers[name] for name in to})
    trips = sequence(yard, to)
    if trips is None:
        return
    after = facts(moved(found.taken, trips))
    begun = _start(after, [(after.values.eligible[job.name],)])
    if job.name not in begun:
        return
    found.trips += trips
    found.lets_in[job.name] = tuple(sorted(to))
    found.snapshot = moved(found.snapshot, trips)
    found.taken = started(after.snapshot, begun)


def sequence(yard: Yard, to: Mapping[str, str]) -> list[Trip] | None:
    """An order in which these jobs can move, each to what is idle when its turn comes; None if
    there is none. Where a job is matters, not since when: each set is looked at once."""
    dead: set[frozenset[str]] = set()
    trips: list[Trip] = []

    def rest(left: frozenset[str]) -> bool:
        if not left:
            return True
        if left in dead:
            return False
        for name in sorted(left):
            trip = yard.trip(yard.movers[name], to[name]) if name in yard.movers else None
            if trip is None:
                continue
            yard.go(trip)
            trips.append(trip)
            done = rest(left - {name})
            yard.undo(trip)
            if done:
                return True
            trips.pop()
        dead.add(left)
        return False

    return trips if rest(frozenset(to)) else None


def _start(read: Facts, units: list[tuple[Job, ...]]) -> dict[str, tuple[TaskAllocation, ...]]:
    """Where those of the units would be that can start on what is idle."""
    worth = read.values.worth

    def shape_of(name: str) -> Shape:
        job = read.values.eligible[name]
        # With an owner, limits per node are those of the job alone.
        return read.maker.shape(job, worth[name].tier, worth[name].size, name)

    ledger = Ledger(read)
    complete(ledger, shape_of, units)
    nodes = {node.name: node for node in read.snapshot.nodes}
    return {name: placement.tasks for name, placement in seat_all(read, ledger, nodes).items()}
