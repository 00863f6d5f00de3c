"""Whom a plan's reservations keep off which nodes, and when a job could start at best (§11)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from oracle.costs import targets, waiting_weight
from oracle.facts import Facts, instant
from oracle.ground import ground_now
from oracle.rules import can_run_on_empty, placements
from oracle.shares import shares
from trencadis.models import Hold, Job, Plan, Snapshot, TaskAllocation

NEVER = 1 << 60


class Order:
    """Who goes before whom, and how long jobs run."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.facts = facts = Facts(snapshot)
        self.shares = shares(facts)
        used: dict[str, int] = {}
        for job in facts.on_nodes:
            used[job.queue] = used.get(job.queue, 0) + facts.units(job)
        short = {
            queue
            for target in targets(facts, can_run_on_empty(facts))
            if target.is_leaf and target.model is None
            for queue in target.leaves
            if used.get(queue, 0) < target.units
        }
        self.rank = {job.name: self._rank(job, short) for job in facts.eligible}

    def _rank(self, job: Job, short: set[str]) -> tuple[object, ...]:
        facts, policy = self.facts, self.facts.policy
        tier = facts.tier(job)
        heavy = waiting_weight(facts, job) * self.shares[job.name]
        heavy *= policy.aging_seconds + facts.waited(job)
        if policy.priority_mode == "weighted":
            heavy, tier = heavy * policy.tiers[tier].weight, 0
        return (job.queue not in short, tier, -heavy, -facts.size(job), job.name)

    def runtime(self, job: Job) -> int:
        """NEVER over where nobody says."""
        if job.runtime_seconds is not None:
            return job.runtime_seconds
        if self.facts.policy.runtime_unknown == "hold":
            return NEVER
        others = [j.runtime_seconds for j in self.facts.snapshot.jobs if j.queue == job.queue]
        known = sorted(seconds for seconds in others if seconds is not None)
        return known[len(known) // 2] if known else NEVER

    def end(self, job: Job) -> int:
        """Of a running or draining job; NEVER where unknown or over."""
        if job.state == "draining":
            end = NEVER if job.drain_ends is None else instant(job.drain_ends)
        else:
            assert job.start is not None
            end = instant(job.start) + self.runtime(job)
        return end if end > self.facts.now else NEVER


def barred(snapshot: Snapshot, plan: Plan) -> dict[str, set[str]]:
    """By eligible job: the nodes that it may not use."""
    order = Order(snapshot)
    now, found = order.facts.now, dict[str, set[str]]()
    for job in order.facts.eligible:
        for entry in plan.reserves:
            later = now + order.runtime(job) > instant(entry.at)
            if job.name != entry.job and later and order.rank[job.name] > order.rank[entry.job]:
                found.setdefault(job.name, set()).update(task.node for task in entry.allocation)
        for hold in snapshot.holds:
            due = hold.kind == "reservation" and instant(hold.at) <= now
            if not due or hold.job not in order.rank or not _free(order.facts, hold):
                continue
            if order.rank[job.name] > order.rank[hold.job]:
                found.setdefault(job.name, set()).update(task.node for task in hold.allocation)
    return found


def _free(facts: Facts, hold: Hold) -> bool:
    """Whether the job could start now on just the nodes that it was promised."""
    wanted = sorted(task.node for task in hold.allocation)
    return any(
        sorted(task.node for task in placed) == wanted
        for placed in placements(facts, facts.job[hold.job], ground_now(facts))
    )


def earliest(snapshot: Snapshot, plan: Plan) -> int | None:
    """When the first job with a reservation could start, with those that go before it started.

    Every instant at which something ends, work or maintenance, is tried, and every place there.
    None if none suits.
    """
    order = Order(snapshot)
    name = plan.reserves[0].job
    stays = list(_stays(snapshot, plan, order, name))
    job = order.facts.job[name]
    instants = {end for end, _, _ in stays if end < NEVER}
    for node in snapshot.nodes:
        instants |= {instant(window.end) for window in node.maintenance}
    for at in sorted(at for at in instants if at > order.facts.now):
        there = _at(snapshot, at, ((j, tasks) for end, j, tasks in stays if end > at))
        facts = Facts(there)
        if next(placements(facts, job, ground_now(facts)), None) is not None:
            return at
    return None


def _stays(
    snapshot: Snapshot, plan: Plan, order: Order, before: str
) -> Iterator[tuple[int, Job, tuple[TaskAllocation, ...]]]:
    gone = {stop.job: instant(stop.gpus_free_at) for stop in plan.preempts}
    assert not any(resize.remove for resize in plan.resizes)
    for job in order.facts.on_nodes:
        end = gone.get(job.name, order.end(job))
        if end > order.facts.now:
            yield end, job, job.allocation
    for hold in snapshot.delayed:
        job = order.facts.job[hold.job]
        begin = max(order.facts.now, instant(hold.at))
        yield begin + order.runtime(job), job, hold.allocation
    for start in plan.starts:
        if start.job in order.rank and order.rank[start.job] < order.rank[before]:
            job = order.facts.job[start.job]
            tasks = start.allocation[: len(start.allocation) - start.further]
            yield instant(start.at) + order.runtime(job), job, tasks


def _at(
    snapshot: Snapshot, at: int, there: Iterable[tuple[Job, tuple[TaskAllocation, ...]]]
) -> Snapshot:
    """The snapshot at another instant, with just these jobs on the nodes. Waiting ones stay."""
    running = {
        job.name: job.model_copy(
            update={"state": "running", "allocation": tasks, "start": snapshot.now}
        )
        for job, tasks in there
    }
    waiting = [job for job in snapshot.jobs if not job.on_nodes and job.name not in running]
    now = snapshot.now.fromtimestamp(at, snapshot.now.tzinfo)
    return snapshot.model_copy(
        update={"now": now, "jobs": (*running.values(), *waiting), "holds": ()}
    )
