"""Where one pod goes: the policies that the ATC'23 paper compares, each with its published score.

A policy scores nodes for a kind; the highest score wins, ties go to the first node in an order that
is drawn once per run, as in the published simulator. Scores are whole numbers from 0 to 100, as
Kubernetes asks of a scheduler plugin: this rounding is part of what was published.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from openb_lab.cluster import Cluster
from openb_lab.fragmentation import Fragmentation
from openb_lab.workload import Floats, Ints, Workload, typical

MOST_CPU = 128_000
MOST_GPU = 8_000
"""Scale of CPU and GPU in the scores of best fit and dot product."""

NOT_HERE = -np.inf


class Policy(Protocol):
    """Scores nodes for one more pod."""

    every: int
    """Arrivals after which `refresh` is due and earlier scores no longer hold; 0 for never."""

    def refresh(self) -> None:
        """Looks at the cluster anew."""

    def score(self, kind: int, nodes: Ints) -> tuple[Floats, Ints]:
        """Score (higher is better) and GPU index for a share, of nodes on which the kind fits."""
        ...


class Tightest:
    """The choice of a GPU by best fit: the smallest that suffices."""

    every = 0

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def refresh(self) -> None:
        """Nothing to do."""

    def gpu(self, kind: int, nodes: Ints) -> Ints:
        """The GPU with the least idle that suffices."""
        idle = self.cluster.gpu[nodes]
        milli = self.cluster.kinds[kind].milli
        return np.asarray(np.where(idle >= milli, idle, MOST_GPU).argmin(axis=1))


class BestFit(Tightest):
    """Least CPU and GPU left over, each by the largest node's, half and half."""

    def score(self, kind: int, nodes: Ints) -> tuple[Floats, Ints]:
        """See `Policy`."""
        asked = self.cluster.kinds[kind]
        cpu = (self.cluster.cpu[nodes] - asked.cpu) / MOST_CPU
        gpu = (self.cluster.gpu[nodes].sum(axis=1) - asked.total) / MOST_GPU
        return np.floor((1 - 0.5 * cpu - 0.5 * gpu) * 100), self.gpu(kind, nodes)


class DotProduct(Tightest):
    """The smallest product of request and what is idle: Tetris (SIGCOMM'14), its sign turned."""

    def score(self, kind: int, nodes: Ints) -> tuple[Floats, Ints]:
        """See `Policy`."""
        asked = self.cluster.kinds[kind]
        cpu = self.cluster.cpu[nodes] / MOST_CPU * (asked.cpu / MOST_CPU)
        gpu = self.cluster.gpu[nodes].sum(axis=1) / MOST_GPU * (asked.total / MOST_GPU)
        return np.floor((1 - (cpu + gpu) / 2) * 100), self.gpu(kind, nodes)


class RandomFit:
    """Any node on which the pod fits, any GPU that suffices."""

    every = 1

    def __init__(self, cluster: Cluster, rng: np.random.Generator) -> None:
        self.cluster = cluster
        self.rng = rng

    def refresh(self) -> None:
        """Nothing to do; that scores no longer hold is enough."""

    def score(self, kind: int, nodes: Ints) -> tuple[Floats, Ints]:
        """See `Policy`."""
        idle = self.cluster.gpu[nodes]
        draw = self.rng.random(idle.shape)
        gpu = np.where(idle >= self.cluster.kinds[kind].milli, draw, -1.0).argmax(axis=1)
        return self.rng.random(len(nodes)), np.asarray(gpu)


class Fgd:
    """Fragmentation gradient descent: int(100 * sigmoid(-dF / 1000)), dF in milli-GPU.

    With `exact`, -dF itself.
    """

    every = 0

    def __init__(self, cluster: Cluster, trace: Workload, *, exact: bool = False) -> None:
        self.cluster = cluster
        self.exact = exact
        self.measure = Fragmentation(typical(trace), cluster.models, cluster.gpu.shape[1])

    def refresh(self) -> None:
        """Nothing to do."""

    def score(self, kind: int, nodes: Ints) -> tuple[Floats, Ints]:
        """See `Policy`."""
        cluster, asked = self.cluster, self.cluster.kinds[kind]
        model, cpu, gpu = cluster.model[nodes], cluster.cpu[nodes], cluster.gpu[nodes]
        before = self.measure.of(model, cpu, gpu)
        if not asked.share:
            after = self.measure.after_whole(model, cpu - asked.cpu, gpu, asked.gpus)
            return self._rounded(before - after), np.zeros(len(nodes), dtype=np.int64)
        each = self.measure.after_share(model, cpu - asked.cpu, gpu, asked.milli)
        scores = self._rounded(before[:, None] - each)
        best = scores.argmax(axis=1)
        return scores[np.arange(len(nodes)), best], np.asarray(best)

    def _rounded(self, gain: Floats) -> Floats:
        if self.exact:
            return gain
        return np.floor(100 / (1 + np.exp(-gain / 1_000)))
