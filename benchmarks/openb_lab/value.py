"""Trencadis' policy for one pod: the node that loses the least of what it is worth to what comes.

The loss of a placement is that of `trencadis.solver.leftover`'s value, plus a part of the growth of
F' (`trencadis.solver.multi_fit`), plus a little for every milli-GPU left beside a share, which
breaks ties by packing. Losses that differ by less than `BUCKET` are equal: differences below about
2 % of a GPU are noise, and a fixed order of nodes keeps the last ones whole.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from openb_lab.cluster import Cluster
from openb_lab.workload import Bools, Floats, Ints, Kind, Workload, typical
from trencadis.models.base import GPU_MILLI
from trencadis.solver.leftover import Leftover, Wanted
from trencadis.solver.leftover_prices import PriceProgram, pool
from trencadis.solver.multi_fit import MultiFit

MULTI_FIT = 0.2
"""Weight of F'."""
TIGHT = 0.04
"""Loss per milli-GPU left on the GPU that a share goes to."""
BUCKET = 20
"""Milli-GPU."""
EVERY = 500
"""Arrivals after which prices are found anew."""
CPU_RATES: Floats = np.concatenate([[0.0], np.geomspace(0.002, 0.25, 31)])
"""Milli-GPU per milli-CPU that `Leftover` tries."""


def expected(kinds: Sequence[tuple[Kind, float]], idle: float, cpu_per_gpu: float) -> list[Wanted]:
    """As many pods of the given popularity as would fill `idle` milli-GPU.

    A pod is worth its milli-GPU; one without GPUs as much as its CPU is of a GPU's part of it.
    """
    mean = sum(share * kind.total for kind, share in kinds)
    counts: dict[tuple[int, int, int, tuple[str, ...]], float] = {}
    for kind, share in kinds:
        key = (kind.gpus, kind.milli, kind.cpu, kind.models)
        counts[key] = counts.get(key, 0.0) + share
    return [
        Wanted(
            gpus=gpus,
            milli=milli,
            cpu=cpu,
            models=frozenset(models),
            count=share * idle / mean,
            worth=gpus * milli if gpus else GPU_MILLI * cpu / cpu_per_gpu,
        )
        for (gpus, milli, cpu, models), share in sorted(counts.items())
    ]


def first_of_equals(gpu: Ints) -> Bools:
    """By node and GPU, whether none before it has as much left: those that do are the same."""
    first = np.ones(gpu.shape, dtype=bool)
    for column in range(1, gpu.shape[1]):
        first[:, column] = (gpu[:, :column] != gpu[:, column : column + 1]).all(axis=1)
    return first


class Value:
    """Scores nodes by the loss of value, at prices that are found anew now and then."""

    every = EVERY

    def __init__(self, cluster: Cluster, trace: Workload) -> None:
        self.cluster = cluster
        self.popularity = list(zip(trace.kinds, trace.popularity().tolist(), strict=True))
        self.cpu_per_gpu = float(cluster.cpu.sum() * GPU_MILLI / cluster.idle)
        common = expected(typical(trace), cluster.idle, self.cpu_per_gpu)
        self.multi_fit = MultiFit(common, cluster.models)
        self._prices: Floats | None = None
        self.refresh()

    def refresh(self) -> None:
        """Finds prices for what is idle now."""
        cluster = self.cluster
        wanted = expected(self.popularity, max(cluster.idle, GPU_MILLI), self.cpu_per_gpu)
        classes = pool(cluster.models, cluster.model, cluster.cpu, cluster.gpu)
        _, self._prices = PriceProgram(wanted, classes).solve(self._prices)
        most = cluster.gpu.shape[1]
        self.leftover = Leftover(wanted, self._prices, cluster.models, most, CPU_RATES)

    def burden(self, model: Ints, cpu: Ints, gpu: Ints) -> Floats:
        """What placements should keep small: the less valuable what is left, the larger."""
        waste = self.multi_fit.of(model, cpu, gpu)
        return np.asarray(MULTI_FIT * waste - self.leftover.of(model, cpu, gpu))

    def losses(self, kind: int, nodes: Ints) -> tuple[Floats, Ints]:
        """Least loss in milli-GPU on each node, and the GPU for a share."""
        cluster, asked = self.cluster, self.cluster.kinds[kind]
        model, cpu, gpu = cluster.model[nodes], cluster.cpu[nodes], cluster.gpu[nodes]
        before = self.burden(model, cpu, gpu)
        if not asked.share:
            after = gpu.copy()
            if asked.gpus:
                whole = gpu == GPU_MILLI
                after[whole & (np.cumsum(whole, axis=1) <= asked.gpus)] = 0
            loss = self.burden(model, cpu - asked.cpu, after) - before
            return loss, np.zeros(len(nodes), dtype=np.int64)
        rows, columns = np.nonzero((gpu >= asked.milli) & first_of_equals(gpu))
        after = gpu[rows]
        after[np.arange(len(rows)), columns] -= asked.milli
        each = np.full(gpu.shape, np.inf)
        each[rows, columns] = self.burden(model[rows], cpu[rows] - asked.cpu, after)
        each[rows, columns] += TIGHT * (gpu[rows, columns] - asked.milli)
        best = each.argmin(axis=1)
        return each[np.arange(len(nodes)), best] - before, np.asarray(best)

    def score(self, kind: int, nodes: Ints) -> tuple[Floats, Ints]:
        """See `policies.Policy`."""
        loss, gpu = self.losses(kind, nodes)
        return -np.floor(loss / BUCKET + 0.5), gpu
