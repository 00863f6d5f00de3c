"""A native scheduler of a few lines, that can be made to fail at any call, before or after."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from trencadis.adapters.live.cluster import (
    JobView,
    Reading,
    RefusedError,
    State,
    Terms,
    UnavailableError,
)
from trencadis.adapters.live.config import LiveConfig
from trencadis.adapters.live.context import Context
from trencadis.adapters.live.loop import Loop
from trencadis.adapters.live.store import Store
from trencadis.models import (
    GpuGroup,
    Job,
    Node,
    Plan,
    Proof,
    Queue,
    Request,
    Snapshot,
    Start,
    Status,
    TaskAllocation,
)
from trencadis.models.plan import Made, Preempt

T0 = datetime(2026, 1, 15, 10, tzinfo=UTC)
Fault = Literal["ok", "lost", "unclear", "refused", "killed", "killed-after"]


class KilledError(BaseException):
    """The process is gone: nothing of it runs any more, not even its handlers."""


@dataclass
class Work:
    """One job of the fake."""

    gpus: int
    nodes: int = 1
    lasts: int = 2
    state: State = "waiting"
    required: tuple[str, ...] = ()
    on: tuple[str, ...] = ()
    start: datetime | None = None
    left: int = 0
    stopped: int = 0
    runs: list[tuple[tuple[str, ...], tuple[str, ...]]] = field(default_factory=list)
    """Nodes asked for, and nodes got."""
    then: State = "ended"
    stoppable: bool = True
    group: str | None = None
    never: bool = False
    """The native scheduler finds a reason not to start it."""
    wrong: tuple[str, ...] = ()
    """Nodes that it can't run on, which only the native scheduler knows."""
    rejected: bool = False


class Fake:
    """`Cluster`, in memory. `tick` is what happens between rounds."""

    def __init__(self, jobs: Mapping[str, Work], nodes: int = 2, size: int = 4) -> None:
        self.jobs = dict(jobs)
        self.size = size
        self.nodes = [f"n{i}" for i in range(1, nodes + 1)]
        self.down: set[str] = set()
        self.now = T0
        self.skew = timedelta()
        """By how much our wall clock was set."""
        self.faults: Iterator[Fault] = iter(())
        self.warned: list[str] = []
        self.reserved: list[str] = []
        self.keeps_nothing = False
        self.grace: int | None = None
        """Seconds, of every job; the policy's where None."""
        self.inside: list[str] = []
        """Jobs that were let go while nodes were reserved for them."""
        self.contested: frozenset[str] = frozenset()

    def clock(self) -> datetime:
        return self.now + self.skew

    def seconds(self) -> float:
        """As a monotonic clock has it."""
        return self.now.timestamp()

    # What happens by itself

    def free(self) -> dict[str, int]:
        free = dict.fromkeys(self.nodes, self.size)
        for work in self.jobs.values():
            for node in work.on:
                free[node] -= work.gpus
        return free

    def tick(self, seconds: int = 10) -> None:
        self.now += timedelta(seconds=seconds)
        for work in self.jobs.values():
            if work.state == "leaving":
                work.state, work.on = work.then, ()
            elif work.state == "running":
                work.left -= 1
                if work.left <= 0:
                    work.state, work.then = "leaving", "ended"
        for work in self.jobs.values():
            if work.state == "released" and not work.never:
                self._try(work)

    def _try(self, work: Work) -> None:
        free = self.free()
        able = [n for n in self.nodes if free[n] >= work.gpus and n not in self.down]
        chosen = work.required or tuple(able[: work.nodes])
        if set(chosen) & set(work.wrong):
            work.state, work.rejected = "waiting", True
        elif len(chosen) == work.nodes and set(chosen) <= set(able):
            work.state, work.on, work.start = "running", chosen, self.now
            work.left = work.lasts
            work.runs.append((work.required, chosen))

    # Cluster

    def _call(self, effect: Callable[[], None] = lambda: None) -> None:
        fault = next(self.faults, "ok")
        if fault == "killed":
            raise KilledError
        if fault == "lost":
            raise UnavailableError("no answer")
        if fault == "refused":
            raise RefusedError("no")
        effect()
        if fault == "killed-after":
            raise KilledError
        if fault == "unclear":
            raise UnavailableError("no answer")

    def read(self, remembered: Mapping[str, Terms]) -> Reading:
        try:
            self._call()
        except RefusedError as error:
            raise UnavailableError(str(error)) from None
        views = {}
        jobs = []
        for name, work in self.jobs.items():
            terms = {"required": ",".join(work.required)}
            views[name] = JobView(
                name,
                work.state,
                managed=work.state == "waiting",
                stoppable=work.stoppable,
                nodes=work.on or (work.runs[-1][1] if work.runs and work.state == "ended" else ()),
                start=work.start,
                terms=terms,
                rejected=work.rejected,
                finished=work.state == "ended",
            )
            if work.state != "ended":
                jobs.append(self._job(name, work, remembered))
        snapshot = Snapshot(
            now=self.now,
            nodes=tuple(
                Node(
                    name=name,
                    gpus=(GpuGroup(model="h100", count=self.size),),
                    precision="node",
                    cordoned=name in self.down,
                )
                for name in self.nodes
            ),
            queues=(Queue(name="q"),),
            jobs=tuple(jobs),
        )
        return Reading(snapshot, views, contested=self.contested)

    def _job(self, name: str, work: Work, remembered: Mapping[str, Terms]) -> Job:
        required = remembered.get(name, {"required": ",".join(work.required)})["required"]
        running = work.state in ("running", "leaving")
        state = {"waiting": "pending", "released": "held", "leaving": "draining"}
        return Job.model_validate(
            {
                "name": name,
                "queue": "q",
                "submit": T0,
                "tasks": work.nodes,
                "max_tasks_per_node": 1 if work.nodes > 1 else None,
                "request": Request(gpus=work.gpus),
                "required_nodes": tuple(filter(None, required.split(","))),
                "state": state.get(work.state, "running"),
                "start": work.start if running else None,
                "allocation": [TaskAllocation(node=n) for n in work.on] if running else (),
                "grace_seconds": self.grace,
                "group": work.group if work.state == "waiting" else None,
            }
        )

    layouts = None

    def objections(self) -> list[str]:
        return []

    def alive(self) -> bool:
        return True

    def start(
        self,
        job: str,
        tasks: Sequence[TaskAllocation],
        view: JobView,  # noqa: ARG002
        *,
        reserved: bool = False,
    ) -> None:
        if reserved and f"trencadis-{job}" in self.reserved:
            self.inside.append(job)
        work = self.jobs[job]

        def name() -> None:
            work.required = tuple(sorted({task.node for task in tasks}))

        def release() -> None:
            if work.state == "waiting":
                work.state = "released"

        self._call(name)
        self._call(release)

    def withdraw(self, job: str, terms: Terms) -> None:
        work = self.jobs[job]
        if work.state not in ("waiting", "released"):
            raise RefusedError("not pending any more")

        def hold() -> None:
            work.state = "waiting"

        self._call(hold)
        self.restore(job, terms)

    def restore(self, job: str, terms: Terms) -> None:
        def put() -> None:
            if terms:
                self.jobs[job].required = tuple(filter(None, terms["required"].split(",")))

        self._call(put)

    def warn(self, job: str) -> None:
        self._call(lambda: self.warned.append(job))

    def stop(self, job: str) -> None:
        work = self.jobs[job]
        if work.state != "running":
            raise RefusedError("not running")

        def requeue() -> None:
            work.state, work.then = "leaving", "waiting"
            work.stopped += 1

        self._call(requeue)

    def give_back(self, job: str, terms: Terms) -> None:
        self.restore(job, terms)
        if self.jobs[job].state == "waiting":
            self.jobs[job].state = "released"

    def reserve(
        self,
        name: str,
        job: str,  # noqa: ARG002
        nodes: Sequence[str],  # noqa: ARG002
        start: datetime,  # noqa: ARG002
        end: datetime,  # noqa: ARG002
    ) -> None:
        if self.keeps_nothing:
            raise RefusedError("not allowed to")
        self._call(lambda: None if name in self.reserved else self.reserved.append(name))

    def unreserve(self, name: str) -> None:
        def end() -> None:
            self.reserved = [entry for entry in self.reserved if entry != name]

        self._call(end)

    def reservations(self) -> list[str]:
        return list(self.reserved)


