"""Decides what a workload is as a gang, and stands in for pods that aren't listed."""

from __future__ import annotations

from dataclasses import replace

from trencadis.adapters.kubernetes.context import Context
from trencadis.adapters.kubernetes.gangs import Gang, Task
from trencadis.adapters.kubernetes.kueue import Kueue
from trencadis.adapters.kubernetes.nodes import stand_in
from trencadis.adapters.kubernetes.workloads import (
    PodSet,
    Workload,
    template_parts,
    topology_of,
)


def gang_of(workload: Workload, kueue: Kueue, context: Context) -> Gang:
    """The gang of a workload, without its tasks."""
    priority = workload.priority
    if priority is None and workload.priority_class:
        priority = context.priorities.value(workload.priority_class, None)
    if workload.boost and priority is not None:
        priority += workload.boost
    queue = workload.cluster_queue or kueue.queue_of(workload.namespace, workload.queue)
    if queue is None:
        queue = f"{workload.namespace}/{workload.queue}" if workload.queue else workload.namespace
    gang = Gang(
        name=f"{workload.namespace}/{workload.name}",
        path=workload.path,
        queue=queue,
        priority=priority,
        held=workload.held,
        runtime_seconds=workload.runtime_seconds,
    )
    if f"{workload.namespace}/{workload.queue}" in kueue.stopped:
        gang.held = "its queue is stopped"
    for pod_set in workload.pod_sets:
        gang.minimums[pod_set.name] = pod_set.minimum
        _, _, annotations = template_parts(pod_set)
        request = pod_set.template.get("topologyRequest") or {}
        topology, segments, why = topology_of(annotations, request, context.levels)
        gang.held = gang.held or why
        if topology is not None:
            gang.topologies[pod_set.name] = topology
        if segments is not None:
            gang.sliced[pod_set.name] = segments
    return gang


def without_pods(workload: Workload, kueue: Kueue, context: Context) -> list[Gang]:
    """The gangs of a workload whose pods are not listed."""
    gang = gang_of(workload, kueue, context)
    running = workload.admitted is not None and all(s.nodes for s in workload.pod_sets)
    if workload.admitted is not None and not running:
        gang.held = gang.held or "it is admitted, but its pods aren't listed"
        context.report.warn(workload.path, "held: it is admitted, but its pods aren't listed")
    for pod_set in workload.pod_sets:
        gang.tasks.extend(_prototypes(workload, pod_set, context, running=running))
    if not workload.alone:
        return [gang] if gang.tasks else []
    return [
        replace(
            gang,
            name=f"{gang.name}-{number}",
            tasks=[replace(task, name=f"{task.name}-{number}", count=1)],
            minimum=1,
            minimums={},
        )
        for task in gang.tasks
        for number in range(min(task.count, 10_000))
    ]


def _prototypes(
    workload: Workload, pod_set: PodSet, context: Context, *, running: bool
) -> list[Task]:
    spec, labels, annotations = template_parts(pod_set)
    created = workload.created
    if created is None:
        context.report.warn(
            f"{workload.path}.metadata.creationTimestamp",
            "objects without a time of creation: made now",
        )
        created = context.now
    task = Task(
        path=workload.path,
        name=workload.name,
        namespace=workload.namespace,
        spec=spec,
        labels=labels,
        annotations=annotations,
        phase="pending",
        created=min(created, context.now),
        count=pod_set.count,
        podset=pod_set.name,
    )
    if not running or workload.admitted is None:
        return [task]
    found = []
    for node in pod_set.nodes:
        if node not in context.nodes:
            context.report.warn(
                workload.path, "assigned to a node that isn't listed: a cordoned one stands for it"
            )
            stand_in(node, workload.path, context.nodes)
        found.append(
            replace(
                task,
                phase="running",
                count=1,
                node=node,
                started=min(workload.admitted, context.now),
            )
        )
    return found
