"""What stopping jobs frees on a node for whole GPUs, counted for all sets of victims at once.

CPU, memory and resources add up over victims. A GPU is free once all that are on it have left.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from trencadis.models import Job, Node, TaskAllocation
from trencadis.solver.capacity import vector
from trencadis.solver.shapes import Need

MOST_VICTIMS = 12
"""Victims of one node that are combined freely; of more, those that free the most for the cost."""

Ints = npt.NDArray[np.int64]


class Sums:
    """One node's GPUs of the need's model, CPU, memory and resources, by who is on them."""

    def __init__(
        self,
        node: Node,
        here: Sequence[tuple[Job, TaskAllocation]],
        need: Need,
        victims: Sequence[str],
        resources: tuple[str, ...],
    ) -> None:
        healthy = node.healthy_gpus()
        mig = {entry.gpu for entry in node.mig}
        tenants: dict[int, set[str]] = {
            i: set() for i, model in healthy.items() if model == need.model and i not in mig
        }
        self.gpus, self.each = need.gpus, np.array(need.need, dtype=np.int64)
        self.have = np.array(
            [node.cpu_milli, node.memory_mib, *(node.resources.get(n, 0) for n in resources)],
            dtype=np.int64,
        )
        self.frees = {name: np.zeros(len(self.each), dtype=np.int64) for name in victims}
        for job, task in here:
            takes = np.array(vector(job, resources), dtype=np.int64)
            self.have -= takes
            if job.name in self.frees:
                self.frees[job.name] += takes
            for i in task.gpus or ():
                if i in tenants:
                    tenants[i].add(job.name)
        self.idle = sum(1 for names in tenants.values() if not names)
        self.taken = [names for names in tenants.values() if names and names <= self.frees.keys()]
        self.bound = need.cap

    def number(self, gone: Collection[str], cap: int) -> int:
        """How many needs fit once some victims are gone; `cap`: the most, 0 for any number."""
        left = self.have.copy()
        for name in gone:
            left += self.frees[name]
        idle = self.idle + sum(1 for names in self.taken if names <= set(gone))
        return int(self._numbers(np.array([idle], dtype=np.int64), left[None, :], cap)[0])

    def _numbers(self, idle: Ints, left: Ints, cap: int) -> Ints:
        """By row: how many needs so many idle GPUs, and what is left beside them, take."""
        counts = []
        if self.gpus:
            counts.append(idle // self.gpus)
        used = self.each > 0
        if used.any():
            counts.append((np.maximum(0, left[:, used]) // self.each[used]).min(axis=1))
        bounds = [bound for bound in (cap, self.bound) if bound]
        counts += [np.full(len(idle), bound, dtype=np.int64) for bound in bounds]
        return np.min(counts, axis=0) if counts else np.zeros(len(idle), dtype=np.int64)

    def cheapest(
        self, costs: Mapping[str, int], cap: int, free: int
    ) -> list[tuple[int, int, tuple[str, ...]]]:
        """For each number of further needs the cheapest victims, among all sets of up to twelve;
        where there are more, those that share GPUs go together, and the most useful are combined.
        """
        items = self._items(costs)
        index = {name: i for i, names in enumerate(items) for name in names}
        beside: Ints = np.zeros((1, len(self.each)), dtype=np.int64)
        price: Ints = np.zeros(1, dtype=np.int64)
        for names in items:
            frees = sum((self.frees[name] for name in names), np.zeros_like(self.each))
            beside = np.concatenate([beside, beside + frees])
            price = np.concatenate([price, price + sum(costs[name] for name in names)])
        sets = np.arange(len(price), dtype=np.int64)
        idle = np.full(len(price), self.idle, dtype=np.int64)
        for tenants in self.taken:
            if tenants <= index.keys():
                mask = sum(1 << i for i in {index[name] for name in tenants})
                idle += (sets & mask) == mask
        number = self._numbers(idle, self.have + beside, cap)
        found = []
        for k in range(free + 1, int(number.max()) + 1):
            enough = np.flatnonzero(number >= k)
            best = int(enough[np.argmin(price[enough])])
            chosen = (name for i, names in enumerate(items) if best >> i & 1 for name in names)
            found.append((k - free, int(price[best]), tuple(sorted(chosen))))
        return found

    def _items(self, costs: Mapping[str, int]) -> list[tuple[str, ...]]:
        """Victims, or groups of them, that are combined freely."""
        singles: list[tuple[str, ...]] = [(name,) for name in sorted(self.frees)]
        if len(singles) <= MOST_VICTIMS:
            return singles
        groups = self._together()
        gpus: defaultdict[tuple[str, ...], int] = defaultdict(int)
        for tenants in self.taken:
            gpus[next(names for names in groups if tenants <= set(names))] += 1
        short = np.maximum(1, self.each - np.maximum(0, self.have))

        def worth(names: tuple[str, ...]) -> float:
            frees = sum((self.frees[name] for name in names), np.zeros_like(self.each))
            parts = (np.minimum(frees, short) * 1_000 // short)[self.each > 0].sum()
            if self.gpus:
                lack = max(1, self.gpus - self.idle)
                parts += min(gpus[names], lack) * 1_000 // lack
            return float(parts) / max(1, sum(costs[name] for name in names))

        return sorted(sorted(groups, key=lambda names: (-worth(names), names))[:MOST_VICTIMS])

    def _together(self) -> list[tuple[str, ...]]:
        """Victims that share GPUs, directly or by others, in one group."""
        group = {name: {name} for name in self.frees}
        for tenants in self.taken:
            merged = set().union(*(group[name] for name in tenants))
            for name in merged:
                group[name] = merged
        return sorted({tuple(sorted(names)) for names in group.values()})
