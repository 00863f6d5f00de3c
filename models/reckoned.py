"""Where GPUs are shared and their owner chooses them: what a plan reckons with instead.

Such a node (`chooses`) takes shares all the same: each task of a plan says in `expected` which GPUs
are reckoned with, as the witness that all of it fits, and names none in `gpus`. To work out costs
and rules, snapshot and plan are read with those in place of the ones that nobody knows yet.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from trencadis.models.base import GPU_MILLI
from trencadis.models.cluster import Node
from trencadis.models.jobs import Job, TaskAllocation
from trencadis.models.plan import Plan
from trencadis.models.snapshot import Snapshot

Tasks = tuple[TaskAllocation, ...]
Change = Callable[[TaskAllocation], TaskAllocation]


def chooses(node: Node) -> bool:
    """Whether the owner of the node chooses GPUs that jobs may share.

    With NVLink between them it would matter which ones a whole task gets, and no plan could tell.
    """
    return (
        node.precision == "node"
        and node.shareable
        and node.nvlink.kind == "none"
        and not node.mig
    )


def reckoned(snapshot: Snapshot) -> Snapshot:
    """The snapshot with what is expected on such nodes in place of what isn't known.

    What is expected where something else has turned out to be is given up: the task's GPUs are
    unknown then. Without such nodes it is the snapshot itself.
    """
    mine = {node.name: node for node in snapshot.nodes if chooses(node)}
    if not mine:
        return snapshot
    taken = _Taken(snapshot, mine)
    jobs = tuple(
        _with(job, tuple(taken.read(job, task) for task in job.allocation)) if job.on_nodes else job
        for job in snapshot.jobs
    )
    of = {job.name: job for job in snapshot.jobs}
    holds = tuple(
        hold.model_copy(
            update={"allocation": tuple(taken.read(of.get(hold.job), t) for t in hold.allocation)}
        )
        if hold.kind == "delayed_start"
        else hold
        for hold in snapshot.holds
    )
    nodes = tuple(
        node.model_copy(update={"precision": "gpu"}) if node.name in mine else node
        for node in snapshot.nodes
    )
    return snapshot.model_copy(update={"nodes": nodes, "jobs": jobs, "holds": holds})


def _with(job: Job, allocation: Tasks) -> Job:
    same = allocation == job.allocation
    return job if same else job.model_copy(update={"allocation": allocation})


class _Taken:
    """What is known of the GPUs of these nodes, and then what is expected beside that."""

    def __init__(self, snapshot: Snapshot, nodes: Mapping[str, Node]) -> None:
        self._nodes = nodes
        self._milli: defaultdict[tuple[str, int], int] = defaultdict(int)
        for job in snapshot.jobs:
            for task in job.allocation if job.on_nodes else ():
                if task.gpus is not None and task.node in nodes:
                    self._enter(job, task.node, task.gpus)

    def _enter(self, job: Job | None, node: str, gpus: Iterable[int]) -> None:
        for gpu in gpus:
            self._milli[node, gpu] += _milli(job)

    def read(self, job: Job | None, task: TaskAllocation) -> TaskAllocation:
        if task.node not in self._nodes or task.gpus is not None or task.expected is None:
            return task
        gpus, part = task.expected, _milli(job)
        free = all(self._milli[task.node, gpu] + part <= GPU_MILLI for gpu in gpus)
        if not free:
            return task
        self._enter(job, task.node, gpus)
        return task.model_copy(update={"gpus": gpus, "expected": None})


def _milli(job: Job | None) -> int:
    share = job.request.share if job is not None else None
    return GPU_MILLI if share is None else share.gpu_milli


def as_reckoned(plan: Plan, snapshot: Snapshot) -> Plan:
    """A plan for the snapshot, with what it expects on such nodes named."""
    return _changed(plan, snapshot, _named)


def as_told(plan: Plan, snapshot: Snapshot) -> Plan:
    """A plan for the reckoned snapshot as one for the snapshot: what is named on such nodes is
    only expected there."""
    if not any(map(chooses, snapshot.nodes)):
        return plan
    known = {
        (job.name, now): before
        for job, after in zip(snapshot.jobs, reckoned(snapshot).jobs, strict=True)
        for before, now in zip(job.allocation, after.allocation, strict=True)
    }
    plan = _changed(plan, snapshot, _expected)
    return plan.model_copy(
        update={
            "snapshot": snapshot.fingerprint(),
            "resizes": tuple(
                entry.model_copy(update={"remove": _back(known, entry.job, entry.remove)})
                for entry in plan.resizes
            ),
            "repairs": tuple(
                entry.model_copy(update={"replaces": _back(known, entry.job, entry.replaces)})
                for entry in plan.repairs
            ),
        }
    )


def _back(known: Mapping[tuple[str, Any], TaskAllocation], job: str, tasks: Tasks) -> Tasks:
    return tuple(known.get((job, task), task) for task in tasks)


def _named(task: TaskAllocation) -> TaskAllocation:
    if task.gpus is not None or task.expected is None:
        return task
    return task.model_copy(update={"gpus": task.expected, "expected": None})


def _expected(task: TaskAllocation) -> TaskAllocation:
    if not task.gpus:
        return task
    return task.model_copy(update={"gpus": None, "expected": task.gpus})


def _changed(plan: Plan, snapshot: Snapshot, change: Change) -> Plan:
    """The plan with the tasks that it places on such nodes changed."""
    mine = {node.name for node in snapshot.nodes if chooses(node)}
    if not mine:
        return plan

    def done(tasks: Tasks) -> Tasks:
        return tuple(change(task) if task.node in mine else task for task in tasks)

    update: dict[str, object] = {}
    for kind, field in (
        ("starts", "allocation"),
        ("resizes", "add"),
        ("repairs", "add"),
        ("moves", "to"),
        ("reserves", "allocation"),
    ):
        entries = getattr(plan, kind)
        update[kind] = tuple(
            entry.model_copy(update={field: done(getattr(entry, field))}) for entry in entries
        )
    return plan.model_copy(update=update)
