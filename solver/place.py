"""From counts to names: which job of a class, on which node, in which domain."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from trencadis.models import Job
from trencadis.solver.demand import Need, Way
from trencadis.solver.fabric import Domain
from trencadis.solver.ledger import Bundles, Ledger
from trencadis.solver.model.build import Model
from trencadis.solver.model.columns import counted_by_domain, located_part
from trencadis.solver.model.problem import Problem
from trencadis.solver.patterns.whole import Slot
from trencadis.solver.room import UNBOUNDED


@dataclass(slots=True)
class Trouble:
    """What the counts promised and the nodes could not hold."""

    jobs: set[str] = field(default_factory=set)
    nodes: set[str] = field(default_factory=set)
    """Nodes of families whose pooled CPU or memory did not work out."""


@dataclass(slots=True)
class _Places:
    """Free places by what they are for."""

    free: defaultdict[tuple[int, Slot], deque[str]]
    """(family, slot) -> node names."""
    located: defaultdict[int, defaultdict[Domain, deque[str]]]
    """Located need -> domain -> node names."""


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
        self._pool_idle: dict[str, Counter[str]] = {}
        self._filler_queues: dict[tuple[Need, bool], deque[str]] = {}
        self.reserve: dict[str, tuple[int, ...]] = {}
        self.eligible = problem.facts.values.eligible
        self.path = problem.facts.fabric.path
        self.places = self._fill_bins()
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

    def _fill_bins(self) -> _Places:
        """Gives each bin its pattern."""
        places = _Places(
            free=defaultdict(deque), located=defaultdict(lambda: defaultdict(deque))
        )
        supply = self.problem.supply
        patterns: defaultdict[int, list[int]] = defaultdict(list)
        for (c, p), column in self.columns.fills.items():
            patterns[c].extend([p] * self.x[column])
        parts: defaultdict[tuple[int, object], deque[Domain]] = defaultdict(deque)
        for (c, domain, part), column in self.columns.parts.items():
            parts[(c, part)].extend([domain] * self.x[column])
        for c, chosen in patterns.items():
            cls = supply.classes[c]
            assert cls.patterns is not None
            by_domain = {d: deque(s.name for s in states) for d, states in cls.cells.items()}
            pending: list[int] = []
            used: set[str] = set()
            for p in chosen:
                part = located_part(cls, cls.patterns[p])
                if not part:
                    pending.append(p)
                    continue
                if parts[(c, part)]:
                    name = by_domain[parts[(c, part)].popleft()].popleft()
                    used.add(name)
                    self._open(places, c, p, name)
            rest = [state.name for state in cls.nodes if state.name not in used]
            for p, name in zip(pending, rest, strict=False):
                self._open(places, c, p, name)
        for (c, s, domain), column in self.columns.pooled.items():
            self._open_pool(places, c, s, domain, self.x[column])
        return places

    def _open(self, places: _Places, c: int, p: int, name: str) -> None:
        cls = self.problem.supply.classes[c]
        assert cls.patterns is not None
        pattern = cls.patterns[p]
        self.reserve[name] = pattern.reserve
        for s, number in pattern.counts:
            slot = cls.slots[s]
            if slot.located < 0:
                places.free[(cls.family, slot)].extend([name] * number)
            else:
                domain = self.path[name][: self.problem.supply.grain]
                places.located[slot.located][domain].extend([name] * number)

    def _open_pool(self, places: _Places, c: int, s: int, domain: Domain, count: int) -> None:
        """A pooled class promises slots without saying on which node: first fit decides."""
        cls = self.problem.supply.classes[c]
        slot = cls.slots[s]
        states = cls.nodes if slot.located < 0 else cls.cells[domain]
        left = count
        for state in states:
            if left <= 0 or not slot.gpus:
                break
            idle = self._pool_idle.setdefault(state.name, Counter(cls.type.counts()))
            number = min(left, idle[slot.model or ""] // slot.gpus)
            idle[slot.model or ""] -= number * slot.gpus
            left -= number
            if slot.located < 0:
                places.free[(cls.family, slot)].extend([state.name] * number)
            else:
                places.located[slot.located][domain].extend([state.name] * number)

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
        fillers.sort(key=lambda entry: (-sum(entry[1].need.need), -entry[1].count, entry[0]))
        for job, way in fillers:
            nodes = self._fill(way, self.eligible[job])
            if nodes is not None and self._take(job, way, nodes):
                solid[job] = (way, [(name, way.need) for name in nodes])
            else:
                self.trouble.jobs.add(job)
                self.trouble.nodes.update(
                    node.state.name
                    for node in self.ledger.nodes.values()
                    if way.need.columns >> node.column & 1
                )
        groups: defaultdict[str, list[Job]] = defaultdict(list)
        for name in taken:
            job = self.eligible[name]
            groups[job.group or f"\n{name}"].append(job)
        for members in groups.values():
            if all(job.name in solid for job in members):
                for job in members:
                    way, bundles = solid[job.name]
                    self.ledger.start(job, way.need.model, bundles)
            else:
                for job in members:
                    if job.name in solid:
                        self.ledger.give_back(job.name, solid[job.name][1])

    def _is_filler(self, way: Way) -> bool:
        return not way.need.gpus and not way.need.exclusive

    def _take(self, job: str, way: Way, nodes: list[str]) -> bool:
        """Puts the needs of a job on nodes, unless one of them doesn't fit after all."""
        most = self.eligible[job].max_tasks_per_node
        if most and max(Counter(nodes).values()) * way.need.sets > most:
            return False
        done: Bundles = []
        for name in nodes:
            node = self.ledger.nodes[name]
            mine = way.need.exclusive and any(other == job for other, _ in node.taken)
            if not (self._fits_again(way, name) if mine else self.ledger.fits(way.need, node)):
                self.ledger.give_back(job, done)
                return False
            self.ledger.take(job, way.need, name)
            done.append((name, way.need))
        return True

    def _fits_again(self, way: Way, name: str) -> bool:
        """Whether another task of an exclusive job fits on the node that it has already."""
        node = self.ledger.nodes[name]
        return node.idle.get(way.need.model or "", 0) >= way.need.gpus and all(
            want <= have for want, have in zip(way.need.need, node.free, strict=True)
        )

    def _fill(self, way: Way, job: Job) -> list[str] | None:
        """Nodes for tasks without GPUs: first where fragmentation does not suffer."""
        cap = (job.max_tasks_per_node or way.count * way.need.sets) // way.need.sets
        for keep in (True, False):
            if way.segment or 1 <= way.depth <= self.problem.facts.fabric.depth:
                found = self._fill_domain(way, cap, keep)
            else:
                found = self._fill_anywhere(way, cap, keep)
            if found is not None:
                return found
        return None

    def _fill_anywhere(self, way: Way, cap: int, keep: bool) -> list[str] | None:
        """Nodes only fill up here, so a full one leaves the queue for good."""
        key = (way.need, keep)
        if key not in self._filler_queues:
            names = sorted(self.ledger.nodes, key=self._idle_first)
            self._filler_queues[key] = deque(n for n in names if self._room(way.need, n, keep))
        queue = self._filler_queues[key]
        found: list[str] = []
        for name in list(queue):
            number = self._room(way.need, name, keep)
            if number == 0:
                queue.remove(name)
            found.extend([name] * min(number, cap, way.count - len(found)))
            if len(found) == way.count:
                return found
        return None

    def _fill_domain(self, way: Way, cap: int, keep: bool) -> list[str] | None:
        fine = way.segment_depth if way.segment else way.depth
        piece = way.segment or way.count
        parts: defaultdict[Domain, list[str]] = defaultdict(list)
        for name in self.ledger.nodes:
            number = min(cap, self._room(way.need, name, keep))
            parts[self.path[name][:fine]].extend([name] * number)
        wide: defaultdict[Domain, list[str]] = defaultdict(list)
        for domain in sorted(parts):
            whole = len(parts[domain]) // piece * piece
            wide[domain[: way.depth]].extend(parts[domain][:whole])
        for domain in sorted(wide):
            if len(wide[domain]) >= way.count:
                return wide[domain][: way.count]
        return None

    def _idle_first(self, name: str) -> tuple[int, str]:
        return (sum(self.ledger.nodes[name].idle.values()), name)

    def _room(self, need: Need, name: str, keep: bool) -> int:
        number = self.ledger.fits(need, self.ledger.nodes[name])
        return min(number, self._spare(need, name)) if keep and number else number

    def _spare(self, need: Need, name: str) -> int:
        """How many fit if what the pattern keeps for fragmentation stays free."""
        reserve = self.reserve.get(name, (0,) * len(need.need))
        free = self.ledger.nodes[name].free
        return min(
            (
                max(0, have - keep) // want
                for want, have, keep in zip(need.need, free, reserve, strict=True)
                if want
            ),
            default=UNBOUNDED,
        )


def _draw(queue: deque[str], count: int) -> list[str]:
    return [queue.popleft() for _ in range(min(count, len(queue)))]
