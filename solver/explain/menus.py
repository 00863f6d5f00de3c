"""What stopping jobs frees on one node: the cheapest set of victims for each number of tasks."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from trencadis.models import Job, Node, Snapshot, TaskAllocation
from trencadis.solver.capacity import Capacity, NodeState, node_state
from trencadis.solver.explain.sums import MOST_VICTIMS, Sums
from trencadis.solver.room import fits
from trencadis.solver.shapes import Need

MOST_SETS = 1_024
"""Sets tried one by one on a node whose parts don't simply add up, the cheapest first."""

Occupants = list[tuple[Job, TaskAllocation]]
HOLD = "hold for "
"""What the names of holds begin with, among occupants."""


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
            owner = jobs[hold.job].model_copy(update={"name": f"{HOLD}{hold.job}"})
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
    first_below: int | None = None,
) -> Menu | None:
    """The menu of a node; None if nothing fits whatever is stopped.

    `costs`: of the jobs that may be stopped. `cap`: the most needs on the node, 0 for any number.
    `parts`: as of `node_state`, where GPUs in parts matter. `first_below`: only one need more
    matters, and only if it costs less than this.
    """
    victims = sorted({job.name for job, _ in here if job.name in costs})
    exact = len(victims) <= MOST_VICTIMS
    if need.linked and node.nvlink.kind == "none":
        return None
    # What GPUs in MIG mode may be turned into depends on who is left.
    if _adds_up(node, here, need) and not (node.mig and need.gpus and parts is not None):
        sums = Sums(node, here, need, victims, supply.resources)
        free, most = sums.number((), cap), sums.number(victims, cap)
        if most <= free:
            return Menu(node.name, free, (), exact=True) if most else None
        more = sums.cheapest(costs, cap, free)
    else:

        def room(gone: Collection[str]) -> int:
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
        enough = most if first_below is None else free + 1
        more, whole = _tried(order, costs, room, free, enough, first_below)
        # Sets with a victim that was left out cost no less than the dearest that wasn't.
        exact = whole and (exact or all(price <= costs[order[-1]] for _, price, _ in more))
    if not exact and (not more or more[-1][0] < most - free):
        more = [*more, (most - free, sum(costs[name] for name in victims), tuple(victims))]
    return Menu(node.name, free, tuple(more), exact)


def _adds_up(node: Node, here: Occupants, need: Need) -> bool:
    """Whether GPUs, CPU and memory that victims leave on the node can be counted one by one."""
    known = node.precision != "node" and all(
        task.gpus is not None or not job.request.gpus for job, task in here
    )
    return (
        known
        and not need.exclusive
        and not need.pieces
        and not any(job.exclusive for job, _ in here)
        and not (need.linked and node.nvlink.kind == "links")
    )


def _tried(
    order: Sequence[str],
    costs: Mapping[str, int],
    room: Callable[[Collection[str]], int],
    free: int,
    enough: int,
    below: int | None,
) -> tuple[list[tuple[int, int, tuple[str, ...]]], bool]:
    """Sets in the order of cost, each asked exactly; and whether all were tried that matter."""
    best: dict[int, tuple[int, tuple[str, ...]]] = {}
    for tried, (price, names) in enumerate(cheapest_first(order, costs)):
        if below is not None and price >= below:
            break
        if tried == MOST_SETS:
            return [(k, *best[k]) for k in sorted(best)], False
        number = room(names)
        for k in range(free + 1, number + 1):
            best.setdefault(k - free, (price, names))
        if number >= enough:
            break
    return [(k, *best[k]) for k in sorted(best)], True


def cheapest_first(
    order: Sequence[str], costs: Mapping[str, int]
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """All sets but the empty one, ascending by cost, one at a time. `order`: ascending by cost."""
    if not order:
        return
    # From a set whose dearest member is the i-th come two: with the next one added, and with it
    # instead of the i-th. So each set comes once, and after a cheaper one.
    heap: list[tuple[int, tuple[int, ...]]] = [(costs[order[0]], (0,))]
    while heap:
        price, found = heapq.heappop(heap)
        yield price, tuple(order[i] for i in found)
        after = found[-1] + 1
        if after < len(order):
            dearer = price + costs[order[after]]
            heapq.heappush(heap, (dearer, (*found, after)))
            instead = dearer - costs[order[found[-1]]]
            heapq.heappush(heap, (instead, (*found[:-1], after)))


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
