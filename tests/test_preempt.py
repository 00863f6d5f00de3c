"""Plans that preempt, on drawn snapshots: legal, never worse, and at rest once carried out."""

from __future__ import annotations

from datetime import timedelta

import strategies
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trencadis.models import Plan, Snapshot, Tier
from trencadis.models.apply import apply
from trencadis.models.policy import Budget, Preemption
from trencadis.solver.round import Options, solve
from trencadis.solver.verify import verify

SETTINGS = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
FEATURES = sorted(strategies.ALL - {"aging"} | {"tiers"})
QUICK = Options(time_limit_s=20, workers=1)


@st.composite
def contested(draw: st.DrawFn) -> Snapshot:
    """Snapshots whose running jobs may be told to stop; most of them are of the lowest tier."""
    snapshot = draw(strategies.snapshots(FEATURES))
    policy = snapshot.policy
    budget = Budget(jobs=draw(st.integers(1, 6)), reclaim_jobs=draw(st.integers(0, 4)))
    preemption = Preemption(
        mode=draw(st.sampled_from(["graceful", "graceful", "immediate"])),
        min_runtime_seconds=draw(st.sampled_from([0, 0, 600, 601])),
        grace_seconds=draw(st.sampled_from([300, 0, 30])),
        budget=budget,
    )
    tiers = (Tier(name="high", weight=16), Tier(name="normal", weight=4), Tier(name="low"))
    policy = policy.model_copy(update={"preemption": preemption, "tiers": tiers})
    names = {"running": ["low", "low", "normal"], "pending": ["high", "normal", "low"]}
    jobs = tuple(
        job.model_copy(update={"priority": draw(st.sampled_from(names[job.state]))})
        if job.state in names
        else job
        for job in snapshot.jobs
    )
    return snapshot.model_copy(update={"policy": policy, "jobs": jobs})


def without_preemption(snapshot: Snapshot) -> Snapshot:
    policy = snapshot.policy.model_copy(update={"preemption": Preemption(mode="none")})
    return snapshot.model_copy(update={"policy": policy})


def stages(plan: Plan) -> list[int]:
    return [stage.objective for stage in plan.proof.stages if stage.name != "fragmentation"]


def after_grace(snapshot: Snapshot) -> Snapshot:
    """The snapshot once all who drain have left: they wait again."""
    ends = [job.drain_ends for job in snapshot.jobs if job.drain_ends is not None]
    now = max([snapshot.now, *ends]) + timedelta(seconds=1)
    jobs = tuple(
        job.model_copy(
            update={"state": "pending", "allocation": (), "start": None, "drain_ends": None}
        )
        if job.drain_ends is not None and job.state == "draining"
        else job
        for job in snapshot.jobs
    )
    return snapshot.model_copy(update={"now": now, "jobs": jobs})


@SETTINGS
@given(contested())
def test_plans_keep_the_rules_and_are_no_worse_than_without(snapshot: Snapshot) -> None:
    plan = solve(snapshot, QUICK)  # verifies
    assert stages(plan) <= stages(solve(without_preemption(snapshot), QUICK))


@SETTINGS
@given(contested())
def test_a_carried_out_plan_stands_still(snapshot: Snapshot) -> None:
    plan = solve(snapshot, QUICK)
    if not plan.preempts:
        return
    victims = {stop.job for stop in plan.preempts}
    delayed = {start.job: start for start in plan.starts if start.waits_for}
    at_once = apply(snapshot, plan)
    assert not {stop.job for stop in solve(at_once, QUICK).preempts} & victims
    later = after_grace(at_once)
    second = solve(later, QUICK)
    begun = {start.job: start.allocation for start in second.starts}
    for name, start in delayed.items():
        assert begun.get(name) == start.allocation, name
    assert verify(later, second).violations == ()
