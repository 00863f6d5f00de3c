"""The solver in a replay: who stops, shrinks and grows, worked out by hand; and random worlds."""

from __future__ import annotations

import random

import pytest
from build import node, queue, snapshot
from replay_world import ZERO, cluster, entry, first_starts, played, trace
from test_replay_laws import holds, story

from trencadis.models import Checkpoint, Share, Snapshot, TaskAllocation
from trencadis.models.jobs import Request
from trencadis.models.trace import Trace, TraceJob
from trencadis.whatif.decisions import Disturbance, ResizeAction
from trencadis.whatif.engine import Engine
from trencadis.whatif.failures import FailureModel
from trencadis.whatif.legality import IllegalDecisionError
from trencadis.whatif.policies.moment import saved_at, used
from trencadis.whatif.runs import JobRun, State, new_run

QUICK = {
    "min_runtime_seconds": 0,
    "grace_seconds": 30,
    "restart_seconds": 10,
    "restart_seconds_multi_node": 10,
}


def pair(**low: object) -> Trace:
    """low has the whole node for 100 s; high comes at 50 and wants it for 10."""
    return trace(
        entry("low", 0, 100, 4, priority="low", **low),
        entry("high", 50, 10, 4, priority="high"),
    )


def test_a_high_job_stops_a_low_one_with_grace() -> None:
    """low is told at 50 and leaves at 80; high runs 80 to 90; low restarts and works till 200."""
    engine = played(pair(), cluster(preemption=QUICK), "trencadis")
    low = engine.by_name["low"]
    assert first_starts(engine) == {"low": 0, "high": 80}
    assert (low.preemptions, low.starts, low.end) == (1, 2, ZERO + 200)
    gpus = 4 * 1_000_000
    assert low.spent.rework == 50 * gpus
    assert low.spent.grace == 30 * gpus
    assert low.spent.restart == 10 * gpus
    assert low.spent.useful == 100 * gpus


def test_kill_takes_the_grace_and_the_checkpoint() -> None:
    saved = Checkpoint(on_signal=True)
    told = played(pair(checkpoint=saved), cluster(preemption=QUICK), "trencadis")
    assert first_starts(told)["high"] == 80
    assert told.by_name["low"].spent.rework == 0
    killed = played(pair(checkpoint=saved), cluster(preemption=QUICK), "trencadis+kill")
    assert first_starts(killed)["high"] == 50
    assert killed.by_name["low"].spent.rework == 50 * 4_000_000
    assert killed.by_name["low"].spent.grace == 0


@pytest.mark.parametrize("mode", ["none", "graceful"])
def test_who_may_not_be_stopped_is_not(mode: str) -> None:
    rules = {**QUICK, "mode": mode}
    jobs = pair(preemptible=mode == "none")
    assert first_starts(played(jobs, cluster(preemption=rules), "trencadis"))["high"] == 100


def test_a_young_job_is_stopped_when_it_is_old_enough() -> None:
    """At 50 low is too young; nothing else happens, but at 70 it may go."""
    rules = {**QUICK, "min_runtime_seconds": 70}
    engine = played(pair(), cluster(preemption=rules), "trencadis")
    assert first_starts(engine)["high"] == 100  # 70 and the grace
    assert engine.by_name["low"].last_preempted == ZERO + 70


def test_the_victim_that_wrote_a_checkpoint_goes() -> None:
    """Of two equal jobs the second was saved 5 s ago, the first 45 s ago."""
    jobs = trace(
        entry("stale", 0, 500, 2, priority="low", checkpoint=Checkpoint(interval_seconds=1_000)),
        entry("saved", 0, 500, 2, priority="low", checkpoint=Checkpoint(interval_seconds=40)),
        entry("high", 45, 10, 2, priority="high"),
    )
    engine = played(jobs, cluster(preemption=QUICK), "trencadis")
    assert engine.by_name["saved"].preemptions == 1
    assert engine.by_name["stale"].preemptions == 0
    assert engine.by_name["saved"].spent.rework == 5 * 2_000_000


def test_a_queue_reclaims_its_guarantee() -> None:
    place = snapshot(
        node("n1", 4, nvswitch=True), queue("red", guarantee=2), queue("blue"), preemption=QUICK
    )
    jobs = trace(
        entry("b1", 0, 500, 2, queue="blue"),
        entry("b2", 0, 500, 2, queue="blue"),
        entry("r", 50, 10, 2, queue="red"),
    )
    engine = played(jobs, place, "trencadis")
    assert first_starts(engine)["r"] == 80
    assert engine.by_name["b1"].preemptions + engine.by_name["b2"].preemptions == 1


