"""The cheapest running jobs to stop so that a job fits: exact menus per node, combined per domain.

A job that takes one need goes to the node with the cheapest menu. One of several needs takes, in
each domain that may hold it, the cheapest mix of menus (a knapsack with one choice per node, solved
by dynamic programming). A victim on several nodes is paid for on each: then the result is an upper
bound, and is marked as not proven cheapest.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from trencadis.models import Job, Snapshot
from trencadis.solver.capacity import NodeState
from trencadis.solver.explain.menus import Menu, States, menu, occupants, states_without
from trencadis.solver.explain.place import Place
from trencadis.solver.fabric import Domain
from trencadis.solver.shapes import Way

FAR = 1 << 60


@dataclass(frozen=True, slots=True)
class Victims:
    """Jobs to stop."""

    names: tuple[str, ...]
    cost: int
    cheapest: bool


class Stopper:
    """Finds victims on the nodes of a snapshot."""

    def __init__(self, snapshot: Snapshot, place: Place, *, parts: bool = False) -> None:
        """`parts`: where GPUs in parts matter to the job."""
        self.snapshot, self.place = snapshot, place
        self.parts = snapshot if parts else None
        self.supply = place.supply
        self.here = occupants(snapshot)
        self._known: States = {}
        self.nodes = {
            node.name: node
            for node in sorted(snapshot.nodes, key=lambda node: node.name)
            if not (node.down or node.cordoned)
        }

    def _states(self, gone: Sequence[str]) -> list[NodeState]:
        return states_without(
            self.snapshot, self.here, gone, self.supply, self._known,
            parts=self.parts is not None,
        )

    def cheapest(
        self, job: Job, models: Iterable[str | None], costs: Mapping[str, int]
    ) -> Victims | None:
        """The cheapest victims for which the job fits on one of the models; None if there are none.

        `costs`: what stopping costs, by name of each job that may be stopped.
        """
        allowed = set(models)
        look = self.place.look(job, self.place.supply.empty)
        best: Victims | None = None
        for alternative in look.ways:
            way = alternative.way
            if way.need.model not in allowed or way.segment or not way.need.columns:
                continue
            open_ = [n for n in self.nodes if way.need.columns >> look.column[n] & 1]
            found = self._for_way(job, way, open_, costs)
            if found is not None and (best is None or found.cost < best.cost):
                best = found
        if best is None and any(alternative.way.segment for alternative in look.ways):
            best = self._by_order(job, allowed, costs)
        return None if best is None else self._fewer(job, best, allowed, costs)

    def most_on_a_node(self, job: Job, names: Sequence[str]) -> int:
        """The most GPUs of one model, idle or freed, that a node has if these jobs stop."""
        states = self._states(names)
        look = self.place.look(job, states)
        return max(
            (
                state.takes(alternative.way.need.model)
                for alternative in look.ways
                for state, column, _ in look.room.groups
                if alternative.way.need.columns >> column & 1
            ),
            default=0,
        )

    def _for_way(
        self, job: Job, way: Way, open_: Sequence[str], costs: Mapping[str, int]
    ) -> Victims | None:
        cap = 0
        if job.max_tasks_per_node is not None:
            cap = max(1, job.max_tasks_per_node // way.need.sets)
        if way.depth > self.place.fabric.depth or way.count == 1:
            return self._on_a_node(way, open_, cap, costs)
        menus = []
        for name in open_:
            here = self.here.get(name, [])
            found = menu(
                self.nodes[name], here, way.need, cap, costs, self.supply, self.parts
            )
            if found is not None:
                menus.append(found)
        exact = all(entry.exact for entry in menus)
        depth = way.depth
        domains: defaultdict[Domain, list[Menu]] = defaultdict(list)
        for entry in menus:
            domains[self.place.fabric.path[entry.node][:depth]].append(entry)
        best: tuple[int, tuple[str, ...]] | None = None
        for domain in sorted(domains):
            found_here = _mix(domains[domain], way.count)
            if found_here is not None and (best is None or found_here < best):
                best = found_here
        if best is None:
            return None
        spans = Counter(
            name for m in menus for name in {n for _, _, names in m.more for n in names}
        )
        alone = max(spans.values(), default=1) == 1
        return Victims(best[1], sum(costs[name] for name in best[1]), exact and alone)

    def _on_a_node(
        self, way: Way, open_: Sequence[str], cap: int, costs: Mapping[str, int]
    ) -> Victims | None:
        """The node with the cheapest menu; those whose cheapest victim costs more are left out."""
        least = {
            name: min(
                (costs[job.name] for job, _ in self.here.get(name, []) if job.name in costs),
                default=None,
            )
            for name in open_
        }
        best: tuple[int, tuple[str, ...]] | None = None
        exact = True
        for price, name in sorted((price, name) for name, price in least.items() if price):
            if best is not None and price > best[0]:
                break
            here = self.here[name]
            found = menu(
                self.nodes[name], here, way.need, cap, costs, self.supply, self.parts,
                first_below=FAR if best is None else best[0] + 1,
            )
            if found is None or found.free or not found.more:
                continue
            exact = exact and found.exact
            entry = found.more[0][1:]
            best = entry if best is None else min(best, entry)
        return None if best is None else Victims(best[1], best[0], exact)

    def _by_order(
        self, job: Job, allowed: set[str | None], costs: Mapping[str, int]
    ) -> Victims | None:
        """Cheap ones first, as many as it takes: for shapes that menus don't combine."""
        order = sorted(costs, key=lambda name: (costs[name], name))
        if not self.fits(job, order, allowed):
            return None
        low, high = 0, len(order)
        while low < high:
            middle = (low + high) // 2
            if self.fits(job, order[:middle], allowed):
                high = middle
            else:
                low = middle + 1
        names = tuple(sorted(order[:low]))
        return Victims(names, sum(costs[name] for name in names), cheapest=False)

    def fits(
        self, job: Job, gone: Sequence[str], allowed: Collection[str | None]
    ) -> bool:
        """Whether the job fits on one of the models once these jobs are gone."""
        states = self._states(gone)
        return self.place.fits(job, states, allowed)

    def _fewer(
        self, job: Job, found: Victims, allowed: set[str | None], costs: Mapping[str, int]
    ) -> Victims:
        """Leaves out victims that turn out not to be needed; asks again at most 40 times."""
        if found.cheapest:
            return found
        kept = list(found.names)
        for name in sorted(found.names, key=lambda name: (-costs[name], name))[:40]:
            rest = [other for other in kept if other != name]
            if self.fits(job, rest, allowed):
                kept = rest
        return Victims(tuple(kept), sum(costs[name] for name in kept), cheapest=False)


def _mix(menus: Sequence[Menu], count: int) -> tuple[int, tuple[str, ...]] | None:
    """The cheapest choice, one entry per menu at most, that makes room for `count` needs."""
    missing = count - sum(entry.free for entry in menus)
    if missing <= 0:
        return None
    offers = [entry for entry in menus if entry.more]
    if sum(entry.more[-1][0] for entry in offers) < missing:
        return None
    cost = [0, *[FAR] * missing]
    taken: list[list[int]] = []
    for entry in offers:
        best, choice = cost.copy(), [-1] * (missing + 1)
        for index, (more, price, _) in enumerate(entry.more):
            for target in range(1, missing + 1):
                value = cost[max(0, target - more)] + price
                if value < best[target]:
                    best[target], choice[target] = value, index
        cost = best
        taken.append(choice)
    names: set[str] = set()
    left = missing
    for entry, choice in zip(reversed(offers), reversed(taken), strict=True):
        if left > 0 and choice[left] >= 0:
            more, _, victims = entry.more[choice[left]]
            names.update(victims)
            left = max(0, left - more)
    return cost[missing], tuple(sorted(names))

