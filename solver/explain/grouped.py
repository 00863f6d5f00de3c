"""Remedies for jobs that start together: whom to stop, how many more nodes, each asked as a whole.

A group is solved for each question, so on large clusters none is asked. What is found works, and
no job is stopped in vain, but cheaper sets may exist.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from trencadis.models import Job, Node
from trencadis.solver.explain.case import Case
from trencadis.solver.explain.changes import stopped, with_nodes
from trencadis.solver.explain.stop import Victims

MOST_NODES = 64
"""Larger clusters are not solved for each question."""
KINDS = 3
"""Kinds of node that are tried."""


def too_large(case: Case) -> bool:
    """Whether the cluster is too large to be solved many times over."""
    return len(case.snapshot.nodes) > MOST_NODES


def members(case: Case) -> list[Job]:
    """The waiting jobs of the group."""
    return [job for job in case.snapshot.jobs if job.name in case.unit]


@dataclass(frozen=True, slots=True)
class GroupStopper:
    """Finds victims for a whole group; the questions are those of `Stopper`."""

    case: Case

    def fits(
        self, _job: Job, gone: Sequence[str], _models: Collection[str | None]
    ) -> bool:
        """Whether the group starts once these jobs are gone."""
        return self.case.starts(stopped(self.case.base, gone))

    def cheapest(
        self, job: Job, models: Collection[str | None], costs: Mapping[str, int]
    ) -> Victims | None:
        """Cheap ones first, as many as it takes; then none that it doesn't take, the dearest
        first. `costs`: what stopping costs, by name of each job that may be stopped."""
        order = sorted(costs, key=lambda name: (costs[name], name))
        low, high = 1, len(order)
        while low < high:
            middle = (low + high) // 2
            if self.fits(job, order[:middle], models):
                high = middle
            else:
                low = middle + 1
        kept = order[:low]
        for name in sorted(kept, key=lambda name: (-costs[name], name)):
            rest = [other for other in kept if other != name]
            if rest and self.fits(job, rest, models):
                kept = rest
        names = tuple(sorted(kept))
        return Victims(names, sum(costs[name] for name in names), cheapest=len(names) == 1)


def more_nodes(case: Case) -> tuple[int, Node] | None:
    """The fewest nodes of one kind with which the group starts, of the kinds with the most GPUs."""
    kinds: dict[object, Node] = {}
    for node in sorted(case.base.nodes, key=lambda node: (-node.gpu_count, node.name)):
        if not node.mig:
            kinds.setdefault((node.gpus, tuple(node.labels.items()), node.taints), node)
    best: tuple[int, Node] | None = None
    for node in list(kinds.values())[:KINDS]:
        most = sum(job.minimum for job in members(case)) if best is None else best[0] - 1
        if most < 1 or not _enough(case, node, most):
            continue
        best = fewest(most, partial(_enough, case, node)), node
    return best


def fewest(most: int, enough: Callable[[int], bool]) -> int:
    """The least number from 1 on that is enough, where `most` is, and all above one that is."""
    return 1 + bisect_left(range(1, most), True, key=enough)


def _enough(case: Case, node: Node, count: int) -> bool:
    return case.starts(with_nodes(case.base, node.name, count))
