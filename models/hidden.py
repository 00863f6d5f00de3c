"""A snapshot and its plan as one team may see them: other teams' jobs go by their queue's name."""

from __future__ import annotations

from collections import Counter

from trencadis.models.jobs import Job
from trencadis.models.plan import Plan
from trencadis.models.snapshot import Snapshot


def subtree(snapshot: Snapshot, queue: str) -> set[str]:
    """The queue and all below it. Raises KeyError if it isn't there."""
    if all(entry.name != queue for entry in snapshot.queues):
        raise KeyError(queue)
    found = {queue}
    while True:
        more = {entry.name for entry in snapshot.queues if entry.parent in found} - found
        if not more:
            return found
        found |= more


def hidden(snapshot: Snapshot, plan: Plan, viewer: str) -> tuple[Snapshot, Plan]:
    """The same with jobs outside the viewer's queue renamed `QUEUE#1`, `QUEUE#2`, ...

    Whatever is worked out from the result can't tell what was hidden. Names of their users, groups
    and arrays are hidden as well. Raises KeyError if there is no such queue.
    """
    own = subtree(snapshot, viewer)
    taken = {job.name for job in snapshot.jobs}
    numbers: Counter[str] = Counter()
    alias: dict[str, str] = {}
    for job in sorted(snapshot.jobs, key=lambda job: job.name):
        if job.queue in own:
            continue
        name = ""
        while not name or name in taken:
            numbers[job.queue] += 1
            name = f"{job.queue}#{numbers[job.queue]}"
        alias[job.name] = name
    others = _others(snapshot, own)
    jobs = tuple(_renamed(job, alias, others) for job in snapshot.jobs)
    holds = tuple(
        hold.model_copy(update={"job": alias.get(hold.job, hold.job)}) for hold in snapshot.holds
    )
    seen = snapshot.model_copy(update={"jobs": jobs, "holds": holds})
    starts = tuple(
        start.model_copy(
            update={
                "job": alias.get(start.job, start.job),
                "waits_for": tuple(alias.get(name, name) for name in start.waits_for),
            }
        )
        for start in plan.starts
    )
    repairs = tuple(
        repair.model_copy(
            update={
                "job": alias.get(repair.job, repair.job),
                "waits_for": tuple(alias.get(name, name) for name in repair.waits_for),
            }
        )
        for repair in plan.repairs
    )
    pending = tuple(
        entry.model_copy(update={"job": alias.get(entry.job, entry.job)})
        for entry in plan.pending
        if entry.job not in alias
    )
    # Warnings are sentences that name jobs; the viewer's own are in his snapshot's checks.
    update = {
        "snapshot": seen.fingerprint(),
        "starts": starts,
        "repairs": repairs,
        "pending": pending,
        "warnings": (),
    }
    return seen, plan.model_copy(update=update)


def _others(snapshot: Snapshot, own: set[str]) -> dict[tuple[str, str], str]:
    """Numbers for users, groups and arrays that none of the viewer's own jobs names."""
    known: set[tuple[str, str]] = set()
    found: set[tuple[str, str]] = set()
    for job in snapshot.jobs:
        (known if job.queue in own else found).update(_named(job))
    return {key: f"{key[0]}#{i}" for i, key in enumerate(sorted(found - known), start=1)}


def _named(job: Job) -> list[tuple[str, str]]:
    named = [("user", job.user)]
    if job.group is not None:
        named.append(("group", job.group))
    if job.array is not None:
        named.append(("array", job.array.name))
    return named


def _renamed(
    job: Job, alias: dict[str, str], others: dict[tuple[str, str], str]
) -> Job:
    update: dict[str, object] = {}
    after = tuple(sorted(alias.get(name, name) for name in job.after))
    if after != job.after:
        update["after"] = after
    if job.name in alias:
        update["name"] = alias[job.name]
        update["user"] = others.get(("user", job.user), job.user)
        if job.group is not None:
            update["group"] = others.get(("group", job.group), job.group)
        if job.array is not None:
            name = others.get(("array", job.array.name), job.array.name)
            update["array"] = job.array.model_copy(update={"name": name})
    return job.model_copy(update=update) if update else job
