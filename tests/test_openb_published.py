"""The simulator gives the figures that the ATC'23 paper published; ours are ahead of them."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from openb_lab.compare import bound, measure
from openb_lab.workload import Workload, load

DATA = Path(__file__).parents[2] / "shared" / "data" / "openb"
SUMMARY = DATA / "fgd_published_summary.csv"
SEEDS = (0, 1, 2)
NAMES = {
    "random": "01-Random",
    "dot-product": "02-DotProd",
    "best-fit": "05-BestFit",
    "fgd": "06-FGD",
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not SUMMARY.exists(), reason="the openb tables are not here"),
]


@cache
def trace(workload: str) -> Workload:
    return load(DATA, workload)


@cache
def published(workload: str, policy: str, metric: str, percent: int) -> tuple[float, float]:
    """Mean and standard deviation over ten seeds."""
    wanted = (metric, f"openb_pod_list_{workload}", NAMES[policy], str(percent))
    with SUMMARY.open() as file:
        for row in csv.DictReader(file):
            if (row["metric"], row["workload"], row["policy"], row["arrived_pct"]) == wanted:
                return float(row["mean"]), float(row["pstd"])
    raise LookupError(wanted)


@pytest.mark.parametrize("policy", NAMES)
@pytest.mark.parametrize("workload", ["default", "gpushare100"])
def test_policies_reach_what_was_published(policy: str, workload: str) -> None:
    runs = [measure(trace(workload), policy, seed, 1) for seed in SEEDS]
    for metric, key in (
        ("gpu_alloc_pct", "allocated_pct"),
        ("frag_pct_of_cluster", "fragmented_pct"),
    ):
        for percent in (80, 100, 130):
            mean, spread = published(workload, policy, metric, percent)
            ours = np.mean([run[key][str(percent)] for run in runs])
            # Three seeds of ours, ten of theirs; orders and ties differ.
            assert ours == pytest.approx(mean, abs=max(3 * spread, 0.1)), (metric, percent)


def test_the_rounding_of_fgds_score_is_part_of_it() -> None:
    """Without it more than one percent of the cluster is lost."""
    mean, _ = published("default", "fgd", "gpu_alloc_pct", 100)
    exact = measure(trace("default"), "fgd-exact", 0, 1)
    assert exact["allocated_pct"]["100"] < mean - 1


@pytest.mark.parametrize(
    ("workload", "percent"), [("default", 96.90), ("gpushare100", 89.16), ("multigpu50", 98.34)]
)
def test_the_limit_is_that_of_share_patterns(workload: str, percent: float) -> None:
    limits = [bound(trace(workload), seed) for seed in SEEDS]
    assert np.mean(limits) == pytest.approx(percent, abs=0.1)


def test_the_value_of_what_is_left_leads_by_half_a_point() -> None:
    """On `default`; the benchmark's README has means over ten seeds on all workloads."""
    runs = {name: measure(trace("default"), name, 3, 1) for name in ("trencadis", "fgd")}
    ours, theirs = (runs[name]["allocated_pct"]["100"] for name in ("trencadis", "fgd"))
    assert ours >= theirs + 0.5
    mean, _ = published("default", "fgd", "gpu_alloc_pct", 100)
    assert ours >= mean + 0.5
