"""Where the running jobs of a synthetic cluster sit: a best fit with some disorder."""

from __future__ import annotations

import random
from collections.abc import Sequence

from trencadis.instances.mix import GIB, PEAK_CPU_PER_GPU, PEAK_GIB_PER_GPU, Shape
from trencadis.models import Node

Seat = tuple[int, tuple[int, ...]]
"""A task's node, by number, and its GPU indices."""

DEPTH = 16
"""Nodes tried per number of free GPUs."""
DISORDER = 0.25
"""How often a task goes to a node that fits less well."""


class Floor:
    """The free GPUs, CPUs and memory of each node."""

    def __init__(
        self, rng: random.Random, nodes: Sequence[Node], apart: frozenset[int] = frozenset()
    ) -> None:
        self.rng = rng
        self.free = [
            [] if node.cordoned or n in apart else list(node.healthy_gpus())
            for n, node in enumerate(nodes)
        ]
        self.cpu_milli = [node.cpu_milli for node in nodes]
        self.memory_mib = [node.memory_mib for node in nodes]
        self.model = [node.gpus[0].model for node in nodes]
        self.gpus = sum(
            len(node.healthy_gpus()) for n, node in enumerate(nodes) if n not in apart
        )
        self.used = 0
        # By model and number of free GPUs. Entries go stale; `_find` drops those.
        most = max((node.gpu_count for node in nodes), default=0)
        self.stacks: dict[str, list[list[int]]] = {
            model: [[] for _ in range(most + 1)] for model in dict.fromkeys(self.model)
        }
        for n in reversed(range(len(nodes))):
            self._push(n)

    def seat(self, shape: Shape) -> list[Seat] | None:
        """Seats for all tasks on one GPU model, now taken; None if they don't fit."""
        if not shape.request.gpus:
            return self._seat_without_gpus(shape)
        models = list(shape.gpu_models or self.stacks)
        self.rng.shuffle(models)
        for model in models:
            seats: list[Seat] = []
            for _ in range(shape.tasks):
                node = self._find(shape, model)
                if node is None:
                    break
                seats.append(self._take(shape, node))
            if len(seats) == shape.tasks:
                return seats
            self.leave(shape, seats)
        return None

    def leave(self, shape: Shape, seats: Sequence[Seat]) -> None:
        """The seats are free again."""
        for node, gpus in seats:
            self.free[node] = sorted((*self.free[node], *gpus))
            self.cpu_milli[node] += shape.request.cpu_milli
            self.memory_mib[node] += shape.request.memory_mib
            self.used -= len(gpus)
            self._push(node)

    def _push(self, node: int) -> None:
        self.stacks[self.model[node]][len(self.free[node])].append(node)

    def _take(self, shape: Shape, node: int) -> Seat:
        count = shape.request.gpus
        gpus = tuple(self.free[node][:count])
        del self.free[node][:count]
        self.cpu_milli[node] -= shape.request.cpu_milli
        self.memory_mib[node] -= shape.request.memory_mib
        self.used += count
        if count:
            self._push(node)
        return node, gpus

    def _fits(self, shape: Shape, node: int) -> bool:
        request = shape.request
        return (
            self.cpu_milli[node] >= request.cpu_milli
            and self.memory_mib[node] >= request.memory_mib
        )

    def _find(self, shape: Shape, model: str) -> int | None:
        stacks = self.stacks[model]
        best = range(shape.request.gpus, len(stacks))
        order = list(best)
        if self.rng.random() < DISORDER:
            self.rng.shuffle(order)
        for free in order:
            stack = stacks[free]
            tried = 0
            i = len(stack) - 1
            while i >= 0 and tried < DEPTH:
                node = stack[i]
                if len(self.free[node]) != free:
                    stack[i] = stack[-1]
                    stack.pop()
                elif self._fits(shape, node):
                    return node
                else:
                    tried += 1
                i -= 1
        return None

    def _seat_without_gpus(self, shape: Shape) -> list[Seat] | None:
        """On a node that keeps enough CPUs and memory for its idle GPUs; tasks are few."""
        for _ in range(DEPTH):
            node = self.rng.randrange(len(self.free))
            idle = len(self.free[node])
            cpu = self.cpu_milli[node] - idle * PEAK_CPU_PER_GPU * 1_000
            memory = self.memory_mib[node] - idle * PEAK_GIB_PER_GPU * GIB
            if cpu >= shape.request.cpu_milli and memory >= shape.request.memory_mib:
                return [self._take(shape, node)]
        return None
