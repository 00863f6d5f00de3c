"""Who may be preempted, at what loss, and how many (docs/problem.md, 8)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trencadis.models import Job, Snapshot, TaskAllocation
from trencadis.models.base import seconds
from trencadis.models.units import asks_for_mig
from trencadis.solver.elastic.jobs import elastic
from trencadis.solver.model.problem import Facts
from trencadis.solver.worth import ceil_div, size_of, tier_of, waited

DAY = 86_400


@dataclass(frozen=True, slots=True)
class Victim:
    """A running job that may be told to stop, or a task that it may be told to give up."""

    job: Job
    tier: int
    units: int
    gpus: int
    grace: int
    """Seconds until its GPUs are free."""
    lost: int
    """GPU-seconds lost: since its last checkpoint, while it stops, while it restarts."""
    loss: int
    """The same weighted, and the waiting that begins: what its tier pays."""
    yields_below: int
    """It may go for starts of tiers before this one."""
    task: TaskAllocation | None = None
    """The only task that goes, of an elastic job that runs on with the others."""
    spare: int = 0
    """How many such tasks the job can give up."""

    @property
    def tasks(self) -> tuple[TaskAllocation, ...]:
        """The tasks that go."""
        return self.job.allocation if self.task is None else (self.task,)


@dataclass(frozen=True, slots=True)
class Allowance:
    """How much a round may still disturb."""

    jobs: int
    """For jobs of higher tiers."""
    reclaimed: int
    """For queues short of their guarantee."""
    gpus: int
    """GPUs of both."""


def victims(read: Facts) -> dict[str, Victim]:
    """The running jobs that the rules let a round preempt, by name."""
    snapshot = read.snapshot
    if not may_preempt(snapshot):
        return {}
    found: dict[str, Victim] = {}
    for job in snapshot.jobs:
        if job.state == "running" and job.allocation:
            if may_stop(snapshot, job):
                found[job.name] = _victim(read, job)
            found |= _tasks(read, job)
    return found


def may_preempt(snapshot: Snapshot) -> bool:
    """Whether rounds of this policy stop jobs at all."""
    return snapshot.policy.preemption.mode in ("graceful", "immediate")


def _tasks(read: Facts, job: Job) -> dict[str, Victim]:
    """The tasks of an elastic job, each as a victim of its own. No job's name has a line break."""
    spare = len(job.allocation) - max(job.minimum, job.min_replicas)
    if spare <= 0 or not job.preemptible or not elastic(job):
        return {}
    policy, rates = read.snapshot.policy, read.values.rates
    tier, again = tier_of(read.snapshot, job), restart(read.snapshot, job)
    weight = rates.tier_weight[tier] * job.weight_milli * rates.floor
    weight *= size_of(job, 1, rates, read.capacity)
    weight *= again * 1_000 + rates.horizon * policy.elastic_milli
    loss = max(1, ceil_div(weight, 1_000 * 1_000 * 1_000 * rates.unit))
    return {
        f"{job.name}\n{number}": Victim(
            job=job,
            tier=tier,
            units=rates.sizes.task(job.request),
            gpus=job.request.gpus,
            grace=0,
            lost=again * job.request.gpus,
            loss=loss,
            yields_below=tier + 1,
            task=task,
            spare=spare,
        )
        for number, task in enumerate(job.allocation)
    }


def may_stop(snapshot: Snapshot, job: Job) -> bool:
    """Whether the job itself allows it, and what it leaves makes room."""
    if job.min_replicas or asks_for_mig(job.request) or job.request.share is not None:
        return False  # what a slice leaves is a slice: no room is made of it yet
    return may_restart(snapshot, job)


def may_restart(snapshot: Snapshot, job: Job) -> bool:
    """Whether the job allows that it is interrupted: its flags, its age, how often it was
    preempted."""
    rules, now = snapshot.policy.preemption, seconds(snapshot.now)
    if not job.preemptible or not job.requeueable:
        return False
    if job.start is not None and now - seconds(job.start) < rules.min_runtime_seconds:
        return False
    recent = job.preempted_at is not None and now - seconds(job.preempted_at) < DAY
    return not (recent and job.preempted >= rules.budget.per_job_and_day)


