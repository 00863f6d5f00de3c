"""Decides how a gang becomes jobs: one for each kind of pod, what runs apart from what waits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from trencadis.adapters.kubernetes.budgets import allows
from trencadis.adapters.kubernetes.constraints import Place, read_place
from trencadis.adapters.kubernetes.context import Context
from trencadis.adapters.kubernetes.fields import name, text, whole
from trencadis.adapters.kubernetes.gangs import Gang, Task
from trencadis.adapters.kubernetes.objects import Object
from trencadis.adapters.kubernetes.occupancy import Occupancy
from trencadis.adapters.kubernetes.resources import UnmappableError, read_request
from trencadis.models.base import MAX_COUNT
from trencadis.models.jobs import Job, Request, TaskAllocation

MOST_WEIGHT_MILLI = 1_000_000
"""As of `Job.weight_milli`."""


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of a job."""

    namespace: str
    name: str
    uid: str = ""
    node: str = ""


@dataclass(slots=True)
class _Kind:
    """Pods of a gang that are interchangeable."""

    request: Request
    place: Place
    podset: str
    tasks: list[Task] = field(default_factory=list)
    blocked: str = ""


@dataclass(slots=True)
class Jobs:
    """The jobs, and which pods each consists of, where they exist."""

    jobs: list[Job] = field(default_factory=list)
    pods: dict[str, tuple[Pod, ...]] = field(default_factory=dict)
    groups: dict[tuple[str, int], str] = field(default_factory=dict)
    """KAI's names for GPUs that are shared, by node and index."""


def read_jobs(
    gangs: list[Gang],
    budgets: list[Object],
    tiers: dict[int, str | None],
    context: Context,
) -> Jobs:
    """All jobs, in the order of the gangs."""
    kinds = [(gang, _kinds(gang, context)) for gang in gangs]
    placed = [
        (task, kind.request)
        for _, found in kinds
        for kind in found
        for task in kind.tasks
        if task.node
    ]
    occupancy = Occupancy(context.nodes, context.report)
    places = occupancy.place(placed)
    where = {id(task): places[number] for number, (task, _) in enumerate(placed)}
    made = Jobs(groups=occupancy.groups())
    names: set[str] = set()
    for gang, found in kinds:
        _gang_jobs(gang, found, where, budgets, tiers, made, names, context)
    return made


def priority_of(gang: Gang, context: Context) -> int:
    """The gang's own priority, else the highest of its pods."""
    if gang.priority is not None:
        return gang.priority
    return max(
        (
            context.priorities.value(
                text(task.spec.get("priorityClassName")), whole(task.spec.get("priority"))
            )
            for task in gang.tasks
        ),
        default=context.priorities.default,
    )


def _kinds(gang: Gang, context: Context) -> list[_Kind]:
    found: dict[str, _Kind] = {}
    for task in gang.tasks:
        blocked = ""
        node = context.nodes.get(task.node)
        try:
            claimed, devices = context.claims.of_pod(task.namespace, task.spec, task.status)
            task.devices = task.devices or devices
            request = read_request(
                task.spec,
                task.annotations,
                context.sharing,
                claimed,
                on_shared_node=node is not None and node.devices.plugin_replicas > 1,
            )
        except UnmappableError as error:
            blocked, request = str(error), Request(resources={"pods": 1})
            where = "counts without GPUs" if task.node else "held"
            context.report.warn(task.path, f"{where}: {error}")
        place = Place() if task.node else read_place(task.spec, task.labels, context)
        # What runs stays where it is; only those that wait differ by where they may go.
        key = repr((request, place, task.podset, blocked, task.node != ""))
        kind = found.setdefault(key, _Kind(request, place, task.podset, blocked=blocked))
        kind.tasks.append(task)
    return list(found.values())


def _gang_jobs(
    gang: Gang,
    kinds: list[_Kind],
    where: dict[int, TaskAllocation],
    budgets: list[Object],
    tiers: dict[int, str | None],
    made: Jobs,
    names: set[str],
    context: Context,
) -> None:
    waiting = [kind for kind in kinds if not kind.tasks[0].node]
    running = [kind for kind in kinds if kind.tasks[0].node]
    common = _common(gang, tiers, context)
    for kind in running:
        for phase in ("running", "draining"):
            tasks = [task for task in kind.tasks if task.phase == phase]
            if tasks:
                job = _running(gang, kind, tasks, where, common, budgets, _unique(gang.name, names))
                _add(made, job, tasks)
    active = sum(task.phase == "running" for kind in running for task in kind.tasks)
    jobs: list[Job] = []
    needs = {id(kind): _need(gang, kind, waiting, running, active) for kind in waiting}
    for kind in waiting:
        need = needs[id(kind)]
        fields = (
            common | _waiting(gang, kind, context) | _weight(need and sum(needs.values()), active)
        )
        total = sum(task.count for task in kind.tasks)
        if need == 0 or (gang.minimum == 1 and len(waiting) == 1 and not gang.minimums):
            for task in kind.tasks:
                one = gang.name if len(gang.tasks) == 1 and task.count == 1 else ""
                for number in range(min(task.count, 100_000)):
                    suffix = f"-{number}" if task.count > 1 else ""
                    base = one or f"{gang.name}/{task.name}{suffix}"
                    own = {"name": _unique(base, names), "tasks": 1, "segments": None}
                    _add(made, Job(**fields | own | {"submit": task.created}), [task])
            continue
        if total < need:
            context.report.warn(gang.path, "held: fewer pods are listed than must start together")
            fields["state"] = "held"
            need = total
        segments = fields["segments"]
        if segments is not None and (total % segments.tasks or need % segments.tasks):
            context.report.warn(gang.path, "held: its slices don't divide its pods")
            fields |= {"state": "held", "segments": None}
        fields |= {
            "name": _unique(gang.name, names),
            "tasks": min(total, 100_000),
            "min_tasks": need if need < total else None,
            "submit": min(task.created for task in kind.tasks),
        }
        jobs.append(Job(**fields))
        _add(made, jobs[-1], kind.tasks)
    if len(jobs) > 1:
        group = name(gang.name, "group")
        if any(job.state == "held" for job in jobs):
            jobs = [job.model_copy(update={"state": "held"}) for job in jobs]
        mine = {job.name: job.model_copy(update={"group": group}) for job in jobs}
        made.jobs = [mine.get(job.name, job) for job in made.jobs]


