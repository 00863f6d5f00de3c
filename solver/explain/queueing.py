"""When jobs would start if they were served in order as running ones end: an estimate, not a plan.

GPUs, CPU, memory, resources, admission and required levels are kept; explicit NVLink, exclusive
nodes, segments and limits are left aside.
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
    """Jobs with equal keys fit the same places."""


@dataclass(slots=True)
class Queueing:
    """The nodes as arrays, and what is to end on them."""

    supply: Capacity
    fabric: Tree
    column: dict[str, int]
    gpus: dict[str, Ints] = field(default_factory=dict)
    free: Ints = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))
    ends: list[tuple[int, int, list[tuple[int, str, int, tuple[int, ...]]]]] = field(
        default_factory=list
    )
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
        return replace(self, gpus={}, ends=[*self.ends])

    def release(self, at: int, job: Job, end_on: Sequence[tuple[int, str, int]]) -> None:
        """Books what a running job gives back: (node, model, GPUs) for each task."""
        needs = vector(job, self.supply.resources)
        parts = [(node, model, gpus, needs) for node, model, gpus in end_on]
        heapq.heappush(self.ends, (at, len(self.ends), parts))

    def step(self, now: int, begin: int) -> int | None:
        """Carries out the next ends; the instant after them, None if there are none."""
        if not self.ends:
            return None
        instant = self.ends[0][0]
        until = instant + max(60, (instant - begin) // GRAIN)
        while self.ends and self.ends[0][0] <= until:
            instant, _, parts = heapq.heappop(self.ends)
            for node, model, gpus, needs in parts:
                if gpus:
                    self.gpus[model][node] += gpus
                self.free[node] += needs
        return max(now, instant)

    def start(self, client: Client, now: int) -> bool:
        """Places the client if it fits; what it takes comes back when its estimate is over."""
        open_ = {
            alternative.way.need.model
            for alternative in coarsest(client.ways)
            if self._placed(client, alternative) is not None
        }
        for alternative in client.ways:
            if alternative.way.need.model not in open_:
                continue
            placed = self._placed(client, alternative)
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

    def _placed(self, client: Client, alternative: Alternative) -> list[tuple[int, int]] | None:
        """(node, number of needs) on as few nodes as possible, in the tightest domain."""
        way = alternative.way
        number = np.full(len(self.supply.states), way.count, dtype=np.int64)
        number[~self._admitted(way.need.columns)] = 0
        if way.need.gpus:
            idle = self.gpus.get(way.need.model or "")
            if idle is None:
                return None
            number = np.minimum(number, idle // way.need.gpus)
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
