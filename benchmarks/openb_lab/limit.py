"""The most that any placement could allocate, by a linear program over share patterns."""

from __future__ import annotations

import numpy as np

from openb_lab.cluster import Cluster
from openb_lab.workload import Ints, Workload
from trencadis.solver.leftover import Wanted
from trencadis.solver.leftover_prices import PriceProgram, pool


def limit(trace: Workload, order: Ints, percent: int = 100) -> float:
    """Percent of the cluster's milli-GPU, for the pods that have arrived at `percent`.

    Pods may be left out and cut into parts, as a relaxation allows; each GPU holds whole shares.
    """
    cluster = Cluster(trace)
    reached = np.cumsum(trace.totals()[order])
    first = int(np.searchsorted(reached, trace.capacity * percent / 100, side="right"))
    counts = np.bincount(order[:first], minlength=len(trace.kinds))
    merged: dict[tuple[int, int, frozenset[str]], int] = {}
    for kind, count in zip(trace.kinds, counts.tolist(), strict=True):
        if kind.gpus and count:
            key = (kind.gpus, kind.milli, frozenset(kind.models))
            merged[key] = merged.get(key, 0) + count
    wanted = [
        Wanted(gpus, milli, 0, models, float(count), float(gpus * milli))
        for (gpus, milli, models), count in sorted(
            merged.items(), key=lambda item: (*item[0][:2], sorted(item[0][2]))
        )
    ]
    classes = pool(cluster.models, cluster.model, cluster.cpu, cluster.gpu)
    value, _ = PriceProgram(wanted, classes).solve(rounds=None)
    return 100 * value / trace.capacity
