"""Each stage's objective is that of exhaustive enumeration; bounds hold at any threshold."""

from __future__ import annotations

import threading
from pathlib import Path

import build
import oracle
import pytest
import strategies
from exact import EXACT, assert_exact, objectives, solve_exactly
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from trencadis.models import Plan, Request, Segments, Share, Snapshot, load_snapshot
from trencadis.solver.model.problem import Thresholds
from trencadis.solver.round import Options, solve
from trencadis.solver.verify import verify

SETTINGS = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)

FAMILIES = {
    "plain": strategies.snapshots_plain,
    "queues": strategies.snapshots_queues,
    "topology": strategies.snapshots_topology,
    "nodes": strategies.snapshots_nodes,
    "slices": strategies.snapshots_slices,
    "all": strategies.snapshots_all,
}


def optimum(snapshot: Snapshot) -> dict[str, int]:
    try:
        return oracle.lexicographic_optimum(snapshot)
    except oracle.TooLarge:
        assume(False)
        raise


@pytest.mark.parametrize("family", FAMILIES)
def test_optimum_is_found_and_proven(family: str) -> None:
    @settings(SETTINGS, max_examples=400)
    @given(FAMILIES[family]())
    def check(snapshot: Snapshot) -> None:
        best = optimum(snapshot)
        assert_exact(snapshot, solve(snapshot, EXACT), best)

    check()


def test_weighted_fragmentation_may_leave_a_job_pending() -> None:
    """Completing a plan must not start a job that costs more in F than it saves in waiting."""
    case = build.snapshot(
        build.node("n0", gpus=8, resources={"nic": 1}),
        build.job("wide", gpus=1, tasks=2, priority="low"),
        build.job("two-nics", gpus=1, tasks=2, resources={"nic": 1}, priority="low"),
        build.job("one-nic", gpus=1, resources={"nic": 1}, priority="low"),
        fragmentation="weighted",
    )
    solve_exactly(case)


def test_tasks_without_gpus_go_where_fragmentation_suffers_least() -> None:
    """Pooled counts say how much CPU is taken, not where: placement must not lose by that."""
    case, _ = load_snapshot((Path(__file__).parent / "data" / "fillers_spread.json").read_text())
    solve_exactly(case)


@pytest.mark.parametrize("spare", range(0, 1_001, 250))
@pytest.mark.parametrize("gpus", [2, 4])
def test_shares_take_memory_that_idle_gpus_beside_them_lack(gpus: int, spare: int) -> None:
    """What is put into a GPU that is opened for it counts in the F of the rest of its node."""
    part = Share(gpu_milli=250)
    case = build.snapshot(
        build.node("n0", gpus=1),
        build.node("n1", gpus=gpus, memory_mib=700 + spare, shareable=True, max_jobs_per_gpu=3),
        build.job("hungry", request=Request(share=part, memory_mib=700), communicates=False),
        build.job("light", tasks=2, request=Request(share=part), communicates=False),
        build.job("expected", gpus=1, tasks=2, memory_mib=500),
    )
    solve_exactly(case)


@pytest.mark.parametrize("leaf", [0, 30, 200])
def test_tasks_that_must_share_a_node_may_talk_as_if_they_were_apart(leaf: int) -> None:
    """Over PCIe by itself, or over the network: whatever is less. NVLink is for who gains more."""
    case = build.snapshot(
        build.node("nvlink", gpus=4, fabric=("a",), nvswitch=True),
        build.node("pcie", gpus=4, fabric=("a",)),
        build.job("pair", gpus=1, tasks=2, required="node", waited=600),
        build.job("wide", gpus=2, tasks=2, waited=600),
        levels=("leaf",),
        slowdown_milli={"leaf": leaf, "cluster": 300, "pcie": 150},
        horizon_seconds=3_600,
    )
    solve_exactly(case)


def assert_bounds_hold(snapshot: Snapshot, plan: Plan) -> None:
    """bound <= optimum given what earlier stages achieved <= objective, stage by stage."""
    achieved = objectives(plan)
    best = oracle.conditional_optimum(snapshot, achieved, plan)
    for stage in plan.proof.stages:
        assert stage.bound <= best[stage.name] <= stage.objective, stage


