"""From counts to names: which job of a class, on which node, in which domain."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from trencadis.models import Job
from trencadis.solver.fabric import Domain
from trencadis.solver.ledger import Bundles, Ledger
from trencadis.solver.model.build import Model
from trencadis.solver.model.columns import counted_by_domain
from trencadis.solver.model.problem import Problem
from trencadis.solver.place_bins import fill_bins
from trencadis.solver.place_fillers import FillerPlacer
from trencadis.solver.shapes import Way


@dataclass(slots=True)
class Trouble:
    """What the counts promised and the nodes could not hold."""

    jobs: set[str] = field(default_factory=set)
    nodes: set[str] = field(default_factory=set)
    """Nodes of families whose pooled CPU or memory did not work out."""


def place(problem: Problem, model: Model, solution: Sequence[int], ledger: Ledger) -> Trouble:
    """Enters the counts of a solution into the ledger; returns what could not be placed.

    Counts may be short of each other (a relaxation rounded down): then what fits is placed.
    """
    placer = _Placer(problem, model, solution, ledger)
    placer.run()
    return placer.trouble


class _Placer:
    def __init__(
        self, problem: Problem, model: Model, solution: Sequence[int], ledger: Ledger
    ) -> None:
        self.problem, self.columns, self.x = problem, model.columns, solution
        self.ledger = ledger
        self.trouble = Trouble()
        self.eligible = problem.facts.values.eligible
        self.path = problem.facts.fabric.path
        self.places = fill_bins(problem, model, solution)
        for node in ledger.nodes.values():
            node.desk.forget()
        for name, recipe in self.places.recipes.items():
            ledger.nodes[name].desk.follow(recipe)
        self.need_index = {need: i for i, need in enumerate(problem.supply.needs)}
        self.located_index = {need: i for i, need in enumerate(problem.supply.located)}
        self.queues = self._flow_queues()

    def run(self) -> None:
        """Jobs with domains first, the finest first; then those that go anywhere."""
        going = self._assign_ways()
        ways = sorted(
            going,
            key=lambda way: (
                not counted_by_domain(self.problem, way),
                -max(way.depth, way.segment_depth) if way.depth else 0,
                -way.need.gpus,
                -way.count,
            ),
        )
        taken: dict[str, tuple[Way, list[str]]] = {}
        for way in ways:
            for job, nodes in self._nodes_for(way, going[way]):
                taken[job] = (way, nodes)
        self._settle(taken)

    def _flow_queues(self) -> dict[int, deque[str]]:
        """Hands the free slots to the needs that flow into them."""
        queues: defaultdict[int, deque[str]] = defaultdict(deque)
        for (need, family), column in sorted(self.columns.flows.items()):
            count = self.x[column]
            if count:
                c, s = self.problem.supply.flows[(family, need)][0]
                pool = self.places.free[(family, self.problem.supply.classes[c].slots[s])]
                for _ in range(min(count, len(pool))):
                    queues[need].append(pool.popleft())
        for need, queue in queues.items():
            # Neighbours next to each other: tasks of a job that may go anywhere stay close.
            queues[need] = deque(sorted(queue, key=lambda name: (self.path[name], name)))
        return queues

    def _assign_ways(self) -> dict[Way, list[str]]:
        """Which job goes which way: the heaviest get the cheapest."""
        demand = self.problem.demand
        by_shape: defaultdict[tuple[int, str | None], list[tuple[int, str]]] = defaultdict(list)
        worth = self.problem.facts.values.worth
        for index, cls in enumerate(demand.classes):
            number = sum(self.x[piece.column] for piece in self.columns.pieces[index])
            for m, member in enumerate(cls.members):
                models: list[str | None] = []
                for model in demand.shapes[member.shape].models():
                    column = self.columns.on_model.get((index, m, model or ""))
                    if column is not None:
                        models.extend([model] * self.x[column])
                for position, unit in enumerate(cls.units[:number]):
                    if models and position >= len(models):
                        break
                    fixed = models[position] if models else "*"
                    by_shape[(member.shape, fixed)].append((-worth[unit[m]].wait, unit[m]))
        going: defaultdict[Way, list[str]] = defaultdict(list)
        for s, shape in enumerate(demand.shapes):
            left = {
                a: self.x[self.columns.chosen[(s, a)]] for a in range(len(shape.alternatives))
            }
            order = sorted(left, key=lambda a: (shape.alternatives[a].cost, a))
            for fixed in (*shape.models(), "*"):
                for _, job in sorted(by_shape.get((s, fixed), ())):
                    ways = [
                        a for a in order
                        if left[a] and fixed in ("*", shape.alternatives[a].way.need.model)
                    ]
                    if ways:
                        left[ways[0]] -= 1
                        going[shape.alternatives[ways[0]].way].append(job)
        return going

    def _nodes_for(self, way: Way, jobs: list[str]) -> list[tuple[str, list[str]]]:
        """Nodes for the needs of each job; too few where the counts did not hold."""
        jobs = sorted(jobs)
        if not counted_by_domain(self.problem, way):
            index = self.need_index[way.need]
            if index in self.problem.supply.fillers:
                return [(job, []) for job in jobs]
            queue = self.queues.get(index, deque())
            return [(job, _draw(queue, way.count)) for job in jobs]
        index = self.located_index[way.need]
        if index in self.problem.supply.located_fillers:
            return [(job, []) for job in jobs]
        offered = self.places.located[index]
        found: list[tuple[str, list[str]]] = []
        rest = deque(jobs)
        segments = {
            domain: self.x[column]
            for domain, column in self.columns.segments.get(way, {}).items()
        }
        for domain, column in sorted(self.columns.places[way].items()):
            for _ in range(min(self.x[column], len(rest))):
                found.append((rest.popleft(), self._inside(way, domain, offered, segments)))
        return found

    def _inside(
        self,
        way: Way,
        domain: Domain,
        offered: dict[Domain, deque[str]],
        segments: dict[Domain, int],
    ) -> list[str]:
        if not way.segment:
            nodes: list[str] = []
            for fine in sorted(offered):
                if fine[: len(domain)] == domain:
                    nodes.extend(_draw(offered[fine], way.count - len(nodes)))
            return nodes
        if way.most:
            return self._apart(way, domain, offered, segments)
        nodes = []
        for where in sorted(segments):
            while segments[where] and where[: len(domain)] == domain and len(nodes) < way.count:
                segments[where] -= 1
                part: list[str] = []
                for fine in sorted(offered):
                    if fine[: len(where)] == where:
                        part.extend(_draw(offered[fine], way.segment - len(part)))
                nodes.extend(part)
        return nodes

    def _apart(
        self,
        way: Way,
        domain: Domain,
        offered: dict[Domain, deque[str]],
        left: dict[Domain, int],
    ) -> list[str]:
        """Each need where most are left, so that later jobs find enough domains as well."""
        nodes: list[str] = []
        used: Counter[Domain] = Counter()
        while len(nodes) < way.count:
            open_ = [
                where
                for where, number in left.items()
                if number and used[where] < way.most and where[: len(domain)] == domain
            ]
            if not open_:
                break
            where = min(open_, key=lambda where: (-left[where], where))
            used[where] += 1
            left[where] -= 1
            fine = (f for f in sorted(offered) if f[: len(where)] == where and offered[f])
            nodes.extend(offered[f].popleft() for f in [next(fine, None)] if f is not None)
        return nodes

    def _settle(self, taken: dict[str, tuple[Way, list[str]]]) -> None:
        """Enters what holds into the ledger: tasks with GPUs first, whole groups only."""
        solid: dict[str, tuple[Way, Bundles]] = {}
        fillers: list[tuple[str, Way]] = []
        for job, (way, nodes) in taken.items():
            if self._is_filler(way):
                fillers.append((job, way))
                continue
            if len(nodes) == way.count and self._take(job, way, nodes):
                solid[job] = (way, [(name, way.need) for name in nodes])
            else:
                self.trouble.jobs.add(job)
                if way.need.pieces:
                    self.trouble.nodes.update(nodes)
        self._settle_fillers(fillers, solid)
        groups: defaultdict[str, list[Job]] = defaultdict(list)
        for name in taken:
            member = self.eligible[name]
            groups[member.group or f"\n{name}"].append(member)
        size = Counter(job.group for job in self.eligible.values())
        for members in groups.values():
            # Counts that were rounded down may have sent some of a group nowhere at all.
            group = members[0].group
            whole = group is None or len(members) == size[group]
            whole = whole and all(member.name in solid for member in members)
            for member in members:
                if whole:
                    way, bundles = solid[member.name]
                    self.ledger.start(member, way.need.model, bundles)
                elif member.name in solid:
                    self.ledger.give_back(member.name, solid[member.name][1])

    def _settle_fillers(
        self, fillers: list[tuple[str, Way]], solid: dict[str, tuple[Way, Bundles]]
    ) -> None:
        """Tasks without GPUs, the largest first."""
        placer = FillerPlacer(self.ledger, self.places.reserve)
        fillers.sort(key=lambda entry: (-sum(entry[1].need.need), -entry[1].count, entry[0]))
        for job, way in fillers:
            nodes = placer.nodes(way, self.eligible[job])
            if nodes is not None and self._take(job, way, nodes):
                solid[job] = (way, [(name, way.need) for name in nodes])
                continue
            self.trouble.jobs.add(job)
            self.trouble.nodes.update(
                node.state.name
                for node in self.ledger.nodes.values()
                if way.need.columns >> node.column & 1
            )

    def _is_filler(self, way: Way) -> bool:
        return not way.need.on_gpus and not way.need.exclusive

    def _take(self, job: str, way: Way, nodes: list[str]) -> bool:
        """Puts the needs of a job on nodes, unless one of them doesn't fit after all."""
        most = self.eligible[job].max_tasks_per_node
        if most and max(Counter(nodes).values()) * way.need.sets > most:
            return False
        return self.ledger.take_all(job, [(name, way.need) for name in nodes])


def _draw(queue: deque[str], count: int) -> list[str]:
    return [queue.popleft() for _ in range(min(count, len(queue)))]