def _need(gang: Gang, kind: _Kind, waiting: list[_Kind], running: list[_Kind], active: int) -> int:
    """How many of these must start together; 0: each by itself."""
    total = sum(task.count for task in kind.tasks)
    if gang.minimums:
        alike = sum(
            task.phase == "running" for k in running for task in k.tasks if k.podset == kind.podset
        )
        return max(0, gang.minimums.get(kind.podset, total) - alike)
    if gang.minimum is None:
        return total
    if len(waiting) == 1:
        return max(0, gang.minimum - active)
    # A minimum over several kinds doesn't say how many of each: all of them, or none need to.
    return 0 if active >= gang.minimum else total


def _common(gang: Gang, tiers: dict[int, str | None], context: Context) -> dict[str, Any]:
    users = {task.annotations.get("user", "") for task in gang.tasks} - {""}
    deadlines = [whole(task.spec.get("activeDeadlineSeconds")) for task in gang.tasks]
    limits = [seconds for seconds in (*deadlines, gang.runtime_seconds) if seconds and seconds > 0]
    grace = [whole(task.spec.get("terminationGracePeriodSeconds")) for task in gang.tasks]
    known = [seconds for seconds in grace if seconds is not None and seconds >= 0]
    bare = any(task.uid and not task.owner for task in gang.tasks)
    return {
        "queue": name(gang.queue, "default"),
        "user": name(min(users, default=""), "unknown"),
        "priority": tiers.get(priority_of(gang, context)),
        "runtime_seconds": min(*limits, MAX_COUNT) if limits else None,
        "grace_seconds": min(max(known), MAX_COUNT) if known else None,
        "preemptible": gang.preemptible
        and all(t.annotations.get("volcano.sh/preemptable") != "false" for t in gang.tasks),
        # Nobody makes a pod again that no controller has made.
        "requeueable": not bare,
    }


def _running(
    gang: Gang,
    kind: _Kind,
    tasks: list[Task],
    where: dict[int, TaskAllocation],
    common: dict[str, Any],
    budgets: list[Object],
    job_name: str,
) -> Job:
    draining = tasks[0].phase == "draining"
    ends = [task.drain_ends for task in tasks if task.drain_ends is not None]
    started = [task.started for task in tasks if task.started is not None]
    return Job(
        **common
        | {
            "name": job_name,
            "submit": min(task.created for task in tasks),
            "tasks": len(tasks),
            "request": kind.request,
            "communicates": not kind.request.mig,
            "allocation": tuple(where[id(task)] for task in tasks),
            "start": min(started, default=tasks[0].created),
            "state": tasks[0].phase,
            "drain_ends": max(ends) if draining and ends else None,
            "preemptible": common["preemptible"]
            and not kind.blocked
            and all(allows(budget, gang, tasks) for budget in budgets),
        }
    )


def _waiting(gang: Gang, kind: _Kind, context: Context) -> dict[str, Any]:
    reasons = [*kind.place.blocked]
    for reason in dict.fromkeys(reasons):
        context.report.warn(kind.tasks[0].path, f"held: {reason}")
    held = any(task.phase == "held" for task in kind.tasks)
    if gang.held:
        context.report.warn(gang.path, f"held: {gang.held}")
    tolerations = {repr(t): t for t in (*kind.place.tolerations, *gang.tolerations)}
    return {
        "request": kind.request,
        "communicates": not kind.request.mig,
        "node_selector": gang.selector | kind.place.selector,
        "tolerations": tuple(tolerations[key] for key in sorted(tolerations)),
        "max_tasks_per_node": kind.place.max_tasks_per_node,
        "topology": gang.topologies.get(kind.podset, gang.topology),
        "segments": gang.sliced.get(kind.podset, gang.segments),
        "state": "held" if held or reasons or gang.held or kind.blocked else "pending",
    }


def _weight(lacks: int, active: int) -> dict[str, int]:
    """Pods that a running gang lacks keep all of it waiting: they weigh as much."""
    if not (lacks and active):
        return {}
    return {"weight_milli": min(1_000 * (lacks + active) // lacks, MOST_WEIGHT_MILLI)}


def _add(made: Jobs, job: Job, tasks: list[Task]) -> None:
    made.jobs.append(job)
    pods = tuple(Pod(task.namespace, task.name, task.uid, task.node) for task in tasks)
    made.pods[job.name] = pods


def _unique(base: str, names: set[str]) -> str:
    wanted = name(base, "job")
    found, number = wanted, 1
    while found in names:
        number += 1
        found = f"{wanted[:245]}#{number}"
    names.add(found)
    return found
