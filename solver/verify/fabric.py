"""How near nodes are to each other, and how near a job's must be (problem.md, 3)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from trencadis.models import Job, Node, Snapshot

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Levels:
    """The levels of the fabric, and what the policy charges at each."""

    names: tuple[str, ...]
    boundary: int
    """Depth of the finest boundary level; 0 where there is none."""
    slowdown: tuple[int, ...]
    """By depth from 0: the largest slowdown of a level of this depth or deeper; 0 on one node."""

    @property
    def node(self) -> int:
        """The depth of one node, D + 1."""
        return len(self.names) + 1

    def depth(self, level: str) -> int:
        """The depth of a level, or of `node`. KeyError where unknown."""
        if level == "node":
            return self.node
        if level not in self.names:
            raise KeyError(level)
        return self.names.index(level) + 1

    def name(self, depth: int) -> str:
        """The level's name at this depth."""
        return "cluster" if depth == 0 else ("node", *reversed(self.names))[self.node - depth]

    def required(self, job: Job, waited: int) -> int:
        """The least depth that the job must reach."""
        if job.minimum < 2:
            return 0
        topology = job.topology
        wished = 0
        if topology and topology.mode == "required" and not relaxed(job, waited):
            wished = self.depth(topology.level)
        return max(wished, self.boundary)

    def preferred(self, job: Job, waited: int) -> int:
        """The least depth at which no preference is missed."""
        topology = job.topology
        if topology and (topology.mode == "preferred" or relaxed(job, waited)):
            return self.depth(topology.level)
        return 0


def relaxed(job: Job, waited: int) -> bool:
    """Whether a required level has become a preferred one."""
    topology = job.topology
    return (
        topology is not None
        and topology.mode == "required"
        and topology.relax_after_seconds is not None
        and waited >= topology.relax_after_seconds
    )


def levels_of(snapshot: Snapshot) -> Levels:
    """The snapshot's fabric."""
    levels = snapshot.fabric.levels
    slowdown = [snapshot.policy.slowdown("cluster")]
    slowdown += [snapshot.policy.slowdown(level.kind or level.name) for level in levels]
    worst = [0]
    for value in reversed(slowdown):
        worst.append(max(worst[-1], value))
    return Levels(
        names=tuple(level.name for level in levels),
        boundary=max((i for i, level in enumerate(levels, 1) if level.boundary), default=0),
        slowdown=tuple(reversed(worst)),
    )


def common(levels: Levels, nodes: Iterable[Node]) -> tuple[int, Path]:
    """Depth and path of the finest domain that holds these nodes."""
    first, *others = {node.name: node for node in nodes}.values()
    if not others:
        return levels.node, (*first.fabric, first.name)
    length = min(len(node.fabric) for node in (first, *others))
    while length and any(node.fabric[:length] != first.fabric[:length] for node in others):
        length -= 1
    return length, first.fabric[:length]


def domain(levels: Levels, node: Node, depth: int) -> Path:
    """The domain of a node at a depth; a node whose path is shorter has none but itself."""
    if depth >= levels.node or len(node.fabric) < depth:
        return (*node.fabric, "", node.name)
    return node.fabric[:depth]
