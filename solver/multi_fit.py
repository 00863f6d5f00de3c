"""F': how much of a node's idle GPU is out of reach of even the largest number of equal tasks.

    F'(node) = idle - sum over kinds m of p_m * size_m * min(tasks m that the GPUs hold,
                                                             tasks m that the CPU holds)

F (`fragmentation`) asks whether one task of m still fits. F' sees as well that CPU for one
task does not feed the GPUs of four.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trencadis.models.base import GPU_MILLI
from trencadis.solver.leftover import Floats, Ints, Wanted


class MultiFit:
    """F' of many nodes at once, for a demand."""

    def __init__(self, wanted: Sequence[Wanted], models: Sequence[str]) -> None:
        total = sum(kind.count for kind in wanted)
        kinds = [kind for kind in wanted if kind.gpus]
        sizes = sorted({(kind.gpus, kind.milli) for kind in kinds})
        self._held: Ints = np.stack(
            [np.arange(GPU_MILLI + 1) // milli for _, milli in sizes], axis=1
        ).astype(np.int64)
        """Pieces of each size that an amount of idle milli-GPU of one GPU holds."""
        self._pieces: Ints = np.array([gpus for gpus, _ in sizes], dtype=np.int64)
        self._size: Ints = np.array([sizes.index((k.gpus, k.milli)) for k in kinds], dtype=np.int64)
        self._cpu: Ints = np.array([max(1, kind.cpu) for kind in kinds], dtype=np.int64)
        self._weight: Floats = np.array(
            [
                [kind.count / total * kind.gpus * kind.milli * kind.allows(model) for kind in kinds]
                for model in models
            ]
        )

    def of(self, model: Ints, cpu: Ints, gpu: Ints) -> Floats:
        """F' in milli-GPU: model index, idle CPU, idle milli-GPU (nodes, GPUs)."""
        by_gpu = self._held[gpu].sum(axis=1) // self._pieces
        tasks = np.minimum(by_gpu[:, self._size], cpu[:, None] // self._cpu)
        return np.asarray(gpu.sum(axis=1) - (tasks * self._weight[model]).sum(axis=1))
