"""Decides where the tasks of a running job are: nodes, GPU indices, and what each task occupies."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from trencadis.adapters.slurm.fields import Record, count, text
from trencadis.adapters.slurm.gres import SHARED, Gres, gpus_of_tres, parse_gres, parse_tres
from trencadis.adapters.slurm.hostlist import expand
from trencadis.adapters.slurm.nodes import SlurmNode, resource_keys
from trencadis.adapters.slurm.requests import share_of
from trencadis.models.base import GPU_MILLI, MAX_COUNT
from trencadis.models.jobs import Request, Share, TaskAllocation


@dataclass(slots=True)
class OnNode:
    """What a job occupies on one node."""

    node: str
    cpus: int = 0
    memory_mib: int = 0
    gpus: int = 0
    indices: tuple[int, ...] | None = None
    """Of the schema; None where only the number is known."""
    parts: dict[str, int] = field(default_factory=dict)
    parts_on: tuple[int, ...] = ()
    """GPUs with parts of the job, where that is known."""
    resources: dict[str, int] = field(default_factory=dict)
    models: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Occupied:
    """A running job's tasks: all alike, as the schema wants them."""

    request: Request
    allocation: tuple[TaskAllocation, ...]
    notes: tuple[str, ...] = ()


def read_occupied(record: Record, nodes: dict[str, SlurmNode]) -> list[OnNode]:
    """What the job has on each of its nodes; empty where the document names none.

    Raises ValueError where nodes or devices can't be read: whatever is there would look idle.
    """
    found = _nodes(record)
    details = record.get("gres_detail")
    detailed = isinstance(details, list) and len(details) == len(found) > 0
    for index, place in enumerate(found):
        node = nodes.get(place.node)
        gres = parse_gres(text(details[index])) if detailed and isinstance(details, list) else []
        for entry in gres:
            _add(place, entry, node)
    if found and not detailed:
        _from_totals(record, found)
    allocated = parse_tres(text(record.get("tres_alloc_str")))
    for place in found:
        # Totals where the nodes' own parts are not told; rounded up, so nothing looks free.
        place.cpus = place.cpus or -(
            -(allocated.get("cpu") or count(record.get("cpus"))) // len(found)
        )
        place.memory_mib = place.memory_mib or -(-allocated.get("mem", 0) // len(found))
    return found


def _nodes(record: Record) -> list[OnNode]:
    """Nodes with CPU and memory: a list since 23.02, before that an object with keys 0, 1, 2…"""
    resources = record.get("job_resources")
    resources = resources if isinstance(resources, dict) else {}
    inner = resources.get("nodes")
    listed = inner.get("allocation") if isinstance(inner, dict) else None
    listed = resources.get("allocated_nodes") if listed is None else listed
    hostlist = inner if isinstance(inner, str) else text(record.get("nodes"))
    names = expand(hostlist)
    if isinstance(listed, dict):
        # The keys count through the hostlist.
        pairs = [(int(k), v) for k, v in listed.items() if k.isdecimal() and isinstance(v, dict)]
        by_name = {names[k]: value for k, value in pairs if k < len(names)}
    elif isinstance(listed, list):
        rows = [row for row in listed if isinstance(row, dict)]
        by_name = {text(row.get("name") or row.get("nodename")): row for row in rows}
    else:
        by_name = {}
    names = names or [node for node in by_name if node]
    return [_part(node, by_name.get(node, {})) for node in names]


def _part(node: str, row: Record) -> OnNode:
    cpus, memory = row.get("cpus"), row.get("memory")
    if isinstance(cpus, dict) and "count" in cpus:
        cpus = cpus["count"]
    if isinstance(memory, dict) and "allocated" in memory:
        memory = memory["allocated"]
    cpus = row.get("cpus_used") if cpus is None else cpus
    memory = row.get("memory_allocated") if memory is None else memory
    return OnNode(node, cpus=count(cpus), memory_mib=count(memory))


def _add(place: OnNode, entry: Gres, node: SlurmNode | None) -> None:
    if entry.count == 0:
        return
    if entry.name in SHARED:
        place.parts[entry.name] = place.parts.get(entry.name, 0) + entry.count
        on = entry.indices or tuple(i for i, used in enumerate(entry.per_gpu) if used)
        place.parts_on = (on if node is None else node.gpus_at(on)) or ()
    elif entry.is_gpu:
        indices = entry.indices
        if indices is not None and node is not None:
            indices = node.gpus_at(indices)
        if indices is not None and len(indices) != entry.count:
            indices = None
        if place.gpus == 0:
            place.indices = indices
        elif place.indices is not None:
            place.indices = None if indices is None else (*place.indices, *indices)
        place.gpus += entry.count
        place.models[entry.type] = place.models.get(entry.type, 0) + entry.count
    else:
        for key in resource_keys(entry):
            place.resources[key] = place.resources.get(key, 0) + entry.count


def _from_totals(record: Record, found: list[OnNode]) -> None:
    """Without details per node: what was asked for per node, else the total spread evenly."""
    per_node = parse_gres(text(record.get("tres_per_node")))
    for entry in per_node:
        for place in found:
            _add(place, replace(entry, indices=None), None)
    if any(entry.is_gpu for entry in per_node):
        return
    gpus = gpus_of_tres(parse_tres(text(record.get("tres_alloc_str"))))
    if not gpus:
        asked = parse_gres(text(record.get("tres_per_job")))
        gpus = sum(entry.count for entry in asked if entry.is_gpu)
    if not gpus:
        per_task = parse_gres(text(record.get("tres_per_task")))
        tasks = max(1, count(record.get("tasks")))
        gpus = tasks * sum(entry.count for entry in per_task if entry.is_gpu)
    for index, place in enumerate(found):
        place.gpus += gpus // len(found) + (index < gpus % len(found))


def as_tasks(found: list[OnNode], nodes: dict[str, SlurmNode]) -> Occupied:
    """Tasks that are all alike: a node's GPUs in pieces of the greatest common divisor.

    CPU, memory and other resources of a task are the largest of any node's, so that nothing in use
    looks idle.
    """
    notes: list[str] = []
    if any(place.parts for place in found) and not any(place.gpus for place in found):
        return _shares(found, nodes)
    size = math.gcd(*(place.gpus for place in found))
    pieces = {place.node: place.gpus // size if size else 1 for place in found}
    if len({place.gpus for place in found}) > 1:
        notes.append("unequal numbers of GPUs on its nodes: read as more and smaller tasks")
    if any(place.gpus == 0 for place in found) and size:
        notes.append("no GPU on one of its nodes: what it has there is not read")
    allocation: list[TaskAllocation] = []
    for place in found:
        for piece in range(pieces[place.node]):
            indices: tuple[int, ...] | None = None
            if size == 0:
                indices = ()
            elif place.indices is not None:
                indices = tuple(sorted(place.indices)[piece * size : (piece + 1) * size])
            allocation.append(TaskAllocation(node=place.node, gpus=indices))
    return Occupied(_request(found, pieces, size, None), tuple(allocation), tuple(notes))


def _shares(found: list[OnNode], nodes: dict[str, SlurmNode]) -> Occupied:
    """A task for each GPU that may hold parts; which one, where unknown, is chosen later."""
    pieces: dict[str, int] = {}
    share: Share | None = None
    allocation: list[TaskAllocation] = []
    for place in found:
        node = nodes.get(place.node)
        whole = node.parts if node is not None else {}
        need = max(-(-n // max(1, whole.get(kind, n))) for kind, n in place.parts.items())
        on = place.parts_on
        pieces[place.node] = max(1, len(on) or min(need, len(node.devices) if node else 1))
        each = {kind: -(-n // pieces[place.node]) for kind, n in place.parts.items()}
        mine = share_of(each, whole)
        if share is None or (mine is not None and mine.gpu_milli > share.gpu_milli):
            share = mine
        for piece in range(pieces[place.node]):
            gpus = (on[piece],) if piece < len(on) else None
            allocation.append(TaskAllocation(node=place.node, gpus=gpus))
    share = share or Share(gpu_milli=GPU_MILLI)
    placed = tuple(task.model_copy(update={"share": share}) for task in allocation)
    return Occupied(_request(found, pieces, 0, share), placed)


def _request(
    found: list[OnNode], pieces: dict[str, int], gpus: int, share: Share | None
) -> Request:
    real = [place for place in found if pieces[place.node]]

    def most(amount: dict[str, int]) -> int:
        return min(MAX_COUNT, max(-(-amount[p.node] // pieces[p.node]) for p in real))

    keys = sorted({key for place in real for key in place.resources})
    resources = {key: most({p.node: p.resources.get(key, 0) for p in real}) for key in keys}
    return Request(
        gpus=gpus,
        share=share,
        cpu_milli=most({p.node: p.cpus * 1_000 for p in real}),
        memory_mib=most({p.node: p.memory_mib for p in real}),
        resources={key: value for key, value in resources.items() if value},
    )
