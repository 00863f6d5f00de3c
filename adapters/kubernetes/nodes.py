"""Decides what a Kubernetes node offers: GPUs, slices, shares, and whether it takes work."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

from trencadis.adapters.kubernetes.fields import MIB, at, down, listed, name, text
from trencadis.adapters.kubernetes.gpus import Devices, read_devices
from trencadis.adapters.kubernetes.objects import Object
from trencadis.adapters.kubernetes.resources import (
    Amounts,
    UnmappableError,
    amounts,
    counted,
    other,
)
from trencadis.adapters.slurm.report import Report
from trencadis.models.cluster import Node, Taint

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
HOSTNAME = "kubernetes.io/hostname"


@dataclass(slots=True)
class KubeNode:
    """A node under construction, with what pods and topologies need to know of it."""

    path: str
    node: Node
    labels: dict[str, str] = field(default_factory=dict)
    """All labels of the node; the schema gets those that a selector names."""
    devices: Devices = field(default_factory=Devices)
    listed: bool = True
    """Whether the documents have the node itself, not only what runs there."""

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.name

    @property
    def numbered(self) -> bool:
        """Whether its GPUs have numbers of ours, as a device plugin chooses among those alike.

        What fits these fits the node, whichever of them it gives out.
        """
        return self.listed and self.node.precision != "node" and not self.devices.exact

    def set(self, **changes: Any) -> None:
        """Changes fields of the node."""
        self.node = self.node.model_copy(update=changes)

    def label(self, key: str, value: str) -> None:
        """Gives the node of the schema a label."""
        if self.node.labels.get(key) != value:
            self.set(labels=dict(sorted({**self.node.labels, key: value}.items())))


def read_nodes(found: list[Object], report: Report, *, shareable: bool) -> dict[str, KubeNode]:
    """The nodes by name. `shareable`: whether any GPU may be shared, as under KAI or HAMi."""
    nodes: dict[str, KubeNode] = {}
    for entry in found:
        node = _node(entry, report, shareable=shareable)
        if node is not None:
            nodes[node.name] = node
    return nodes


def stand_in(node_name: str, path: str, nodes: dict[str, KubeNode]) -> KubeNode:
    """A cordoned node for one that the documents lack; it grows with what is known to be there."""
    made = KubeNode(path, Node(name=node_name, cordoned=True, precision="node"), listed=False)
    made.labels = {HOSTNAME: node_name}
    nodes[node_name] = made
    return made


def _node(entry: Object, report: Report, *, shareable: bool) -> KubeNode | None:
    offered = entry.status.get("allocatable")
    where = f"{entry.path}.status.allocatable"
    if offered is None:
        offered = entry.status.get("capacity")
    if not isinstance(offered, dict):
        report.fault(where, f"node {entry.name}: required object is missing")
        return None
    try:
        allocatable = amounts(offered)
        capacity = amounts(entry.status.get("capacity")) or allocatable
    except UnmappableError as error:
        report.fault(where, f"node {entry.name}: {error}")
        return None
    for key in ("cpu", "memory"):
        if key not in allocatable:
            report.fault(f"{where}.{key}", f"node {entry.name}: required quantity is missing")
            return None
    labels = entry.labels
    devices = read_devices(entry, allocatable, capacity, report, shareable=shareable)
    return KubeNode(
        path=entry.path,
        node=Node(
            name=name(entry.name, "node"),
            gpus=devices.groups,
            cpu_milli=down(allocatable["cpu"] * 1_000),
            memory_mib=down(allocatable["memory"] / MIB),
            resources=_resources(allocatable),
            taints=_taints(entry),
            cordoned=bool(entry.spec.get("unschedulable")),
            down=not _ready(entry),
            nvlink=devices.nvlink,
            mig=devices.mig,
            shareable=devices.replicas > 1,
            max_jobs_per_gpu=max(1, devices.replicas),
            precision=_precision(devices),
        ),
        labels={**labels, HOSTNAME: labels.get(HOSTNAME, entry.name)},
        devices=devices,
    )


def _precision(devices: Devices) -> Literal["node", "gpu", "mig"]:
    """Slices and shares are chosen by us, the GPUs themselves under HAMi alone."""
    if devices.exact:
        return "gpu"
    if devices.unknown:
        return "node"
    return "mig" if devices.mig else "gpu" if devices.replicas > 1 else "node"


def _resources(allocatable: Amounts) -> dict[str, int]:
    found = {
        key: counted(key, value, asked=False) for key, value in allocatable.items() if other(key)
    }
    # Without a limit of its own a node has room for any number of pods.
    found["pods"] = down(allocatable.get("pods", Fraction(1_000_000)))
    return {key: value for key, value in sorted(found.items()) if value}


def _taints(entry: Object) -> tuple[Taint, ...]:
    taints = []
    for taint in listed(entry.spec.get("taints")):
        effect, key = text(taint.get("effect")), name(taint.get("key"), "")
        if effect in EFFECTS and key and key != "node.kubernetes.io/unschedulable":
            taints.append(
                Taint.model_validate(
                    {"key": key, "value": text(taint.get("value")), "effect": effect}
                )
            )
    return tuple(taints)


def _ready(entry: Object) -> bool:
    """Whether the node reports itself ready; nodes that report nothing count as ready."""
    states = [
        text(condition.get("status"))
        for condition in listed(at(entry.status, "conditions"))
        if condition.get("type") == "Ready"
    ]
    return all(state == "True" for state in states)
