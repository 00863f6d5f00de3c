"""However little time there is, solve() returns a verified plan with honest bounds."""

from __future__ import annotations

import threading
from functools import cache

import pytest

from trencadis.instances.generate import generate
from trencadis.models import Plan, Snapshot, Status
from trencadis.solver.round import Options, solve
from trencadis.solver.verify import stage_values, verify


@cache
def busy() -> Snapshot:
    return generate(nodes=150, pending=300)


def assert_sound(snapshot: Snapshot, plan: Plan) -> None:
    """Valid, priced right, and no bound above what was reached."""
    assert verify(snapshot, plan).violations == ()
    priced = stage_values(snapshot, plan.starts)
    assert {stage.name: stage.objective for stage in plan.proof.stages} == priced
    for stage in plan.proof.stages:
        assert stage.bound <= stage.objective
        assert (stage.status is Status.OPTIMAL) == (stage.bound == stage.objective)


@pytest.mark.parametrize("seconds", [0.001, 1.0])
def test_a_short_time_limit_gives_a_verified_plan(seconds: float) -> None:
    plan = solve(busy(), Options(time_limit_s=seconds))
    assert_sound(busy(), plan)
    assert plan.proof.status is not Status.INTERRUPTED
    assert plan.starts


def test_no_time_at_all_still_starts_what_fits() -> None:
    small = generate(nodes=10, pending=30)
    plan = solve(small, Options(time_limit_s=1e-9))
    assert_sound(small, plan)
    assert plan.starts


@pytest.mark.parametrize(("nodes", "pending"), [(1, 1), (10, 30), (150, 300)])
def test_a_search_stopped_before_it_starts_gives_a_verified_plan(nodes: int, pending: int) -> None:
    snapshot = generate(nodes=nodes, pending=pending)
    stop = threading.Event()
    stop.set()
    plan = solve(snapshot, Options(time_limit_s=30), stop)
    assert_sound(snapshot, plan)
    assert plan.proof.status in (Status.INTERRUPTED, Status.OPTIMAL)


def test_a_search_stopped_on_the_way_gives_a_verified_plan() -> None:
    stop = threading.Event()
    timer = threading.Timer(0.3, stop.set)
    timer.start()
    try:
        plan = solve(busy(), Options(time_limit_s=30), stop)
    finally:
        timer.cancel()
    assert_sound(busy(), plan)
    if stop.is_set():
        assert plan.proof.status in (Status.INTERRUPTED, Status.OPTIMAL)