@pytest.mark.parametrize("family", FAMILIES)
def test_bounds_hold_at_any_threshold(family: str) -> None:
    @SETTINGS
    @given(
        FAMILIES[family](),
        st.integers(1, 3),
        st.sampled_from((1, 2, 3, 3_000)),
        st.integers(0, 2),
        st.sampled_from((0, 3_000)),
        st.sampled_from((0, 20_000)),
    )
    def check(
        snapshot: Snapshot, segments: int, patterns: int, splits: int, whole: int, parts: int
    ) -> None:
        optimum(snapshot)
        options = Options(
            time_limit_s=60,
            workers=1,
            thresholds=Thresholds(segments, patterns, splits, whole, parts),
        )
        plan = solve(snapshot, options)
        assert verify(snapshot, plan).violations == ()
        assert_bounds_hold(snapshot, plan)

    check()


class StopAfter(threading.Event):
    """An event that sets itself the n-th time it is asked."""

    def __init__(self, asks: int) -> None:
        super().__init__()
        self.asks = asks

    def is_set(self) -> bool:
        self.asks -= 1
        if self.asks < 0:
            self.set()
        return super().is_set()


@SETTINGS
@given(strategies.snapshots_all(), st.integers(0, 12))
def test_a_search_stopped_anywhere_keeps_its_bounds(snapshot: Snapshot, asks: int) -> None:
    optimum(snapshot)
    plan = solve(snapshot, EXACT, StopAfter(asks))
    assert verify(snapshot, plan).violations == ()
    assert_bounds_hold(snapshot, plan)


@pytest.mark.parametrize("tasks", [1, 2])
@pytest.mark.parametrize("jobs", [2, 5])
def test_jobs_that_ask_for_nothing_do_not_crowd_each_other_out(jobs: int, tasks: int) -> None:
    # They share a node in any number; what one of them has is no bound for all.
    plan = solve(
        build.snapshot(build.node("n1", 1), *build.jobs(jobs, "j", 0, tasks, max_tasks_per_node=2)),
        EXACT,
    )
    assert len(plan.starts) == jobs
    assert all(stage.objective == stage.bound for stage in plan.proof.stages)


def test_a_group_with_a_job_that_asks_for_nothing_competes_by_its_worth() -> None:
    # "a" alone and the group fit together, and are worth more than "a" with "c".
    jobs = [
        build.job("a", 0),
        build.job("c", 1),
        build.job("d", 0, group="g"),
        build.job("e", 1, group="g"),
    ]
    found = build.snapshot(build.node("n1", 1), *jobs)
    plan = solve(found, EXACT)
    assert {start.job for start in plan.starts} == {"a", "d", "e"}
    assert_bounds_hold(found, plan)


def test_an_exclusive_job_keeps_out_gangs_in_domains_that_ask_for_nothing() -> None:
    # "b" beside "a" is best; the count must not promise it beside the exclusive job.
    jobs = [
        build.job("a", 1),
        build.job("b", 0, 2, segments=Segments(tasks=2, level="spine")),
        build.job("c", 1, exclusive=True),
    ]
    node = build.node("n1", 1, fabric=("s0", "l0"))
    solve_exactly(build.snapshot(node, *jobs, levels=("spine", "leaf")))


@pytest.mark.parametrize("patterns", [1, 2, 3_000])
def test_a_group_that_rounding_splits_waits_or_starts_as_a_whole(patterns: int) -> None:
    jobs = [
        build.job("a", 1, group="g", waited=600),
        build.job("b", 2, group="g", waited=600),
        build.job("c", 1, runtime_seconds=600, waited=600),
        build.job("d", 1, waited=600),
    ]
    nodes = [build.node("n0", 2), build.node("n1", 1, "h100"), build.node("n2", 2, "h100")]
    # The faster model makes half a start on it worth more than a whole one elsewhere.
    found = build.snapshot(*nodes, *jobs, gpu_speed_milli={"a100": 1_000, "h100": 2_500})
    options = Options(workers=1, thresholds=Thresholds(1, patterns, splits=0, whole=0, parts=0))
    assert_bounds_hold(found, solve(found, options))
