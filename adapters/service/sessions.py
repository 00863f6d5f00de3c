"""Decides what a Volcano session is in Kubernetes' own objects: the feed of the state."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from trencadis.adapters.kubernetes.fields import Json, at, mapping, text, whole
from trencadis.models.faults import Fault, InvalidInputError

GROUP = "scheduling.volcano.sh/v1beta1"
PENDING = 1
PIPELINED = 4
OVER = (128, 256, 512)
"""Succeeded, Failed, Unknown."""
ON_NODE = (2, 8, 16, 32, 64)
"""Allocated, Binding, Bound, Running, Releasing."""
RELEASING = 64


def documents_of(body: bytes) -> bytes:
    """An `onSessionOpen` request as a list of Kubernetes objects. Raises InvalidInputError."""
    try:
        session = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError([Fault("$", f"not JSON: {error}")]) from None
    if not isinstance(session, dict):
        raise InvalidInputError([Fault("$", "not an object")])
    items = [
        *_nodes(mapping(session.get("Nodes"))),
        *_queues(mapping(session.get("Queues"))),
        *_jobs(mapping(session.get("Jobs"))),
    ]
    return json.dumps({"kind": "List", "items": items}).encode()


def _nodes(table: Json) -> Iterator[dict[str, Any]]:
    for name, info in table.items():
        node = mapping(mapping(info).get("Node"))
        status = dict(mapping(node.get("status")))
        for key, own in (("allocatable", "Allocatable"), ("capacity", "Capacity")):
            if not mapping(status.get(key)) and own in mapping(info):
                status[key] = _resources(mapping(at(info, own)))
        meta = {**mapping(node.get("metadata")), "name": name}
        yield {"apiVersion": "v1", "kind": "Node", **node, "metadata": meta, "status": status}


def _resources(resource: Json) -> dict[str, Any]:
    """Go's Resource: CPU in thousandths, memory in bytes, all others in thousandths."""
    found: dict[str, Any] = {}
    if "MilliCPU" in resource:
        found["cpu"] = f"{_number(resource['MilliCPU'])}m"
    if "Memory" in resource:
        found["memory"] = _number(resource["Memory"])
    pods = whole(resource.get("MaxTaskNum"))
    if pods:
        found["pods"] = pods
    for key, value in mapping(resource.get("ScalarResources")).items():
        if key != "pods":
            found[str(key)] = f"{_number(value)}m"
    return found


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(value) if abs(value) < 1e30 else 0


def _queues(table: Json) -> Iterator[dict[str, Any]]:
    for name, info in table.items():
        queue = mapping(mapping(info).get("Queue"))
        spec = dict(mapping(queue.get("spec")))
        spec.setdefault("weight", mapping(info).get("Weight", 1))
        meta = {**mapping(queue.get("metadata")), "name": text(at(info, "Name")) or name}
        yield {**queue, "apiVersion": GROUP, "kind": "Queue", "metadata": meta, "spec": spec}


def _jobs(table: Json) -> Iterator[dict[str, Any]]:
    for key, info in table.items():
        job = mapping(info)
        namespace = text(job.get("Namespace")) or "default"
        name = text(job.get("Name")) or str(key).rpartition("/")[2]
        group = mapping(mapping(job.get("PodGroup")).get("spec"))
        annotations = {} if job.get("Preemptable", True) else {"volcano.sh/preemptable": "false"}
        spec = {
            **group,
            "minMember": max(1, whole(job.get("MinAvailable")) or 1),
            "queue": text(job.get("Queue")) or "default",
        }
        created = at(job, "CreationTimestamp")
        yield {
            "apiVersion": GROUP,
            "kind": "PodGroup",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "creationTimestamp": created,
                "annotations": annotations,
            },
            "spec": spec,
        }
        for task in mapping(job.get("Tasks")).values():
            pod = _pod(mapping(task), name, namespace, job)
            if pod is not None:
                yield pod


def _pod(task: Json, group: str, namespace: str, job: Json) -> dict[str, Any] | None:
    status = whole(task.get("Status"))
    if status in OVER:
        return None
    pod = mapping(task.get("Pod"))
    meta = dict(mapping(pod.get("metadata")))
    annotations = {
        **mapping(meta.get("annotations")),
        "scheduling.k8s.io/group-name": group,
    }
    meta |= {
        # The session's own names: those that its later questions use.
        "name": text(task.get("Name")) or text(meta.get("name")),
        "namespace": text(task.get("Namespace")) or namespace,
        "uid": text(task.get("UID")) or text(meta.get("uid")),
        "annotations": annotations,
    }
    spec = dict(mapping(pod.get("spec")))
    node = text(task.get("NodeName"))
    if node and status in ON_NODE:
        spec["nodeName"] = node
    elif status in (PENDING, PIPELINED):
        spec.pop("nodeName", None)
    if spec.get("priority") is None:
        spec["priority"] = whole(task.get("Priority")) or whole(job.get("Priority")) or 0
    spec["containers"] = [{"resources": {"requests": _resources(mapping(task.get("Resreq")))}}]
    spec.pop("initContainers", None)
    phase = "Running" if spec.get("nodeName") else "Pending"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": spec,
        "status": {**mapping(pod.get("status")), "phase": phase},
    }
