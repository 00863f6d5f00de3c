"""Small, medium and large jobs in partitions of their own, FIFO in each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trencadis.models import Snapshot
from trencadis.models.trace import Trace, TraceJob
from trencadis.whatif.cluster import Bools, ClusterState
from trencadis.whatif.decisions import Decision, View
from trencadis.whatif.policies.ranking import BestFit
from trencadis.whatif.runs import JobRun

SIZES = ("small", "medium", "large")


def size_class(entry: TraceJob, node_milli: int) -> int:
    """0: at most one GPU; 1: at most a node; 2: more."""
    if entry.gpu_milli <= 1_000:
        return 0
    return 1 if entry.gpu_milli <= node_milli else 2


class SizeQueues:
    """Nodes are divided once, in proportion to the GPU-seconds that the trace asks of each class.

    That is more than an administrator could know in advance, in favour of this policy. Each class
    gets at least the nodes for its largest job; a job that its partition could not hold even if
    empty may use the next larger one, then all nodes.
    """

    name = "size-queues"

    def __init__(self, trace: Trace, snapshot: Snapshot) -> None:
        self._empty = ClusterState(snapshot)
        self._node_milli = self._empty.node_milli
        self.partitions = _divide(trace, self._empty, self._node_milli)
        self._home: dict[int, int] = {}

    def decide(self, view: View) -> Decision:
        """Serves each partition in order of submission."""
        draft, ranking = view.draft(), BestFit()
        everything = draft.state.open
        queues: dict[int, list[JobRun]] = {}
        for run in view.pending:
            queues.setdefault(self._partition(view, run), []).append(run)
        for partition, queue in sorted(queues.items()):
            draft.state.open = everything & self.partitions[partition]
            for run in queue:
                if not draft.limited(run) and not draft.try_start(run, ranking):
                    break
        return draft.decision()

    def _partition(self, view: View, run: JobRun) -> int:
        if run.shape not in self._home:
            empty = self._empty.copy()
            own = size_class(run.entry, self._node_milli)
            for partition in range(own, len(self.partitions)):
                empty.open = self._empty.open & self.partitions[partition]
                if view.placer.place(empty, run.job, view.now, BestFit()) is not None:
                    break
            self._home[run.shape] = partition
        return self._home[run.shape]


def _divide(trace: Trace, state: ClusterState, node_milli: int) -> list[Bools]:
    """A mask of nodes for each class, and one of all nodes."""
    asked, largest = [0, 0, 0], [0, 0, 0]
    for entry in trace.jobs:
        kind = size_class(entry, node_milli)
        asked[kind] += entry.gpu_milli * entry.seconds
        largest[kind] = max(largest[kind], entry.gpu_milli)
    nodes = np.flatnonzero(state.up)
    counts = shares(len(nodes), asked, [-(-most // max(1, node_milli)) for most in largest])
    masks, first = [], 0
    for count in counts:
        mask = np.zeros(len(state.names), dtype=bool)
        mask[nodes[first : first + count]] = True
        masks.append(mask)
        first += count
    return [*masks, np.ones(len(state.names), dtype=bool)]


def shares(total: int, weights: Sequence[int], least: Sequence[int]) -> list[int]:
    """Whole numbers that add up to `total`, near to the weights, none below its least if possible.

    One after another goes to whoever is furthest below his part.
    """
    counts = list(least)
    while sum(counts) > total:
        counts[int(np.argmax(counts))] -= 1
    whole = max(1, sum(weights))
    while sum(counts) < total:
        due = [weight * total / whole for weight in weights]
        behind = [part - have for part, have in zip(due, counts, strict=True)]
        counts[int(np.argmax(behind))] += 1
    return counts
