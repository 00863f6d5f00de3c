"""Runs policies on the same arrivals and puts their figures side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from openb_lab.batch import Rounds
from openb_lab.cluster import Cluster
from openb_lab.limit import limit
from openb_lab.policies import BestFit, DotProduct, Fgd, RandomFit
from openb_lab.run import CHECKPOINTS, OneAtATime, Placer, run
from openb_lab.value import Value
from openb_lab.workload import Workload, arrivals

Make = Callable[[Cluster, Workload, np.random.Generator], Placer]

ONE_AT_A_TIME: dict[str, Make] = {
    "trencadis": lambda cluster, trace, rng: OneAtATime(cluster, Value(cluster, trace), rng),
    "fgd": lambda cluster, trace, rng: OneAtATime(cluster, Fgd(cluster, trace), rng),
    "fgd-exact": lambda cluster, trace, rng: OneAtATime(
        cluster, Fgd(cluster, trace, exact=True), rng
    ),
    "best-fit": lambda cluster, _, rng: OneAtATime(cluster, BestFit(cluster), rng),
    "dot-product": lambda cluster, _, rng: OneAtATime(cluster, DotProduct(cluster), rng),
    "random": lambda cluster, _, rng: OneAtATime(cluster, RandomFit(cluster, rng), rng),
}
BATCHED = "trencadis-batch"
POLICIES = (*ONE_AT_A_TIME, BATCHED)


def measure(trace: Workload, policy: str, seed: int, batch: int) -> dict[str, Any]:
    """Allocation and F in percent of the cluster's GPUs at each checkpoint, and wall time."""
    rng = np.random.default_rng(seed)
    order = arrivals(trace, rng)
    cluster = Cluster(trace)
    begun = time.perf_counter()
    if policy == BATCHED:
        track = run(trace, order, cluster, Rounds(Value(cluster, trace), rng), batch)
    else:
        placer = ONE_AT_A_TIME[policy](cluster, trace, rng)
        track = run(trace, order, cluster, placer, 1)
    return {
        "policy": policy,
        "seed": seed,
        "allocated_pct": {str(at): track.at(track.allocated, at) for at in CHECKPOINTS},
        "fragmented_pct": {str(at): track.at(track.fragmented, at) for at in CHECKPOINTS},
        "seconds": round(time.perf_counter() - begun, 3),
        "round_ms_median": round(1_000 * float(np.median(track.seconds)), 3),
    }


def bound(trace: Workload, seed: int) -> float:
    """The limit at 100 % arrived, for the arrivals of this seed."""
    return limit(trace, arrivals(trace, np.random.default_rng(seed)))


def means(runs: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean over seeds for each policy, in order of appearance; spread of the allocation."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for entry in runs:
        groups.setdefault(entry["policy"], []).append(entry)
    return [
        {
            "policy": policy,
            "seeds": len(entries),
            **{
                key: {
                    str(at): float(np.mean([entry[key][str(at)] for entry in entries]))
                    for at in CHECKPOINTS
                }
                for key in ("allocated_pct", "fragmented_pct")
            },
            "allocated_std": float(np.std([entry["allocated_pct"]["100"] for entry in entries])),
            "seconds": float(np.mean([entry["seconds"] for entry in entries])),
            "round_ms_median": float(np.median([entry["round_ms_median"] for entry in entries])),
        }
        for policy, entries in groups.items()
    ]