def first_fit(snapshot: Snapshot, preempt: Mapping[str, str] | None = None) -> Plan:
    """A plan that starts whatever fits, in order; `preempt` names victims by job."""
    free = {node.name: node.gpu_count for node in snapshot.nodes if not node.cordoned}
    for job in snapshot.jobs:
        if job.on_nodes:
            _take(free, job, job.allocation)
    jobs = {job.name: job for job in snapshot.jobs}
    for hold in snapshot.holds:
        _take(free, jobs[hold.job], hold.allocation)
    starts, preempts = [], []
    stopped_groups = {job.group for job in snapshot.jobs if job.state == "held"} - {None}
    for job in snapshot.jobs:
        if job.state != "pending" or job.group in stopped_groups:
            continue
        able = [
            n
            for n in sorted(free)
            if free[n] >= job.request.gpus
            and n not in job.excluded_nodes
            and (not job.required_nodes or n in job.required_nodes)
        ]
        if len(able) >= job.tasks:
            tasks = tuple(TaskAllocation(node=n) for n in able[: job.tasks])
            _take(free, job, tasks)
            starts.append(Start(job=job.name, at=snapshot.now, allocation=tasks))
        else:
            victim = jobs.get((preempt or {}).get(job.name, ""))
            if victim and victim.state == "running" and victim.preemptible and job.tasks == 1:
                end = snapshot.now + timedelta(seconds=20)
                preempts.append(
                    Preempt(
                        job=victim.name,
                        at=snapshot.now,
                        gpus_free_at=end,
                        makes_room_for=(job.name,),
                    )
                )
                tasks = (TaskAllocation(node=victim.allocation[0].node),)
                starts.append(
                    Start(job=job.name, at=end, allocation=tasks, waits_for=(victim.name,))
                )
    return Plan(
        snapshot=snapshot.fingerprint(),
        now=snapshot.now,
        starts=tuple(starts),
        preempts=tuple(preempts),
        proof=Proof(stages=(), gap=0.0, status=Status.FEASIBLE),
        made=Made(trencadis="0", ortools="0", seed=0, deterministic=True, workers=1),
    )


def _take(free: dict[str, int], job: Job, tasks: Sequence[TaskAllocation]) -> None:
    for task in tasks:
        if task.node in free:
            free[task.node] -= job.request.gpus


def context(fake: Fake, path: Path, **config: object) -> Context:
    """A loop's context on the fake, with the store at the path."""
    log = logging.getLogger("trencadis.live.test")
    log.propagate = False
    log.addHandler(logging.NullHandler())
    rules = LiveConfig.model_validate(
        {"mode": "enforce", "start_timeout_seconds": 60, "retry_after_seconds": 20, **config}
    )
    return Context(fake, Store(path), rules, fake.clock, log)


def loop(
    fake: Fake, path: Path, preempt: Mapping[str, str] | None = None, **config: object
) -> Loop:
    """A loop that starts whatever fits."""
    return Loop(context(fake, path, **config), lambda snapshot: first_fit(snapshot, preempt))
