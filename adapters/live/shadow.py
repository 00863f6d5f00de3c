"""What would have been: the plans followed in a world of their own, beside what really happens.

A job that really starts later than in the plans still has to show how long it runs: until it has
ended, the job of the shadow keeps its GPUs as well. So where the shadow is ahead, its gain is
understated, never overstated.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from trencadis.adapters.live.cluster import JobView, Reading
from trencadis.adapters.live.overlay import cordoned
from trencadis.adapters.live.store import Store
from trencadis.models import InvalidInputError, Job, Plan, Snapshot, TaskAllocation
from trencadis.models.check import check

KEY = "shadow"


@dataclass(slots=True)
class Twin:
    """One job in both worlds. Instants as ISO text, so that the store can keep them."""

    job: dict[str, Any]
    """As it was when it waited."""
    submit: str
    native_start: str | None = None
    native_end: str | None = None
    start: str | None = None
    end: str | None = None
    allocation: list[dict[str, Any]] | None = None
    lost: bool = False
    """It left the native scheduler without a run: it counts no more."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both worlds so far, over the same jobs. Waits of those that still wait count until now."""

    jobs: int
    native_started: int
    shadow_started: int
    native_mean_wait_s: float
    shadow_mean_wait_s: float
    native_waiting_gpu_hours: float
    shadow_waiting_gpu_hours: float
    native_gpu_hours: float
    """GPU-hours that these jobs have run."""
    shadow_gpu_hours: float

    def as_dict(self) -> dict[str, Any]:
        """For the log."""
        return asdict(self)


class Shadow:
    """The other world. It outlives the process in the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        kept = json.loads(store.get(KEY) or "{}")
        self._twins = {name: Twin(**fields) for name, fields in kept.items()}
        self._now: datetime | None = None

    def snapshot(self, reading: Reading) -> Snapshot:
        """The cluster as it would be now."""
        self._now = reading.snapshot.now
        self._observe(reading)
        jobs: list[Job] = [job for job in reading.snapshot.jobs if job.name not in self._twins]
        here = {job.name for job in jobs}
        for name, twin in self._twins.items():
            if not twin.lost and twin.end is None:
                jobs.append(self._as_job(name, twin, here))
        known = {job.name for job in jobs}
        jobs = [
            job.model_copy(update={"after": tuple(n for n in job.after if n in known)})
            for job in jobs
        ]
        queues = {queue.name for queue in reading.snapshot.queues}
        jobs = [job for job in jobs if job.queue in queues]
        snapshot = reading.snapshot.model_copy(update={"jobs": tuple(jobs)})
        try:
            check(snapshot)
        except InvalidInputError:
            return self._apart(snapshot)
        return snapshot

    def follow(self, plan: Plan, reading: Reading) -> None:
        """Starts in the other world what the plan starts."""
        for start in plan.starts:
            twin = self._twins.get(start.job)
            if twin is not None and twin.start is None:
                twin.start = start.at.isoformat()
                twin.allocation = [task.model_dump(mode="json") for task in start.allocation]
        self._observe(reading)
        self._store.put(**{KEY: json.dumps({n: asdict(t) for n, t in self._twins.items()})})

    def report(self) -> Comparison:
        """The difference so far."""
        twins = [twin for twin in self._twins.values() if not twin.lost]
        now = self._now
        native = [(t, _span(t.submit, t.native_start, now)) for t in twins]
        shadow = [(t, _span(t.submit, t.start, now)) for t in twins]
        return Comparison(
            jobs=len(twins),
            native_started=sum(t.native_start is not None for t in twins),
            shadow_started=sum(t.start is not None for t in twins),
            native_mean_wait_s=_mean(wait for _, wait in native),
            shadow_mean_wait_s=_mean(wait for _, wait in shadow),
            native_waiting_gpu_hours=_hours(native),
            shadow_waiting_gpu_hours=_hours(shadow),
            native_gpu_hours=_hours(
                (t, _span(t.native_start, t.native_end, now)) for t in twins if t.native_start
            ),
            shadow_gpu_hours=_hours((t, _span(t.start, t.end, now)) for t in twins if t.start),
        )

    def _observe(self, reading: Reading) -> None:
        now = reading.snapshot.now
        records = {job.name: job for job in reading.snapshot.jobs}
        for name, view in reading.jobs.items():
            if name not in self._twins and view.managed and name in records:
                job = records[name].model_dump(mode="json", exclude_defaults=True)
                submit = (view.submit or records[name].submit).isoformat()
                self._twins[name] = Twin(job, submit)
        for name, twin in self._twins.items():
            self._see(twin, reading.jobs.get(name), now)

    def _see(self, twin: Twin, view: JobView | None, now: datetime) -> None:
        if view is not None and view.state in ("running", "leaving", "ended") and view.nodes:
            twin.native_start = twin.native_start or (view.start or now).isoformat()
        ended = view is None or view.state == "ended"
        if ended and twin.native_end is None:
            twin.lost = twin.native_start is None
            twin.native_end = ((view.end if view else None) or now).isoformat()
        if twin.start and twin.native_start and twin.native_end and twin.end is None:
            ran = _at(twin.native_end) - _at(twin.native_start)
            end = max(_at(twin.start) + ran, _at(twin.start))
            if end <= now:
                twin.end = end.isoformat()

    def _as_job(self, name: str, twin: Twin, here: set[str]) -> Job:
        fields = dict(twin.job)
        if twin.start is not None:
            allocation = [TaskAllocation.model_validate(task) for task in twin.allocation or ()]
            fields |= {"state": "running", "start": twin.start, "allocation": allocation}
            fields.pop("group", None)
        elif any(other in here for other in fields.get("after", ())):
            fields["state"] = "held"
        return Job.model_validate({**fields, "name": name})

    def _apart(self, snapshot: Snapshot) -> Snapshot:
        """Work that isn't ours runs where the shadow's does: those nodes are left out for now."""
        ours = [job for job in snapshot.jobs if job.name in self._twins and job.on_nodes]
        nodes = {task.node for job in ours for task in job.allocation}
        names = {job.name for job in ours}
        jobs = tuple(job for job in snapshot.jobs if job.name not in names)
        return cordoned(snapshot.model_copy(update={"jobs": jobs}), nodes)


def _at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _span(first: str | None, last: str | None, now: datetime | None) -> timedelta:
    if first is None or now is None:
        return timedelta()
    return max(timedelta(), (now if last is None else _at(last)) - _at(first))


def _mean(spans: Iterable[timedelta]) -> float:
    listed = [span.total_seconds() for span in spans]
    return round(sum(listed) / len(listed), 1) if listed else 0.0


def _hours(pairs: Iterable[tuple[Twin, timedelta]]) -> float:
    total = 0.0
    for twin, span in pairs:
        request = twin.job.get("request", {})
        gpus = int(request.get("gpus", 0)) * int(twin.job.get("tasks", 1))
        total += gpus * span.total_seconds() / 3_600
    return round(total, 3)