def _victim(read: Facts, job: Job) -> Victim:
    snapshot, rates = read.snapshot, read.values.rates
    lost = seconds_lost(snapshot, job)
    tier = tier_of(snapshot, job)
    size = size_of(job, len(job.allocation), rates, read.capacity)
    aging = snapshot.policy.aging_seconds
    weight = rates.tier_weight[tier] * job.weight_milli * (aging + waited(snapshot, job)) * size
    gpus = gpus_of(job)
    return Victim(
        job=job,
        tier=tier,
        units=rates.sizes.job(job),
        gpus=gpus,
        grace=grace_of(snapshot, job),
        lost=lost * gpus,
        loss=max(1, ceil_div(weight * (lost + rates.horizon), 1_000 * aging * rates.unit)),
        yields_below=tier,
    )


def grace_of(snapshot: Snapshot, job: Job) -> int:
    """Seconds that the job has between the signal and its end."""
    rules = snapshot.policy.preemption
    if rules.mode != "graceful":
        return 0
    return rules.grace_seconds if job.grace_seconds is None else job.grace_seconds


def seconds_lost(snapshot: Snapshot, job: Job) -> int:
    """What a stop loses: work that is not saved, the grace and the restart."""
    ran = snapshot.policy.horizon_seconds if job.start is None else elapsed(snapshot, job)
    return unsaved(snapshot, job, ran, None) + grace_of(snapshot, job) + restart(snapshot, job)


def gpus_of(job: Job) -> int:
    """Whole GPUs that a job occupies."""
    return len(job.allocation) * job.request.gpus


def elapsed(snapshot: Snapshot, job: Job) -> int:
    """Seconds since the job started; 0 where that is unknown."""
    return 0 if job.start is None else max(0, seconds(snapshot.now) - seconds(job.start))


def unsaved(snapshot: Snapshot, job: Job, ran: int, interval: int | None) -> int:
    """Seconds of `ran` that a stop loses: since the last checkpoint, or half an interval.

    `interval`: of checkpoints that say neither when nor how often they are; None: all is lost then.
    """
    saved = job.checkpoint
    if saved is None:
        return ran
    if saved.on_signal:
        return 0
    if saved.last is not None:
        return min(ran, max(0, seconds(snapshot.now) - seconds(saved.last)))
    interval = saved.interval_seconds or interval
    return ran if interval is None else min(ran, interval // 2)


def restart(snapshot: Snapshot, job: Job) -> int:
    """Seconds until a stopped job works again, once it starts."""
    rules = snapshot.policy.preemption
    several = len({task.node for task in job.allocation}) > 1
    return rules.restart_seconds_multi_node if several else rules.restart_seconds


def allowance(snapshot: Snapshot, gpus: int) -> Allowance:
    """What budgets leave: per round, and in the windows of the last hour and day.

    Small clusters get what ten jobs of eight GPUs need, whatever the fractions say.
    """
    budget, used = snapshot.policy.preemption.budget, snapshot.budget_use
    running = sum(1 for job in snapshot.jobs if job.state == "running")
    jobs = max(budget.jobs, ceil_div(running * budget.jobs_milli_of_running, 1_000))
    day = max(budget.jobs, ceil_div(running * budget.jobs_per_day_milli, 1_000))
    hour = max(8 * budget.jobs, ceil_div(gpus * budget.gpus_per_hour_milli, 1_000))
    left = max(0, day - used.preempted_jobs_last_day)
    return Allowance(
        jobs=min(jobs, left),
        reclaimed=budget.reclaim_jobs,
        gpus=max(0, hour - used.preempted_gpus_last_hour),
    )


def surpluses(read: Facts) -> Mapping[tuple[str, str], int]:
    """Units above its target of each guarantee, in all ('') or by model; negative where short."""
    return {(t.queue, t.model): -t.missing for t in read.guarantees}
