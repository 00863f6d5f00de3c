"""FGD's measure F of many nodes at once, from tables over idle milli-GPU.

F(node) = sum over request kinds m of p_m * (idle milli-GPU of the node that m can't use): all of it
where m does not fit or needs no GPU, else what lies in pieces smaller than m asks for on one GPU
(Weng et al., USENIX ATC'23, section 3). A kind for one GPU uses every piece that is large enough,
so its part of F is a sum over GPUs of a function of the piece; a kind for several whole GPUs uses
all whole ones or none. Both depend on CPU through the kinds that still fit, hence tables by CPU.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from openb_lab.workload import Floats, Ints, Kind
from trencadis.models.base import GPU_MILLI


class Fragmentation:
    """Tables of usable milli-GPU: by model, by step of CPU, by piece or by count of whole GPUs."""

    def __init__(
        self, kinds: Sequence[tuple[Kind, float]], models: Sequence[str], most_gpus: int
    ) -> None:
        self.steps: Ints = np.unique([0, *(kind.cpu for kind, _ in kinds)]).astype(np.int64)
        shape = (len(models), len(self.steps))
        pieces: Floats = np.zeros((*shape, GPU_MILLI + 1))
        whole: Floats = np.zeros((*shape, most_gpus + 1))
        for kind, weight in kinds:
            if not kind.gpus:
                continue
            step = int(np.searchsorted(self.steps, kind.cpu))
            for row, model in enumerate(models):
                if kind.models and model not in kind.models:
                    continue
                if kind.gpus == 1:
                    pieces[row, step:, kind.milli :] += weight
                else:
                    whole[row, step:, kind.gpus :] += weight
        self.pieces = pieces * np.arange(GPU_MILLI + 1)
        """Milli-GPU of a piece that a random pod can use, shape (models, steps, 1,001)."""
        self.whole = whole * GPU_MILLI * np.arange(most_gpus + 1)

    def of(self, model: Ints, cpu: Ints, gpu: Ints) -> Floats:
        """F in milli-GPU of nodes with these models, idle CPU and idle milli-GPU (nodes, GPUs)."""
        step = self.step(cpu)
        whole = (gpu == GPU_MILLI).sum(axis=1)
        usable = self.pieces[model[:, None], step[:, None], gpu].sum(axis=1)
        usable += self.whole[model, step, whole]
        return np.asarray(gpu.sum(axis=1) - usable)

    def step(self, cpu: Ints) -> Ints:
        """Row of the tables for an amount of idle CPU."""
        return np.asarray(np.searchsorted(self.steps, cpu, side="right") - 1)

    def after_share(self, model: Ints, cpu: Ints, gpu: Ints, milli: int) -> Floats:
        """F of each node if `milli` were taken from one of its GPUs, shape (nodes, GPUs).

        `cpu` is what is idle afterwards. Infinite where a GPU has less than `milli`.
        """
        step = self.step(cpu)
        table = self.pieces[model, step]
        rows = np.arange(len(model))[:, None]
        used_now = table[rows, gpu]
        left = gpu - milli
        used_then = table[rows, np.maximum(left, 0)]
        full = gpu == GPU_MILLI
        count = full.sum(axis=1)[:, None] - full
        usable = used_now.sum(axis=1)[:, None] - used_now + used_then
        usable = usable + self.whole[model[:, None], step[:, None], count]
        return np.where(left >= 0, gpu.sum(axis=1)[:, None] - milli - usable, np.inf)

    def after_whole(self, model: Ints, cpu: Ints, gpu: Ints, gpus: int) -> Floats:
        """F of each node if `gpus` whole GPUs were taken; `cpu` is what is idle afterwards."""
        step = self.step(cpu)
        whole = (gpu == GPU_MILLI).sum(axis=1) - gpus
        usable = self.pieces[model[:, None], step[:, None], gpu].sum(axis=1)
        usable -= gpus * self.pieces[model, step, GPU_MILLI]
        usable += self.whole[model, step, np.maximum(whole, 0)]
        return np.asarray(gpu.sum(axis=1) - gpus * GPU_MILLI - usable)
