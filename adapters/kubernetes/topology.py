"""Decides the levels of the fabric: from Topology objects, HyperNodes, or labels that are known."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from trencadis.adapters.kubernetes.fields import at, listed, mapping, name, text, texts, whole
from trencadis.adapters.kubernetes.nodes import HOSTNAME, KubeNode
from trencadis.adapters.kubernetes.objects import Object
from trencadis.adapters.slurm.report import Report
from trencadis.models.cluster import Fabric, FabricLevel

NODE_LEVEL = "node"

FAMILIES: tuple[tuple[str, ...], ...] = (
    ("cloud.google.com/gce-topology-block", "cloud.google.com/gce-topology-subblock"),
    (
        "topology.k8s.aws/network-node-layer-1",
        "topology.k8s.aws/network-node-layer-2",
        "topology.k8s.aws/network-node-layer-3",
    ),
    ("oci.oraclecloud.com/host.network_block_id", "oci.oraclecloud.com/host.rack_id"),
    ("topology.kubernetes.io/zone",),
)
"""Labels of the clouds, widest first; the first family that a node has counts."""

ACCELERATOR = ("accelerator.topograph.run/domain", "nvidia.com/gpu.clique")
"""Domains joined by NVLink, in the order of preference; inside a switch of the fabric."""

_TIER = re.compile(r"fabric\.topograph\.run/tier-(\d{1,2})")
_NVLINK = re.compile(r"nvl|clique|accelerator", re.IGNORECASE)


@dataclass(slots=True)
class Levels:
    """The fabric, and what jobs call its levels."""

    fabric: Fabric = field(default_factory=Fabric)
    names: dict[str, str] = field(default_factory=lambda: {HOSTNAME: NODE_LEVEL})
    """Level by node label."""
    tiers: dict[int, str] = field(default_factory=dict)
    """Level by tier of HyperNodes; a lower tier is narrower."""

    def within_tier(self, tier: int) -> str | None:
        """The widest level of at most this tier; the node if none is; None without tiers."""
        if not self.tiers:
            return None
        fitting = [known for known in self.tiers if known <= tier]
        return self.tiers[max(fitting)] if fitting else NODE_LEVEL


def read_levels(
    topologies: list[Object],
    hyper_nodes: list[Object],
    nodes: Mapping[str, KubeNode],
    report: Report,
    asked: Iterable[str] = (),
    named: str = "",
) -> Levels:
    """The levels, and each node's place in them.

    `asked`: labels given by the user, widest first. `named`: the Topology that most jobs use.
    """
    labels = [label for label in asked if label != HOSTNAME]
    if not labels and topologies:
        labels = _topology(topologies, named, report)
    if labels:
        return _by_labels(labels, nodes, report)
    if hyper_nodes:
        return _by_hyper_nodes(hyper_nodes, nodes, report)
    return _by_labels(_known(nodes), nodes, report)


def _topology(topologies: list[Object], named: str, report: Report) -> list[str]:
    order = sorted(topologies, key=lambda entry: (entry.name != named, entry.name))
    chains = [
        [text(level.get("nodeLabel")) for level in listed(entry.spec.get("levels"))]
        for entry in order
    ]
    if any(chain != chains[0] for chain in chains[1:]):
        report.warn(
            order[1].path,
            f"there are several topologies; the fabric is that of {order[0].name}",
        )
    return [label for label in chains[0] if label and label != HOSTNAME]


def _known(nodes: Mapping[str, KubeNode]) -> list[str]:
    seen: set[str] = set()
    for node in nodes.values():
        seen.update(node.labels)
    tiers = sorted(
        (int(match.group(1)) for label in seen if (match := _TIER.fullmatch(label))), reverse=True
    )
    chain = [f"fabric.topograph.run/tier-{tier}" for tier in tiers]
    if not chain:
        families = ([label for label in family if label in seen] for family in FAMILIES)
        chain = next((family for family in families if family), [])
    chain.extend([label for label in ACCELERATOR if label in seen][:1])
    return chain


def _by_labels(chain: list[str], nodes: Mapping[str, KubeNode], report: Report) -> Levels:
    levels = Levels()
    made: list[FabricLevel] = []
    used: set[str] = {NODE_LEVEL}
    fabric_labels = [label for label in chain if not _NVLINK.search(label)]
    for label in dict.fromkeys(chain):
        level = name(label, "level")
        while level in used:
            level = f"label/{level}"[:253]
        used.add(level)
        kind = "spine"
        if _NVLINK.search(label):
            kind = "nvl72"
        elif label == fabric_labels[-1]:
            kind = "leaf"
        made.append(FabricLevel(name=level, kind=kind))
        levels.names[label] = level
    levels.fabric = Fabric(levels=tuple(made))
    for node in nodes.values():
        _place(node, [node.labels.get(label, "") for label in dict.fromkeys(chain)], report)
    return levels


def _place(node: KubeNode, path: list[str], report: Report) -> None:
    """Sets the node's place; a gap in it becomes a domain of its own, shared with no one."""
    if not any(path):
        return
    if not all(path):
        report.warn(node.path, "not at every level of the topology: alone at the levels it lacks")
    node.set(fabric=tuple(name(domain, f"only/{node.name}"[:253]) for domain in path))


