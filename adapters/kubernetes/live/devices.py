"""Decides how a pod's GPUs are said to those who can keep to them: HAMi's scheduler, KAI's binder.

To all others the node is said, and what of it the plan had in mind is only noted on the pod.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from trencadis.adapters.kubernetes.fields import at, down, listed, mapping, text
from trencadis.adapters.kubernetes.kai import GROUP
from trencadis.adapters.kubernetes.live import records
from trencadis.adapters.kubernetes.live.api import Api, ConflictError, Json, MissingError
from trencadis.adapters.kubernetes.live.lists import BIND_REQUESTS, Lists
from trencadis.adapters.kubernetes.occupancy import DEVICES
from trencadis.adapters.kubernetes.resources import GPU, UnmappableError, pod_amounts
from trencadis.models import TaskAllocation

USE_UUID = "nvidia.com/use-gpuuuid"
"""HAMi's annotation of a pod: UUIDs of the GPUs that it may get."""
NODE_POOL = "kai.scheduler/node-pool"
BACKOFF = 3
"""Times that KAI's binder tries a pod again."""


@dataclass(slots=True)
class Devices:
    """GPUs of one reading by the names that others have for them."""

    uuids: Mapping[tuple[str, int], str] = field(default_factory=dict)
    """HAMi's, by node and index."""
    groups: dict[tuple[str, int], str] = field(default_factory=dict)
    """KAI's, of GPUs that are shared."""
    binder: str = "kai-scheduler"
    """`schedulerName` of the pods that KAI's binder binds."""

    def marks(self, task: TaskAllocation) -> dict[str, str]:
        """Annotations for the pod of a task."""
        if not task.gpus:
            return {}
        rows: list[dict[str, object]] = [{"gpu": gpu} for gpu in task.gpus]
        for row, instance in zip(rows, task.mig, strict=False):
            row |= {"profile": instance.profile, "start": instance.start}
        uuids = [self.uuids.get((task.node, gpu), "") for gpu in task.gpus]
        found = {DEVICES: json.dumps(rows)}
        if all(uuids):
            found[USE_UUID] = ",".join(uuids)
        return found

    def bind(self, api: Api, lists: Lists, pods: Sequence[tuple[Json, TaskAllocation]]) -> None:
        """Has KAI's binder bind those pods that are KAI's. Doing it twice does no harm.

        Where its scheduler was quicker, that one's choice among the GPUs of the node stands.
        """
        if BIND_REQUESTS[0] not in lists.versions:
            return
        for pod, task in pods:
            if text(at(pod, "spec", "schedulerName")) != self.binder or records.node(pod):
                continue
            if task.mig or listed(at(pod, "spec", "resourceClaims")):
                continue  # which instance, or device, KAI's scheduler has to say
            try:
                path = lists.path(BIND_REQUESTS, records.namespace(pod))
                api.post(path, self._request(pod, task))
            except (ConflictError, MissingError):
                continue

    def _request(self, pod: Json, task: TaskAllocation) -> Json:
        name, labels = records.name(pod), mapping(at(pod, "metadata", "labels"))
        pool = {NODE_POOL: labels[NODE_POOL]} if NODE_POOL in labels else {}
        spec: Json = {
            "podName": name,
            "selectedNode": task.node,
            "receivedResourceType": "Regular",
            "receivedGPU": {"count": _gpus(pod), "portion": "1.00"},
            "backoffLimit": BACKOFF,
        }
        if task.share is not None and task.gpus:
            spec["receivedResourceType"] = "Fraction"
            spec["receivedGPU"] = {"count": 1, "portion": f"{task.share.gpu_milli / 1_000:.3f}"}
            spec["selectedGPUGroups"] = [self._group(task.node, task.gpus[0], records.uid(pod))]
        owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": records.uid(pod)}
        return {
            "apiVersion": f"{GROUP}/v1alpha2",
            "kind": "BindRequest",
            "metadata": {
                "name": name,
                "namespace": records.namespace(pod),
                "labels": {"selected-node": task.node, "pod-name": name, **pool},
                "ownerReferences": [owner],
            },
            "spec": spec,
        }

    def _group(self, node: str, gpu: int, uid: str) -> str:
        """The group that shares the GPU; a new one for a GPU that is idle."""
        made = hashlib.sha256(f"{node}/{gpu}/{uid}".encode()).hexdigest()[:32]
        return self.groups.setdefault((node, gpu), made)


def _gpus(pod: Json) -> int:
    """Whole GPUs that the pod asks for."""
    try:
        return down(pod_amounts(mapping(pod.get("spec"))).get(GPU, Fraction(0)))
    except UnmappableError:
        return 0
