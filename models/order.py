"""One order for everything whose order says nothing, so that equal snapshots look equal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from trencadis.models.base import Record
from trencadis.models.cluster import Node
from trencadis.models.jobs import Job, TaskAllocation

if TYPE_CHECKING:
    from trencadis.models.snapshot import Snapshot

R = TypeVar("R", bound=Record)


def _sorted(records: Iterable[R]) -> tuple[R, ...]:
    return tuple(sorted(records, key=repr))


def _changed(record: R, update: dict[str, Any]) -> R:
    """The record with what differs; the record itself if nothing does."""
    new = {key: value for key, value in update.items() if getattr(record, key) != value}
    return record.model_copy(update=new) if new else record


def _tasks(allocation: tuple[TaskAllocation, ...]) -> tuple[TaskAllocation, ...]:
    """Tasks by node and GPU, the indices and instances of each ascending."""
    tasks = []
    for task in allocation:
        update: dict[str, Any] = {}
        if task.gpus is not None and len(task.gpus) > 1:
            update["gpus"] = tuple(sorted(task.gpus))
        if len(task.mig) > 1:
            update["mig"] = _sorted(task.mig)
        tasks.append(_changed(task, update))
    return tuple(sorted(tasks, key=lambda task: (task.node, task.gpus or (), repr(task.mig))))


def _node(node: Node) -> Node:
    update: dict[str, Any] = {}
    if len(node.taints) > 1:
        update["taints"] = _sorted(node.taints)
    if node.nvlink.links:
        links = sorted({(min(pair), max(pair)) for pair in node.nvlink.links})
        update["nvlink"] = node.nvlink.model_copy(update={"links": tuple(links)})
    if len(node.maintenance) > 1:
        windows = sorted(node.maintenance, key=lambda window: (window.start, window.end))
        update["maintenance"] = tuple(windows)
    if node.mig:
        update["mig"] = tuple(
            gpu.model_copy(update={"instances": _sorted(gpu.instances)})
            for gpu in sorted(node.mig, key=lambda gpu: gpu.gpu)
        )
    if any(len(group.unhealthy) > 1 for group in node.gpus):
        update["gpus"] = tuple(
            group.model_copy(update={"unhealthy": tuple(sorted(group.unhealthy))})
            for group in node.gpus
        )
    return _changed(node, update)


def _job(job: Job) -> Job:
    update: dict[str, Any] = {}
    if len(job.request.mig) > 1:
        mig = tuple(sorted(job.request.mig))
        update["request"] = job.request.model_copy(update={"mig": mig})
    if len(job.tolerations) > 1:
        update["tolerations"] = _sorted(job.tolerations)
    if job.allocation:
        update["allocation"] = _tasks(job.allocation)
    return _changed(job, update)


def in_order(snapshot: Snapshot) -> Snapshot:
    """The same snapshot with nodes, jobs, queues and all sets of records in order.

    Tables by name and sets of names are in order since they were read (`ByName`, `Names`).
    """
    holds = (
        hold.model_copy(update={"allocation": _tasks(hold.allocation)}) for hold in snapshot.holds
    )
    profile = _sorted(snapshot.policy.demand_profile)
    return snapshot.model_copy(
        update={
            "nodes": tuple(sorted(map(_node, snapshot.nodes), key=lambda node: node.name)),
            "jobs": tuple(sorted(map(_job, snapshot.jobs), key=lambda job: job.name)),
            "queues": tuple(sorted(snapshot.queues, key=lambda queue: queue.name)),
            "qos": tuple(sorted(snapshot.qos, key=lambda qos: qos.name)),
            "licences": tuple(sorted(snapshot.licences, key=lambda pool: pool.name)),
            "holds": tuple(sorted(holds, key=lambda hold: (hold.job, hold.at))),
            "policy": snapshot.policy.model_copy(update={"demand_profile": profile}),
        }
    )
