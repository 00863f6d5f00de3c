"""Elastic jobs: what they get beyond their minimum is the best there is, and the rules hold."""

from __future__ import annotations

import build as b
import pytest
import strategies
from exact import EXACT
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from oracle.growth import least_growth

from trencadis.models import Plan, Snapshot, Status
from trencadis.models.apply import apply
from trencadis.models.policy import Policy, Preemption
from trencadis.solver.round import Options, solve
from trencadis.solver.verify import verify

SETTINGS = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
QUICK = Options(time_limit_s=10, workers=1)
FEATURES = sorted(strategies.ALL - {"slices", "shares", "mig"})


@st.composite
def stretched(draw: st.DrawFn) -> Snapshot:
    """Snapshots most of whose jobs are elastic, those that run as well."""
    snapshot = draw(strategies.snapshots(FEATURES))
    jobs = []
    for job in snapshot.jobs:
        more = draw(st.sampled_from([0, 1, 2, 3]))
        update: dict[str, object] = {}
        if job.state == "running" and job.segments is None and more:
            low = draw(st.integers(1, len(job.allocation)))
            update = {"tasks": len(job.allocation) + more, "min_tasks": low, "exclusive": False}
        elif job.state == "pending" and job.segments is None and more:
            update = {"tasks": job.tasks + more, "min_tasks": job.minimum}
        jobs.append(job.model_copy(update=update))
    policy = snapshot.policy.model_copy(
        update={
            "elastic_milli": draw(st.sampled_from([500, 500, 1_000, 90, 1, 0])),
            "preemption": Preemption(mode="none"),
        }
    )
    return snapshot.model_copy(update={"jobs": tuple(jobs), "policy": policy})


@settings(SETTINGS, max_examples=300)
@given(stretched())
def test_further_tasks_are_the_best_and_proven(snapshot: Snapshot) -> None:
    plan = solve(snapshot, EXACT)
    try:
        found = least_growth(snapshot, plan)
    except OverflowError:
        assume(False)
        raise
    growth = plan.proof.growth
    assert (growth is None) == (found is None)
    if growth is not None:
        assert (growth.objective, growth.do_nothing) == found
        assert growth.bound == growth.objective
        assert growth.status is Status.OPTIMAL
    again = solve(apply(snapshot, plan), EXACT)
    assert not [resize for resize in again.resizes if resize.add]


# by hand


def further(plan: Plan) -> dict[str, int]:
    """Further tasks by job."""
    found = {start.job: start.further for start in plan.starts if start.further}
    return found | {resize.job: len(resize.add) for resize in plan.resizes}


def test_a_pending_job_starts_between_its_minimum_and_its_maximum() -> None:
    low, high = (b.job(n, 2, 4, min_tasks=1, communicates=False) for n in ("a", "b"))
    plan = solve(b.snapshot(b.node("n1", 8), low, high), QUICK)
    assert {start.job: len(start.allocation) for start in plan.starts} == {"a": 2, "b": 2}
    fixed = b.job("c", 2, 2)
    plan = solve(b.snapshot(b.node("n1", 8), low, high, fixed), QUICK)
    assert {start.job: len(start.allocation) for start in plan.starts} == {"a": 1, "b": 1, "c": 2}


def test_a_running_job_grows_into_what_is_idle_and_then_stands_still() -> None:
    now = b.snapshot(
        b.nodes(2, 4), b.running("r", b.at("n1", 1), tasks=9, min_tasks=1, communicates=False)
    )
    plan = solve(now, QUICK)
    assert further(plan) == {"r": 7}
    after = apply(now, plan)
    assert len(after.jobs[0].allocation) == 8
    assert not solve(after, QUICK).resizes
    assert plan.metrics.used_after == 8


