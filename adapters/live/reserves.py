"""The nodes that a plan keeps for jobs to come: promises to the next round, and, where others could
take them, reservations of the native scheduler."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from trencadis.adapters.live.cluster import PREFIX, Reading, RefusedError
from trencadis.adapters.live.config import LiveConfig
from trencadis.adapters.live.context import Context
from trencadis.adapters.live.store import Store, stamp
from trencadis.models import Hold, Plan, Snapshot, TaskAllocation
from trencadis.models.plan import Reserve

KEY = "reserves"
LONGEST = timedelta(days=1)
"""For so long nodes are kept for a job that doesn't say how long it runs, if nobody ends that."""
SETTLED = timedelta(seconds=60)
"""A reservation is left as it is where the plan's time differs by no more."""


@dataclass(frozen=True, slots=True)
class Promise:
    """What the last plan keeps for a job."""

    at: str
    allocation: tuple[Mapping[str, Any], ...]
    sent: bool = False
    """Whether the native scheduler was told, or was about to be."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """Its nodes."""
        return tuple(sorted({str(task["node"]) for task in self.allocation}))

    @property
    def instant(self) -> datetime:
        """When they are to be free."""
        return datetime.fromisoformat(self.at)


def promises(store: Store) -> dict[str, Promise]:
    """What is promised, by job."""
    kept = json.loads(store.get(KEY) or "{}")
    return {job: Promise(**{**v, "allocation": tuple(v["allocation"])}) for job, v in kept.items()}


def needless(reserve: Reserve, reading: Reading, config: LiveConfig) -> str | None:
    """Why the native scheduler need not be told; None if it must be."""
    if config.reserve_planned == "always":
        return None
    if config.reserve_planned == "never":
        return "the configuration says: never"
    if not reading.contested.isdisjoint(task.node for task in reserve.allocation):
        return None
    return "no job that isn't ours can start there"


def holds(snapshot: Snapshot, store: Store) -> tuple[Hold, ...]:
    """The promises that a plan for the snapshot can keep."""
    if not snapshot.policy.reservations:
        return ()
    waiting = {job.name: job for job in snapshot.jobs if job.state == "pending"}
    here = {node.name for node in snapshot.nodes}
    return tuple(
        Hold(
            job=job,
            kind="reservation",
            at=promise.instant,
            allocation=tuple(TaskAllocation.model_validate(t) for t in promise.allocation),
        )
        for job, promise in promises(store).items()
        if job in waiting
        and len(promise.allocation) == waiting[job].minimum
        and here.issuperset(promise.nodes)
    )


def keep(
    context: Context, plan: Plan, snapshot: Snapshot, reading: Reading, epoch: int
) -> dict[str, str]:
    """Has the native scheduler keep what the plan keeps, and no more. Returns what it refused.

    Before the plan's starts: what kept a node until now may be in their way. What is kept for a job
    that starts now stays for its start. Each reservation is written before it is made; the store
    names all that have to be ended. Raises UnavailableError and FencedError.
    """
    store = context.store
    starting = {start.job for start in plan.starts}
    before = promises(store)
    after = {
        reserve.job: _promise(reserve, before.get(reserve.job), reading, context.config)
        for reserve in plan.reserves
    }
    after |= {job: old for job, old in before.items() if job in starting and old.sent}
    if not (before or after):
        return {}
    for job, old in before.items():
        new = after.get(job)
        if old.sent and not (new is not None and new.sent):
            _end(context, job, old)
    store.put_fenced(epoch, **{KEY: _text(after)})
    there = set(context.cluster.reservations()) if any(p.sent for p in after.values()) else set()
    runs = {job.name: job.runtime_seconds for job in snapshot.jobs}
    refused: dict[str, str] = {}
    for job, promise in after.items():
        was = before.get(job)
        as_before = was is not None and was.sent and _alike(was, promise) and PREFIX + job in there
        if promise.sent and not as_before and job not in starting:
            try:
                _begin(context, job, promise, runs.get(job))
            except RefusedError as error:
                refused[job] = str(error)
    if refused:
        after = {job: replace(p, sent=p.sent and job not in refused) for job, p in after.items()}
        store.put_fenced(epoch, **{KEY: _text(after)})
    return refused


def taken(context: Context, job: str) -> bool:
    """Whether nodes are reserved for a job that starts now; its start is to end that."""
    promise = promises(context.store).get(job)
    return promise is not None and promise.sent


def forget(context: Context, job: str) -> None:
    """The job starts: what was promised is its start's from now on."""
    kept = promises(context.store)
    if kept.pop(job, None) is not None:
        context.store.put(**{KEY: _text(kept)})


def tidy(context: Context, reading: Reading) -> None:
    """Ends what is kept for jobs that wait no longer, where no plan of ours does it."""
    kept = promises(context.store)
    over = {
        job: promise
        for job, promise in kept.items()
        if job not in reading.jobs or reading.jobs[job].state != "waiting"
    }
    if not over:
        return
    for job, promise in over.items():
        if promise.sent:
            _end(context, job, promise)
    left = {job: promise for job, promise in kept.items() if job not in over}
    context.store.put(**{KEY: _text(left)})


def _promise(
    reserve: Reserve, old: Promise | None, reading: Reading, config: LiveConfig
) -> Promise:
    tasks = tuple(task.model_dump(mode="json") for task in reserve.allocation)
    found = Promise(stamp(reserve.at), tasks, needless(reserve, reading, config) is None)
    if old is not None and old.sent and found.sent and _alike(old, found):
        # The time that was sent: else small changes would add up unseen.
        return replace(found, at=old.at)
    return found


def _alike(old: Promise, new: Promise) -> bool:
    return old.nodes == new.nodes and abs(old.instant - new.instant) <= SETTLED


def _begin(context: Context, job: str, promise: Promise, runs: int | None) -> None:
    # Work that ends just then by the plan may have begun a little late, and has its whole time.
    at = promise.instant + timedelta(seconds=context.config.start_timeout_seconds)
    end = at + (LONGEST if runs is None else timedelta(seconds=runs))
    context.cluster.reserve(PREFIX + job, job, promise.nodes, at, end)
    context.note("reserve", job, nodes=promise.nodes, since=stamp(at), until=stamp(end))


def _end(context: Context, job: str, promise: Promise) -> None:
    if context.unreserve(job):
        context.note("unreserve", job, nodes=promise.nodes)


def _text(kept: Mapping[str, Promise]) -> str:
    return json.dumps({job: asdict(promise) for job, promise in kept.items()})
