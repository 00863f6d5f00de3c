"""When jobs would start if they were served in order as running ones end: an estimate, not a plan.

GPUs, CPU, memory, resources, admission, required levels and reservations are kept; explicit NVLink,
exclusive nodes, segments and limits are left aside.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from trencadis.models import Job
from trencadis.solver.capacity import Capacity, vector
from trencadis.solver.explain.place import coarsest
from trencadis.solver.fabric import Tree
from trencadis.solver.reserve.kept import Rank
from trencadis.solver.shapes import Alternative

MOST_STEPS = 60
"""Instants that are looked at; what has not started by then is left open."""
GRAIN = 8
"""Ends within an eighth of the time that has passed, and within a minute, count as one."""

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Client:
    """A waiting job as the queue sees it."""

    job: Job
    ways: tuple[Alternative, ...]
    key: object
    """Jobs with equal keys fit the same places, reservations aside."""
    rank: Rank | None
    """Who goes before whom where one would delay the other's reservation; None: after all."""


Part = tuple[int, str, int, tuple[int, ...]]
"""Node, model, GPUs, CPU and so on."""


@dataclass(frozen=True, slots=True)
class Due:
    """A reservation: its job comes then, and others keep out of its way until then."""

    at: int
    end: int | None
    """When its job will have run; None: unknown."""
    rank: Rank
    parts: tuple[Part, ...]

    def bars(self, client: Client, now: int) -> bool:
        """Whether the client may not use its nodes if it starts now."""
        runtime = client.job.runtime_seconds
        late = runtime is None or now + runtime > self.at
        return late and (client.rank is None or client.rank > self.rank)


