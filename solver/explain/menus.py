"""What stopping jobs frees on one node: the cheapest set of victims for each number of tasks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from trencadis.models import Job, Node, Snapshot, TaskAllocation
from trencadis.solver.capacity import Capacity, NodeState, node_state, vector
from trencadis.solver.room import fits
from trencadis.solver.shapes import Need

MOST_VICTIMS = 12
"""Victims of one node that are combined freely; of more, those that free the most for the cost."""
MOST_SETS = 4_096
"""Sets tried one by one on a node whose parts don't simply add up."""

Occupants = list[tuple[Job, TaskAllocation]]


@dataclass(frozen=True, slots=True)
class Menu:
    """One node: how many of a need fit now, and what more would cost."""

    node: str
    free: int
    """Needs that fit as it is."""
    more: tuple[tuple[int, int, tuple[str, ...]], ...]
    """(needs beyond `free`, cost, victims), ascending."""
    exact: bool
    """Whether each set is the cheapest."""


def occupants(snapshot: Snapshot) -> dict[str, Occupants]:
    """Who is on each node: running and draining tasks, and holds."""
    found: defaultdict[str, Occupants] = defaultdict(list)
    jobs = {job.name: job for job in snapshot.jobs}
    for job in snapshot.jobs:
        if job.on_nodes:
            for task in job.allocation:
                found[task.node].append((job, task))
    for hold in snapshot.delayed:
        for task in hold.allocation:
            # A hold is not its job's doing: it stays when a victim of that name would go.
            owner = jobs[hold.job].model_copy(update={"name": f"hold for {hold.job}"})
            found[task.node].append((owner, task))
    return dict(found)


def menu(
    node: Node,
    here: Occupants,
    need: Need,
    cap: int,
    costs: Mapping[str, int],
    supply: Capacity,
    parts: Snapshot | None = None,
) -> Menu | None:
    """The menu of a node; None if nothing fits whatever is stopped.

    `costs`: of the jobs that may be stopped. `cap`: the most needs on the node, 0 for any number.
    `parts`: as of `node_state`, for a need of slices or shares.
    """
    victims = sorted({job.name for job, _ in here if job.name in costs})
    exact = len(victims) <= MOST_VICTIMS
    if need.linked and node.nvlink.kind == "none":
        return None
    if _adds_up(node, here, need):
        sums = _Parts(node, here, need, victims, supply.resources)
        free, most = sums.number([], cap), sums.number(range(len(victims)), cap)
        if most <= free:
            return Menu(node.name, free, (), exact=True) if most else None
        chosen = list(range(len(victims))) if exact else sums.useful(costs)
        more = sums.cheapest(chosen, costs, cap, free)
    else:

        def room(gone: Sequence[str]) -> int:
            left = [(job, task) for job, task in here if job.name not in gone]
            if any(job.exclusive and job.on_nodes for job, _ in left):
                return 0
            state = node_state(node, left, supply, parts)
            number = fits(need, state, need.columns.bit_length() - 1)
            return min(number, cap) if cap else number

        free, most = room(()), room(victims)
        if most <= free:
            return Menu(node.name, free, (), exact=True) if most else None
        order = sorted(victims, key=lambda name: (costs[name], name))[:MOST_VICTIMS]
        more, whole = _tried(order, costs, room, free, most)
        exact = exact and whole
    if not exact and (not more or more[-1][0] < most - free):
        more = [*more, (most - free, sum(costs[name] for name in victims), tuple(victims))]
    return Menu(node.name, free, tuple(more), exact)


def _adds_up(node: Node, here: Occupants, need: Need) -> bool:
    """Whether what victims free on the node is the sum of what each of them frees."""
    known = node.precision != "node" and all(
        task.gpus is not None or not job.request.gpus for job, task in here
    )
    taken = Counter(index for _, task in here for index in task.gpus or ())
    return (
        known
        and max(taken.values(), default=0) <= 1
        and not need.exclusive
        and not need.pieces
        and not any(job.exclusive for job, _ in here)
        and not (need.linked and node.nvlink.kind == "links")
    )


