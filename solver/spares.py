"""Which idle nodes are kept for repairs (problem.md, 12)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from trencadis.models import Node, Snapshot
from trencadis.models.spares import is_spare, with_mark
from trencadis.solver.fabric import tree


def with_spares(snapshot: Snapshot) -> Snapshot:
    """The snapshot with the nodes marked that only repairs may use. Marks that are there stay."""
    if not (snapshot.policy.spares and snapshot.policy.repairs) or any(
        is_spare(node) for node in snapshot.nodes
    ):
        return snapshot
    found = _spares(snapshot)
    return snapshot.model_copy(
        update={
            "nodes": tuple(
                with_mark(node) if node.name in found else node for node in snapshot.nodes
            )
        }
    )


def _spares(snapshot: Snapshot) -> set[str]:
    fabric, names = tree(snapshot), ["cluster", *(level.name for level in snapshot.fabric.levels)]
    busy = {task.node for job in snapshot.jobs if job.on_nodes for task in job.allocation}
    busy |= {task.node for hold in snapshot.delayed for task in hold.allocation}
    idle = sorted(
        (node for node in snapshot.nodes if node.name not in busy and _sound(snapshot, node)),
        key=lambda node: node.name,
    )
    found: set[str] = set()
    # The finest level first: its spares count for wider ones.
    for entry in sorted(snapshot.policy.spares, key=lambda entry: -names.index(entry.level)):
        depth = names.index(entry.level)
        domains: defaultdict[tuple[object, ...], list[str]] = defaultdict(list)
        for node in idle:
            if len(node.fabric) >= depth:
                domains[(*fabric.path[node.name][:depth], _kind(node))].append(node.name)
        _choose(domains, entry.nodes, found)
    return found


def _choose(
    domains: Mapping[tuple[object, ...], list[str]], number: int, found: set[str]
) -> None:
    """Adds the first nodes of each domain, until it has so many."""
    for members in domains.values():
        lacks = number - len(found.intersection(members))
        found.update([name for name in members if name not in found][: max(0, lacks)])


def _sound(snapshot: Snapshot, node: Node) -> bool:
    out = node.down or node.cordoned or node.leaves
    broken = any(group.unhealthy for group in node.gpus)
    poor = node.health_score_milli < snapshot.policy.poor_health_milli
    return bool(node.gpu_count) and not (out or broken or poor)


def _kind(node: Node) -> tuple[tuple[str, int], ...]:
    """Nodes with as many GPUs of the same models stand in for each other."""
    return tuple(sorted((group.model, group.count) for group in node.gpus))
