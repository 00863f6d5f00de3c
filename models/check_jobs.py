"""Whether jobs agree with themselves and name only queues, tiers, levels that exist."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator
from graphlib import CycleError, TopologicalSorter

from trencadis.models.check_cluster import NODE_LEVEL, duplicates
from trencadis.models.faults import Fault
from trencadis.models.jobs import Job
from trencadis.models.snapshot import Snapshot


def check_jobs(snapshot: Snapshot) -> list[Fault]:
    """Faults of jobs, their allocations aside."""
    faults = list(duplicates("$.jobs", "job", (job.name for job in snapshot.jobs)))
    known = _Known(snapshot)
    for number, job in enumerate(snapshot.jobs):
        if (
            job.queue not in known.leaves
            or (job.qos is not None and job.qos not in known.qos)
            or (job.priority is not None and job.priority not in known.tiers)
            or (job.licences and not job.licences.keys() <= known.licences)
        ):
            faults.extend(known.references(number, job))
        if job.topology is not None and job.topology.level not in known.levels:
            faults.append(known.level(f"$.jobs[{number}].topology.level", job, job.topology.level))
        if job.segments is not None:
            faults.extend(known.segments(number, job))
        if job.max_tasks_per_domain is not None:
            faults.extend(known.domain_cap(number, job))
        if job.min_tasks is not None or job.min_replicas or job.after:
            faults.extend(_own(number, job))
    faults.extend(_cycles(snapshot))
    return faults


def _cycles(snapshot: Snapshot) -> Iterator[Fault]:
    """One fault per circle of jobs that wait for each other, at the first that is listed."""
    order = {job.name: number for number, job in enumerate(snapshot.jobs)}
    waits = {
        job.name: {name for name in job.after if name in order and name != job.name}
        for job in snapshot.jobs
        if job.after
    }
    while waits:
        try:
            TopologicalSorter(waits).prepare()
        except CycleError as error:
            circle = error.args[1][:0:-1]  # from who waits to whom it waits for
            first = min(circle, key=order.__getitem__)
            start = circle.index(first)
            names = [*circle[start:], *circle[:start], first]
            yield Fault(
                f"$.jobs[{order[first]}].after",
                f"jobs wait for each other: {' -> '.join(names)}",
            )
            del waits[first]
        else:
            return


class _Known:
    """The names that a job may use."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.queues = {queue.name for queue in snapshot.queues}
        self.children: dict[str, str] = {}
        for queue in snapshot.queues:
            if queue.parent is not None:
                self.children.setdefault(queue.parent, queue.name)
        self.leaves = self.queues - self.children.keys()
        self.qos = {entry.name for entry in snapshot.qos}
        self.tiers = {tier.name: None for tier in snapshot.policy.tiers}
        self.licences = {entry.name for entry in snapshot.licences}
        self.levels = dict.fromkeys(level.name for level in snapshot.fabric.levels)
        self.levels[NODE_LEVEL] = None

    def references(self, number: int, job: Job) -> Iterator[Fault]:
        """Faults in the names of queue, QOS, tier and licences."""
        path = f"$.jobs[{number}]"
        if job.queue not in self.queues:
            hint = _maybe(job.queue, self.leaves)
            yield Fault(
                f"{path}.queue", f"job {job.name} is in queue {job.queue}, which isn't there{hint}"
            )
        elif job.queue not in self.leaves:
            yield Fault(
                f"{path}.queue",
                f"job {job.name} is in queue {job.queue}, which has queues below it; jobs belong "
                f"to leaves. Maybe {self.children[job.queue]}?",
            )
        if job.qos is not None and job.qos not in self.qos:
            hint = _maybe(job.qos, self.qos)
            yield Fault(
                f"{path}.qos", f"job {job.name} names QOS {job.qos}, which isn't there{hint}"
            )
        if job.priority is not None and job.priority not in self.tiers:
            yield Fault(
                f"{path}.priority",
                f"job {job.name} has priority {job.priority}; the policy's tiers are "
                f"{', '.join(self.tiers)}",
            )
        for licence in job.licences:
            if licence not in self.licences:
                hint = _maybe(licence, self.licences)
                yield Fault(
                    f"{path}.licences",
                    f"job {job.name} needs licence {licence}, which isn't there{hint}",
                )

    def level(self, path: str, job: Job, level: str) -> Fault:
        """The fault of a level that the fabric lacks."""
        return Fault(
            path,
            f"job {job.name} names level {level}; the levels are {', '.join(self.levels)}",
        )

    def segments(self, number: int, job: Job) -> Iterator[Fault]:
        """Faults of a job's segments."""
        segments = job.segments
        if segments is None:
            return
        path = f"$.jobs[{number}].segments"
        if segments.level not in self.levels:
            yield self.level(f"{path}.level", job, segments.level)
        for tasks, what in ((job.tasks, "tasks"), (job.min_tasks, "min_tasks")):
            if tasks is not None and tasks % segments.tasks:
                yield Fault(
                    f"{path}.tasks",
                    f"job {job.name} has segments of {segments.tasks} tasks, which don't divide "
                    f"its {what}, {tasks}",
                )

    def domain_cap(self, number: int, job: Job) -> Iterator[Fault]:
        """Faults of what a job asks of failure domains."""
        cap, path = job.max_tasks_per_domain, f"$.jobs[{number}].max_tasks_per_domain"
        if cap is None:
            return
        if cap.level == NODE_LEVEL:
            yield Fault(
                f"{path}.level",
                f"job {job.name} limits its tasks by node. Maybe with max_tasks_per_node?",
            )
        elif cap.level not in self.levels:
            yield self.level(f"{path}.level", job, cap.level)
        if job.segments is not None:
            yield Fault(path, f"job {job.name} has segments; its tasks can't be kept apart as well")


def _own(number: int, job: Job) -> Iterator[Fault]:
    """Faults that a job has all by itself."""
    path = f"$.jobs[{number}]"
    if job.min_tasks is not None and job.min_tasks > job.tasks:
        yield Fault(
            f"{path}.min_tasks",
            f"job {job.name} has min_tasks {job.min_tasks}, more than its tasks, {job.tasks}",
        )
    if job.min_replicas > job.tasks:
        yield Fault(
            f"{path}.min_replicas",
            f"job {job.name} has min_replicas {job.min_replicas}, more than its tasks, {job.tasks}",
        )
    if job.name in job.after:
        yield Fault(f"{path}.after", f"job {job.name} waits for itself")


def _maybe(name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name, sorted(known), n=1)
    return f". Maybe {near[0]}?" if near else ""
