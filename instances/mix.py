"""What the jobs of a synthetic cluster ask for: sizes, requests, gangs, GPU models, runtimes."""

from __future__ import annotations

import random
from bisect import bisect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Generic, TypeVar

from trencadis.models import Request, Topology

T = TypeVar("T")

GIB = 1_024
PEAK_CPU_PER_GPU = 20
PEAK_GIB_PER_GPU = 200
"""Per GPU, of the hungriest requests below."""

# GPUs of a task -> (CPUs, GiB of memory, how common). Few distinct requests, as users copy them.
REQUESTS: dict[int, tuple[tuple[int, int, int], ...]] = {
    0: ((8, 32, 60), (32, 128, 40)),
    1: ((8, 64, 35), (16, 128, 45), (20, 200, 20)),
    2: ((24, 192, 50), (32, 256, 50)),
    4: ((48, 384, 50), (64, 512, 50)),
    8: ((96, 768, 45), (128, 1_024, 40), (160, 1_536, 15)),
}
# GPUs of a job with one task -> how common. Large jobs run long: they run more than they wait.
PENDING_SIZES = {1: 180, 2: 12, 4: 5, 8: 3}
RUNNING_SIZES = {1: 52, 2: 14, 4: 14, 8: 20}
# Nodes of a gang -> how common.
GANG_NODES = {2: 790, 3: 60, 4: 85, 5: 10, 6: 15, 8: 25, 12: 8, 16: 7}
# How common: the first GPU model only, any model, the second model only.
MODELS_OF_JOBS = (68, 20, 12)
MODELS_OF_GANGS = (84, 10, 6)
# Seconds; users ask for round times. None: no estimate.
RUNTIMES: dict[int | None, int] = {
    1_800: 8,
    3_600: 12,
    7_200: 14,
    14_400: 18,
    28_800: 14,
    86_400: 20,
    172_800: 7,
    604_800: 4,
    None: 3,
}
TIERS: dict[str | None, int] = {"high": 10, None: 65, "low": 25}


@dataclass(frozen=True, slots=True)
class Shape:
    """What a drawn job asks for, before it has a queue, a user and a time."""

    tasks: int
    request: Request
    gpu_models: tuple[str, ...]
    communicates: bool = True
    topology: Topology | None = None

    @property
    def gpus(self) -> int:
        """GPUs of all tasks."""
        return self.tasks * self.request.gpus


class Wheel(Generic[T]):
    """Draws values, each as often as its weight says."""

    def __init__(self, values: Iterable[T], weights: Iterable[float]) -> None:
        self.values = tuple(values)
        self.ends = tuple(accumulate(weights))

    @classmethod
    def of(cls, table: Mapping[T, float]) -> Wheel[T]:
        """From a table of values and weights."""
        return cls(table, table.values())

    def draw(self, rng: random.Random) -> T:
        """One of the values."""
        return self.values[bisect(self.ends, rng.random() * self.ends[-1], 0, len(self.ends) - 1)]


def requests_of(size: int) -> Wheel[Request]:
    """The requests of tasks with this many GPUs, each as common as the table says."""
    rows = REQUESTS[size]
    return Wheel(
        [Request(gpus=size, cpu_milli=cpus * 1_000, memory_mib=gib * GIB) for cpus, gib, _ in rows],
        [weight for _, _, weight in rows],
    )


class Mix:
    """Draws jobs that fit a cluster of nodes with `gpus_per_node` GPUs of the given models."""

    def __init__(
        self,
        rng: random.Random,
        *,
        gpus_per_node: int,
        gpu_models: Sequence[str],
        nodes_per_leaf: int,
        nodes: int,
        cpu_only: float,
    ) -> None:
        self.rng = rng
        self.nodes_per_leaf = nodes_per_leaf
        self.most_nodes = max(2, nodes // 4)
        self.cpu_only = cpu_only
        self.requests = {size: requests_of(size) for size in REQUESTS if size <= gpus_per_node}
        self.whole = max(self.requests)
        self.pending_sizes = self._fitting(PENDING_SIZES)
        self.running_sizes = self._fitting(RUNNING_SIZES)
        self.gang_nodes = Wheel.of(GANG_NODES)
        first, second = gpu_models[0], gpu_models[-1]
        allowed = ((first,), (), (second,)) if first != second else ((), (), ())
        self.models_of_jobs = Wheel(allowed, MODELS_OF_JOBS)
        self.models_of_gangs = Wheel(allowed, MODELS_OF_GANGS)

    def small(self, model: str) -> Shape:
        """The job that fits nearly everywhere: one GPU, few CPUs."""
        return Shape(1, self.requests[1].values[0], (model,))

    def pending(self, gang: bool) -> Shape:
        """A job that waits."""
        return self._gang(wishes=True) if gang else self._single(self.pending_sizes)

    def running(self, gang: bool) -> Shape:
        """A job that was started earlier."""
        return self._gang(wishes=False) if gang else self._single(self.running_sizes)

    def _fitting(self, sizes: dict[int, int]) -> Wheel[int]:
        return Wheel.of({size: weight for size, weight in sizes.items() if size in self.requests})

    def _request(self, size: int) -> Request:
        return self.requests[size].draw(self.rng)

    def _single(self, sizes: Wheel[int]) -> Shape:
        rng = self.rng
        if rng.random() < self.cpu_only:
            return Shape(1, self._request(0), ())
        size = sizes.draw(rng)
        communicates = size == 1 or rng.random() >= 0.1
        return Shape(1, self._request(size), self.models_of_jobs.draw(rng), communicates)

    def _gang(self, wishes: bool) -> Shape:
        """A gang over 2 to 16 nodes; tasks of whole nodes mostly, of half nodes otherwise."""
        rng = self.rng
        nodes = min(self.gang_nodes.draw(rng), self.most_nodes)
        half = self.whole > 1 and rng.random() < 0.4
        tasks = max(3, nodes) if half else nodes
        request = self._request(self.whole // 2 if half else self.whole)
        communicates = rng.random() >= 0.12
        topology = self._topology(nodes) if wishes and communicates else None
        return Shape(tasks, request, self.models_of_gangs.draw(rng), communicates, topology)

    def _topology(self, nodes: int) -> Topology | None:
        chance = self.rng.random()
        if chance < 0.08 and nodes * 2 <= self.nodes_per_leaf:
            return Topology(level="leaf", mode="required")
        if chance < 0.14:
            return Topology(level="spine", mode="required")
        if chance < 0.17:
            return Topology(level="spine", mode="required", relax_after_seconds=14_400)
        if chance < 0.24:
            return Topology(level="leaf", mode="preferred")
        return None
