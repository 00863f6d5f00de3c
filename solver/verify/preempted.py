"""Running jobs that the plan stops, by the verifier's own reckoning (problem.md, 8)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from trencadis.models import Job, Plan, TaskAllocation
from trencadis.models.base import seconds
from trencadis.solver.verify.costs import Costs
from trencadis.solver.verify.situation import Row, Situation, add_use, place
from trencadis.solver.verify.supply import survey
from trencadis.solver.verify.units import has_mig

DAY = 86_400

Tasks = tuple[TaskAllocation, ...]


def without(
    situation: Situation, names: Iterable[str], removed: Mapping[str, Tasks] | None = None
) -> Situation:
    """The situation with these jobs, and these tasks of others, off their nodes; what jobs are
    worth stays."""
    gone, removed = set(names), removed or {}
    if not gone and not removed:
        return situation
    nodes = {name: state.node for name, state in situation.states.items()}
    running = tuple(
        place(entry.job, entry.ask, left(entry.tasks, removed[name]), nodes, situation.levels)
        if (name := entry.job.name) in removed
        else entry
        for entry in situation.running
        if entry.job.name not in gone
    )
    leaf_use: dict[Row, int] = {}
    add_use(leaf_use, running)
    there = [
        job.model_copy(update={"allocation": left(job.allocation, removed[job.name])})
        if job.name in removed
        else job
        for job in situation.snapshot.jobs
        if job.on_nodes and job.name not in gone
    ]
    return replace(
        situation,
        states={
            name: replace(state, counted=state.counted or situation.states[name].counted)
            for name, state in survey(
                situation.snapshot, there, situation.asks, situation.scale.tables
            ).items()
        },
        running=running,
        leaf_use=leaf_use,
    )


def left(tasks: Tasks, removed: Tasks) -> Tasks:
    """The tasks without these. ValueError if one of them isn't there."""
    rest = list(tasks)
    for task in removed:
        rest.remove(task)
    return tuple(rest)


def grace(situation: Situation, job: Job) -> int:
    """Seconds until the job's GPUs are free."""
    rules = situation.snapshot.policy.preemption
    if rules.mode == "immediate":
        return 0
    return rules.grace_seconds if job.grace_seconds is None else job.grace_seconds


def forbidden(situation: Situation, job: Job, *, moves: bool = False) -> str:
    """Why the job may not be stopped; empty if it may. `moves`: to go on elsewhere, where a service
    keeps its minimum and a slice needs no room counted."""
    rules = situation.snapshot.policy.preemption
    if rules.mode not in ("graceful", "immediate"):
        return f"the policy's preemption mode is {rules.mode}"
    if job.state != "running":
        return f"it is {job.state}, not running"
    if not job.preemptible:
        return "it is not preemptible"
    if not job.requeueable:
        return "it can't be requeued"
    if job.min_replicas and not moves:
        return "it is a service"
    if (has_mig(job.request) or job.request.share is not None) and not moves:
        return "it runs on a slice or a share, whose room is not counted yet"
    if job.start is not None and situation.now - seconds(job.start) < rules.min_runtime_seconds:
        return "it has run for less than min_runtime_seconds"
    recent = job.preempted_at is not None and situation.now - seconds(job.preempted_at) < DAY
    if recent and job.preempted >= rules.budget.per_job_and_day:
        return f"it was preempted {job.preempted} times already"
    return ""


def seconds_lost(situation: Situation, job: Job) -> int:
    """Unsaved work, the grace, and the restart, in seconds."""
    policy, saved = situation.snapshot.policy, job.checkpoint
    ran = policy.horizon_seconds
    if job.start is not None:
        ran = max(0, situation.now - seconds(job.start))
    lost = ran
    if saved is not None:
        if saved.on_signal:
            lost = 0
        elif saved.last is not None:
            lost = min(ran, max(0, situation.now - seconds(saved.last)))
        elif saved.interval_seconds is not None:
            lost = min(ran, saved.interval_seconds // 2)
    return lost + grace(situation, job) + restart(situation, job)


def restart(situation: Situation, job: Job) -> int:
    """Seconds that the job takes to go on after a stop or a change of its tasks."""
    rules = situation.snapshot.policy.preemption
    nodes = {task.node for task in job.allocation}
    return rules.restart_seconds if len(nodes) == 1 else rules.restart_seconds_multi_node


def fixed(situation: Situation, job: Job, fewer: int) -> str:
    """Why a running elastic job may not give up so many tasks; empty if it may."""
    mode = situation.snapshot.policy.preemption.mode
    if mode not in ("graceful", "immediate"):
        return f"the policy's preemption mode is {mode}"
    if not job.preemptible:
        return "it is not preemptible"
    least = max(job.minimum, job.min_replicas)
    if len(job.allocation) - fewer < least:
        return f"it would be left with less than {least} tasks"
    return ""


def shrink_loss(situation: Situation, job: Job) -> int:
    """What the tier pays for each task that an elastic job gives up."""
    policy = situation.snapshot.policy
    weight = situation.tier_weight(job) * job.weight_milli * policy.share_floor_milli
    span = restart(situation, job) * 1_000 + policy.horizon_seconds * policy.elastic_milli
    product = weight * situation.scale.size(situation.asks[job.name], 1) * span
    return max(1, -(-product // (1_000 * 1_000 * 1_000 * situation.scale.unit)))


def loss(situation: Situation, job: Job) -> int:
    """What the victim's tier pays: the work lost, and the waiting that begins."""
    policy, tau = situation.snapshot.policy, situation.snapshot.policy.aging_seconds
    size = situation.scale.size(situation.asks[job.name], len(job.allocation))
    product = situation.tier_weight(job) * job.weight_milli * (tau + situation.waited[job.name])
    product *= size * (seconds_lost(situation, job) + policy.horizon_seconds)
    return max(1, -(-product // (1_000 * tau * situation.scale.unit)))


def losses(situation: Situation, costs: Costs, plan: Plan) -> list[int]:
    """By tier: what victims lose, less the spread that ends."""
    total = [0] * len(situation.snapshot.policy.tiers)
    running = {entry.job.name: entry for entry in situation.running}
    for stop in plan.preempts:
        tier = situation.tiers[stop.job]
        total[tier] += loss(situation, situation.jobs[stop.job]) - costs.spread(running[stop.job])
    for resize in plan.resizes:
        job = situation.jobs[resize.job]
        total[situation.tiers[job.name]] += len(resize.remove) * shrink_loss(situation, job)
    return total


def changes(situation: Situation, costs: Costs, plan: Plan) -> list[int]:
    """By tier: what victims lose, less the spread that ends, and what delayed starts pay."""
    total = losses(situation, costs, plan)
    graces: Mapping[str, int] = {
        stop.job: grace(situation, situation.jobs[stop.job]) for stop in plan.preempts
    }
    horizon = situation.snapshot.policy.horizon_seconds
    for start in plan.starts:
        if start.waits_for and start.job in situation.eligible:
            delay = min(horizon, max(graces.get(name, 0) for name in start.waits_for))
            total[situation.tiers[start.job]] += -(-costs.waits[start.job] * delay // horizon)
    return total
