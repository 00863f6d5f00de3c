"""One run: pods arrive in rounds, are placed or dropped for good; what is allocated by then."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from openb_lab.cluster import Cluster
from openb_lab.fragmentation import Fragmentation
from openb_lab.policies import NOT_HERE, Policy
from openb_lab.scores import Scores
from openb_lab.workload import Floats, Ints, Workload, typical

CHECKPOINTS = (50, 80, 90, 100, 110, 120, 130)
"""Arrived milli-GPU in percent of the cluster's."""


class Placer(Protocol):
    """Places the pods of a round."""

    def place(self, batch: list[int]) -> list[bool]:
        """Whether each pod, given by its kind, found a place."""
        ...


class OneAtATime:
    """Places each pod by the highest score, or drops it."""

    def __init__(self, cluster: Cluster, policy: Policy, rng: np.random.Generator) -> None:
        self.cluster = cluster
        self.scores = Scores(cluster, policy)
        self.order = rng.permutation(len(cluster.cpu))
        """Position of each node where scores are equal."""

    def place(self, batch: list[int]) -> list[bool]:
        """See `Placer`."""
        return [self._place(kind) for kind in batch]

    def _place(self, kind: int) -> bool:
        self.scores.arrive(1)
        score, gpu = self.scores.of(kind)
        best = score.max()
        if best == NOT_HERE:
            return False
        ties = np.flatnonzero(score == best)
        node = int(ties[self.order[ties].argmin()])
        self.cluster.place(kind, node, int(gpu[node]))
        return True


@dataclass(frozen=True, slots=True)
class Track:
    """What each round led to, one entry per round."""

    arrived: Floats
    """Milli-GPU that pods have asked for, in percent of the cluster's."""
    allocated: Floats
    """Likewise what they were given."""
    fragmented: Floats
    """Likewise F."""
    seconds: Floats
    """Wall time of the round."""

    def at(self, series: Floats, percent: int) -> float:
        """Mean of a series while arrivals are within half a percent of a checkpoint.

        The published tables are read off in this way.
        """
        inside = (self.arrived >= percent - 0.5) & (self.arrived < percent + 0.5)
        if not inside.any():
            # A round brings more than a percent: the one that ends nearest.
            inside[np.abs(self.arrived - percent).argmin()] = True
        return float(series[inside].mean())


def run(trace: Workload, order: Ints, cluster: Cluster, placer: Placer, batch: int) -> Track:
    """Lets the pods arrive in order, `batch` a round."""
    measure = Fragmentation(typical(trace), cluster.models, cluster.gpu.shape[1])
    totals = trace.totals()
    each = measure.of(cluster.model, cluster.cpu, cluster.gpu)
    arrived = allocated = 0
    rows = []
    for start in range(0, len(order), batch):
        pods = [int(kind) for kind in order[start : start + batch]]
        known = len(cluster.changes)
        begun = time.perf_counter()
        placed = placer.place(pods)
        seconds = time.perf_counter() - begun
        changed = np.array(cluster.changes[known:], dtype=np.int64)
        each[changed] = measure.of(
            cluster.model[changed], cluster.cpu[changed], cluster.gpu[changed]
        )
        arrived += int(totals[pods].sum())
        allocated += int(totals[pods][placed].sum())
        rows.append((arrived, allocated, each.sum(), seconds))
    table = np.array(rows)
    table[:, :3] *= 100 / trace.capacity
    return Track(*table.T)
