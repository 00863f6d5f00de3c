"""What nodes would look like after several pods: explicit states apart from the cluster."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from openb_lab.cluster import Cluster
from openb_lab.value import TIGHT, Value, first_of_equals
from openb_lab.workload import Floats, Ints
from trencadis.models.base import GPU_MILLI


@dataclass(slots=True)
class States:
    """Idle resources of nodes, row by row; `node` says which node each row is about."""

    node: Ints
    cpu: Ints
    memory: Ints
    gpu: Ints

    @classmethod
    def now(cls, cluster: Cluster, nodes: Ints) -> States:
        """The nodes as they are."""
        return cls(nodes, cluster.cpu[nodes], cluster.memory[nodes], cluster.gpu[nodes])

    def rows(self, rows: Ints) -> States:
        """Some of the rows, copied."""
        return States(self.node[rows], self.cpu[rows], self.memory[rows], self.gpu[rows])


def options(policy: Value, states: States, kinds: list[int]) -> tuple[Floats, Ints]:
    """Least loss of each kind on each state and the GPU for it, shape (states, kinds).

    Infinite where the kind does not fit.
    """
    cluster = policy.cluster
    model = cluster.model[states.node]
    rows: list[Ints] = []
    columns: list[Ints] = []
    gpus: list[Ints] = []
    after: list[Ints] = []
    cpu: list[Ints] = []
    extra: list[Floats] = []
    first = first_of_equals(states.gpu)
    whole = states.gpu == GPU_MILLI
    nth = np.cumsum(whole, axis=1)
    for column, kind in enumerate(kinds):
        asked = cluster.kinds[kind]
        fits = (states.cpu >= asked.cpu) & (states.memory >= asked.memory)
        fits &= cluster.allowed(kind)[states.node]
        if asked.share:
            row, gpu = np.nonzero(fits[:, None] & first & (states.gpu >= asked.milli))
            left = states.gpu[row]
            left[np.arange(len(row)), gpu] -= asked.milli
            extra.append(np.asarray(TIGHT * left[np.arange(len(row)), gpu], dtype=np.float64))
        else:
            row = np.flatnonzero(fits & (nth[:, -1] >= asked.gpus))
            gpu = np.zeros(len(row), dtype=np.int64)
            left = np.where(whole[row] & (nth[row] <= asked.gpus), 0, states.gpu[row])
            extra.append(np.zeros(len(row)))
        rows.append(row)
        gpus.append(gpu)
        after.append(left)
        cpu.append(states.cpu[row] - asked.cpu)
        columns.append(np.full(len(row), column))
    at, of, taken = np.concatenate(rows), np.concatenate(columns), np.concatenate(gpus)
    before = policy.burden(model, states.cpu, states.gpu)
    then = policy.burden(model[at], np.concatenate(cpu), np.concatenate(after))
    loss = then + np.concatenate(extra) - before[at]
    # The last write wins, so the least loss is written last.
    order = np.argsort(-loss, kind="stable")
    best: Floats = np.full((len(states.node), len(kinds)), np.inf)
    where: Ints = np.zeros(best.shape, dtype=np.int64)
    best[at[order], of[order]] = loss[order]
    where[at[order], of[order]] = taken[order]
    return best, where


def apply(policy: Value, states: States, kinds: Ints, gpus: Ints) -> None:
    """Takes one pod of `kinds[i]` from row i, a share from GPU `gpus[i]`."""
    for row, (kind, gpu) in enumerate(zip(kinds.tolist(), gpus.tolist(), strict=True)):
        asked = policy.cluster.kinds[kind]
        states.cpu[row] -= asked.cpu
        states.memory[row] -= asked.memory
        if asked.share:
            states.gpu[row, gpu] -= asked.milli
        elif asked.gpus:
            whole = np.flatnonzero(states.gpu[row] == GPU_MILLI)[: asked.gpus]
            states.gpu[row, whole] = 0
