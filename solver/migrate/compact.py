"""Moves that lower fragmentation by more than they cost.

On a small cluster every set of moves that some order can carry out is looked at. On a larger one
the best of two kinds of steps is taken again and again: one job to another node, and a whole node
emptied onto the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from math import comb
from typing import Generic, Protocol, TypeVar

MOST_SETS = 4_000
"""Sets of moves that are looked at one by one."""
MOST_MOVERS = 300
"""Of more jobs only the cheapest are tried, on clusters that are not searched whole."""


class Movable(Protocol):
    """What may move."""

    @property
    def name(self) -> str:
        """What tells it from others."""

    @property
    def home(self) -> str:
        """Where it is, among others that may be sent away together."""

    @property
    def gpus(self) -> int:
        """Its size: the largest go first."""

    @property
    def cost(self) -> int:
        """GPU-seconds of a move."""


M = TypeVar("M", bound=Movable)


class Travel(Protocol):
    """A move to a place."""

    @property
    def key(self) -> tuple[str, str]:
        """Who goes where."""


T = TypeVar("T", bound=Travel)


class Ground(Protocol[M, T]):
    """Where they are, and where they may go."""

    movers: dict[str, M]

    @property
    def nodes(self) -> list[str]:
        """All places."""

    def kinds(self) -> Callable[[M], list[str]]:
        """For a mover: one place of each kind, as things are now."""

    def state(self) -> Hashable:
        """What else the cost of further moves depends on."""

    def trip(self, mover: M, node: str, /) -> T | None:
        """The move, if it can be made now."""

    def go(self, trip: T, /) -> int:
        """Makes it; returns by how much F changes, and layouts cost."""

    def undo(self, trip: T, /) -> None:
        """Takes it back; the last one first."""


@dataclass(frozen=True, slots=True)
class Compaction(Generic[T]):
    """Moves in an order that works."""

    trips: tuple[T, ...]
    gain: int
    """By how much F falls, less what the moves cost: GPU-seconds, at least 0."""
    best: bool
    """Whether no other set of as many moves gains more."""


def compact(yard: Ground[M, T], most: int) -> Compaction[T]:
    """At most `most` moves, each mover once. Leaves the yard as it was."""
    movers = list(yard.movers.values())
    most = min(most, len(movers))
    places = max(0, len(yard.nodes) - 1)
    if not most or not places:
        return Compaction((), 0, best=True)
    if sum(comb(len(movers), k) * places**k for k in range(1, most + 1)) <= MOST_SETS:
        return _Whole(yard, movers, most).run()
    return _stepwise(yard, sorted(movers, key=lambda m: (m.cost, m.name)), most)


class _Whole(Generic[M, T]):
    """All sets of moves, each once, in whatever order first reaches it."""

    def __init__(self, yard: Ground[M, T], movers: list[M], most: int) -> None:
        self.yard, self.movers, self.most = yard, movers, most
        self.seen: dict[tuple[frozenset[tuple[str, str]], Hashable], int] = {}
        """By who went where and what that left: the most that was gained so far."""
        self.best: tuple[T, ...] = ()
        self.gain = 0

    def run(self) -> Compaction[T]:
        self._from((), 0)
        return Compaction(self.best, self.gain, best=True)

    def _from(self, trips: tuple[T, ...], gain: int) -> None:
        if gain > self.gain:
            self.best, self.gain = trips, gain
        if len(trips) == self.most:
            return
        gone = {trip.key[0] for trip in trips}
        for mover in self.movers:
            if mover.name in gone:
                continue
            for node in self.yard.nodes:
                trip = self.yard.trip(mover, node)
                if trip is None:
                    continue
                gained = gain - self.yard.go(trip) - mover.cost
                key = frozenset((*(t.key for t in trips), trip.key)), self.yard.state()
                if gained > self.seen.get(key, gained - 1):
                    self.seen[key] = gained
                    self._from((*trips, trip), gained)
                self.yard.undo(trip)


def _stepwise(yard: Ground[M, T], movers: list[M], most: int) -> Compaction[T]:
    tried = movers[:MOST_MOVERS]
    on_node: defaultdict[str, list[M]] = defaultdict(list)
    for mover in movers:
        on_node[mover.home].append(mover)
    done: list[T] = []
    total = 0
    while len(done) < most:
        gone = {trip.key[0] for trip in done}
        kinds = yard.kinds()
        options = [[m] for m in tried if m.name not in gone]
        options += [
            sorted(here, key=lambda m: (-m.gpus, m.name))
            for name, here in sorted(on_node.items())
            if 1 < len(here) <= most - len(done) and not gone & {m.name for m in here}
        ]
        best: tuple[int, list[T]] = (0, [])
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


def _away(
    yard: Ground[M, T], movers: list[M], kinds: Callable[[M], list[str]]
) -> tuple[int, list[T]]:
    """These jobs, each to where F falls most, and what they gain. Leaves the yard as it was."""
    trips: list[T] = []
    gain = 0
    for mover in movers:
        best: tuple[int, T] | None = None
        for node in kinds(mover):
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
