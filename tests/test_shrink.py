"""Elastic jobs give up as many tasks as another job needs, no more, and aren't stopped for that."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import build as b
import pytest
from exact import EXACT
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracle.growth import least_growth

from trencadis.models import Job, Plan, Snapshot, TaskAllocation, Tier
from trencadis.models.apply import apply
from trencadis.models.policy import Budget, Preemption
from trencadis.solver.round import Options, solve
from trencadis.solver.verify import verify

QUICK = Options(time_limit_s=10, workers=1)
SETTINGS = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def wide(name: str, gpus: range, low: int, node: str = "n1", **fields: object) -> Job:
    """A job with a task on each of these GPUs, that runs with as few as `low`."""
    return b.running(
        name, *(b.at(node, gpu) for gpu in gpus), min_tasks=low, **{"ran": 7_200, **fields}
    )


def given_up(plan: Plan) -> dict[str, int]:
    return {resize.job: len(resize.remove) for resize in plan.resizes if resize.remove}


def test_just_enough_is_given_up() -> None:
    now = b.snapshot(
        b.node("n1"), wide("e", range(7), 2, priority="low"), b.job("x", 3, priority="high")
    )
    plan = solve(now, QUICK)
    assert given_up(plan) == {"e": 2}
    assert not plan.preempts
    assert plan.starts[0].waits_for == ("e",)
    assert plan.resizes[0].lost_gpu_seconds == 2 * 300
    after = apply(now, plan)
    assert len(after.jobs[0].allocation) == 5
    assert after.budget_use.lost_gpu_seconds_last_day == 600
    second = solve(after, QUICK)
    assert [start.job for start in second.starts] == ["x"]
    assert not second.resizes
    assert not solve(apply(after, second), QUICK).resizes


def test_a_job_of_its_own_tier_is_enough_but_none_of_a_lower() -> None:
    full = (b.node("n1"), wide("e", range(8), 2, ran=60))
    assert given_up(solve(b.snapshot(full, b.job("x", 2)), QUICK)) == {"e": 2}
    assert given_up(solve(b.snapshot(full, b.job("x", 2, priority="low")), QUICK)) == {}


@pytest.mark.parametrize(
    "fields",
    [{"preemptible": False}, {"min_replicas": 7}, {"segments": {"tasks": 2, "level": "node"}}],
)
def test_some_do_not_shrink(fields: dict[str, object]) -> None:
    job = wide("e", range(8), 2, ran=60)
    job = Job.model_validate({**job.model_dump(), **fields})
    plan = solve(b.snapshot(b.node("n1"), job, b.job("x", 2, priority="high")), QUICK)
    assert given_up(plan) == {}


def test_nobody_shrinks_where_the_policy_stops_no_one() -> None:
    full = (b.node("n1"), wide("e", range(8), 2), b.job("x", 2, priority="high"))
    off = b.snapshot(full, preemption=Preemption(mode="none"))
    assert not solve(off, QUICK).resizes


def test_budgets_are_for_jobs_that_stop() -> None:
    none = Budget(jobs=0, jobs_milli_of_running=0, reclaim_jobs=0, gpus_per_hour_milli=0)
    full = (b.node("n1"), wide("e", range(8), 2), b.job("x", 2, priority="high"))
    plan = solve(b.snapshot(full, preemption=Preemption(budget=none)), QUICK)
    assert given_up(plan) == {"e": 2}


def test_who_needs_more_than_a_job_can_spare_stops_it() -> None:
    full = (b.node("n1"), wide("e", range(8), 4, priority="low"))
    five = solve(b.snapshot(full, b.job("x", 5, priority="high")), QUICK)
    assert [stop.job for stop in five.preempts] == ["e"]
    assert not five.resizes
    four = solve(b.snapshot(full, b.job("x", 4, priority="high")), QUICK)
    assert given_up(four) == {"e": 4}


def test_the_gang_in_one_leaf_takes_a_task_of_the_elastic_one() -> None:
    """Worked case 2: the low gang shrinks by the task that is in the way."""
    nodes = [b.node(f"n{i}", fabric=("AB"[i // 2],)) for i in range(4)]
    places = (b.at("n1", *range(8)), b.at("n2", *range(8)))
    low = b.running("low", *places, priority="low", ran=7_200, min_tasks=1)
    gang = b.job("gang", 8, 2, required="leaf", priority="high", waited=60)
    plan = solve(b.snapshot(nodes, low, gang, levels=("leaf",)), QUICK)
    assert not plan.preempts
    assert given_up(plan) == {"low": 1}
    used = {task.node for task in plan.starts[0].allocation}
    assert used in ({"n0", "n1"}, {"n2", "n3"})


def test_a_guarantee_is_reclaimed_from_what_grew() -> None:
    now = b.snapshot(
        b.node("n1"),
        b.queue("lender", guarantee=4),
        b.queue("owner", guarantee=4),
        wide("e", range(8), 1, queue="lender", priority="high"),
        b.jobs(6, "x", 1, queue="owner", priority="low"),
    )
    plan = solve(now, QUICK)
    assert given_up(plan) == {"e": 4}
    assert len(plan.starts) == 4


# drawn


@st.composite
def crowded(draw: st.DrawFn) -> Snapshot:
    """Small full clusters whose running jobs are elastic, most of them."""
    nodes = [b.node(f"n{i}", draw(st.integers(2, 4))) for i in range(draw(st.integers(1, 3)))]
    queues = [b.queue("q", guarantee=draw(st.sampled_from([None, 2, 4]))), b.queue("o")]
    idle = [b.at(node.name, gpu) for node in nodes for gpu in range(node.gpu_count)]
    idle = draw(st.permutations(idle))
    jobs: list[Job] = []
    while idle and len(jobs) < 4:
        tasks: tuple[TaskAllocation, ...] = tuple(idle[: draw(st.integers(1, 4))])
        idle = idle[len(tasks) :]
        job = b.running(
            f"r{len(jobs)}",
            *tasks,
            queue=draw(st.sampled_from(["q", "o"])),
            priority=draw(st.sampled_from(["low", "low", "normal", "high"])),
            min_tasks=draw(st.integers(1, len(tasks))),
            ran=draw(st.sampled_from([7_200, 60])),
            preemptible=draw(st.sampled_from([True, True, True, False])),
            communicates=draw(st.booleans()),
        )
        jobs.append(job.model_copy(update={"tasks": len(tasks) + draw(st.integers(0, 2))}))
    for i in range(draw(st.integers(1, 4))):
        tasks_ = draw(st.integers(1, 3))
        jobs.append(
            b.job(
                f"p{i}",
                draw(st.integers(1, 3)),
                tasks_,
                queue=draw(st.sampled_from(["q", "o"])),
                priority=draw(st.sampled_from(["low", "normal", "normal", "high"])),
                waited=draw(st.sampled_from([0, 60, 3_600])),
                min_tasks=draw(st.integers(1, tasks_)),
            )
        )
    budget = Budget(jobs=draw(st.integers(0, 3)), reclaim_jobs=draw(st.integers(0, 3)))
    mode = draw(st.sampled_from(["graceful", "immediate"]))
    return b.snapshot(
        nodes,
        queues,
        jobs,
        tiers=(Tier(name="high", weight=16), Tier(name="normal", weight=4), Tier(name="low")),
        preemption=Preemption(mode=mode, budget=budget),
        priority_mode=draw(st.sampled_from(["strict", "strict", "weighted"])),
        elastic_milli=draw(st.sampled_from([500, 700, 0])),
    )


@SETTINGS
@given(crowded())
def test_growth_is_the_best_beside_victims_and_a_round_stands_still(now: Snapshot) -> None:
    plan = solve(now, EXACT)  # verifies
    growth, found = plan.proof.growth, least_growth(now, plan)
    assert (growth is None) == (found is None)
    if growth is not None:
        assert (growth.objective, growth.do_nothing) == found
        assert growth.bound == growth.objective
    shrunk = given_up(plan).keys()
    again = solve(apply(now, plan), EXACT)
    # Who is stopped without grace waits at once, and may be worth another task of an elastic job.
    if not plan.preempts or now.policy.preemption.mode == "graceful":
        # Who starts already needs no more victims; a better plan than the first may be found.
        more = {job for entry in again.resizes if entry.remove for job in entry.makes_room_for}
        assert not more & {start.job for start in plan.starts}
        if all(stage.objective == stage.bound for stage in plan.proof.stages):
            assert not given_up(again).keys() & shrunk
    disturbed = shrunk | {stop.job for stop in plan.preempts}
    if disturbed:
        # What some gave up isn't given to others before those it was meant for.
        waiting = {start.job for start in plan.starts if start.waits_for}
        later = _settled(apply(now, plan))
        begun = {start.job for start in solve(later, EXACT).starts}
        assert waiting <= begun


def test_a_job_that_has_nothing_more_to_give_does_not_stand_before_others() -> None:
    nodes = ["n1", "n0", "n1", "n1"], ["n0", "n0", "n1"]
    gpus = [0, 1, 1, 2], [2, 0, 3]
    now = b.snapshot(
        b.node("n0", 3),
        b.node("n1", 4),
        b.queue("q"),
        *(
            b.running(
                name,
                *(b.at(node, gpu) for node, gpu in zip(nodes[i], gpus[i], strict=True)),
                queue="q",
                priority="low",
                min_tasks=least,
            )
            for i, (name, least) in enumerate((("r0", 1), ("r1", 2)))
        ),
        b.job("p0", 2, queue="q", priority="low"),
        b.job("p1", 1, queue="q", priority="low"),
        preemption=Preemption(mode="graceful", budget=Budget(jobs=0)),
        elastic_milli=500,
    )
    plan = solve(now, EXACT)
    assert sorted(start.job for start in plan.starts) == ["p0", "p1"]
    assert not solve(apply(now, plan), EXACT).resizes


def test_elastic_jobs_shrink_for_all_that_is_worth_it_rather_than_one_of_them_stopping() -> None:
    """Job by job one of the two came first, and left no cheap room for the other."""
    low: dict[str, Any] = {"queue": "o", "priority": "low", "min_tasks": 1}
    now = b.snapshot(
        b.node("n0", 2),
        b.node("n1", 2),
        b.node("n2", 3),
        b.queue("q", guarantee=2),
        b.running("r0", b.at("n1", 0), b.at("n1", 1), ran=7_200, **low),
        b.running("r1", b.at("n2", 0), ran=7_200, **low),
        b.running(
            "r2",
            *(b.at("n0", 1), b.at("n0", 0), b.at("n2", 1), b.at("n2", 2)),
            ran=7_200,
            **low,
        ),
        b.job("p0", 1, queue="q", priority="low"),
        b.job("p2", 2, queue="q", priority="low"),
        preemption=Preemption(mode="graceful", budget=Budget(jobs=1, reclaim_jobs=1)),
        elastic_milli=500,
    )
    plan = solve(now, EXACT)  # verifies
    assert {start.job for start in plan.starts} == {"p0", "p2"}
    assert not plan.preempts
    assert plan.proof.status == "OPTIMAL"


def _settled(snapshot: Snapshot) -> Snapshot:
    """The snapshot once all who drain have left."""
    ends = [job.drain_ends for job in snapshot.jobs if job.drain_ends is not None]
    update = {"state": "pending", "allocation": (), "start": None, "drain_ends": None}
    jobs = tuple(
        job.model_copy(update=update) if job.state == "draining" else job for job in snapshot.jobs
    )
    now = max([snapshot.now, *ends]) + timedelta(seconds=1)
    return snapshot.model_copy(update={"now": now, "jobs": jobs})


# corrupted


SHRINKS = b.snapshot(
    b.node("n1"),
    wide("e", range(7), 2, priority="low"),
    b.job("x", 3, priority="high"),
    b.running("other", b.at("n1", 7), ran=7_200),
)


@pytest.mark.parametrize(
    ("update", "rules"),
    [
        ({}, set()),
        ({"remove": (b.at("n1", 7),)}, {"resizes"}),
        ({"remove": tuple(b.at("n1", i) for i in range(6))}, {"resizes"}),
        ({"makes_room_for": ()}, {"resizes"}),
        ({"lost_gpu_seconds": 1}, {"resizes"}),
        ({"job": "other"}, {"resizes", "preempts"}),
        ({"remove": tuple(b.at("n1", i) for i in range(5)), "lost_gpu_seconds": 1_500}, None),
    ],
)
def test_wrong_shrinks_are_noticed(update: dict[str, object], rules: set[str] | None) -> None:
    plan = solve(SHRINKS, QUICK)
    (resize,) = plan.resizes
    changed = plan.model_copy(update={"resizes": (resize.model_copy(update=update),)})
    found = {violation.rule for violation in verify(SHRINKS, changed).violations}
    if rules is None:
        assert "reprieve" in found
    else:
        assert found == rules


def test_shrinking_for_no_one_better_is_noticed() -> None:
    plan = solve(SHRINKS, QUICK)
    jobs = tuple(
        job.model_copy(update={"priority": "low"}) if job.name == "x" else job
        for job in SHRINKS.jobs
    )
    equal = SHRINKS.model_copy(update={"jobs": jobs})
    moved = plan.model_copy(update={"snapshot": equal.fingerprint()})
    assert "victims" not in {v.rule for v in verify(equal, moved).violations}
    jobs = tuple(
        job.model_copy(update={"priority": "normal"}) if job.name == "e" else job
        for job in equal.jobs
    )
    lower = equal.model_copy(update={"jobs": jobs})
    moved = plan.model_copy(update={"snapshot": lower.fingerprint()})
    assert "victims" in {v.rule for v in verify(lower, moved).violations}
