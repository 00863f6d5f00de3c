"""Decides what KAI's objects mean: queues with quotas and weights, PodGroups as gangs."""

from __future__ import annotations

from fractions import Fraction

from trencadis.adapters.kubernetes.fields import at, mapping, name, quantity, text, whole
from trencadis.adapters.kubernetes.objects import Object, Objects
from trencadis.adapters.kubernetes.priorities import Priorities
from trencadis.adapters.kubernetes.queues import gpu_quota
from trencadis.adapters.kubernetes.topology import Levels
from trencadis.adapters.kubernetes.volcano import PodGroup
from trencadis.adapters.slurm.report import Report
from trencadis.models.jobs import Topology
from trencadis.models.queues import Limits, Queue

GROUP = "scheduling.run.ai"
GROUP_NAME = "pod-group-name"
QUEUE_LABELS = ("kai.scheduler/queue", "runai/queue", "project")
NOT_PREEMPTIBLE = 100
"""Workloads of this priority or a higher one are not preempted, where they don't say."""


def read_queues(objects: Objects, report: Report) -> list[Queue]:
    """KAI's queues."""
    found = []
    for entry in objects.of(GROUP, "Queue"):
        gpu = mapping(at(entry.spec, "resources", "gpu"))
        quota, limit = quantity(gpu.get("quota")), quantity(gpu.get("limit"))
        weight = quantity(gpu.get("overQuotaWeight"))
        if quota is not None and quota < 0:
            report.warn(
                f"{entry.path}.spec.resources.gpu.quota",
                "an unlimited quota is no guarantee: read as none",
            )
        if weight == 0:
            # No part of the surplus: the quota is all it gets.
            limit = min((q for q in (limit, quota) if q is not None and q >= 0), default=limit)
        for key in ("preemptMinRuntime", "reclaimMinRuntime"):
            if entry.spec.get(key) is not None:
                report.warn(
                    f"{entry.path}.spec.{key}",
                    "a minimum runtime by queue is not carried over; the policy's holds for all",
                )
        parent = text(entry.spec.get("parentQueue"))
        found.append(
            Queue(
                name=name(entry.name, "queue"),
                parent=name(parent, "root") if parent else None,
                weight=max(1, min(1_000_000, round(weight or Fraction(1)))),
                guarantee=gpu_quota(quota),
                limit=Limits(quota=gpu_quota(limit)),
            )
        )
    return found


def read_pod_groups(
    objects: Objects, levels: Levels, priorities: Priorities, report: Report
) -> list[PodGroup]:
    """KAI's PodGroups."""
    return [
        _pod_group(entry, levels, priorities, report) for entry in objects.of(GROUP, "PodGroup")
    ]


def _pod_group(entry: Object, levels: Levels, priorities: Priorities, report: Report) -> PodGroup:
    spec = entry.spec
    class_name = text(spec.get("priorityClassName"))
    if class_name and class_name not in priorities.values:
        report.warn(
            f"{entry.path}.spec.priorityClassName", f"priority class {class_name} isn't listed"
        )
    priority = priorities.value(class_name, None)
    told = text(spec.get("preemptibility"))
    topology, held = _topology(mapping(spec.get("topologyConstraint")), levels)
    return PodGroup(
        path=entry.path,
        name=entry.name,
        namespace=entry.namespace,
        queue=text(spec.get("queue"))
        or next((entry.labels[label] for label in QUEUE_LABELS if label in entry.labels), ""),
        minimum=max(1, whole(spec.get("minMember")) or 1),
        priority=priority,
        topology=topology,
        preemptible=told == "preemptible" if told else priority < NOT_PREEMPTIBLE,
        held=held,
    )


def _topology(constraint: object, levels: Levels) -> tuple[Topology | None, str]:
    required = text(at(constraint, "requiredTopologyLevel"))
    preferred = text(at(constraint, "preferredTopologyLevel"))
    for label, mode in ((required, "required"), (preferred, "preferred")):
        level = levels.names.get(label)
        if level is not None:
            return Topology.model_validate({"level": level, "mode": mode}), ""
        if label and mode == "required":
            return None, f"its required topology level {label} is no level of the fabric"
    return None, ""
