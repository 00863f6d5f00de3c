"""What the nodes will have idle by the estimates, and who goes before whom (problem.md, 11)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from trencadis.models import Job, Plan, TaskAllocation
from trencadis.models.base import seconds
from trencadis.solver.verify.admission import FOREVER
from trencadis.solver.verify.preempted import left
from trencadis.solver.verify.situation import Row, Situation
from trencadis.solver.verify.supply import survey

Rank = tuple[int, int, int, int, str]
Tasks = tuple[TaskAllocation, ...]
Stay = tuple[int, int, Job, Tasks]
"""From when until when (FOREVER where unknown) a job is where."""


def runtimes(situation: Situation) -> dict[str, int]:
    """How long each job runs, FOREVER where that isn't known."""
    snapshot = situation.snapshot
    by_queue: dict[str, list[int]] = {}
    if snapshot.policy.runtime_unknown == "queue_median":
        for job in snapshot.jobs:
            if job.runtime_seconds is not None:
                by_queue.setdefault(job.queue, []).append(job.runtime_seconds)
    medians = {queue: sorted(known)[len(known) // 2] for queue, known in by_queue.items()}
    return {
        job.name: medians.get(job.queue, FOREVER)
        if job.runtime_seconds is None
        else job.runtime_seconds
        for job in snapshot.jobs
    }


def ranks(situation: Situation, targets: Mapping[Row, int], used: Mapping[Row, int]) -> dict[
    str, Rank
]:
    """Smaller goes first. `targets`, `used`: of the queues, before the plan."""
    policy, found = situation.snapshot.policy, dict[str, Rank]()
    for name, job in situation.eligible.items():
        row = job.queue, None
        short = targets.get(row, 0) > used.get(row, 0)
        weight = situation.tier_weight(job) * situation.weight(job) * situation.shares[name]
        found[name] = (
            0 if short else 1,
            situation.tiers[name] if policy.priority_mode == "strict" else 0,
            -weight * (policy.aging_seconds + situation.waited[name]),
            -situation.scale.size(situation.asks[name], job.minimum),
            name,
        )
    return found


@dataclass(frozen=True, slots=True)
class Forecast:
    """Who is on the nodes over time. `situation`: the snapshot as it is."""

    situation: Situation
    runtime: Mapping[str, int]
    rank: Mapping[str, Rank]
    plan: Plan

    def stays(self) -> Iterable[Stay]:
        """What runs, leaves or is held, whatever starts."""
        now, gone = self.situation.now, {stop.job: stop for stop in self.plan.preempts}
        removed = {resize.job: resize.remove for resize in self.plan.resizes}
        for job in self.situation.snapshot.jobs:
            if not job.on_nodes:
                continue
            if job.name in gone:
                end = seconds(gone[job.name].gpus_free_at)
                if end > now:
                    yield now, end, job, job.allocation
                continue
            if job.state == "draining":
                end = FOREVER if job.drain_ends is None else seconds(job.drain_ends)
            else:
                assert job.start is not None
                end = seconds(job.start) + self.runtime[job.name]
            if end <= now:
                end = FOREVER
            yield now, end, job, left(job.allocation, removed.get(job.name, ()))
        for hold in self.situation.snapshot.delayed:
            begin = max(now, seconds(hold.at))
            job = self.situation.jobs[hold.job]
            yield now, begin + self.runtime[hold.job], job, hold.allocation

    def starts(self, before: str | None, further: bool) -> Iterable[Stay]:
        """The plan's starts; with `before` only of those that go before that job."""
        for start in self.plan.starts:
            if start.job not in self.rank:
                continue  # on a hold, which is counted already
            if before is not None and self.rank[start.job] >= self.rank[before]:
                continue
            begin = seconds(start.at)
            tasks = start.allocation
            if not further:
                tasks = tasks[: len(tasks) - start.further]
            job = self.situation.jobs[start.job]
            yield self.situation.now, begin + self.runtime[start.job], job, tasks
        if further:
            for resize in self.plan.resizes:
                job = self.situation.jobs[resize.job]
                if resize.add and job.start is not None:
                    end = seconds(job.start) + self.runtime[job.name]
                    now = self.situation.now
                    yield now, end if end > now else FOREVER, job, resize.add

    def reserved(self, names: Collection[str]) -> Iterable[Stay]:
        """What is reserved for these jobs."""
        for entry in self.plan.reserves:
            if entry.job in names:
                at = seconds(entry.at)
                job = self.situation.jobs[entry.job]
                yield at, at + self.runtime[entry.job], job, entry.allocation

    def at(self, instant: int, end: int, stays: Sequence[Stay]) -> Situation:
        """The situation with what is there at some time from the instant to `end`, and that
        instant as its present."""
        there: dict[str, Job] = {}
        for begin, until, job, tasks in stays:
            if begin < end and instant < until and tasks:
                known = there.get(job.name)
                places = tasks if known is None else (*known.allocation, *tasks)
                there[job.name] = job.model_copy(update={"state": "running", "allocation": places})
        situation = self.situation
        snapshot = situation.snapshot.model_copy(update={"holds": ()})
        states = survey(snapshot, there.values(), situation.asks, situation.scale.tables)
        return replace(situation, now=instant, states=states)
