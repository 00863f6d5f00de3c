"""Which of the nodes that fit a task is taken: best fit."""

from __future__ import annotations

import numpy as np

from trencadis.models import Job
from trencadis.whatif.cluster import ClusterState, Ints


class BestFit:
    """The node on which the fewest GPUs stay idle, and the GPU on which the least of it does."""

    def nodes(self, state: ClusterState, job: Job, rows: Ints, model: int) -> Ints:
        """Milli-GPUs idle before; what the task takes is the same everywhere."""
        free: Ints = np.maximum(state.gpus[rows], 0)
        if job.request.share is None:
            idle: Ints = free.sum(axis=1)
            return idle
        # A share goes where a piece is left that it fills, before a whole GPU is broken.
        milli = job.request.share.gpu_milli
        fits = (free >= milli) & (state.model[rows] == model)
        piece: Ints = np.where(fits, free, 1 << 20).min(axis=1)
        value: Ints = piece * (1 << 20) + free.sum(axis=1)
        return value

    def gpu(self, state: ClusterState, job: Job, row: int, fitting: Ints) -> int:  # noqa: ARG002
        """The fullest GPU."""
        return int(fitting[np.argmin(state.gpus[row, fitting])])
