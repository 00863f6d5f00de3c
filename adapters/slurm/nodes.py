"""Decides what a node of Slurm's offers: its devices, its place, and whether it takes work."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from trencadis.adapters.slurm import sinfo
from trencadis.adapters.slurm.fields import (
    Record,
    count,
    entries,
    name,
    number,
    states,
    text,
    words,
)
from trencadis.adapters.slurm.gres import SHARED, Gres, parse_gres
from trencadis.adapters.slurm.report import Report
from trencadis.models.base import MAX_COUNT
from trencadis.models.cluster import GpuGroup, Node

UNTYPED = "gpu"
"""Model of GPUs whose gres has no type."""

DOWN = states("DOWN,ERROR,FUTURE,UNKNOWN,INVALID,INVALID_REG,DYNAMIC_FUTURE,REBOOT_ISSUED")
# A cloud node that is POWERED_DOWN is in neither set: Slurm starts it for the job.
NO_NEW_WORK = states(
    "DRAIN,DRAINED,DRAINING,DRNG,FAIL,FAILG,FAILING,NOT_RESPONDING,POWER_DOWN,POWERING_DOWN,"
    "REBOOT_REQUESTED,BLOCKED,EXTERNAL,PERFCTRS"
)
RESERVED = frozenset({"RESERVED", "RESV", "MAINTENANCE", "MAINT"})
"""For jobs of a reservation only; what the reservation is, its own document says."""

MAX_GROUP = 64


@dataclass(slots=True)
class SlurmNode:
    """A node under construction, with what jobs and reservations need to know of it."""

    path: str
    node: Node
    states: frozenset[str] = frozenset()
    features: frozenset[str] = frozenset()
    partitions: frozenset[str] = frozenset()
    reservation: str = ""
    devices: tuple[int | None, ...] = ()
    """Index among the GPUs of the schema by Slurm's own; None for a MIG device."""
    parts: dict[str, int] = field(default_factory=dict)
    """Shards, or MPS units, of one GPU."""
    used: list[Gres] = field(default_factory=list)
    used_cpu: int | None = None
    used_memory_mib: int | None = None

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.name

    def gpus_at(self, indices: Iterable[int]) -> tuple[int, ...] | None:
        """The schema's indices for Slurm's; None if one of them is no whole GPU of the node."""
        found = [self.devices[i] if i < len(self.devices) else None for i in indices]
        known = tuple(i for i in found if i is not None)
        return known if len(known) == len(found) else None

    def is_reserved_for(self, reservations: list[str]) -> bool:
        """Whether the node says that it is in one of the reservations."""
        return not set(words(self.reservation)).isdisjoint(reservations)

    def set(self, **changes: Any) -> None:
        """Changes fields of the node."""
        self.node = self.node.model_copy(update=changes)


def read_nodes(doc: Record, document: str, report: Report) -> dict[str, SlurmNode]:
    """The nodes by name, from `scontrol show nodes`, slurmrestd or either form of sinfo's."""
    key = "nodes"
    if "nodes" not in doc and "sinfo" in doc:
        key = "sinfo"
        records = sinfo.node_records(entries(doc, "sinfo", document), document, report)
    else:
        listed = entries(doc, "nodes", document)
        records = [(f"{document}:$.nodes[{i}]", dict(entry)) for i, entry in enumerate(listed)]
    nodes: dict[str, SlurmNode] = {}
    for path, record in records:
        found = _node(path, record, report)
        if found is None:
            continue
        if found.name in nodes:
            report.fault(f"{path}.name", f"there are two nodes named {found.name}")
        nodes[found.name] = found
    if not nodes and not report.faults:
        report.warn(f"{document}:$.{key}", "the document lists no nodes")
    return nodes


