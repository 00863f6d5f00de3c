"""What nodes have left for further tasks, and which jobs may use them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trencadis.models import TaskAllocation
from trencadis.solver.admission import admission
from trencadis.solver.capacity import NodeState
from trencadis.solver.elastic.jobs import Grower
from trencadis.solver.fabric import Domain
from trencadis.solver.model.problem import Facts
from trencadis.solver.score import Left


@dataclass(slots=True)
class Rest:
    """What a node has left."""

    state: NodeState
    idle: dict[str, list[int]]
    free: list[int]

    def fits(self, grower: Grower) -> int:
        """How many further tasks of a job find room."""
        most = grower.job.tasks
        for want, have in zip(grower.need, self.free, strict=True):
            if want:
                most = min(most, have // want)
        if grower.gpus:
            most = min(most, len(self.idle.get(grower.model or "", ())) // grower.gpus)
        return most

    def take(self, grower: Grower) -> TaskAllocation:
        """Gives the job a task here, on the lowest idle indices."""
        self.free = [have - want for have, want in zip(self.free, grower.need, strict=True)]
        named: tuple[int, ...] | None = ()
        if grower.gpus:
            pool = self.idle[grower.model or ""]
            named = None if self.state.counted else tuple(pool[: grower.gpus])
            del pool[: grower.gpus]
        return TaskAllocation(node=self.state.name, gpus=named)


@dataclass(slots=True)
class Apart:
    """How many more tasks a job may have in each domain of a depth."""

    path: Mapping[str, Domain]
    depth: int
    most: int
    used: Counter[Domain]

    def domain(self, node: str) -> Domain:
        """The domain of a node."""
        return self.path[node][: self.depth]

    def left(self, node: str) -> int:
        """How many it may have in the node's domain."""
        return max(0, self.most - self.used[self.domain(node)])


def _apart(read: Facts, grower: Grower) -> Apart | None:
    cap, fabric = grower.job.max_tasks_per_domain, read.fabric
    if cap is None:
        return None
    depth = fabric.depth_of(cap.level)
    used = Counter(fabric.path[task.node][:depth] for task in grower.has)
    return Apart(fabric.path, depth, cap.tasks, used)


class Nodes:
    """The nodes that have anything left."""

    def __init__(self, read: Facts, left: Mapping[str, Left], growers: Sequence[Grower]) -> None:
        self.read, self.left = read, left
        self.growers = growers
        self.states = {
            state.name: state
            for state in read.capacity.states
            if state.name in left and not left[state.name].exclusive
        }
        nodes = [state.node for state in self.states.values()]
        admitted = admission(
            read.snapshot, [grower.job for grower in growers], nodes, read.kept.for_growth()
        )
        by_domain: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
        depths = {grower.reach for grower in growers}
        for name in self.states:
            for depth in depths:
                key = (name,) if depth > read.fabric.depth else read.fabric.path[name][:depth]
                by_domain[(str(depth), *key)].append(name)
        fresh = self.fresh()
        self.apart: list[Apart | None] = [_apart(read, grower) for grower in growers]
        """By grower: how many further tasks it may have by domain; None: as many as fit."""
        self.room: list[dict[str, int]] = []
        """By grower: nodes on which it may have further tasks, and how many fit at most."""
        for grower, apart in zip(growers, self.apart, strict=True):
            mask = admitted.masks[grower.job.name]
            here = Counter(task.node for task in grower.has)
            found: dict[str, int] = {}
            for name in by_domain[(str(grower.reach), *grower.domain)]:
                if not mask >> admitted.column[name] & 1 or not self._linked(grower, name):
                    continue
                most = fresh[name].fits(grower)
                if grower.job.max_tasks_per_node is not None:
                    most = min(most, grower.job.max_tasks_per_node - here[name])
                if apart is not None:
                    most = min(most, apart.left(name))
                if most > 0:
                    found[name] = min(most, len(grower.values))
            self.room.append(found)

    def _linked(self, grower: Grower, name: str) -> bool:
        needs = grower.job.nvlink_required and grower.gpus > 1
        return not needs or self.states[name].node.nvlink.kind == "nvswitch"

    def fresh(self) -> dict[str, Rest]:
        """What is left before any further task."""
        return {
            name: Rest(
                state,
                {model: list(gpus) for model, gpus in self.left[name].idle.items()},
                list(self.left[name].free),
            )
            for name, state in self.states.items()
        }
