"""A policy's scores, kept per kind: only nodes that changed are scored again."""

from __future__ import annotations

import numpy as np

from openb_lab.cluster import Cluster
from openb_lab.policies import NOT_HERE, Policy
from openb_lab.workload import Floats, Ints


class Scores:
    """Scores of all nodes for each kind, brought up to date when asked for."""

    def __init__(self, cluster: Cluster, policy: Policy) -> None:
        self.cluster = cluster
        self.policy = policy
        nodes, kinds = len(cluster.cpu), len(cluster.kinds)
        self._score: Floats = np.full((kinds, nodes), NOT_HERE)
        self._gpu: Ints = np.zeros((kinds, nodes), dtype=np.int64)
        self._seen = [-1] * kinds
        self._age = 0

    def arrive(self, pods: int) -> None:
        """Tells of arrivals; refreshes the policy where that is due."""
        self._age += pods
        if self.policy.every and self._age >= self.policy.every:
            self._age = 0
            self.policy.refresh()
            self._seen = [-1] * len(self._seen)

    def of(self, kind: int) -> tuple[Floats, Ints]:
        """Scores, `NOT_HERE` where the kind does not fit, and GPU indices."""
        cluster, score, gpu = self.cluster, self._score[kind], self._gpu[kind]
        seen = self._seen[kind]
        if seen < 0:
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
