"""One run: pods arrive one at a time, are placed or dropped; what is allocated by then."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from openb_lab.cluster import Cluster
from openb_lab.fragmentation import Fragmentation
from openb_lab.policies import NOT_HERE, Policy
from openb_lab.workload import Floats, Ints, Workload, typical

CHECKPOINTS = (50, 80, 90, 100, 110, 120, 130)
"""Arrived milli-GPU in percent of the cluster's."""


class Scores:
    """A policy's scores of all nodes, kept per kind; only nodes that changed are scored again."""

    def __init__(self, cluster: Cluster, policy: Policy) -> None:
        self.cluster = cluster
        self.policy = policy
        nodes, kinds = len(cluster.cpu), len(cluster.kinds)
        self._score: Floats = np.full((kinds, nodes), NOT_HERE)
        self._gpu: Ints = np.zeros((kinds, nodes), dtype=np.int64)
        self._seen = [-1] * kinds

    def of(self, kind: int) -> tuple[Floats, Ints]:
        """Scores, `NOT_HERE` where the kind does not fit, and GPU indices."""
        cluster, score, gpu = self.cluster, self._score[kind], self._gpu[kind]
        seen = self._seen[kind]
        if seen < 0 or self.policy.fresh:
            nodes = np.arange(len(cluster.cpu))
        else:
            nodes = np.array(sorted(set(cluster.changes[seen:])), dtype=np.int64)
        self._seen[kind] = len(cluster.changes)
        if len(nodes):
            score[nodes] = NOT_HERE
            fitting = nodes[cluster.fits(kind, nodes)]
            if len(fitting):
                score[fitting], gpu[fitting] = self.policy.score(kind, fitting)
        return score, gpu

    def forget(self) -> None:
        """Scores all anew from now on."""
        self._seen = [-1] * len(self._seen)


@dataclass(frozen=True, slots=True)
class Track:
    """Milli-GPU after each arrival: arrived, allocated; and F."""

    arrived: Ints
    allocated: Ints
    fragmented: Floats
    seconds: float
    placed: int

    def near(self, values: Floats | Ints, percent: int, capacity: int) -> float:
        """Mean of a series while arrivals are within half a percent of a checkpoint.

        That is how the published tables are read off. The series itself is returned in its unit.
        """
        share = 100 * self.arrived / capacity
        inside = (share >= percent - 0.5) & (share < percent + 0.5)
        return float(np.mean(values[inside]))


class OneAtATime:
    """Places each pod by the highest score, or drops it."""

    def __init__(self, cluster: Cluster, policy: Policy, rng: np.random.Generator) -> None:
        self.cluster = cluster
        self.scores = Scores(cluster, policy)
        self.order = rng.permutation(len(cluster.cpu))
        """Position of each node where scores are equal."""

    def place(self, kind: int) -> bool:
        """Whether the pod found a place."""
        score, gpu = self.scores.of(kind)
        best = score.max()
        if best == NOT_HERE:
            return False
        ties = np.flatnonzero(score == best)
        node = int(ties[self.order[ties].argmin()])
        self.cluster.place(kind, node, int(gpu[node]))
        return True


def run(
    trace: Workload, order: Ints, cluster: Cluster, place: Callable[[int], bool]
) -> Track:
    """Lets the pods arrive in order."""
    measure = Fragmentation(typical(trace), cluster.models, cluster.gpu.shape[1])
    totals = trace.totals()[order]
    allocated = np.zeros(len(order), dtype=np.int64)
    fragmented = np.zeros(len(order))
    each = measure.of(cluster.model, cluster.cpu, cluster.gpu)
    reached, placed, seconds = 0, 0, 0.0
    for step, kind in enumerate(order):
        begun = time.perf_counter()
        done = place(int(kind))
        seconds += time.perf_counter() - begun
        if done:
            node = cluster.changes[-1:]
            each[node] = measure.of(cluster.model[node], cluster.cpu[node], cluster.gpu[node])
            reached += int(totals[step])
            placed += 1
        allocated[step] = reached
        fragmented[step] = each.sum()
    return Track(np.cumsum(totals), allocated, fragmented, seconds, placed)
