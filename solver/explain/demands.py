"""What a job demands of nodes, one demand at a time, and the case in which it is given up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from trencadis.models import Job, Node, Snapshot, Taint, Toleration
from trencadis.models.spares import EFFECT, TOLERATION
from trencadis.solver.admission import tolerates
from trencadis.solver.explain.said import some, span

Case = tuple[Snapshot, Job]


@dataclass(frozen=True, slots=True)
class Demand:
    """One demand of a job, and the case without it."""

    text: str
    kind: str
    drop: Callable[[Snapshot, Job], Case]


def demands(snapshot: Snapshot, job: Job) -> list[Demand]:
    """What a job demands of nodes, sizes first, each with the change that gives it up."""
    return [*_sizes(job), *_choices(job), *_shape(snapshot, job), *_nodes(snapshot, job)]


def _job(**update: Any) -> Callable[[Snapshot, Job], Case]:
    return lambda snapshot, job: (snapshot, job.model_copy(update=update))


def _request(**update: Any) -> Callable[[Snapshot, Job], Case]:
    def drop(snapshot: Snapshot, job: Job) -> Case:
        request = job.request.model_copy(update=update)
        return snapshot, job.model_copy(update={"request": request})

    return drop


def _sizes(job: Job) -> Iterator[Demand]:
    request = job.request
    each = "a task" if job.minimum > 1 else "on one node"
    if request.gpus:
        yield Demand(f"{some(request.gpus, 'GPU')} {each}", "gpus", _request(gpus=0))
    if request.cpu_milli:
        text = f"{request.cpu_milli / 1_000:g} CPUs {each}"
        yield Demand(text, "cpu", _request(cpu_milli=0))
    if request.memory_mib:
        text = f"{request.memory_mib:,} MiB of memory {each}"
        yield Demand(text, "memory", _request(memory_mib=0))
    for name, amount in request.resources.items():
        yield Demand(f"{amount:,} {name} {each}", "resource", _without_resource(name))
    if job.minimum > 1:
        yield Demand(some(job.minimum, "task"), "tasks", _job(tasks=1, min_tasks=None))


def _without_resource(name: str) -> Callable[[Snapshot, Job], Case]:
    def drop(snapshot: Snapshot, job: Job) -> Case:
        left = {key: value for key, value in job.request.resources.items() if key != name}
        return _request(resources=left)(snapshot, job)

    return drop


def _choices(job: Job) -> Iterator[Demand]:
    if job.gpu_models:
        yield Demand(f"GPU model {' or '.join(job.gpu_models)}", "model", _job(gpu_models=()))
    for key, value in job.node_selector.items():
        yield Demand(f"node label {key}={value}", "label", _without_label(key))
    if job.required_nodes:
        text = f"one of {some(len(job.required_nodes), 'named node')}"
        if len(job.required_nodes) == 1:
            text = f"node {job.required_nodes[0]}"
        yield Demand(text, "nodes", _job(required_nodes=()))
    if job.excluded_nodes:
        text = f"not on {some(len(job.excluded_nodes), 'excluded node')}"
        yield Demand(text, "nodes", _job(excluded_nodes=()))
    if job.nvlink_required and job.request.gpus > 1:
        yield Demand("NVLink between its GPUs", "nvlink", _job(nvlink_required=False))


def _without_label(key: str) -> Callable[[Snapshot, Job], Case]:
    def drop(snapshot: Snapshot, job: Job) -> Case:
        left = {name: value for name, value in job.node_selector.items() if name != key}
        return snapshot, job.model_copy(update={"node_selector": left})

    return drop


def _shape(snapshot: Snapshot, job: Job) -> Iterator[Demand]:
    if job.minimum < 2:
        return
    if job.topology is not None and job.topology.mode == "required":
        yield Demand(f"all in one {job.topology.level}", "topology", _job(topology=None))
    if any(level.boundary for level in snapshot.fabric.levels):
        name = [level.name for level in snapshot.fabric.levels if level.boundary][-1]
        yield Demand(f"all in one {name}, a boundary", "topology", _without_boundaries)
    if job.segments is not None and job.segments.tasks > 1:
        text = f"segments of {job.segments.tasks} in one {job.segments.level}"
        yield Demand(text, "segments", _job(segments=None))
    if job.max_tasks_per_node is not None:
        text = f"at most {some(job.max_tasks_per_node, 'task')} a node"
        yield Demand(text, "spread", _job(max_tasks_per_node=None))
    cap = job.max_tasks_per_domain
    if cap is not None:
        text = f"at most {some(cap.tasks, 'task')} in one {cap.level}"
        yield Demand(text, "spread", _job(max_tasks_per_domain=None))


def _without_boundaries(snapshot: Snapshot, job: Job) -> Case:
    levels = tuple(
        level.model_copy(update={"boundary": False}) for level in snapshot.fabric.levels
    )
    fabric = snapshot.fabric.model_copy(update={"levels": levels})
    return snapshot.model_copy(update={"fabric": fabric}), job


def _using_spares(snapshot: Snapshot, job: Job) -> Case:
    return snapshot, job.model_copy(update={"tolerations": (*job.tolerations, TOLERATION)})


def _nodes(snapshot: Snapshot, job: Job) -> Iterator[Demand]:
    """What is up with the nodes rather than with the job."""
    taints = {
        taint
        for node in snapshot.nodes
        for taint in node.taints
        if taint.effect != "PreferNoSchedule"
        and not any(tolerates(toleration, taint) for toleration in job.tolerations)
    }
    for taint in sorted(taints, key=repr):
        value = f"={taint.value}" if taint.value else ""
        if taint.effect == EFFECT:
            yield Demand("no nodes that are kept as spares", "spare", _using_spares)
            continue
        text = f"no toleration of taint {taint.key}{value}"
        yield Demand(text, "taint", _tolerating(taint))
    if any(node.leaves for node in snapshot.nodes):
        text = "no estimate of its runtime"
        if job.runtime_seconds is not None:
            text = f"{span(job.runtime_seconds)} of runtime before nodes are taken away"
        yield Demand(text, "window", _with_nodes(free_until=None, maintenance=()))
    if any(node.health_score_milli < snapshot.policy.poor_health_milli for node in snapshot.nodes):
        yield Demand("nodes in good health", "health", _with_nodes(health_score_milli=1_000))
    out = [node for node in snapshot.nodes if node.down or node.cordoned]
    if out:
        text = f"nodes that are up and not cordoned ({some(len(out), 'node')} out)"
        yield Demand(text, "outage", _with_nodes(down=False, cordoned=False))
    if any(group.unhealthy for node in snapshot.nodes for group in node.gpus):
        yield Demand("healthy GPUs", "outage", _with_healthy_gpus)


def _tolerating(taint: Taint) -> Callable[[Snapshot, Job], Case]:
    toleration = Toleration(key=taint.key, value=taint.value, effect=taint.effect)

    def drop(snapshot: Snapshot, job: Job) -> Case:
        return snapshot, job.model_copy(update={"tolerations": (*job.tolerations, toleration)})

    return drop


def _with_nodes(**update: Any) -> Callable[[Snapshot, Job], Case]:
    def change(node: Node) -> Node:
        same = all(getattr(node, key) == value for key, value in update.items())
        return node if same else node.model_copy(update=update)

    return lambda snapshot, job: (
        snapshot.model_copy(update={"nodes": tuple(map(change, snapshot.nodes))}),
        job,
    )


def _with_healthy_gpus(snapshot: Snapshot, job: Job) -> Case:
    nodes = tuple(
        node.model_copy(
            update={"gpus": tuple(g.model_copy(update={"unhealthy": ()}) for g in node.gpus)}
        )
        for node in snapshot.nodes
    )
    return snapshot.model_copy(update={"nodes": nodes}), job