def test_an_elastic_job_gives_up_tasks_at_once_and_gets_them_back() -> None:
    """wide has 4 tasks; b takes one of them at 5,000 for 3,000 s, without any grace."""
    place = cluster(preemption=QUICK)
    jobs = trace(entry("wide", 0, 20_000, 1, 4, min_tasks=1), entry("b", 5_000, 3_000, 1))
    engine = played(jobs, place, "trencadis")
    wide = engine.by_name["wide"]
    assert first_starts(engine) == {"wide": 0, "b": 5_000}
    assert (wide.preemptions, wide.starts) == (0, 3)
    assert wide.spent.rework == 0
    # 5,000 s with 4 tasks, 10 s of restart and 2,990 s with 3, 10 s of restart, the rest with 4.
    rest = 4 * 20_000 - 4 * 5_000 - 3 * 2_990
    assert wide.end == ZERO + 8_000 + 10 + -(-rest // 4)
    stiff = played(jobs, place, "trencadis+no-elastic")
    assert first_starts(stiff) == {"wide": 0, "b": 20_000}


def test_a_job_that_is_nearly_done_does_not_grow() -> None:
    """b leaves at 90; what is left of wide lasts 30 s more, less than four restarts."""
    jobs = trace(entry("b", 0, 90, 2), entry("wide", 0, 60, 1, 4, min_tasks=2))
    engine = played(jobs, cluster(preemption=QUICK), "trencadis")
    assert engine.by_name["wide"].starts == 1


def test_the_budget_of_a_day_is_kept() -> None:
    """One job a day: the second high job waits until the first is done."""
    budget = {"jobs": 1, "jobs_per_day_milli": 0, "jobs_milli_of_running": 0}
    place = cluster(preemption={**QUICK, "budget": budget})
    jobs = trace(
        *(entry(f"low{i}", 0, 5_000, 2, priority="low") for i in range(2)),
        entry("first", 50, 400, 2, priority="high"),
        entry("second", 60, 400, 2, priority="high"),
    )
    engine = played(jobs, place, "trencadis")
    assert sum(run.preemptions for run in engine.runs) == 1
    assert first_starts(engine)["second"] == 80 + 400


def test_delayed_starts_count_towards_limits() -> None:
    """blue may have 4 GPUs: while b waits for its victim, c of the same queue must not start."""
    place = snapshot(
        node("n1", 4, nvswitch=True), node("n2", 4), queue("red"), queue("blue", limit=4),
        preemption=QUICK,
    )
    jobs = trace(
        entry("low", 0, 900, 4, queue="red", priority="low", required_nodes=("n1",)),
        entry("b", 50, 10, 4, queue="blue", priority="high", required_nodes=("n1",)),
        entry("c", 60, 10, 4, queue="blue"),
    )
    assert first_starts(played(jobs, place, "trencadis")) == {"low": 0, "b": 80, "c": 90}


def test_budgets_forget_after_an_hour_and_a_day() -> None:
    past = tuple(Disturbance(at, 2_000) for at in (0, 50_000, 86_000, 90_000))
    use = used(past, 90_000)
    assert use.preempted_jobs_last_day == 3
    assert use.preempted_gpus_last_hour == 2


def test_the_last_checkpoint_of_a_running_job() -> None:
    jobs = trace(entry("a", 0, 100, checkpoint=Checkpoint(interval_seconds=30)))
    run = new_run(0, jobs.jobs[0], cluster().policy)
    run.began, run.restart = 1_000, 10
    assert [saved_at(run, now) for now in (1_000, 1_005, 1_039, 1_040, 1_075)] == [
        1_000, 1_000, 1_000, 1_040, 1_070,
    ]


def test_a_resize_beside_a_delayed_start_is_judged_without_it() -> None:
    """What a hold books on top of its victim must not make its neighbour's resize illegal."""
    jobs = trace(
        entry("wide", 0, 20_000, 1, 4, min_tasks=1, preemptible=True),
        entry("low", 10, 5_000, 4, priority="low"),
        entry("high", 400, 100, 4, priority="high"),
        entry("b", 410, 100, 1),
    )
    engine = played(jobs, cluster(1, 8, preemption=QUICK), "trencadis")
    holds(engine)
    assert first_starts(engine)["high"] == 400 + 30 * engine.by_name["low"].preemptions


def test_the_judge_refuses_tasks_where_others_run() -> None:
    jobs = trace(entry("a", 0, 100, 2), entry("wide", 0, 100, 1, 3, min_tasks=2))
    engine = played(jobs, cluster(), "best-fit")
    wide, other = engine.by_name["wide"], engine.by_name["a"]
    _put_back(engine, other, (TaskAllocation(node="n1", gpus=(0, 1)),))
    _put_back(engine, wide, tuple(TaskAllocation(node="n1", gpus=(g,)) for g in (2, 3)))
    onto = (*wide.allocation, TaskAllocation(node="n1", gpus=(0,)))
    with pytest.raises(IllegalDecisionError, match="no room"):
        engine._resize(wide, ResizeAction("wide", onto), {})


def _put_back(engine: Engine, run: JobRun, allocation: tuple[TaskAllocation, ...]) -> None:
    engine.state.take(run.job, allocation)
    engine.books.book(run.job, len(allocation), "")
    run.allocation = allocation
    engine._put(run, State.RUNNING)


def contended(seed: int) -> tuple[Trace, Snapshot]:
    """More jobs of all tiers than fit, some elastic, on nodes that share GPUs or don't."""
    r = random.Random(seed)
    nodes = [
        node(
            f"n{i}", r.choice([2, 4, 8]), r.choice("AAB"),
            nvswitch=r.random() < 0.7, fabric=(f"leaf{i % 2}",),
            shareable=True, max_jobs_per_gpu=2,
        )
        for i in range(r.randint(1, 4))
    ]
    queues = [
        queue("red", guarantee=r.choice([0, 2, 4, 8]), weight=2),
        queue("blue", limit=r.choice([None, None, 4, 8])),
    ]
    place = snapshot(
        *nodes, *queues, levels=("leaf",),
        promote_after_seconds=r.choice([None, 100, 86_400]),
        preemption={
            "grace_seconds": r.choice([0, 7, 60]),
            "restart_seconds": 5,
            "restart_seconds_multi_node": 9,
            "min_runtime_seconds": r.choice([0, 0, 20]),
            "checkpoint_interval_seconds": r.choice([10, 1_000]),
        },
    )  # fmt: skip
    sliced = r.random() < 0.3
    return trace(*(_job(r, f"j{i}", sliced) for i in range(r.randint(5, 25)))), place


def _job(r: random.Random, name: str, sliced: bool) -> TraceJob:
    tasks, lasts = r.randint(1, 4), r.randint(1, 300)
    share = sliced and r.random() < 0.3
    return entry(
        name, r.randint(0, 300), lasts, tasks=tasks,
        min_tasks=r.choice([None, None, 1, max(1, tasks // 2)]),
        request=Request(
            gpus=0 if share else r.randint(1, 2), share=Share(gpu_milli=500) if share else None
        ),
        gpu_models=r.choice([(), (), ("A",)]),
        queue=r.choice(["red", "blue"]),
        user=r.choice("uv"),
        priority=r.choice(["high", "normal", "low"]),
        runtime_seconds=r.choice([None, lasts, lasts, r.randint(1, 300)]),
        preemptible=r.random() < 0.85,
        requeueable=r.random() < 0.95,
        checkpoint=Checkpoint(on_signal=r.random() < 0.3),
        exclusive=r.random() < 0.05,
        max_tasks_per_node=r.choice([None, None, 2]),
    )  # fmt: skip


@pytest.mark.parametrize("switches", ["", "+kill", "+no-gang", "+no-elastic", "+no-gang+kill"])
def test_contended_worlds_are_conserved_and_repeat(switches: str) -> None:
    """The engine's judge agrees with every action; some jobs are stopped, some resized."""
    stopped = resized = 0
    for seed in range(8):
        jobs, place = contended(seed)
        broken = FailureModel(mtbf_hours=0.5, repair_hours=0.02) if seed % 3 == 0 else None
        engine = played(jobs, place, f"trencadis{switches}", failures=broken, seed=seed)
        holds(engine)
        stopped += sum(run.preemptions for run in engine.runs)
        resized += sum(run.starts - 1 - run.preemptions - run.failures > 0 for run in engine.runs)
        if seed < 2:
            again = played(jobs, place, f"trencadis{switches}", failures=broken, seed=seed)
            assert story(engine) == story(again)
    assert stopped
    assert (resized > 0) == ("no-elastic" not in switches)