def _node(path: str, record: Record, report: Report) -> SlurmNode | None:
    node_name = name(record.get("name"), "")
    cpus = number(record.get("effective_cpus"))
    cpus = number(record.get("cpus")) if cpus is None else cpus
    memory = number(record.get("real_memory"))
    before = len(report.faults)
    if not node_name:
        report.fault(f"{path}.name", "required field is missing")
    for key, value in (("cpus", cpus), ("real_memory", memory)):
        if value is None or value < 0:
            report.fault(f"{path}.{key}", f"node {node_name}: required number is missing")
    if record.get("state") is None and "state_flags" not in record:
        report.fault(f"{path}.state", f"node {node_name}: required field is missing")
    gres = _gres(path, "gres", record, report)
    used = _gres(path, "gres_used", record, report)
    drained = _gres(path, "gres_drained", record, report)
    if len(report.faults) > before:
        return None
    memory = max(0, (memory or 0) - count(record.get("specialized_memory")))
    gpus, devices, resources = _devices(gres)
    total_gpus = sum(group.count for group in gpus)
    parts = {}
    for kind in SHARED:
        units = sum(entry.count for entry in gres if entry.name == kind)
        if units and total_gpus:
            parts[kind] = max(1, units // total_gpus)
    active = record.get("active_features")
    features = words(active if active is not None else record.get("features"))
    found = SlurmNode(
        path=path,
        node=Node(
            name=node_name,
            gpus=tuple(gpus),
            cpu_milli=min((cpus or 0) * 1_000, MAX_COUNT),
            memory_mib=min(memory, MAX_COUNT),
            resources=resources,
            shareable=bool(parts),
            max_jobs_per_gpu=max(parts.values(), default=1),
            precision="node",
        ),
        states=states(record.get("state"), record.get("state_flags")),
        features=frozenset(feature.split("(")[0] for feature in features),
        partitions=frozenset(words(record.get("partitions"))),
        reservation=text(record.get("reservation")),
        devices=devices,
        parts=parts,
        used=used,
        used_cpu=number(record.get("alloc_cpus")),
        used_memory_mib=number(record.get("alloc_memory")),
    )
    found.set(
        labels=_labels(found),
        down=bool(found.states & DOWN),
        cordoned=bool(found.states & NO_NEW_WORK),
    )
    _drain(found, drained, report)
    return found


def _gres(path: str, key: str, record: Record, report: Report) -> list[Gres]:
    try:
        return parse_gres(text(record.get(key)))
    except ValueError as error:
        report.fault(f"{path}.{key}", str(error))
        return []


def _devices(
    gres: list[Gres],
) -> tuple[list[GpuGroup], tuple[int | None, ...], dict[str, int]]:
    """GPU groups, the index of each device of Slurm's, and everything else as counts.

    MIG devices are counts too: Slurm partitions GPUs before any job comes and hands out the parts
    by number, so that a count is all that a placement needs.
    """
    groups: list[GpuGroup] = []
    devices: list[int | None] = []
    resources: dict[str, int] = {}
    first = 0
    for entry in gres:
        if entry.is_gpu:
            entry_count = max(0, min(entry.count, 1_024 - first))
            for done in range(0, entry_count, MAX_GROUP):
                size = min(MAX_GROUP, entry_count - done)
                groups.append(GpuGroup(model=name(entry.type, UNTYPED), count=size))
            devices.extend(range(first, first + entry_count))
            first += entry_count
            continue
        if entry.is_mig:
            devices.extend([None] * min(entry.count, 1_024))
        if entry.name not in SHARED:
            for key in resource_keys(entry):
                resources[key] = min(resources.get(key, 0) + entry.count, MAX_COUNT)
    return groups, tuple(devices), {key: value for key, value in resources.items() if value}


def resource_keys(entry: Gres) -> list[str]:
    """The counts that an entry belongs to: its type's and, but for MIG devices, its name's.

    Untyped GPUs of a request mean whole GPUs here, so MIG devices have no count in common.
    """
    keys = [entry.key] if entry.is_mig or not entry.type else [f"gres/{entry.name}", entry.key]
    return [name(key, "gres") for key in keys]


def _labels(found: SlurmNode) -> dict[str, str]:
    labels = {f"feature/{feature}": "yes" for feature in sorted(found.features)}
    labels |= {f"partition/{partition}": "yes" for partition in sorted(found.partitions)}
    return {name(key, key)[:253]: value for key, value in labels.items()}


def _drain(found: SlurmNode, drained: list[Gres], report: Report) -> None:
    """Marks drained GPUs as broken: those that are named, else the last ones of the type."""
    in_use = set(
        chain.from_iterable(found.gpus_at(e.indices or ()) or () for e in found.used if e.is_gpu)
    )
    broken: set[int] = set()
    healthy = found.node.healthy_gpus()
    for entry in drained:
        if not entry.is_gpu or not entry.count:
            continue
        indices = found.gpus_at(entry.indices) if entry.indices else None
        if indices is None:
            fitting = [i for i, model in healthy.items() if entry.type in ("", model)]
            fitting.sort(key=lambda i: (i not in in_use, i))
            indices = tuple(fitting[-entry.count :])
            report.warn(
                f"{found.path}.gres_drained",
                "drained GPUs without indices: the last idle ones of the node are meant",
            )
        broken.update(indices)
    if not broken:
        return
    groups, first = [], 0
    for group in found.node.gpus:
        mine = tuple(i for i in sorted(broken) if first <= i < first + group.count)
        groups.append(group.model_copy(update={"unhealthy": mine}))
        first += group.count
    found.set(gpus=tuple(groups))
