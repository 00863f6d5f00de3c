"""Decides which pods start together: by PodGroup, Workload or owner, and in which queue."""

from __future__ import annotations

from dataclasses import dataclass, field

from trencadis.adapters.kubernetes import kai, volcano
from trencadis.adapters.kubernetes.announced import gang_of, without_pods
from trencadis.adapters.kubernetes.constraints import any_of, tolerations
from trencadis.adapters.kubernetes.context import Context
from trencadis.adapters.kubernetes.fields import text, whole
from trencadis.adapters.kubernetes.gangs import Gang, Task
from trencadis.adapters.kubernetes.kueue import GROUP as KUEUE
from trencadis.adapters.kubernetes.kueue import QUEUE_LABEL, Kueue
from trencadis.adapters.kubernetes.volcano import PodGroup, minimum_request
from trencadis.adapters.kubernetes.workloads import Workload

ALONE = ("ReplicaSet", "Deployment", "StatefulSet", "DaemonSet", "ReplicationController", "")
"""Owners whose pods serve by themselves."""

POD_GROUP = f"{KUEUE}/pod-group-name"
POD_GROUP_COUNT = f"{KUEUE}/pod-group-total-count"


@dataclass(slots=True)
class Groups:
    """What pods may belong to."""

    pod_groups: dict[tuple[str, str], PodGroup] = field(default_factory=dict)
    workloads: list[Workload] = field(default_factory=list)
    kueue: Kueue = field(default_factory=Kueue)
    unreclaimable: set[str] = field(default_factory=set)
    closed: set[str] = field(default_factory=set)


def collect(tasks: list[Task], groups: Groups, context: Context) -> list[Gang]:
    """Each pod in one gang; gangs without pods where an object announces them."""
    by_owner = _owners(groups.workloads)
    gangs: dict[tuple[str, str, str], Gang] = {}
    seen: set[int] = set()
    for task in tasks:
        key, gang = _gang_of(task, groups, by_owner, context, seen)
        kept = gangs.setdefault(key, gang)
        kept.tasks.append(task)
    for group in groups.pod_groups.values():
        if ("group", group.namespace, group.name) not in gangs and group.minimum_resources:
            gangs["group", group.namespace, group.name] = _announced(group, context)
    for number, workload in enumerate(groups.workloads):
        if number not in seen:
            for gang in without_pods(workload, groups.kueue, context):
                gangs["workload", workload.namespace, gang.name] = gang
    found = list(gangs.values())
    for gang in found:
        _finish(gang, groups, context)
    return found


def _owners(workloads: list[Workload]) -> dict[str, int]:
    found: dict[str, int] = {}
    for number, workload in enumerate(workloads):
        for uid in workload.owners:
            found.setdefault(uid, number)
        for known in (workload.name, workload.owner_name):
            if known:
                found.setdefault(f"{workload.namespace}/{known}", number)
    return found


def _gang_of(
    task: Task,
    groups: Groups,
    by_owner: dict[str, int],
    context: Context,
    seen: set[int],
) -> tuple[tuple[str, str, str], Gang]:
    named = task.annotations.get(kai.GROUP_NAME) or next(
        (task.annotations[key] for key in volcano.GROUP_NAMES if key in task.annotations), ""
    )
    if named:
        group = groups.pod_groups.get((task.namespace, named))
        if group is None:
            context.report.warn(f"{task.path}.metadata.annotations", "its PodGroup isn't listed")
            return ("group", task.namespace, named), _plain(task, named)
        return ("group", task.namespace, named), _of_group(group)
    number = _workload_of(task, by_owner)
    if number is not None:
        seen.add(number)
        workload = groups.workloads[number]
        by_queue = bool(workload.queue or workload.cluster_queue)
        if not workload.alone and (by_queue or context.options.gangs == "owner"):
            key = ("workload", task.namespace, workload.name)
            return key, gang_of(workload, groups.kueue, context)
    pod_group = task.labels.get(POD_GROUP, "")
    if pod_group:
        gang = _plain(task, pod_group)
        gang.minimum = whole(task.annotations.get(POD_GROUP_COUNT))
        return ("pods", task.namespace, pod_group), gang
    owner = text(task.owner.get("kind"))
    if context.options.gangs == "owner" and owner not in ALONE:
        job_set = task.labels.get("jobset.sigs.k8s.io/jobset-name", "")
        named = job_set or text(task.owner.get("name"))
        if named:
            return ("owner", task.namespace, named), _plain(task, named)
    gang = _plain(task, task.name)
    gang.minimum = 1
    return ("pod", task.namespace, task.name), gang


