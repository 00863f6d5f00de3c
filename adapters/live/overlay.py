"""What the next round is to take as given: the reading, with what is under way and was refused."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from trencadis.adapters.live.cluster import Reading
from trencadis.adapters.live.reserves import holds
from trencadis.adapters.live.store import Intent, Store, stamp
from trencadis.models import Hold, InvalidInputError, Job, Snapshot
from trencadis.models.check import check
from trencadis.models.policy import BudgetUse


def overlay(reading: Reading, store: Store, now: datetime) -> Snapshot:
    """The snapshot to decide on.

    A job whose start was sent counts as running where it is to run, a start that waits for victims
    holds its GPUs, a job in its grace drains. What was refused lately isn't offered again.
    """
    intents = store.intents()
    refusals = store.refusals(now)
    counts = preemptions(store)
    snapshot = reading.snapshot
    jobs = tuple(_history(_refused(_rigid(job), refusals), counts) for job in snapshot.jobs)
    snapshot = snapshot.model_copy(update={"jobs": jobs, "budget_use": budget_use(store, now)})
    # Where a job is about to move nothing else starts until it has left.
    moving = {node for intent in intents if intent.kind == "move" for node in intent.targets}
    under_way = cordoned(_under_way(snapshot, intents, now), moving)
    kept = holds(under_way, store)
    for promised in (kept, ()) if kept else ((),):
        found = under_way.model_copy(update={"holds": (*under_way.holds, *promised)})
        try:
            check(found)
        except InvalidInputError:
            continue  # what was promised for later can be promised elsewhere
        return found
    # Others have taken what was meant for a start: until it is settled nobody starts there.
    return _avoided(snapshot, intents)


def _rigid(job: Job) -> Job:
    """A running job keeps the tasks that it has: nothing that we could send changes them."""
    if not job.on_nodes or job.min_tasks is None:
        return job
    return job.model_copy(update={"tasks": len(job.allocation), "min_tasks": None})


def _refused(job: Job, refusals: Mapping[str, set[str] | None]) -> Job:
    if job.state != "pending" or job.name not in refusals:
        return job
    nodes = refusals[job.name]
    if nodes is None:
        return job.model_copy(update={"state": "held"})
    return job.model_copy(update={"excluded_nodes": tuple(sorted({*job.excluded_nodes, *nodes}))})


def _history(job: Job, counts: Mapping[str, tuple[int, datetime]]) -> Job:
    if job.name not in counts:
        return job
    number, last = counts[job.name]
    return job.model_copy(update={"preempted": number, "preempted_at": last})


def _under_way(snapshot: Snapshot, intents: Sequence[Intent], now: datetime) -> Snapshot:
    by_job = {intent.job: intent for intent in intents}
    jobs: list[Job] = []
    holds: list[Hold] = list(snapshot.holds)
    for job in snapshot.jobs:
        intent = by_job.get(job.name)
        update: dict[str, Any] = {}
        if intent is None:
            pass
        elif intent.kind != "start":
            if job.state == "running":
                update = {"state": "draining", "drain_ends": max(intent.deadline, now)}
        elif not job.on_nodes:
            tasks = intent.tasks
            if intent.phase == "waits":
                holds.append(Hold(job=job.name, at=intent.deadline, allocation=tasks))
                update = {"state": "held"}
            else:
                update = {
                    "state": "running",
                    "start": min(intent.at, now),
                    "allocation": tasks,
                    "preemptible": False,
                    "group": None,
                }
        jobs.append(job.model_copy(update=update) if update else job)
    return snapshot.model_copy(update={"jobs": tuple(jobs), "holds": tuple(holds)})


def _avoided(snapshot: Snapshot, intents: Sequence[Intent]) -> Snapshot:
    mine = {intent.job for intent in intents}
    jobs = tuple(
        job.model_copy(update={"state": "held"})
        if job.name in mine and job.state == "pending"
        else job
        for job in snapshot.jobs
    )
    nodes = {node for intent in intents for node in intent.nodes}
    return cordoned(snapshot.model_copy(update={"jobs": jobs}), nodes)


def cordoned(snapshot: Snapshot, names: Collection[str]) -> Snapshot:
    """The snapshot in which these nodes take no work."""
    nodes = tuple(
        node.model_copy(update={"cordoned": True}) if node.name in names else node
        for node in snapshot.nodes
    )
    return snapshot.model_copy(update={"nodes": nodes})


def preemptions(store: Store) -> dict[str, tuple[int, datetime]]:
    """How often each job was preempted, and when last."""
    rows = store.rows(
        "SELECT job, COUNT(*), MAX(at) FROM events WHERE kind = 'preempted' GROUP BY job"
    )
    return {str(job): (int(number), datetime.fromisoformat(at)) for job, number, at in rows}


def budget_use(store: Store, now: datetime) -> BudgetUse:
    """What preemptions of the sliding windows have used, those under way included."""

    def total(what: str, span: timedelta, kind: str = "preempt") -> int:
        query = f"SELECT {what} FROM events WHERE kind = ? AND at > ?"
        (row,) = store.rows(query, kind, stamp(now - span))
        return int(row[0] or 0)

    day, hour = timedelta(days=1), timedelta(hours=1)
    return BudgetUse(
        preempted_gpus_last_hour=total("SUM(json_extract(detail, '$.gpus'))", hour),
        preempted_jobs_last_day=total("COUNT(*)", day),
        lost_gpu_seconds_last_day=total("SUM(json_extract(detail, '$.lost_gpu_seconds'))", day),
        moves_last_hour=total("COUNT(*)", hour, "move"),
    )
