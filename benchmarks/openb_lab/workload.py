"""What arrives, and in which order: a trace's pods shuffled, then random clones of them.

The protocol of Weng et al., "Beware of Fragmentation" (USENIX ATC'23), section 6.1.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from trencadis.instances.openb_csv import NodeRow, PodRow, read_nodes, read_pods
from trencadis.models.base import GPU_MILLI
from trencadis.models.faults import Fault, InvalidInputError

INFLATION = 1.3
"""Arrivals end when they ask for this many times the cluster's GPUs."""

NODES_CSV = "openb_node_list_gpu_node.csv"
PODS_CSV = "openb_pod_list_{}.csv"

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Kind:
    """Pods that ask for the same."""

    gpus: int
    milli: int
    """Of each GPU; below 1,000 it is a share."""
    cpu: int
    memory: int
    models: tuple[str, ...]
    """Allowed models; any where empty."""

    @property
    def total(self) -> int:
        """Milli-GPU in all."""
        return self.gpus * self.milli

    @property
    def share(self) -> bool:
        """Whether it takes a part of one GPU."""
        return self.gpus == 1 and self.milli < GPU_MILLI


@dataclass(frozen=True, slots=True)
class Workload:
    """A cluster and the pods of a trace, as kinds."""

    nodes: tuple[NodeRow, ...]
    kinds: tuple[Kind, ...]
    pods: Ints
    """Index of each pod's kind, in the order of the table."""

    @property
    def capacity(self) -> int:
        """Milli-GPU of all nodes."""
        return GPU_MILLI * sum(node.gpus for node in self.nodes)

    def totals(self) -> Ints:
        """Milli-GPU per kind."""
        return np.array([kind.total for kind in self.kinds], dtype=np.int64)

    def popularity(self) -> Floats:
        """Share of each kind among the pods."""
        counts = np.bincount(self.pods, minlength=len(self.kinds))
        return np.asarray(counts / counts.sum())


def load(folder: Path, name: str) -> Workload:
    """Reads the GPU nodes and the pods of workload `name`. Raises InvalidInputError."""
    faults: list[Fault] = []
    nodes = read_nodes(folder / NODES_CSV, faults)
    rows = read_pods(folder / PODS_CSV.format(name), faults)
    if faults:
        raise InvalidInputError(faults)
    return workload(nodes, rows)


def workload(nodes: list[NodeRow], rows: list[PodRow]) -> Workload:
    """Groups pods by what they ask for."""
    asked = [
        Kind(row.gpus, row.gpu_milli if row.gpus else 0, row.cpu_milli, row.memory_mib, models)
        for row in rows
        for models in (tuple(sorted(row.models)) if row.gpus else (),)
    ]
    kinds = tuple(sorted(set(asked), key=lambda k: (k.gpus, k.milli, k.cpu, k.memory, k.models)))
    index = {kind: i for i, kind in enumerate(kinds)}
    return Workload(tuple(nodes), kinds, np.array([index[kind] for kind in asked], dtype=np.int64))


def arrivals(trace: Workload, rng: np.random.Generator) -> Ints:
    """Kinds in order of arrival: all pods shuffled, then clones drawn at random.

    Where the trace alone asks for more than `INFLATION` times the GPUs, random pods are left out.
    """
    totals = trace.totals()
    order = rng.permutation(trace.pods)
    target = int(INFLATION * trace.capacity)
    asked = int(totals[order].sum())
    while asked > target:
        gone = int(rng.integers(len(order)))
        asked -= int(totals[order[gone]])
        order = np.delete(order, gone)
    clones: list[int] = []
    while True:
        kind = int(trace.pods[rng.integers(len(trace.pods))])
        if asked + totals[kind] > target:
            return np.concatenate([order, np.array(clones, dtype=np.int64)])
        asked += int(totals[kind])
        clones.append(kind)


def typical(trace: Workload, covered: float = 0.95) -> list[tuple[Kind, float]]:
    """The most popular requests that make up `covered` of all pods, with their shares among these.

    Memory is left out, as in the published measure of fragmentation.
    """
    counts: Counter[Kind] = Counter()
    for kind, pods in zip(trace.kinds, np.bincount(trace.pods), strict=True):
        counts[Kind(kind.gpus, kind.milli, kind.cpu, 0, kind.models)] += int(pods)
    ranked = sorted(
        counts.items(),
        key=lambda item: (item[1], item[0].cpu, item[0].milli, item[0].gpus, item[0].models),
        reverse=True,
    )
    chosen: list[tuple[Kind, int]] = []
    reached = 0
    for kind, count in ranked:
        if reached >= covered * len(trace.pods):
            break
        chosen.append((kind, count))
        reached += count
    return [(kind, count / reached) for kind, count in chosen]
