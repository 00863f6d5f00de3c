"""What each GPU of a snapshot is taken by: whole, in MIG slices or in shares."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from trencadis.models import Job, Node, Snapshot, TaskAllocation
from trencadis.models.mig import MigTable
from trencadis.models.units import mig_tables

Occupied = Literal["running", "draining", "held"]
_NUMBERED = re.compile(r"([^0-9]*)([0-9]{0,18})")


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of one GPU, `start` and `width` as parts of the whole."""

    start: float
    width: float
    job: str | None
    """None: an idle MIG instance."""
    state: Occupied | Literal["idle"]
    label: str = ""
    """Profile, or share."""
    promised: str = ""
    """The job that a delayed start keeps it for, once this one has left."""


@dataclass(frozen=True, slots=True)
class GpuPlace:
    """One GPU. What no part covers is idle."""

    index: int
    model: str
    parts: tuple[Part, ...]
    broken: bool = False


@dataclass(frozen=True, slots=True)
class NodePlace:
    """One node."""

    name: str
    path: tuple[str, ...]
    gpus: tuple[GpuPlace, ...]
    marks: tuple[str, ...]
    """`down`, `cordoned`."""
    others: tuple[str, ...]
    """Jobs here that use no GPU, or a part of one that the snapshot doesn't name."""
    counted: bool
    """Some GPU indices are unknown: the first idle ones stand for them."""


def natural(*names: str) -> tuple[tuple[tuple[str, int], ...], ...]:
    """A key that sorts leaf2 before leaf10."""
    return tuple(
        tuple((text, int(digits or 0)) for text, digits in _NUMBERED.findall(name))
        for name in names
    )


def places(snapshot: Snapshot) -> list[NodePlace]:
    """All nodes, by domain and name."""
    tables = mig_tables(snapshot)
    tenants: defaultdict[str, list[_Tenant]] = defaultdict(list)
    for tenant in _tenants(snapshot):
        tenants[tenant.task.node].append(tenant)
    found = [_node(node, tenants[node.name], tables) for node in snapshot.nodes]
    return sorted(found, key=lambda node: natural(*node.path, "", node.name))


@dataclass(frozen=True, slots=True)
class _Tenant:
    job: Job
    task: TaskAllocation
    state: Occupied


def _tenants(snapshot: Snapshot) -> Iterator[_Tenant]:
    jobs = {job.name: job for job in snapshot.jobs}
    for job in snapshot.jobs:
        if job.on_nodes:
            state: Occupied = "running" if job.state == "running" else "draining"
            for task in job.allocation:
                yield _Tenant(job, task, state)
    for hold in snapshot.holds:
        if hold.job in jobs:
            for task in hold.allocation:
                yield _Tenant(jobs[hold.job], task, "held")


def _node(node: Node, tenants: Sequence[_Tenant], tables: Mapping[str, MigTable]) -> NodePlace:
    healthy = node.healthy_gpus()
    models = [group.model for group in node.gpus for _ in range(group.count)]
    parts: defaultdict[int, list[Part]] = defaultdict(list)
    others: list[str] = []
    nameless: list[tuple[_Tenant, int]] = []
    shared: defaultdict[int, int] = defaultdict(int)
    for tenant in tenants:
        job, task, state = tenant.job, tenant.task, tenant.state
        share = task.share or job.request.share
        if task.gpus is None:
            if job.request.gpus:
                nameless.append((tenant, job.request.gpus))
            else:
                others.append(job.name)
        elif task.mig:
            for gpu, instance in zip(task.gpus, task.mig, strict=False):
                start, width = _slices(tables.get(models[gpu]), instance.profile, instance.start)
                parts[gpu].append(Part(start, width, job.name, state, instance.profile))
        elif share is not None:
            for gpu in task.gpus:
                label = f"{share.gpu_milli / 1_000:g} GPU"
                start, width = shared[gpu] / 1_000, share.gpu_milli / 1_000
                parts[gpu].append(Part(start, width, job.name, state, label))
                shared[gpu] += share.gpu_milli
        elif task.gpus:
            for gpu in task.gpus:
                # A delayed start holds what its victims still use: who uses it comes first.
                if state == "held" and parts[gpu]:
                    parts[gpu][0] = _promised(parts[gpu][0], job.name)
                else:
                    parts[gpu].append(Part(0.0, 1.0, job.name, state))
        else:
            others.append(job.name)
    for entry in node.mig:
        taken = {(part.label, part.start) for part in parts[entry.gpu]}
        for instance in entry.instances:
            table = tables.get(models[entry.gpu])
            start, width = _slices(table, instance.profile, instance.start)
            if (instance.profile, start) not in taken:
                parts[entry.gpu].append(Part(start, width, None, "idle", instance.profile))
    free = [gpu for gpu in healthy if not parts[gpu]]
    for tenant, number in nameless:
        for gpu in free[:number]:
            parts[gpu].append(Part(0.0, 1.0, tenant.job.name, tenant.state))
        del free[:number]
    return NodePlace(
        name=node.name,
        path=node.fabric,
        gpus=tuple(
            GpuPlace(
                gpu, model, tuple(sorted(parts[gpu], key=lambda p: p.start)), gpu not in healthy
            )
            for gpu, model in enumerate(models)
        ),
        marks=tuple(
            word for word, true in (("down", node.down), ("cordoned", node.cordoned)) if true
        ),
        others=tuple(dict.fromkeys(others)),
        counted=bool(nameless),
    )


def _promised(part: Part, job: str) -> Part:
    return replace(part, promised=job)


def _slices(table: MigTable | None, profile: str, start: int) -> tuple[float, float]:
    """Start and width of an instance; an eighth a slice where the GPU's geometry is unknown."""
    known = None if table is None else table.profile(profile)
    if table is None or known is None:
        return start / 8, 1 / 8
    return start / table.memory_slices, known.memory_slices / table.memory_slices
