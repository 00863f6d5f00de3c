"""Domains of the nodes by level, and what distance costs a gang."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from trencadis.models import Job, Snapshot, TaskAllocation


class Fabric:
    """Domain numbers by node and depth; depth 0 is the cluster, depth D + 1 a node."""

    def __init__(self, snapshot: Snapshot) -> None:
        levels = snapshot.fabric.levels
        self.depth = len(levels)
        self.row = {node.name: i for i, node in enumerate(snapshot.nodes)}
        self.level = {level.name: i for i, level in enumerate(levels, start=1)}
        self.level["node"] = self.depth + 1
        self.boundary = max((i for i, level in enumerate(levels, 1) if level.boundary), default=0)
        domains = np.zeros((len(snapshot.nodes), self.depth + 2), dtype=np.int64)
        for depth in range(1, self.depth + 2):
            seen: dict[tuple[str, ...], int] = {}
            for i, node in enumerate(snapshot.nodes):
                # A node outside of a level is a domain of its own there.
                path = node.fabric[:depth]
                if depth > len(node.fabric):
                    path = (*path, f"~{node.name}")
                domains[i, depth] = seen.setdefault(path, len(seen))
        self.domains: npt.NDArray[np.int64] = domains
        """Shape (nodes, depth + 2)."""
        policy = snapshot.policy
        kinds = ["cluster", *(level.kind or level.name for level in levels)]
        own = [policy.slowdown(kind) for kind in kinds]
        self.slowdown = [max(own[depth:]) for depth in range(len(own))] + [0]
        """Thousandths lost by depth of the finest common domain; 0 on one node."""
        self.pcie = policy.slowdown("pcie")

    def common_depth(self, allocation: Iterable[TaskAllocation]) -> int:
        """Depth of the finest domain that holds all tasks."""
        rows = sorted({self.row[task.node] for task in allocation})
        for depth in range(self.depth + 1, 0, -1):
            column = self.domains[rows, depth]
            if (column == column[0]).all():
                return depth
        return 0

    def required_depth(self, job: Job, waited: int) -> int:
        """Depth that a gang must reach."""
        if job.minimum < 2:
            return 0
        wish = job.topology
        if wish is None or wish.mode == "preferred":
            return self.boundary
        if wish.relax_after_seconds is not None and waited >= wish.relax_after_seconds:
            return self.boundary
        return max(self.boundary, self.level[wish.level])

    def slowdown_of(self, job: Job, allocation: tuple[TaskAllocation, ...]) -> int:
        """Thousandths of its time that a job on these nodes loses to the network."""
        if len(allocation) < 2 or not job.communicates:
            return 0
        return self.slowdown[self.common_depth(allocation)]
