"""Bounds of plans that preempt: no victims and starts, legal or not, beat them within budgets."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from datetime import timedelta
from itertools import combinations, islice

import oracle
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from test_preempt import contested

from trencadis.models import Job, Plan, Snapshot, Start, TaskAllocation
from trencadis.models.plan import Preempt, Resize
from trencadis.solver.model.problem import Thresholds
from trencadis.solver.round import Options, solve
from trencadis.solver.stages import FRAGMENTATION
from trencadis.solver.verify import preempted, rule_preempt
from trencadis.solver.verify.facts import gather
from trencadis.solver.verify.situation import Situation, situate
from trencadis.solver.verify.stages import Stages
from trencadis.solver.verify.targets import in_use

MOST = 400
"""Plans that are looked at, of a snapshot."""
Gone = tuple[tuple[str, tuple[TaskAllocation, ...]], ...]
"""Victims, each with the tasks that go."""


def choices(situation: Situation) -> Iterator[Gone]:
    """Every set of victims that rules about them let go, and that could make room for someone."""
    stages = Stages(situation)
    rows, use = stages.targets.rows, in_use(situation)
    leaf = situation.tree.is_leaf
    short = any(use.get(row, 0) < target for row, target in rows.items() if leaf(row[0]))
    highest = min((situation.tiers[name] for name in situation.eligible), default=99)
    parts: list[list[tuple[str, tuple[TaskAllocation, ...]]]] = []
    for job in situation.snapshot.jobs:
        if job.state != "running" or not job.allocation:
            continue
        mine: list[tuple[str, tuple[TaskAllocation, ...]]] = [(job.name, ())]
        tier = situation.tiers[job.name]
        if not preempted.forbidden(situation, job) and (short or highest < tier):
            mine.append((job.name, job.allocation))
        if elastic(job) and (short or highest <= tier):
            for number in range(1, len(job.allocation)):
                if not preempted.fixed(situation, job, number):
                    mine += [(job.name, out) for out in combinations(job.allocation, number)]
        if len(mine) > 1:
            parts.append(mine)

    def extend(at: int, gone: Gone) -> Iterator[Gone]:
        if at == len(parts):
            yield gone
            return
        for name, out in parts[at]:
            yield from extend(at + 1, (*gone, (name, out)) if out else gone)

    return extend(0, ())


def elastic(job: Job) -> bool:
    asks = job.request.mig or job.request.share is not None
    return job.tasks > job.minimum and not (asks or job.segments or job.exclusive)


def affordable(situation: Situation, gone: Gone) -> bool:
    """Whether budgets allow so many jobs to stop; what a policy without fractions says."""
    budget, used = situation.snapshot.policy.preemption.budget, situation.snapshot.budget_use
    stopped = [situation.jobs[name] for name, out in gone if out == situation.jobs[name].allocation]
    running = sum(1 for job in situation.snapshot.jobs if job.state == "running")
    per_round = max(budget.jobs, -(-running * budget.jobs_milli_of_running // 1_000))
    per_day = max(budget.jobs, -(-running * budget.jobs_per_day_milli // 1_000))
    per_day = max(0, per_day - used.preempted_jobs_last_day)
    hour = max(8 * budget.jobs, -(-situation.scale.gpus * budget.gpus_per_hour_milli // 1_000))
    freed = sum(len(job.allocation) * job.request.gpus for job in stopped)
    within = freed <= max(0, hour - used.preempted_gpus_last_hour)
    highest = min((situation.tiers[name] for name in situation.eligible), default=0)
    reclaimed = sum(1 for job in stopped if situation.tiers[job.name] <= highest)
    enough = len(stopped) <= min(per_round, per_day) and reclaimed <= budget.reclaim_jobs
    return enough and within


def without(snapshot: Snapshot, gone: Gone) -> Snapshot:
    """The snapshot with these victims off their nodes."""
    out = dict(gone)
    jobs = []
    for job in snapshot.jobs:
        left = preempted.left(job.allocation, out.get(job.name, ()))
        if left or not job.allocation:
            jobs.append(job.model_copy(update={"allocation": left}))
    return snapshot.model_copy(update={"jobs": tuple(jobs)})


def as_plan(situation: Situation, like: Plan, gone: Gone) -> Plan:
    """These victims as a plan without starts."""
    snapshot = situation.snapshot
    stops, shrinks = [], []
    for name, out in gone:
        job = situation.jobs[name]
        common = {"job": name, "at": snapshot.now, "makes_room_for": (), "lost_gpu_seconds": 0}
        if out == job.allocation:
            free = snapshot.now + timedelta(seconds=preempted.grace(situation, job))
            stops.append(Preempt.model_construct(gpus_free_at=free, **common))
        else:
            shrinks.append(Resize.model_construct(remove=out, add=(), **common))
    update = {"preempts": tuple(stops), "resizes": tuple(shrinks), "starts": (), "reserves": ()}
    return like.model_copy(update=update)


def starts_of(
    situation: Situation, plan: Plan, placed: Mapping[str, oracle.Placed], late: Container[str]
) -> tuple[Start, ...]:
    """The starts of a plan; `late`: those that wait, for the victim that is gone first."""
    leave = {stop.job: stop.gpus_free_at for stop in plan.preempts}
    leave |= {resize.job: resize.at for resize in plan.resizes}
    first = min(leave, key=lambda name: (leave[name], name), default="")
    return tuple(
        Start.model_construct(
            job=name,
            at=situation.snapshot.now,
            allocation=tuple(tasks),
            waits_for=(first,) if name in late else (),
        )
        for name, tasks in placed.items()
    )


def alternatives(snapshot: Snapshot, like: Plan) -> Iterator[dict[str, int]]:
    """What victims and starts cost that budgets allow, by stage.

    Where all start in a plan without victims, nobody may be stopped: the reprieve.
    """
    situation = situate(snapshot)
    stages = Stages(situation)
    nothing = stages.values((), situation.states)
    started = {start.job for start in like.starts}
    idle = not (like.preempts or like.resizes) and situation.eligible.keys() <= started
    for gone in [()] if idle else choices(situation):
        if not affordable(situation, gone):
            continue
        plan = as_plan(situation, like, gone)
        for placed in oracle.feasible_plans(without(snapshot, gone)):
            if not placed.keys() <= situation.eligible.keys():
                continue
            for number in range(len(placed) + 1 if gone else 1):
                for late in combinations(placed, number):
                    starts = starts_of(situation, plan, placed, late)
                    begun = plan.model_copy(update={"starts": starts})
                    facts = gather(situation, begun, stages, nothing)
                    if not any(rule_preempt.room(facts, begun)):
                        yield dict(facts.objective)


@pytest.mark.parametrize("whole", [3_000, 0])
def test_nothing_that_budgets_allow_beats_the_bounds(whole: int) -> None:
    @settings(
        max_examples=120,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    @given(contested(), st.integers(1, 3), st.sampled_from((2, 64)))
    def check(snapshot: Snapshot, patterns: int, segments: int) -> None:
        assume(not snapshot.holds and len(situate(snapshot).snapshot.jobs) == len(snapshot.jobs))
        thresholds = Thresholds(segments=segments, patterns=patterns, whole=whole)
        plan = solve(snapshot, Options(time_limit_s=20, workers=1, thresholds=thresholds))
        proofs = [stage for stage in plan.proof.stages if stage.name != FRAGMENTATION]
        for cost in islice(alternatives(snapshot, plan), MOST):
            for stage in proofs:
                assert cost[stage.name] >= stage.bound, (stage, cost)
                if cost[stage.name] > stage.objective:
                    break

    check()