class _Parts:
    """Additive figures of one node: GPUs of the need's model, then CPU, memory, resources."""

    def __init__(
        self,
        node: Node,
        here: Occupants,
        need: Need,
        victims: list[str],
        resources: tuple[str, ...],
    ) -> None:
        self.victims = victims
        healthy = node.healthy_gpus()
        mig = {entry.gpu for entry in node.mig}
        fit = {i for i, model in healthy.items() if model == need.model and i not in mig}
        self.each = np.array([need.gpus, *need.need], dtype=np.int64)
        have = (len(fit), node.cpu_milli, node.memory_mib)
        self.have = np.array(
            [*have, *(node.resources.get(name, 0) for name in resources)], dtype=np.int64
        )
        index = {name: i for i, name in enumerate(victims)}
        self.frees = np.zeros((len(victims), len(self.each)), dtype=np.int64)
        for job, task in here:
            takes = [sum(1 for i in task.gpus or () if i in fit), *vector(job, resources)]
            self.have -= takes
            if job.name in index:
                self.frees[index[job.name]] += takes
        self.bound = need.cap

    def number(self, gone: Sequence[int], cap: int) -> int:
        """How many needs fit once some victims are gone; `cap`: the most, 0 for any number."""
        left = self.have + self.frees[list(gone)].sum(axis=0)
        used = self.each > 0
        number = int((np.maximum(0, left[used]) // self.each[used]).min()) if used.any() else 0
        bounds = [bound for bound in (cap, self.bound) if bound]
        if not used.any():
            return min(bounds, default=0)
        return min([number, *bounds])

    def useful(self, costs: Mapping[str, int]) -> list[int]:
        """The victims that free the most of what is short for their cost."""
        short = np.maximum(1, self.each - np.maximum(0, self.have))
        worth = (np.minimum(self.frees, short) * 1_000 // short)[:, self.each > 0].sum(axis=1)
        order = sorted(
            range(len(self.victims)),
            key=lambda i: (-int(worth[i]) / costs[self.victims[i]], self.victims[i]),
        )
        return sorted(order[:MOST_VICTIMS])

    def cheapest(
        self, chosen: list[int], costs: Mapping[str, int], cap: int, free: int
    ) -> list[tuple[int, int, tuple[str, ...]]]:
        """For each number of further needs the cheapest set among the chosen victims."""
        freed: npt.NDArray[np.int64] = np.zeros((1, len(self.each)), dtype=np.int64)
        price: npt.NDArray[np.int64] = np.zeros(1, dtype=np.int64)
        for i in chosen:
            freed = np.concatenate([freed, freed + self.frees[i]])
            price = np.concatenate([price, price + costs[self.victims[i]]])
        used = self.each > 0
        left = np.maximum(0, self.have + freed)[:, used]
        number = (left // self.each[used]).min(axis=1)
        for bound in (cap, self.bound):
            if bound:
                number = np.minimum(number, bound)
        found = []
        for k in range(free + 1, int(number.max()) + 1):
            enough = np.flatnonzero(number >= k)
            best = int(enough[np.argmin(price[enough])])
            names = tuple(self.victims[i] for bit, i in enumerate(chosen) if best >> bit & 1)
            found.append((k - free, int(price[best]), names))
        return found


def _tried(
    order: Sequence[str],
    costs: Mapping[str, int],
    room: Callable[[Sequence[str]], int],
    free: int,
    most: int,
) -> tuple[list[tuple[int, int, tuple[str, ...]]], bool]:
    """Sets in the order of cost, each asked exactly; and whether all were tried that matter."""
    best: dict[int, tuple[int, tuple[str, ...]]] = {}
    sets = sorted(_sets(order, costs))
    for price, names in sets[:MOST_SETS]:
        number = room(names)
        for k in range(free + 1, number + 1):
            best.setdefault(k - free, (price, names))
        if number >= most:
            break
    return [(k, *best[k]) for k in sorted(best)], len(sets) <= MOST_SETS


def _sets(
    order: Sequence[str], costs: Mapping[str, int]
) -> Iterator[tuple[int, tuple[str, ...]]]:
    for size in range(1, len(order) + 1):
        for names in combinations(order, size):
            yield sum(costs[name] for name in names), names


States = dict[tuple[str, tuple[str, ...]], NodeState | None]
"""By node and the names of those who left it; None where an exclusive job keeps it."""


def states_without(
    snapshot: Snapshot,
    here: Mapping[str, Occupants],
    gone: Sequence[str],
    supply: Capacity,
    known: States | None = None,
    *,
    parts: bool = False,
) -> list[NodeState]:
    """The nodes that take work once some jobs are gone; with GPUs in parts if `parts`.

    `known`: states worked out before, with the same `parts`.
    """
    states, leaving = [], frozenset(gone)
    known = {} if known is None else known
    for node in sorted(snapshot.nodes, key=lambda node: node.name):
        if node.down or node.cordoned:
            continue
        on = here.get(node.name, [])
        key = (node.name, tuple(job.name for job, _ in on if job.name in leaving))
        if key not in known:
            left = [(job, task) for job, task in on if job.name not in leaving]
            closed = any(job.exclusive and job.on_nodes for job, _ in left)
            known[key] = (
                None if closed else node_state(node, left, supply, snapshot if parts else None)
            )
        state = known[key]
        if state is not None:
            states.append(state)
    return states
