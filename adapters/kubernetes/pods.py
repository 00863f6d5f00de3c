"""Decides what state a pod is in and where; pods of the node's own shrink the node instead."""

from __future__ import annotations

from trencadis.adapters.kubernetes.claims import Device
from trencadis.adapters.kubernetes.context import KUEUE_GATES, Context
from trencadis.adapters.kubernetes.fields import at, instant, listed, name, text
from trencadis.adapters.kubernetes.gangs import Phase, Task
from trencadis.adapters.kubernetes.nodes import KubeNode, stand_in
from trencadis.adapters.kubernetes.objects import Object, Objects
from trencadis.adapters.kubernetes.occupancy import DEVICES, GPU_GROUP_LABELS
from trencadis.adapters.kubernetes.resources import UnmappableError, read_request

OVER = ("Succeeded", "Failed")
BY_UUID = ("nvidia.com/use-gpuuuid", "nvidia.com/nouse-gpuuuid")
"""HAMi's annotations of pods that may have some GPUs only."""
RESERVATIONS = ("kai-resource-reservation", "runai-reservation")
RESERVED_INDEX = "run.ai/reserve_for_gpu_index"
OF_THE_NODE = ("DaemonSet", "Node")
"""Owners whose pods belong to the machine: they come and go with it."""


def read_pods(objects: Objects, context: Context) -> list[Task]:
    """The pods that wait, run or leave; those of DaemonSets are taken off their nodes."""
    bound = {
        (entry.namespace, text(entry.spec.get("podName"))): entry
        for entry in objects.of("scheduling.run.ai", "BindRequest")
        if text(entry.status.get("phase")) != "Failed"
    }
    tasks = []
    for entry in objects.of("", "Pod"):
        task = _task(entry, bound, context)
        if task is not None and not _of_the_node(task, context):
            tasks.append(task)
    return tasks


def _task(entry: Object, bound: dict[tuple[str, str], Object], context: Context) -> Task | None:
    if text(entry.status.get("phase")) in OVER or _keeps_a_gpu(entry):
        return None
    if not listed(entry.spec.get("containers")):
        context.report.fault(
            f"{entry.path}.spec.containers", f"pod {entry.name}: required list is missing"
        )
        return None
    node = name(entry.spec.get("nodeName"), "")
    request = bound.get((entry.namespace, entry.name))
    if not node and request is not None:
        node = name(request.spec.get("selectedNode"), "")
    created = entry.created
    if created is None:
        context.report.warn(
            f"{entry.path}.metadata.creationTimestamp",
            "pods without a time of creation: made now",
        )
        created = context.now
    deleted = instant(at(entry.record, "metadata", "deletionTimestamp"))
    phase: Phase = "pending"
    if deleted is not None:
        if not node:
            return None
        phase = "draining"
    elif node:
        phase = "running"
    elif _gates(entry) - {*KUEUE_GATES, *context.options.gates}:
        context.report.warn(
            f"{entry.path}.spec.schedulingGates", "held: a scheduling gate of somebody else's"
        )
        phase = "held"
    elif any(key in entry.annotations for key in BY_UUID) and DEVICES not in entry.annotations:
        context.report.warn(
            f"{entry.path}.metadata.annotations", "held: it chooses among GPUs by their UUIDs"
        )
        phase = "held"
    started = instant(entry.status.get("startTime")) or created if node else None
    if node and node not in context.nodes:
        context.report.warn(
            f"{entry.path}.spec.nodeName",
            "runs on a node that isn't listed: a cordoned one stands for it",
        )
        stand_in(node, entry.path, context.nodes)
    return Task(
        path=entry.path,
        name=entry.name,
        namespace=entry.namespace,
        spec=entry.spec,
        labels=_group(entry, request),
        annotations=entry.annotations,
        phase=phase,
        created=min(created, context.now),
        owner=entry.owner,
        node=node,
        started=None if started is None else min(started, context.now),
        drain_ends=deleted,
        status=entry.status,
        uid=entry.uid or f"{entry.namespace}/{entry.name}",
        devices=_annotated_devices(entry, node, context),
    )


def _keeps_a_gpu(entry: Object) -> bool:
    """Whether it is KAI's: it has a whole GPU so that others can share it."""
    of_kai = entry.namespace in RESERVATIONS or RESERVED_INDEX in entry.annotations
    return of_kai and any(label in entry.labels for label in GPU_GROUP_LABELS)


def _group(entry: Object, request: Object | None) -> dict[str, str]:
    """The pod's labels; before KAI's binder has come to it, with the group that it is to join."""
    if request is None or any(label in entry.labels for label in GPU_GROUP_LABELS):
        return entry.labels
    rows = listed(request.spec.get("selectedFractionalGpuGroups"))
    names = request.spec.get("selectedGPUGroups")
    group = (
        text(rows[0].get("id"))
        if rows
        else text(names[0] if isinstance(names, list) and names else "")
    )
    return entry.labels | ({GPU_GROUP_LABELS[0]: group} if group else {})


def _gates(entry: Object) -> set[str]:
    return {text(gate.get("name")) for gate in listed(entry.spec.get("schedulingGates"))}


def _of_the_node(task: Task, context: Context) -> bool:
    """Takes a DaemonSet's or a static pod off its node, unless it has GPUs."""
    if text(task.owner.get("kind")) not in OF_THE_NODE:
        return False
    if not task.node:
        return True  # made for one node, which the DaemonSet's controller has chosen
    try:
        request = read_request(task.spec, task.annotations, context.sharing)
    except UnmappableError:
        return False
    if request.gpus or request.mig or request.share:
        return False
    node = context.nodes[task.node]
    if node.listed:
        _shrink(node, request.cpu_milli, request.memory_mib, dict(request.resources))
    return True


def _shrink(node: KubeNode, cpu: int, memory: int, resources: dict[str, int]) -> None:
    left = dict(node.node.resources)
    for key, amount in resources.items():
        if key in left:
            left[key] = max(0, left[key] - amount)
    node.set(
        cpu_milli=max(0, node.node.cpu_milli - cpu),
        memory_mib=max(0, node.node.memory_mib - memory),
        resources=left,
    )


def _annotated_devices(entry: Object, node: str, context: Context) -> list[Device]:
    """GPUs that HAMi has written on the pod: `GPU-uuid,NVIDIA,memory,cores:` for each container."""
    if node not in context.nodes:
        return []
    uuids = context.nodes[node].devices.uuids
    written = entry.annotations.get("hami.io/vgpu-devices-allocated", "")
    found = []
    for container in written.split(";"):
        for device in container.split(":"):
            index = uuids.get(device.split(",", 1)[0].strip())
            if index is not None and "," in device:
                found.append(Device(node, index))
    return found
