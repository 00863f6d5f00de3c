"""The preemption budget as a reason: named where it is what keeps a job waiting, and only there."""

from __future__ import annotations

import build as b
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import snapshots

from trencadis.models import Policy, Snapshot, apply
from trencadis.models.explanation import Reason
from trencadis.models.policy import Budget, BudgetUse, Preemption
from trencadis.solver.explain.alone import only
from trencadis.solver.explain.changes import with_remedy
from trencadis.solver.explain.explain import Explainer
from trencadis.solver.preempt.victims import victims
from trencadis.solver.round import Options, solve

MODES = ("graceful", "immediate")
OPTIONS = Options(time_limit_s=5.0, gap=0.0, workers=1, deterministic=True)


def with_budget(snap: Snapshot, jobs: int, **used: int) -> Snapshot:
    """With so many jobs a round, an hour's GPUs and a day's jobs that follow from it alone."""
    budget = Budget(jobs=jobs, jobs_milli_of_running=0, gpus_per_hour_milli=0, jobs_per_day_milli=0)
    policy: Policy = snap.policy.model_copy(update={"preemption": Preemption(budget=budget)})
    return snap.model_copy(update={"policy": policy, "budget_use": BudgetUse(**used)})


def full(*pending: object) -> Snapshot:
    """A node of eight GPUs with a LOW job on each pair."""
    low = [
        b.running(f"l{i}", b.at("n", 2 * i, 2 * i + 1), priority="low", ran=7_200) for i in range(4)
    ]
    return b.snapshot(b.node("n", 8), low, *pending)


def test_more_jobs_than_a_round_may_stop() -> None:
    snap = with_budget(full(b.job("j", 6, priority="high")), 2)
    plan = solve(snap, OPTIONS)
    (pending,) = plan.pending
    assert pending.code == Reason.BUDGET
    answer = Explainer(snap, plan).job("j")
    assert answer.code == Reason.BUDGET
    assert answer.evidence["stops_needed"] == 3
    assert (answer.evidence["jobs_left"], answer.evidence["jobs_budget"]) == (2, 2)
    assert "stopping 3 jobs at least; the preemption budget leaves 2" in answer.sentence
    larger = next(remedy for remedy in answer.remedies if remedy.kind == "limit")
    assert (larger.raises[0].owner, larger.raises[0].needed) == ("budget", 3)
    assert "from 2 to 3 jobs" in larger.sentence
    changed = with_remedy(apply(snap, plan), "j", larger)
    assert {start.job for start in solve(changed, OPTIONS).starts} == {"j"}
    assert {"stop", "limit"} <= {remedy.kind for remedy in answer.remedies}


def test_what_others_of_the_round_have_used() -> None:
    snap = with_budget(
        full(b.job("first", 2, priority="high", waited=600), b.job("next", 2, priority="high")), 1
    )
    plan = solve(snap, OPTIONS)
    assert [stop.makes_room_for for stop in plan.preempts] == [("first",)]
    answer = Explainer(snap, plan).job("next")
    assert [entry.code for entry in plan.pending] == [answer.code] == [Reason.BUDGET]
    assert answer.evidence["stopped_by_the_round"] == 1
    assert "of 1 this round, 1 stop" in answer.sentence


def test_an_hour_that_is_used_up() -> None:
    """Eight GPUs an hour, seven of them used."""
    snap = with_budget(full(b.job("j", 2, priority="high")), 1, preempted_gpus_last_hour=7)
    answer = Explainer(snap, solve(snap, OPTIONS)).job("j")
    assert answer.code == Reason.BUDGET
    assert answer.evidence["gpus_needed"] == 2
    assert answer.evidence["gpus_left"] == 1
    assert "leaves 1 GPU of an hour's, after 7 in the last hour" in answer.sentence


def test_no_budget_is_blamed_where_none_would_help() -> None:
    """Five of eight GPUs belong to its own tier."""
    peer = b.running("p", b.at("n", *range(5)), priority="high", ran=7_200)
    low = b.running("l", b.at("n", 5, 6, 7), priority="low", ran=7_200)
    snap = with_budget(b.snapshot(b.node("n", 8), peer, low, b.job("j", 4, priority="high")), 0)
    answer = Explainer(snap, solve(snap, OPTIONS)).job("j")
    assert answer.code == Reason.NOT_ENOUGH_FREE


@st.composite
def pressed(draw: st.DrawFn) -> Snapshot:
    """Nodes of four GPUs that are full, mostly with LOW jobs, and a small budget."""
    busy = []
    for n in range(draw(st.integers(1, 3))):
        left = [0, 1, 2, 3]
        while left:
            size = draw(st.integers(1, len(left)))
            mine, left = left[:size], left[size:]
            busy.append(
                b.running(
                    f"r{n}{mine[0]}",
                    b.at(f"n{n}", *mine),
                    priority=draw(st.sampled_from(("low", "low", "normal"))),
                    ran=draw(st.sampled_from((60, 7_200))),
                    queue=draw(st.sampled_from(("red", "blue"))),
                )
            )
    names = sorted({job.allocation[0].node for job in busy})
    waits = [
        b.job(
            f"j{i}",
            draw(st.integers(1, 4)),
            draw(st.integers(1, 2)),
            priority=draw(st.sampled_from(("high", "normal"))),
            waited=60 * i,
            queue="red",
        )
        for i in range(draw(st.integers(1, 3)))
    ]
    guarantee = draw(st.sampled_from((None, 2, 4)))
    snap = b.snapshot(
        [b.node(name, 4) for name in names],
        b.queue("red"),
        b.queue("blue", guarantee=guarantee),
        busy,
        waits,
    )
    return with_budget(
        snap,
        draw(st.integers(0, 3)),
        preempted_gpus_last_hour=draw(st.sampled_from((0, 7))),
        preempted_jobs_last_day=draw(st.sampled_from((0, 1))),
    )


@settings(max_examples=60, deadline=None)
@given(pressed())
def test_whom_the_budget_keeps_waiting_starts_without_it(snap: Snapshot) -> None:
    """Plan and explanation agree; with any budget a round would stop others for it, by the names
    that the rules allow; every remedy holds."""
    plan = solve(snap, OPTIONS)
    explainer = Explainer(snap, plan)
    after = apply(snap, plan)
    for entry in plan.pending:
        answer = explainer.job(entry.job)
        assert answer.code == entry.code
        if answer.code == Reason.BUDGET:
            assert victims(explainer.scene.facts)
            lavish = with_budget(after, 1_000)
            started = {start.job for start in solve(only(lavish, [entry.job]), OPTIONS).starts}
            assert entry.job in started
        for remedy in answer.remedies:
            changed = only(with_remedy(after, entry.job, remedy), [entry.job])
            assert entry.job in {start.job for start in solve(changed, OPTIONS).starts}


@settings(max_examples=30, deadline=None)
@given(snapshots(), st.integers(0, 2), st.integers(0, 2), st.sampled_from(MODES))
def test_plan_and_explanation_agree_where_everything_is_on(
    snap: Snapshot, reservations: int, jobs: int, mode: str
) -> None:
    """Preemption with a small budget, reservations, and all that snapshots may hold."""
    snap = with_budget(snap, jobs)
    rules = snap.policy.preemption.model_copy(update={"mode": mode, "min_runtime_seconds": 0})
    update = {"preemption": rules, "reservations": reservations}
    snap = snap.model_copy(update={"policy": snap.policy.model_copy(update=update)})
    plan = solve(snap, OPTIONS)
    explainer = Explainer(snap, plan)
    for entry in plan.pending:
        assert explainer.job(entry.job).code == entry.code
