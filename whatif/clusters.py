"""Clusters from kinds of node: `8xh100-8,4xa100-8` as a snapshot, and what it costs an hour."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from trencadis.models import (
    Fabric,
    FabricLevel,
    Fault,
    GpuGroup,
    InvalidInputError,
    Node,
    NvLink,
    Policy,
    Snapshot,
)
from trencadis.models.trace import EPOCH
from trencadis.whatif.prices import FabricKind, PriceList, Sku

PART = re.compile(r"^(\d+)x([^\s,]+)$")
PLAIN = re.compile(r"^([A-Za-z][\w.]*(?:-[A-Za-z][\w.]*)*)-(\d+)$")
DEFAULT_FABRIC = "infiniband"
# A kind of node that the list doesn't have: enough of both for any job of a trace.
PLAIN_CPU_MILLI, PLAIN_MEMORY_MIB = 24_000, 262_144
MOST_NODES = 100_000


def parse_mix(text: str, prices: PriceList) -> dict[str, int]:
    """Nodes by kind of `8xh100-8,4xa100-8`. Raises InvalidInputError."""
    mix: Counter[str] = Counter()
    faults = []
    for part in text.split(","):
        match = PART.match(part.strip())
        if match is None or not 0 < int(match.group(1)) <= MOST_NODES:
            faults.append(Fault("cluster", f"{part!r} is no number of nodes and kind, as 8xh100-8"))
            continue
        name = match.group(2)
        if sku_of(name, prices) is None:
            known = ", ".join(sku.name for sku in prices.skus)
            faults.append(
                Fault("cluster", f"no kind of node {name!r}; there are {known}, or MODEL-GPUS")
            )
        mix[name] += int(match.group(1))
    if faults:
        raise InvalidInputError(faults)
    return dict(mix)


def sku_of(name: str, prices: PriceList) -> Sku | None:
    """The kind of node in the list; else `gpu-8` as eight GPUs of the model `gpu`, no price."""
    known = prices.sku(name)
    if known is not None:
        return known
    match = PLAIN.match(name)
    if match is None or not 1 <= int(match.group(2)) <= 64:
        return None
    gpus = int(match.group(2))
    return Sku(
        name=name,
        gpu_model=match.group(1),
        gpus=gpus,
        cpu_milli=gpus * PLAIN_CPU_MILLI,
        memory_mib=gpus * PLAIN_MEMORY_MIB,
    )


def cluster_of(
    mix: Mapping[str, int],
    prices: PriceList,
    fabric: str = DEFAULT_FABRIC,
    policy: Policy | None = None,
) -> Snapshot:
    """A cluster of such nodes, under leaf switches of one spine; no queues, no jobs."""
    kind = prices.fabric(fabric)
    if kind is None:
        known = ", ".join(entry.name for entry in prices.fabrics)
        raise InvalidInputError([Fault("fabric", f"no fabric {fabric!r}; there are {known}")])
    policy = policy or Policy()
    nodes: list[Node] = []
    for name, count in mix.items():
        sku = sku_of(name, prices)
        assert sku is not None
        for number in range(count):
            leaf = f"leaf-{len(nodes) // kind.nodes_per_leaf + 1}"
            nodes.append(node_of(sku, f"{name}-{number + 1}", ("spine", leaf)))
    return Snapshot(
        now=EPOCH,
        nodes=tuple(nodes),
        fabric=Fabric(
            levels=(
                FabricLevel(name="spine", kind=kind.beyond),
                FabricLevel(name="leaf", kind=kind.leaf),
            )
        ),
        policy=policy,
    )


def node_of(sku: Sku, name: str, fabric: tuple[str, ...] = ()) -> Node:
    """A node of the kind; its GPUs may be shared."""
    group = GpuGroup(model=sku.gpu_model, count=sku.gpus, memory_mib=sku.gpu_memory_mib)
    return Node(
        name=name,
        gpus=(group,) if sku.gpus else (),
        cpu_milli=sku.cpu_milli,
        memory_mib=sku.memory_mib,
        nvlink=NvLink(kind=sku.nvlink),
        fabric=fabric,
        labels={"sku": sku.name},
        shareable=bool(sku.gpus),
        max_jobs_per_gpu=1_000 if sku.gpus else 1,
    )


def price_per_hour_milli(snapshot: Snapshot, prices: PriceList, fabric: str | None) -> int | None:
    """What all nodes cost an hour on demand; None where the list knows no price for one of them.

    A node is priced by its label `sku`, else by the GPU-hours of its models.
    """
    network = prices.fabric(fabric) if fabric else None
    total = 0
    for node in snapshot.nodes:
        price = node_price_milli(node, prices, network)
        if price is None:
            return None
        total += price
    return total


def node_price_milli(node: Node, prices: PriceList, network: FabricKind | None) -> int | None:
    """What a node costs an hour on demand, or None."""
    extra = 0 if network is None else network.price_per_node_hour_milli
    sku = prices.sku(node.labels.get("sku", ""))
    if sku is not None:
        return None if sku.price_per_hour_milli is None else sku.price_per_hour_milli + extra
    total = 0
    for group in node.gpus:
        price = prices.gpu_hour(group.model)
        if price is None:
            return None
        total += price * group.count
    return total + extra
