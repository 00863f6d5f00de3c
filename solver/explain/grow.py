"""How many more nodes of which kind would let a job start."""

from __future__ import annotations

from dataclasses import replace

from trencadis.models import Node
from trencadis.models.explanation import Remedy
from trencadis.solver.capacity import node_state
from trencadis.solver.explain.case import Case
from trencadis.solver.explain.changes import new_node, with_nodes
from trencadis.solver.explain.grouped import fewest, more_nodes
from trencadis.solver.explain.raises import beside
from trencadis.solver.explain.said import some
from trencadis.solver.fabric import required_depth

KINDS = 12
"""Kinds and places that are tried."""


def grow(case: Case) -> Remedy | str:
    """The fewest nodes of one kind, beside one that is there, of those the fewest GPUs."""
    best: tuple[int, int, str] | None = None
    kinds = _kinds(case)
    for node in kinds[:KINDS]:
        most = case.job.minimum if best is None else min(case.job.minimum, best[0])
        count = _fewest(case, node, most)
        if count is not None:
            entry = (count, count * node.gpu_count, node.name)
            best = entry if best is None else min(best, entry)
    if best is None:
        return "no number of nodes of the kinds that are there would do"
    count, _, name = best
    node = next(node for node in case.base.nodes if node.name == name)
    return _remedy(case, node, count, cheapest=len(kinds) <= KINDS)


def grow_for_group(case: Case) -> Remedy | str:
    """The same for a group that starts as a whole."""
    found = more_nodes(case)
    if found is None:
        return "no number of nodes of the kinds that were tried would do"
    return _remedy(case, found[1], found[0], cheapest=False)


def _remedy(case: Case, node: Node, count: int, *, cheapest: bool) -> Remedy:
    name = node.name
    kind = " + ".join(f"{group.count}×{group.model}" for group in node.gpus) or "no GPUs"
    where = f" in {'/'.join(node.fabric)}" if node.fabric else ""
    return Remedy(
        kind="nodes",
        sentence=f"add {some(count, 'node')} like {name} ({kind}){where}{beside(case.raises)}",
        add=count,
        like=name,
        cost={"nodes": count, "gpus": count * node.gpu_count},
        cheapest=cheapest,
        raises=case.raises,
    )


def _kinds(case: Case) -> list[Node]:
    """A node of each kind; where nearness is required, of each kind in the emptiest domains."""
    depth = required_depth(case.base, case.job, case.place.fabric)
    depth = min(depth, case.place.fabric.depth)
    idle = {state.name: state.idle_count for state in case.states}
    total: dict[tuple[str, ...], int] = {}
    path = case.place.fabric.path
    for name, count in idle.items():
        total[path[name][:depth]] = total.get(path[name][:depth], 0) + count
    found: dict[object, Node] = {}
    for node in sorted(
        case.base.nodes, key=lambda node: (-total.get(path[node.name][:depth], 0), node.name)
    ):
        groups = tuple((group.model, group.count) for group in node.gpus)
        key = (
            groups,
            node.cpu_milli,
            node.memory_mib,
            tuple(node.resources.items()),
            tuple(node.labels.items()),
            node.taints,
            node.nvlink,
            path[node.name][:depth],
        )
        found.setdefault(key, node)
    return list(found.values())


def _fewest(case: Case, node: Node, most: int) -> int | None:
    """The fewest nodes like this one, at most `most`; None if not even those do."""
    if not _fits(case, node, most):
        return None
    return fewest(most, lambda count: _fits(case, node, count))


def _fits(case: Case, like: Node, count: int) -> bool:
    """Whether the job fits with so many nodes more."""
    fabric = case.place.fabric
    added = [new_node(like, number) for number in range(1, count + 1)]
    extra = [node_state(node, [], case.place.supply) for node in added]
    path = dict(fabric.path)
    for node in added:
        own = (f"~{node.name}" for _ in range(fabric.depth - len(node.fabric)))
        path[node.name] = (*node.fabric, *own)
    place = replace(
        case.place,
        snapshot=with_nodes(case.base, like.name, count),
        fabric=replace(fabric, path=path),
    )
    return place.fits(case.job, [*case.states, *extra], case.models)
