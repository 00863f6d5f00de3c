"""What is left of each node, as arrays over nodes and GPUs."""

from __future__ import annotations

import numpy as np

from openb_lab.workload import Bools, Ints, Kind, Workload
from trencadis.models.base import GPU_MILLI


class Cluster:
    """Idle CPU, memory and milli-GPU; changes as pods are placed. Nothing ever leaves.

    `cpu` and `memory` have shape (nodes,), `gpu` (nodes, most GPUs of a node); where a node has
    fewer GPUs, the rest are 0 as if they were full.
    """

    def __init__(self, trace: Workload) -> None:
        nodes = trace.nodes
        self.kinds = trace.kinds
        self.models = tuple(sorted({node.model for node in nodes}))
        self.model = np.array([self.models.index(node.model) for node in nodes], dtype=np.int64)
        self.cpu = np.array([node.cpu_milli for node in nodes], dtype=np.int64)
        self.memory = np.array([node.memory_mib for node in nodes], dtype=np.int64)
        most = max(node.gpus for node in nodes)
        counts = np.array([node.gpus for node in nodes])
        self.gpu: Ints = np.where(np.arange(most) < counts[:, None], GPU_MILLI, 0).astype(np.int64)
        self.whole = counts.astype(np.int64)
        """GPUs that nobody uses."""
        self.idle = int(self.gpu.sum())
        self.changes: list[int] = []
        """Nodes in the order in which something was placed on them."""
        self._allowed = [self._nodes_of(kind) for kind in trace.kinds]

    def _nodes_of(self, kind: Kind) -> Bools:
        if not kind.models:
            return np.ones(len(self.model), dtype=bool)
        wanted = [self.models.index(model) for model in kind.models if model in self.models]
        return np.isin(self.model, wanted)

    def allowed(self, kind: int) -> Bools:
        """Nodes of a model that the kind may use."""
        return self._allowed[kind]

    def fits(self, kind: int, nodes: Ints) -> Bools:
        """Whether one more pod of the kind fits on each of `nodes`."""
        asked = self.kinds[kind]
        fits = (self.cpu[nodes] >= asked.cpu) & (self.memory[nodes] >= asked.memory)
        fits &= self._allowed[kind][nodes]
        if asked.share:
            fits &= self.gpu[nodes].max(axis=1) >= asked.milli
        elif asked.gpus:
            fits &= self.whole[nodes] >= asked.gpus
        return fits

    def place(self, kind: int, node: int, gpu: int) -> None:
        """Takes what the kind asks for; `gpu` is the index that a share goes to.

        Raises ValueError where it does not fit.
        """
        asked = self.kinds[kind]
        if not self.fits(kind, np.array([node]))[0]:
            raise ValueError(f"{asked} does not fit on node {node}")
        row = self.gpu[node]
        if asked.share:
            if row[gpu] < asked.milli:
                raise ValueError(f"{asked} does not fit on GPU {gpu} of node {node}")
            self.whole[node] -= int(row[gpu] == GPU_MILLI)
            row[gpu] -= asked.milli
        elif asked.gpus:
            row[np.flatnonzero(row == GPU_MILLI)[: asked.gpus]] = 0
            self.whole[node] -= asked.gpus
        self.cpu[node] -= asked.cpu
        self.memory[node] -= asked.memory
        self.idle -= asked.total
        self.changes.append(node)