def test_tasks_that_talk_stay_near() -> None:
    nodes = [b.node(f"n{i}", 2, fabric=("AB"[i // 2],)) for i in range(4)]
    job = b.running("r", b.at("n0", 0), b.at("n1", 0), tasks=8, min_tasks=2)
    plan = solve(b.snapshot(nodes, job, levels=("leaf",)), QUICK)
    assert sorted(task.node for task in plan.resizes[0].add) == ["n0", "n1"]
    far = job.model_copy(update={"communicates": False})
    assert further(solve(b.snapshot(nodes, far, levels=("leaf",)), QUICK)) == {"r": 6}


def test_a_job_leaves_its_node_where_that_pays() -> None:
    nodes = [b.node(f"n{i}", 2, fabric=("A",)) for i in range(2)]
    job = b.running("r", b.at("n0", 0), b.at("n0", 1), tasks=4, min_tasks=2)
    near = solve(b.snapshot(nodes, job, levels=("leaf",)), QUICK)
    assert further(near) == {"r": 2}
    # 2 tasks lose 300 each, the third gains 333 * 0.7.
    slow = solve(b.snapshot(nodes, job, levels=("leaf",), slowdown_milli={"leaf": 300}), QUICK)
    assert further(slow) == {}


def test_growth_keeps_to_limits_and_to_what_is_not_lent() -> None:
    job = b.running("r", b.at("n1", 0), queue="q", tasks=8, min_tasks=1)
    limited = b.snapshot(b.node("n1", 8), job, b.queue("q", limit=3))
    assert further(solve(limited, QUICK)) == {"r": 2}
    kept = b.snapshot(b.node("n1", 8), job, b.queue("q"), b.queue("o", guarantee=3, lending=1))
    assert further(solve(kept, QUICK)) == {"r": 5}


def test_the_fraction_falls_with_each_task() -> None:
    """Two equal jobs share what is idle, whoever had more of it."""
    jobs = (
        b.running("r", *(b.at("n1", i) for i in range(3)), tasks=8, min_tasks=1),
        b.running("s", b.at("n1", 3), tasks=8, min_tasks=1),
    )
    assert further(solve(b.snapshot(b.node("n1", 8), jobs), QUICK)) == {"r": 1, "s": 3}


def test_greed_is_not_enough() -> None:
    """One task of 3 GPUs is worth most by GPU, but two of 2 use all four."""
    fields: dict[str, object] = {"tasks": 3, "min_tasks": 1, "waited": 60, "ran": 60}
    jobs = (
        b.running("three", b.at("n1", 0, 1, 2), weight_milli=1_100, **fields),
        b.running("two", b.at("n1", 3, 4), weight_milli=1_000, **fields),
    )
    plan = solve(b.snapshot(b.node("n1", 9), jobs), QUICK)
    assert further(plan) == {"two": 2}
    assert plan.proof.growth is not None
    assert plan.proof.growth.status is Status.OPTIMAL


def test_who_waits_for_victims_starts_with_the_minimum() -> None:
    now = b.snapshot(
        b.nodes(2, 4),
        b.running("low", b.at("n1", 0, 1, 2, 3), priority="low", ran=7_200),
        b.job("held", 4, queue="other", priority="low"),
        b.queue("other", limit=0),
        b.job("high", 4, 3, min_tasks=2, priority="high", communicates=False),
    )
    (start,) = solve(now, QUICK).starts
    assert start.waits_for == ("low",)
    assert (len(start.allocation), start.further) == (2, 0)


# corrupted


WHOLE = b.snapshot(
    b.nodes(2, 4, nvswitch=True),
    b.node("far", 4, fabric=("B",)),
    b.running("r", b.at("n1", 0), b.at("n1", 1), tasks=4, min_tasks=1, max_tasks_per_node=3),
    b.job("p", 1, 4, min_tasks=2, max_tasks_per_node=3, queue="q"),
    b.queue("q", limit=3),
    b.job("fixed", 1, 1, waited=9),
    levels=("leaf",),
)


def corrupted(snapshot: Snapshot, change: str) -> Plan:
    plan = solve(snapshot, QUICK)
    start = next(start for start in plan.starts if start.job == "p")
    (resize,) = plan.resizes
    others = tuple(entry for entry in plan.starts if entry.job != "p")
    growth = plan.proof.growth
    assert growth is not None
    last = start.allocation[-1]

    def started(**update: object) -> Plan:
        return plan.model_copy(update={"starts": (*others, start.model_copy(update=update))})

    def resized(**update: object) -> Plan:
        return plan.model_copy(update={"resizes": (resize.model_copy(update=update),)})

    def proven(**update: object) -> Plan:
        proof = plan.proof.model_copy(update={"growth": growth.model_copy(update=update)})
        return plan.model_copy(update={"proof": proof})

    idle = last.model_copy(update={"node": "far", "gpus": (3,)})
    return {
        "nothing": plan,
        "no start grows": started(allocation=start.allocation[:-1], further=0),
        "not told": started(further=0),
        "too many": started(allocation=(*start.allocation, idle), further=2),
        "given twice": started(allocation=(*start.allocation[:-1], start.allocation[0])),
        "busy": started(allocation=(*start.allocation[:-1], b.at("n1", 0))),
        "no resize": plan.model_copy(update={"resizes": ()}),
        "beyond its tasks": resized(add=(*resize.add, idle, idle)),
        "grows far": resized(add=(idle,)),
        "same GPU": resized(add=(b.at("n1", 0),)),
        "two GPUs": resized(add=(b.at("n1", 2, 3),)),
        "nowhere": resized(add=(b.at("n9", 0),)),
        "later": resized(at=b.ago(-60)),
        "neither": resized(add=()),
        "both": resized(remove=(b.at("n1", 0),)),
        "who": resized(job="p"),
        "twice": plan.model_copy(update={"resizes": (resize, resize)}),
        "makes room": resized(makes_room_for=("p",)),
        "no proof": plan.model_copy(
            update={"proof": plan.proof.model_copy(update={"growth": None})}
        ),
        "objective": proven(objective=growth.objective + 1),
        "do nothing": proven(do_nothing=growth.do_nothing + 1),
        "bound above": proven(bound=growth.objective + 1),
        "gap": proven(gap=0.5),
    }[change]


@pytest.mark.parametrize(
    ("change", "rules"),
    [
        ("nothing", set()),
        ("no start grows", {"growth"}),
        ("not told", {"gang"}),
        ("too many", {"growth"}),
        ("given twice", {"growth"}),
        ("busy", {"growth"}),
        ("no resize", {"growth"}),
        ("beyond its tasks", {"resizes"}),
        ("grows far", {"growth"}),
        ("same GPU", {"growth"}),
        ("two GPUs", {"indices"}),
        ("nowhere", {"nodes"}),
        ("later", {"resizes"}),
        ("neither", {"resizes"}),
        ("both", {"resizes"}),
        ("who", {"resizes"}),
        ("twice", {"resizes"}),
        ("makes room", {"resizes"}),
        ("no proof", {"growth"}),
        ("objective", {"growth"}),
        ("do nothing", {"growth"}),
        ("bound above", {"growth"}),
        ("gap", {"growth"}),
    ],
)
def test_wrong_growth_is_noticed(change: str, rules: set[str]) -> None:
    found = {violation.rule for violation in verify(WHOLE, corrupted(WHOLE, change)).violations}
    assert found == rules



def test_tasks_that_are_worth_nothing_start_beside_a_searched_choice() -> None:
    # What asks for nothing is worth nothing, so that the search may as well leave it out.
    jobs = (
        b.running("r0", b.somewhere("n0"), gpus=0),
        b.job("j0", 2, 3, min_tasks=1),
        b.job("j1", 0, 2, min_tasks=1),
        b.job("j2", 1, 1),
        b.job("j3", 1, 2, min_tasks=1),
    )
    policy = Policy(horizon_seconds=60)
    plan = solve(b.snapshot(b.node("n0", 4), b.node("n1", 4), *jobs, policy=policy), EXACT)
    assert further(plan)["j1"] == 1


def test_a_gang_that_lost_tasks_it_needs_does_not_grow() -> None:
    gang = b.running("gang", b.at("n1", 0), b.at("n2", 0), tasks=3, min_tasks=2)
    found = b.snapshot(b.node("n1", 4, down=True), b.node("n2", 1), gang)
    plan = solve(found, EXACT)
    assert not plan.resizes
    assert plan.proof.growth is None
    assert least_growth(found, plan) is None
