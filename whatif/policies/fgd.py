"""Fragmentation gradient descent: each task goes where the expected fragmentation grows least.

Weng et al., Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient
Descent, USENIX ATC 2023, section 4.
"""

from __future__ import annotations

import numpy as np

from trencadis.models import Job, Snapshot
from trencadis.models.base import GPU_MILLI
from trencadis.models.trace import Trace
from trencadis.whatif.cluster import ClusterState, Ints
from trencadis.whatif.watch import Fragments

TIE = 1 << 20
"""Among equal gradients the node with the least idle GPU: below any difference of gradients."""


class LeastGradient:
    """The popularity of tasks is the trace's, as the paper takes it from history."""

    def __init__(self, trace: Trace, snapshot: Snapshot) -> None:
        state = ClusterState(snapshot)
        self._fragments = Fragments(trace, state)
        kinds: dict[bytes, int] = {}
        self._kind = [kinds.setdefault(row.tobytes(), len(kinds)) for row in state.model]
        self._known: dict[tuple[object, ...], tuple[int, int]] = {}
        """(what a task takes, what a node has) -> (value, GPU)."""

    def nodes(self, state: ClusterState, job: Job, rows: Ints, model: int) -> Ints:
        """By how much F would grow, in task-weighted milli-GPUs; ties by best fit."""
        keys = self._keys(state, job, rows, model)
        unknown = [i for i, key in enumerate(keys) if key not in self._known]
        if unknown:
            distinct = list({keys[i]: i for i in unknown}.items())
            values, gpus = self._values(state, job, rows[[i for _, i in distinct]], model)
            for (key, _), value, gpu in zip(distinct, values, gpus, strict=True):
                self._known[key] = (int(value), int(gpu))
        return np.array([self._known[key][0] for key in keys], dtype=np.int64)

    def gpu(self, state: ClusterState, job: Job, row: int, fitting: Ints) -> int:
        """The GPU on which a share makes F grow least."""
        rows = np.array([row], dtype=np.int64)
        model = int(state.model[row, fitting[0]])
        self.nodes(state, job, rows, model)
        chosen = self._known[self._keys(state, job, rows, model)[0]][1]
        return chosen if chosen in fitting else int(fitting[0])

    def _keys(
        self, state: ClusterState, job: Job, rows: Ints, model: int
    ) -> list[tuple[object, ...]]:
        share = 0 if job.request.share is None else job.request.share.gpu_milli
        takes = (job.request.gpus, share, state.need(job).tobytes(), model)
        block = np.concatenate((state.gpus[rows], state.rest[rows]), axis=1).tobytes()
        width = len(block) // max(1, len(rows))
        return [
            (takes, self._kind[row], block[i * width : (i + 1) * width])
            for i, row in enumerate(rows)
        ]

    def _values(self, state: ClusterState, job: Job, rows: Ints, model: int) -> tuple[Ints, Ints]:
        """Value of each row, and for shares the GPU that gives it."""
        gpus, rest = state.gpus[rows], state.rest[rows]
        before = self._fragments.by_node(gpus, rest, rows)
        left = rest - state.need(job)
        idle: Ints = np.maximum(gpus, 0).sum(axis=1)
        if job.request.share is None:
            whole = (gpus == GPU_MILLI) & (state.model[rows] == model)
            taken = whole & (whole.cumsum(axis=1) <= job.request.gpus)
            after = self._fragments.by_node(np.where(taken, 0, gpus), left, rows)
            return (after - before) * TIE + idle, np.zeros(len(rows), dtype=np.int64)
        milli = job.request.share.gpu_milli
        best = np.full(len(rows), np.iinfo(np.int64).max, dtype=np.int64)
        chosen = np.zeros(len(rows), dtype=np.int64)
        for gpu in range(gpus.shape[1]):
            fits = (gpus[:, gpu] >= milli) & (state.model[rows, gpu] == model)
            changed = gpus.copy()
            changed[:, gpu] -= milli
            after = self._fragments.by_node(changed, left, rows)
            value = (after - before) * TIE + idle
            better = fits & (value < best)
            best[better], chosen[better] = value[better], gpu
        return best, chosen
