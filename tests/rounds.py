"""A small cluster round by round: time passes, work gets done, jobs end and come.

Only what the solver's promises over time need: whole jobs, finite work, a decayed past usage of
queues, the windows of the budgets. (`trencadis replay` is the real thing.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta

from trencadis.models import Job, Plan, Snapshot
from trencadis.models.apply import apply
from trencadis.models.policy import BudgetUse
from trencadis.solver.round import Options, solve

REPEATABLE = Options(time_limit_s=5, deterministic=True)
HALF_LIFE_S = 7 * 86_400
DAY = timedelta(days=1)
HOUR = timedelta(hours=1)


class Rounds:
    """A snapshot that lives. `work` is how long each job runs in all; without it, for ever."""

    def __init__(self, snapshot: Snapshot, work: dict[str, timedelta] | None = None) -> None:
        self.now = snapshot
        self.left = dict(work or {})
        self.started: dict[str, datetime] = {}
        """When each job started first."""
        self.preempted: Counter[str] = Counter()
        self.gpu_seconds: Counter[str] = Counter()
        """Used so far, by queue."""
        self._usage = {queue.name: float(queue.past_usage_gpu_hours) for queue in snapshot.queues}
        self._stops: list[tuple[datetime, int, int]] = []

    def add(self, jobs: Iterable[Job], work: timedelta | None = None) -> None:
        """Jobs come."""
        more = tuple(jobs)
        if work is not None:
            self.left.update((job.name, work) for job in more)
        self.now = self.now.model_copy(update={"jobs": (*self.now.jobs, *more)})

    def step(self, seconds: int) -> Plan:
        """One round: decides, carries out, lets time pass."""
        plan = solve(self.now, REPEATABLE)
        sizes = {job.name: len(job.allocation) * job.request.gpus for job in self.now.jobs}
        for stop in plan.preempts:
            self.preempted[stop.job] += 1
            self._stops.append((stop.at, sizes[stop.job], stop.lost_gpu_seconds))
        for start in plan.starts:
            if not start.waits_for:
                self.started.setdefault(start.job, plan.now)
        self._pass(apply(self.now, plan), timedelta(seconds=seconds))
        return plan

    def _pass(self, snapshot: Snapshot, span: timedelta) -> None:
        now = snapshot.now + span
        used: Counter[str] = Counter()
        jobs: list[Job] = []
        for job in snapshot.jobs:
            if job.on_nodes:
                used[job.queue] += len(job.allocation) * job.request.gpus
            if job.state == "draining" and job.drain_ends is not None and job.drain_ends <= now:
                update = {"state": "pending", "allocation": (), "start": None, "drain_ends": None}
                jobs.append(job.model_copy(update=update))
            elif job.state == "running" and job.name in self.left:
                self.left[job.name] -= span
                if self.left[job.name] > timedelta():
                    jobs.append(job)
            else:
                jobs.append(job)
        fade = 0.5 ** (span.total_seconds() / HALF_LIFE_S)
        for name in self._usage:
            self.gpu_seconds[name] += used[name] * int(span.total_seconds())
            hours = used[name] * span / HOUR
            self._usage[name] = self._usage[name] * fade + hours
        queues = tuple(
            queue.model_copy(update={"past_usage_gpu_hours": int(self._usage[queue.name])})
            for queue in snapshot.queues
        )
        self.now = snapshot.model_copy(
            update={
                "now": now,
                "jobs": tuple(jobs),
                "queues": queues,
                "budget_use": self._windows(now),
            }
        )

    def _windows(self, now: datetime) -> BudgetUse:
        day = [entry for entry in self._stops if now - entry[0] < DAY]
        return BudgetUse(
            preempted_gpus_last_hour=sum(gpus for at, gpus, _ in day if now - at < HOUR),
            preempted_jobs_last_day=len(day),
            lost_gpu_seconds_last_day=sum(lost for _, _, lost in day),
        )