def _workload_of(task: Task, by_owner: dict[str, int]) -> int | None:
    keys = [
        text(task.owner.get("uid")),
        f"{task.namespace}/{task.annotations.get(f'{KUEUE}/workload', '')}",
        f"{task.namespace}/{task.labels.get(POD_GROUP, '')}",
        f"{task.namespace}/{task.labels.get('jobset.sigs.k8s.io/jobset-name', '')}",
    ]
    if text(task.owner.get("kind")) in ("Job", "StatefulSet"):
        keys.append(f"{task.namespace}/{text(task.owner.get('name'))}")
    return next((by_owner[key] for key in keys if key in by_owner), None)


def _plain(task: Task, named: str) -> Gang:
    return Gang(name=f"{task.namespace}/{named}", path=task.path, queue=_pod_queue(task))


def _pod_queue(task: Task) -> str:
    """What the pod's own marks say; its namespace where they say nothing."""
    for label in kai.QUEUE_LABELS[:2]:
        if label in task.labels:
            return task.labels[label]
    return task.annotations.get(f"{volcano.GROUP}/queue-name") or task.namespace


def _of_group(group: PodGroup) -> Gang:
    return Gang(
        name=f"{group.namespace}/{group.name}",
        path=group.path,
        queue=group.queue or group.namespace,
        minimum=group.minimum,
        priority=group.priority,
        held=group.held,
        preemptible=group.preemptible,
        topology=group.topology,
        segments=group.segments,
    )


def _announced(group: PodGroup, context: Context) -> Gang:
    """A PodGroup that waits for its pods to be made: its minimum, as many alike."""
    gang = _of_group(group)
    requests = {key: float(value) for key, value in minimum_request(group).items()}
    gang.tasks.append(
        Task(
            path=group.path,
            name=group.name,
            namespace=group.namespace,
            spec={"containers": [{"resources": {"requests": requests}}]},
            labels={},
            annotations={},
            phase="pending",
            created=context.now,
            count=group.minimum or 1,
        )
    )
    return gang


def _finish(gang: Gang, groups: Groups, context: Context) -> None:
    """Queue rules that hold for all its tasks."""
    local = next((t.labels[QUEUE_LABEL] for t in gang.tasks if QUEUE_LABEL in t.labels), "")
    namespace = gang.tasks[0].namespace if gang.tasks else ""
    if local and gang.queue == namespace:
        gang.queue = groups.kueue.queue_of(namespace, local) or f"{namespace}/{local}"
    if gang.queue in groups.kueue.stopped or gang.queue in groups.closed:
        gang.held = gang.held or "its queue is stopped"
    if gang.queue in groups.unreclaimable:
        gang.preemptible = False
    for task in gang.tasks:
        single = next(iter(gang.minimums)) if len(gang.minimums) == 1 else ""
        task.podset = task.podset or task.labels.get(f"{KUEUE}/podset", single)
    flavors = groups.kueue.flavors.get(gang.queue)
    if flavors is None:
        return
    gang.tolerations = tolerations(flavors.tolerations)
    if len(flavors.terms) == 1:
        gang.selector |= context.select(flavors.terms[0])
    elif flavors.terms and all(flavors.terms):
        terms = [
            {"matchExpressions": [_equal(k, v) for k, v in sorted(table.items())]}
            for table in flavors.terms
        ]
        gang.selector |= any_of(list(terms), context)


def _equal(key: str, value: str) -> dict[str, object]:
    return {"key": key, "operator": "In", "values": [value]}