def _by_hyper_nodes(found: list[Object], nodes: Mapping[str, KubeNode], report: Report) -> Levels:
    levels = Levels()
    by_name = {entry.name: entry for entry in found}
    tier_of = {entry.name: whole(entry.spec.get("tier")) for entry in found}
    for entry in found:
        if tier_of[entry.name] is None:
            report.fault(
                f"{entry.path}.spec.tier", f"HyperNode {entry.name}: required number is missing"
            )
    tiers = sorted({tier for tier in tier_of.values() if tier is not None}, reverse=True)
    members = {entry.name: _members(entry, by_name, nodes, set()) for entry in found}
    for tier in tiers:
        levels.tiers[tier] = f"tier-{tier}"
    levels.fabric = Fabric(
        levels=tuple(
            FabricLevel(name=f"tier-{tier}", kind="leaf" if tier == tiers[-1] else "spine")
            for tier in tiers
        )
    )
    for node in nodes.values():
        path = []
        for tier in tiers:
            holders = sorted(
                hyper
                for hyper, inside in members.items()
                if tier_of[hyper] == tier and node.name in inside
            )
            if len(holders) > 1:
                report.warn(by_name[holders[1]].path, "a node is in two HyperNodes of one tier")
            path.append(holders[0] if holders else "")
        _place(node, path, report)
    return levels


def _members(
    entry: Object, by_name: Mapping[str, Object], nodes: Mapping[str, KubeNode], seen: set[str]
) -> set[str]:
    """Names of the nodes below a HyperNode."""
    if entry.name in seen:
        return set()
    seen.add(entry.name)
    found: set[str] = set()
    for member in listed(entry.spec.get("members")):
        selector = mapping(member.get("selector"))
        pool = by_name if member.get("type") == "HyperNode" else nodes
        chosen = {known for known in pool if _chosen(known, selector, nodes)}
        if pool is nodes:
            found |= chosen
        else:
            for other in chosen:
                found |= _members(by_name[other], by_name, nodes, seen)
    return found


def _chosen(known: str, selector: Mapping[str, object], nodes: Mapping[str, KubeNode]) -> bool:
    exact = text(at(selector, "exactMatch", "name"))
    if exact:
        return known == exact
    pattern = text(at(selector, "regexMatch", "pattern"))
    if pattern:
        try:
            return re.search(pattern, known) is not None
        except re.error:
            return False
    wanted = texts(at(selector, "labelMatch", "matchLabels"))
    node = nodes.get(known)
    return (
        bool(wanted)
        and node is not None
        and all(node.labels.get(key) == value for key, value in wanted.items())
    )
