"""The fabric as a tree of domains: which domain a node is in, and how near a set of nodes is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import networkx as nx

from trencadis.models import Job, Snapshot, Topology
from trencadis.solver.worth import Rates, waited

Domain = tuple[str, ...]
"""A domain by its path, widest level first; () is the whole cluster. Names may repeat elsewhere."""


@dataclass(frozen=True, slots=True)
class Tree:
    """Domains of every level. A node outside of a level is a domain of its own there."""

    depth: int
    """Number of levels, D; a single node has depth D + 1."""
    names: tuple[str, ...]
    """Level names by depth, `cluster` first and `node` last."""
    boundary: int
    """Depth of the finest level that no gang crosses; 0 if there is none."""
    path: Mapping[str, Domain]
    """Padded path by node name: always D long."""
    real: Mapping[str, Domain]
    """Path as the snapshot gives it."""
    graph: nx.DiGraph
    """Edges from a domain to the domains inside it."""

    def common_depth(self, nodes: Iterable[str]) -> int:
        """Depth of the finest domain that holds all the nodes; D + 1 for a single one."""
        distinct = list(dict.fromkeys(nodes))
        if len(distinct) == 1:
            return self.depth + 1
        first = self.path[distinct[0]]
        length = self.depth
        for name in distinct[1:]:
            other = self.path[name]
            while first[:length] != other[:length]:
                length -= 1
        return length

    def domain_name(self, nodes: Iterable[str], depth: int) -> str:
        """The domain of that depth that holds the nodes, as a path for people."""
        name = next(iter(nodes))
        if depth > self.depth:
            return "/".join((*self.real[name], name))
        return "/".join(self.path[name][:depth])

    def depth_of(self, level: str) -> int:
        """Depth of a level by name; `node` is D + 1."""
        return self.names.index(level)


def tree(snapshot: Snapshot) -> Tree:
    """Reads the fabric of a snapshot."""
    levels = snapshot.fabric.levels
    path: dict[str, Domain] = {}
    graph = nx.DiGraph()
    graph.add_node(())
    for node in snapshot.nodes:
        missing = len(levels) - len(node.fabric)
        padded = (*node.fabric, *(f"~{node.name}" for _ in range(missing)))
        path[node.name] = padded
        for depth in range(1, len(padded) + 1):
            graph.add_edge(padded[: depth - 1], padded[:depth])
    return Tree(
        depth=len(levels),
        names=("cluster", *(level.name for level in levels), "node"),
        boundary=max(
            (depth for depth, level in enumerate(levels, start=1) if level.boundary), default=0
        ),
        path=path,
        real={node.name: node.fabric for node in snapshot.nodes},
        graph=graph,
    )


def _wish(snapshot: Snapshot, job: Job) -> tuple[Topology | None, Topology | None]:
    wish = job.topology
    if wish is None:
        return None, None
    relaxed = (
        wish.relax_after_seconds is not None and waited(snapshot, job) >= wish.relax_after_seconds
    )
    return (None, wish) if wish.mode == "preferred" or relaxed else (wish, None)


def required_depth(snapshot: Snapshot, job: Job, fabric: Tree) -> int:
    """Depth that a job of several tasks must reach; 0 if it may spread over the whole cluster."""
    if job.minimum < 2:
        return 0
    required, _ = _wish(snapshot, job)
    depth = fabric.depth_of(required.level) if required else 0
    return max(depth, fabric.boundary)


def domain_cap(job: Job, fabric: Tree) -> tuple[int, int]:
    """The most tasks of the job in a domain, and the depth of that; (0, 0) where nothing binds."""
    cap = job.max_tasks_per_domain
    if cap is None or cap.tasks >= job.minimum:
        return 0, 0
    return cap.tasks, fabric.depth_of(cap.level)


def slowdown_at(snapshot: Snapshot, job: Job, rates: Rates, fabric: Tree, depth: int) -> int:
    """L: thousandths of its time that a job loses if the finest domain it fits has that depth."""
    if depth > fabric.depth:
        return 0
    slow = rates.level_slowdown[depth] if job.communicates else 0
    if depth < preferred_depth(snapshot, job, fabric):
        slow += rates.missed
    return slow


def preferred_depth(snapshot: Snapshot, job: Job, fabric: Tree) -> int:
    """Depth that it would like to reach; 0 if it has no wish."""
    _, preferred = _wish(snapshot, job)
    return fabric.depth_of(preferred.level) if preferred else 0