@dataclass(slots=True)
class Queueing:
    """The nodes as arrays, and what is to end on them."""

    supply: Capacity
    fabric: Tree
    column: dict[str, int]
    gpus: dict[str, Ints] = field(default_factory=dict)
    free: Ints = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))
    ends: list[tuple[int, int, list[Part]]] = field(default_factory=list)
    due: list[Due] = field(default_factory=list)
    """Reservations whose time has not come."""
    _open: dict[int, npt.NDArray[np.bool_]] = field(default_factory=dict)
    _domain: dict[int, Ints] = field(default_factory=dict)

    def __post_init__(self) -> None:
        states = self.supply.states
        for model in self.supply.gpus_by_model:
            self.gpus[model] = np.array(
                [len(state.idle.get(model, ())) for state in states], dtype=np.int64
            )
        self.free = np.array([state.free for state in states], dtype=np.int64)
        self.free = self.free.reshape(len(states), 2 + len(self.supply.resources))

    def copy(self) -> Queueing:
        """The same, to be filled on its own."""
        return replace(self, gpus={}, ends=[*self.ends], due=[*self.due])

    def release(self, at: int, job: Job, end_on: Sequence[tuple[int, str, int]]) -> None:
        """Books what a running job gives back: (node, model, GPUs) for each task."""
        needs = vector(job, self.supply.resources)
        parts = [(node, model, gpus, needs) for node, model, gpus in end_on]
        heapq.heappush(self.ends, (at, len(self.ends), parts))

    def reserve(self, due: Due) -> None:
        """Books a reservation."""
        self.due.append(due)
        heapq.heappush(self.ends, (due.at, len(self.ends) + 2_000_000, []))

    def arrive(self, now: int) -> None:
        """Gives those their nodes for whom they are due."""
        for due in [entry for entry in self.due if entry.at <= now]:
            self.due.remove(due)
            for node, model, gpus, needs in due.parts:
                if gpus:
                    self.gpus[model][node] -= gpus
                self.free[node] -= needs
            if due.end is not None:
                end = (max(due.end, now), len(self.ends) + 2_000_000, list(due.parts))
                heapq.heappush(self.ends, end)

    def barred(self, client: Client, now: int) -> tuple[bool, ...]:
        """By reservation: whether it keeps the client off its nodes."""
        return tuple(due.bars(client, now) for due in self.due)

    def step(self, now: int, begin: int) -> int | None:
        """Carries out the next ends; the instant after them, None if there are none."""
        if not self.ends:
            return None
        instant = self.ends[0][0]
        until = instant + max(60, (instant - begin) // GRAIN)
        # Not beyond a reservation's time: until then its nodes serve others.
        until = min([until, *(max(instant, entry.at) for entry in self.due)])
        while self.ends and self.ends[0][0] <= until:
            instant, _, parts = heapq.heappop(self.ends)
            for node, model, gpus, needs in parts:
                if gpus:
                    self.gpus[model][node] += gpus
                self.free[node] += needs
        self.arrive(max(now, instant))
        return max(now, instant)

    def start(self, client: Client, now: int) -> bool:
        """Places the client if it fits; what it takes comes back when its estimate is over."""
        open_ = {
            alternative.way.need.model
            for alternative in coarsest(client.ways)
            if self._placed(client, alternative, now) is not None
        }
        for alternative in client.ways:
            if alternative.way.need.model not in open_:
                continue
            placed = self._placed(client, alternative, now)
            if placed is None:
                continue
            need = alternative.way.need
            parts = []
            for node, count in placed:
                taken = tuple(count * amount for amount in need.need)
                if need.gpus:
                    self.gpus[need.model or ""][node] -= count * need.gpus
                self.free[node] -= taken
                parts.append((node, need.model or "", count * need.gpus, taken))
            runtime = client.job.runtime_seconds
            if runtime is not None:
                heapq.heappush(self.ends, (now + runtime, len(self.ends) + 1_000_000, parts))
            return True
        return False

    def _placed(
        self, client: Client, alternative: Alternative, now: int
    ) -> list[tuple[int, int]] | None:
        """(node, number of needs) on as few nodes as possible, in the tightest domain."""
        way = alternative.way
        number = np.full(len(self.supply.states), way.count, dtype=np.int64)
        number[~self._admitted(way.need.columns)] = 0
        for due in self.due:
            if due.bars(client, now):
                number[[part[0] for part in due.parts]] = 0
        if way.need.gpus:
            idle = self.gpus.get(way.need.model or "")
            if idle is None:
                return None
            number = np.minimum(number, np.maximum(0, idle) // way.need.gpus)
        for d, amount in enumerate(way.need.need):
            if amount:
                number = np.minimum(number, np.maximum(0, self.free[:, d]) // amount)
        if client.job.max_tasks_per_node is not None:
            number = np.minimum(number, max(1, client.job.max_tasks_per_node // way.need.sets))
        if not len(number):
            return None
        if way.depth <= self.fabric.depth:
            domains = self._domains(way.depth)
            total = np.bincount(domains, weights=number).astype(np.int64)
            enough = np.flatnonzero(total >= way.count)
            if not len(enough):
                return None
            number = np.where(domains == enough[np.argmin(total[enough])], number, 0)
        elif not (number >= way.count).any():
            return None
        found, left = [], way.count
        for node in np.argsort(-number, kind="stable"):
            take = min(left, int(number[node]))
            if take:
                found.append((int(node), take))
                left -= take
            if not left:
                break
        return found if not left else None

    def _admitted(self, columns: int) -> npt.NDArray[np.bool_]:
        if columns not in self._open:
            self._open[columns] = np.array(
                [bool(columns >> self.column[s.name] & 1) for s in self.supply.states], dtype=bool
            )
        return self._open[columns]

    def _domains(self, depth: int) -> Ints:
        if depth not in self._domain:
            ids: dict[tuple[str, ...], int] = {}
            self._domain[depth] = np.array(
                [
                    ids.setdefault(self.fabric.path[state.name][:depth], len(ids))
                    for state in self.supply.states
                ],
                dtype=np.int64,
            )
        return self._domain[depth]
