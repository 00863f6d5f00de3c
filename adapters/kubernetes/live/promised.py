"""Decides which pods a Volcano job will make when it is resumed: aborted, it has no trace of them.

Its controller deletes pods and PodGroup. So that such a job still waits, under the same name and
with the same wishes, pods and PodGroup stand in the lists as they will be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from trencadis.adapters.kubernetes.fields import at, listed, mapping, text, whole
from trencadis.adapters.kubernetes.live import records
from trencadis.adapters.kubernetes.live.api import Json
from trencadis.adapters.kubernetes.live.lists import VOLCANO_JOB, Lists

GROUP_NAME = "scheduling.k8s.io/group-name"
POD_GROUPS = ("scheduling.volcano.sh", "podgroups")
MOST = 10_000
"""Pods of one job that are looked at."""


def group_of(pods: Iterable[Json]) -> str:
    """The PodGroup that the pods name."""
    return next(filter(None, (records.annotation(pod, GROUP_NAME) for pod in pods)), "")


def promise(lists: Lists, by_controller: Mapping[str, list[Json]]) -> dict[str, Json]:
    """The pods to come, by a UID of ours; their PodGroups are added to the lists."""
    known = {(records.namespace(g), records.name(g)) for g in lists.of(POD_GROUPS)}
    groups, pods = [], {}
    for job in lists.of((VOLCANO_JOB, "jobs")):
        living = any(map(_alive, by_controller.get(records.uid(job), ())))
        if living or not records.annotation(job, records.SUSPENDED):
            continue
        fallback = f"{records.name(job)}-{records.uid(job)}"
        named = records.annotation(job, records.GROUP) or fallback
        if (records.namespace(job), named) not in known:
            groups.append(_group(job, named))
        for pod in _pods(job, named):
            pods[records.uid(pod)] = pod
    if groups:
        lists.replace(POD_GROUPS, [*lists.of(POD_GROUPS), *groups])
    return pods


def _alive(pod: Json) -> bool:
    return records.phase(pod) not in records.OVER


def _group(job: Json, named: str) -> Json:
    spec = mapping(job.get("spec"))
    tasks = listed(spec.get("tasks"))
    total = sum(max(0, whole(task.get("replicas")) or 0) for task in tasks)
    kept = {key: spec[key] for key in ("queue", "priorityClassName") if key in spec}
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {**_meta(job), "name": named},
        "spec": {"minMember": whole(spec.get("minAvailable")) or total, **kept},
    }


def _pods(job: Json, named: str) -> Iterator[Json]:
    owner = {"kind": "Job", "name": records.name(job), "uid": records.uid(job), "controller": True}
    number = 0
    for task in listed(at(job, "spec", "tasks")):
        template = mapping(task.get("template"))
        meta = mapping(template.get("metadata"))
        for index in range(whole(task.get("replicas")) or 0):
            if number >= MOST:
                return
            number += 1
            name = f"{records.name(job)}-{text(task.get('name'))}-{index}"
            yield {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    **_meta(job),
                    "name": name,
                    "uid": f"{records.uid(job)}/{name}",
                    "labels": dict(mapping(meta.get("labels"))),
                    "annotations": {**mapping(meta.get("annotations")), GROUP_NAME: named},
                    "ownerReferences": [owner],
                },
                "spec": dict(mapping(template.get("spec"))),
                "status": {"phase": "Pending"},
            }


def _meta(job: Json) -> Json:
    created = at(job, "metadata", "creationTimestamp")
    return {"namespace": records.namespace(job), "creationTimestamp": created}
