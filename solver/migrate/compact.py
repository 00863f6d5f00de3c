"""Moves that lower fragmentation by more than they cost.

On a small cluster every set of moves that some order can carry out is looked at. On a larger one
the best of two kinds of steps is taken again and again: one job to another node, and a whole node
emptied onto the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from math import comb

from trencadis.solver.migrate.movers import Mover
from trencadis.solver.migrate.yard import Trip, Yard

MOST_SETS = 4_000
"""Sets of moves that are looked at one by one."""
MOST_MOVERS = 300
"""Of more jobs only the cheapest are tried, on clusters that are not searched whole."""


@dataclass(frozen=True, slots=True)
class Compaction:
    """Moves in an order that works."""

    trips: tuple[Trip, ...]
    gain: int
    """By how much F falls, less what the moves cost: GPU-seconds, at least 0."""
    best: bool
    """Whether no other set of as many moves gains more."""


def compact(yard: Yard, most: int, stay: Collection[str] = ()) -> Compaction:
    """At most `most` moves; `stay`: jobs that were moved already. Leaves the yard as it was."""
    movers = [mover for name, mover in yard.movers.items() if name not in stay]
    most = min(most, len(movers))
    places = max(0, len(yard.nodes) - 1)
    if not most or not places:
        return Compaction((), 0, best=True)
    if sum(comb(len(movers), k) * places**k for k in range(1, most + 1)) <= MOST_SETS:
        return _Whole(yard, movers, most).run()
    return _stepwise(yard, sorted(movers, key=lambda m: (m.cost, m.job.name)), most)


class _Whole:
    """All sets of moves, each once, in whatever order first reaches it."""

    def __init__(self, yard: Yard, movers: list[Mover], most: int) -> None:
        self.yard, self.movers, self.most = yard, movers, most
        self.seen: set[frozenset[tuple[str, str]]] = set()
        self.best: tuple[Trip, ...] = ()
        self.gain = 0

    def run(self) -> Compaction:
        self._from((), 0)
        return Compaction(self.best, self.gain, best=True)

    def _from(self, trips: tuple[Trip, ...], gain: int) -> None:
        if gain > self.gain:
            self.best, self.gain = trips, gain
        if len(trips) == self.most:
            return
        gone = {trip.mover.job.name for trip in trips}
        for mover in self.movers:
            if mover.job.name in gone:
                continue
            for node in self.yard.nodes:
                trip = self.yard.trip(mover, node)
                if trip is None:
                    continue
                key = frozenset((*(t.key for t in trips), trip.key))
                if key in self.seen:
                    continue
                self.seen.add(key)
                change = self.yard.go(trip)
                self._from((*trips, trip), gain - change - mover.cost)
                self.yard.undo(trip)


def _stepwise(yard: Yard, movers: list[Mover], most: int) -> Compaction:
    tried = movers[:MOST_MOVERS]
    on_node: defaultdict[str, list[Mover]] = defaultdict(list)
    for mover in movers:
        on_node[mover.node].append(mover)
    done: list[Trip] = []
    total = 0
    while len(done) < most:
        gone = {trip.mover.job.name for trip in done}
        kinds = yard.kinds()
        options = [[m] for m in tried if m.job.name not in gone]
        options += [
            sorted(here, key=lambda m: (-m.gpus, m.job.name))
            for name, here in sorted(on_node.items())
            if 1 < len(here) <= most - len(done) and not gone & {m.job.name for m in here}
        ]
        best: tuple[int, list[Trip]] = (0, [])
        for option in options:
            found = _away(yard, option, kinds)
            if found[0] > best[0]:
                best = found
        if not best[1]:
            break
        for trip in best[1]:
            yard.go(trip)
        done += best[1]
        total += best[0]
    for trip in reversed(done):
        yard.undo(trip)
    return Compaction(tuple(done), total, best=False)


def _away(yard: Yard, movers: list[Mover], kinds: list[str]) -> tuple[int, list[Trip]]:
    """These jobs, each to where F falls most, and what they gain. Leaves the yard as it was."""
    trips: list[Trip] = []
    gain = 0
    for mover in movers:
        best: tuple[int, Trip] | None = None
        for node in kinds:
            trip = yard.trip(mover, node)
            if trip is None:
                continue
            change = yard.go(trip)
            yard.undo(trip)
            if best is None or change < best[0]:
                best = change, trip
        if best is None:
            gain = 0
            break
        yard.go(best[1])
        trips.append(best[1])
        gain -= best[0] + mover.cost
    for trip in reversed(trips):
        yard.undo(trip)
    return (gain, trips) if gain > 0 else (0, [])
