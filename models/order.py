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


def _table(table: dict[str, Any]) -> dict[str, Any]:
    return dict(sorted(table.items()))


def _changed(record: R, update: dict[str, Any]) -> R:
    """The record with what differs; the record itself if nothing does."""
    new = {}
    for key, value in update.items():
        old = getattr(record, key)
        if old != value or (isinstance(value, dict) and list(old) != list(value)):
            new[key] = value
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
    update: dict[str, Any] = {"resources": _table(node.resources), "labels": _table(node.labels)}
    if len(node.taints) > 1:
        update["taints"] = _sorted(node.taints)
    if node.nvlink.links:
        links = sorted({(min(pair), max(pair)) for pair in node.nvlink.links})
        update["nvlink"] = node.nvlink.model_copy(update={"links": tuple(links)})
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
    update: dict[str, Any] = {
        "gpu_models": tuple(sorted(job.gpu_models)),
        "excluded_nodes": tuple(sorted(job.excluded_nodes)),
        "required_nodes": tuple(sorted(job.required_nodes)),
        "after": tuple(sorted(job.after)),
        "speed_milli": _table(job.speed_milli),
        "node_selector": _table(job.node_selector),
        "licences": _table(job.licences),
    }
    if job.request.resources or len(job.request.mig) > 1:
        update["request"] = job.request.model_copy(
            update={
                "resources": _table(job.request.resources),
                "mig": tuple(sorted(job.request.mig)),
            }
        )
    if len(job.tolerations) > 1:
        update["tolerations"] = _sorted(job.tolerations)
    if job.allocation:
        update["allocation"] = _tasks(job.allocation)
    return _changed(job, update)


def in_order(snapshot: Snapshot) -> Snapshot:
    """The same snapshot with nodes, jobs, queues, tables and sets in alphabetical order."""
    policy = snapshot.policy
    return snapshot.model_copy(
        update={
            "nodes": tuple(sorted(map(_node, snapshot.nodes), key=lambda node: node.name)),
            "jobs": tuple(sorted(map(_job, snapshot.jobs), key=lambda job: job.name)),
            "queues": tuple(
                sorted(
                    (_limits(_limits(q, "guarantee"), "lending_limit") for q in snapshot.queues),
                    key=lambda queue: queue.name,
                )
            ),
            "qos": tuple(sorted(snapshot.qos, key=lambda qos: qos.name)),
            "licences": tuple(sorted(snapshot.licences, key=lambda pool: pool.name)),
            "holds": tuple(
                sorted(
                    (
                        hold.model_copy(update={"allocation": _tasks(hold.allocation)})
                        for hold in snapshot.holds
                    ),
                    key=lambda hold: (hold.job, hold.at),
                )
            ),
            "policy": policy.model_copy(
                update={
                    "slowdown_milli": _table(policy.slowdown_milli),
                    "gpu_speed_milli": _table(policy.gpu_speed_milli),
                    "demand_profile": _sorted(policy.demand_profile),
                }
            ),
        }
    )


def _limits(record: R, key: str) -> R:
    """A queue with the models of one of its quotas in order."""
    quota = getattr(record, key)
    if quota is None or len(quota.by_model) < 2:
        return record
    ordered = quota.model_copy(update={"by_model": _table(quota.by_model)})
    return record.model_copy(update={key: ordered})
