"""Starts jobs one at a time, heaviest first: the first plan, and what completes the last one."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import compress

from trencadis.models import Job
from trencadis.solver.fabric import Domain
from trencadis.solver.ledger import Bundles, Ledger
from trencadis.solver.model.order import in_line
from trencadis.solver.model.problem import Facts
from trencadis.solver.shapes import Need, Shape, Way


def order(facts: Facts) -> list[tuple[Job, ...]]:
    """Units (jobs, or groups) in the order of a greedy scheduler.

    First what guarantees are short of, then by tier and weight per GPU; large jobs before small.
    """
    worth = facts.values.worth
    missing = {t.queue: t.missing for t in facts.targets if t.leaf and not t.model}
    groups: defaultdict[str, list[Job]] = defaultdict(list)
    units: list[tuple[Job, ...]] = []
    for job in facts.values.eligible.values():
        if job.group is None:
            units.append((job,))
        else:
            groups[job.group].append(job)
    units.extend(tuple(sorted(jobs, key=lambda job: job.name)) for jobs in groups.values())

    def rank(unit: tuple[Job, ...]) -> tuple[float | int | str, ...]:
        first = min(unit, key=lambda job: worth[job.name].tier)
        size = sum(worth[job.name].size for job in unit)
        wait = sum(worth[job.name].wait for job in unit)
        fifo = in_line(first, facts.values.tree.queues[first.queue])
        submit = first.submit.timestamp() if fifo else 0
        return (worth[first.name].tier, submit, -wait / size, -size, first.name)

    units.sort(key=rank)
    early, late = [], []
    for unit in units:
        queue = unit[0].queue
        if len(unit) == 1 and missing.get(queue, 0) > 0:
            missing[queue] -= worth[unit[0].name].units
            early.append(unit)
        else:
            late.append(unit)
    return early + late


class Finder:
    """Finds nodes for needs; relies on nodes only filling up between two resets."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        # Taken from the end: nodes with the fewest idle GPUs first.
        self._order = sorted(
            ledger.nodes, key=lambda n: (sum(ledger.nodes[n].idle.values()), n), reverse=True
        )
        self._queues: dict[Need, list[str]] = {}
        self._rooms: dict[tuple[Need, int, int], _Rooms] = {}
        self._full: set[tuple[Way, int]] = set()

    def reset(self) -> None:
        """Forgets what is full."""
        self._queues.clear()
        self._full.clear()

    def nodes(self, way: Way, cap: int) -> list[str] | None:
        """Nodes for all needs of a job that goes this way; None if they don't fit."""
        if (way, cap) in self._full:
            return None
        found = self._search(way, cap)
        if found is None:
            self._full.add((way, cap))
        return found

    def _search(self, way: Way, cap: int) -> list[str] | None:
        if way.segment:
            return self._segments(way, cap)
        if 1 <= way.depth <= self.ledger.facts.fabric.depth:
            rooms = self._room(way.need, way.depth, cap)
            return rooms.pick(way.count)
        return self._anywhere(way.need, way.count, cap)

    def _anywhere(self, need: Need, count: int, cap: int) -> list[str] | None:
        queue = self._queues.get(need)
        if queue is None:
            queue = list(compress(self._order, self.ledger.all_fits(need, self._order)))
            self._queues[need] = queue
        found: list[str] = []
        full: list[int] = []
        for position in range(len(queue) - 1, -1, -1):
            number = self.ledger.fits(need, self.ledger.nodes[queue[position]])
            if number == 0:
                full.append(position)
                continue
            found.extend([queue[position]] * min(number, cap or number, count - len(found)))
            if len(found) == count:
                break
        for position in full:
            del queue[position]
        return found if len(found) == count else None

    def _room(self, need: Need, depth: int, cap: int) -> _Rooms:
        key = (need, depth, cap)
        if key not in self._rooms:
            self._rooms[key] = _Rooms(self.ledger, need, depth, cap)
        self._rooms[key].refresh(self.ledger)
        return self._rooms[key]

    def _segments(self, way: Way, cap: int) -> list[str] | None:
        rooms = self._room(way.need, way.segment_depth, cap)
        wanted = way.count // way.segment
        by_parent: Counter[Domain] = Counter()
        most = way.most or wanted
        for domain, number in rooms.total.items():
            by_parent[domain[: way.depth]] += min(most, number // way.segment)
        fitting = sorted((n, domain) for domain, n in by_parent.items() if n >= wanted)
        if not fitting:
            return None
        parent = fitting[0][1]
        found: list[str] = []
        for domain in sorted(rooms.total):
            if domain[: way.depth] == parent and len(found) < way.count:
                number = min(wanted - len(found) // way.segment, rooms.total[domain] // way.segment)
                number = min(number, most)
                found.extend(rooms.inside(domain, number * way.segment))
        return found


class _Rooms:
    """How many of a need each domain of a depth can take, kept up to date."""

    def __init__(self, ledger: Ledger, need: Need, depth: int, cap: int) -> None:
        self.need, self.depth, self.cap = need, depth, cap
        self.path = ledger.facts.fabric.path
        self.number: dict[str, int] = {}
        self.total: Counter[Domain] = Counter()
        self.members: defaultdict[Domain, list[str]] = defaultdict(list)
        names = sorted(ledger.nodes)
        for name, number in zip(names, ledger.all_fits(need, names), strict=True):
            self._set(name, number)
            if self.number[name]:
                self.members[self.path[name][:depth]].append(name)
        self.seen = len(ledger.touched)

    def _set(self, name: str, number: int) -> None:
        number = min(number, self.cap) if self.cap else number
        self.total[self.path[name][: self.depth]] += number - self.number.get(name, 0)
        self.number[name] = number

    def refresh(self, ledger: Ledger) -> None:
        """Reads the nodes that have changed."""
        for name in dict.fromkeys(ledger.touched[self.seen :]):
            self._set(name, ledger.fits(self.need, ledger.nodes[name]))
        self.seen = len(ledger.touched)

    def pick(self, count: int) -> list[str] | None:
        """`count` places in the fullest domain that has them."""
        fitting = [(number, domain) for domain, number in self.total.items() if number >= count]
        return self.inside(min(fitting)[1], count) if fitting else None

    def inside(self, domain: Domain, count: int) -> list[str]:
        """Places in one domain, on as few nodes as possible."""
        members = [name for name in self.members[domain] if self.number[name]]
        found: list[str] = []
        for name in sorted(members, key=lambda name: (-self.number[name], name)):
            found.extend([name] * min(self.number[name], count - len(found)))
        return found


def complete(
    ledger: Ledger,
    shape_of: Callable[[str], Shape],
    units: Iterable[Sequence[Job]],
) -> None:
    """Starts whatever of the units still fits."""
    finder = Finder(ledger)
    weighted = ledger.facts.profile.weight_milli is not None
    for unit in units:
        if any(job.name in ledger.started for job in unit):
            continue
        done: list[tuple[Job, str | None, Bundles]] = []
        for job in unit:
            placed = _place(ledger, finder, job, shape_of(job.name), [(j, m) for j, m, _ in done])
            if placed is None:
                break
            done.append((job, *placed))
        if (
            len(done) == len(unit)
            and ledger.may_start([(job, m) for job, m, _ in done])
            and not (weighted and _fragments_more_than_it_gains(ledger, shape_of, done))
        ):
            for job, model, bundles in done:
                ledger.start(job, model, bundles)
            continue
        for job, _, bundles in done:
            ledger.give_back(job.name, bundles)
        if done:
            finder.reset()


def _fragments_more_than_it_gains(
    ledger: Ledger,
    shape_of: Callable[[str], Shape],
    done: Sequence[tuple[Job, str | None, Bundles]],
) -> bool:
    """Where fragmentation is part of the last stage: whether starting these raises that stage."""
    facts = ledger.facts
    last = len(facts.snapshot.policy.tiers) - 1
    strict = facts.snapshot.policy.priority_mode == "strict"
    if strict and any(facts.values.worth[job.name].tier < last for job, _, _ in done):
        return False
    gain = 0
    for job, _, bundles in done:
        need = bundles[0][1]
        costs = [a.cost for a in shape_of(job.name).alternatives if a.way.need == need]
        gain += facts.values.worth[job.name].wait - max(costs, default=0)
    touched = sorted({name for _, _, bundles in done for name, _ in bundles})
    after = sum(facts.profile.weighted(ledger.fragmentation(name)) for name in touched)
    for job, _, bundles in done:
        ledger.give_back(job.name, bundles)
    before = sum(facts.profile.weighted(ledger.fragmentation(name)) for name in touched)
    for job, _, bundles in done:
        for name, need in bundles:
            ledger.take(job.name, need, name)
    return after - before >= gain


def _place(
    ledger: Ledger,
    finder: Finder,
    job: Job,
    shape: Shape,
    before: list[tuple[Job, str | None]],
) -> tuple[str | None, Bundles] | None:
    """Takes the cheapest way that fits and that limits allow."""
    for alt in sorted(shape.alternatives, key=lambda alt: alt.cost):
        way, model = alt.way, alt.way.need.model
        # A group is judged as a whole; alone, a job that limits forbid need not be placed.
        if not before and job.group is None and not ledger.may_start([(job, model)]):
            continue
        cap = 0
        if job.max_tasks_per_node is not None:
            cap = max(1, job.max_tasks_per_node // way.need.sets)
        nodes = finder.nodes(way, cap)
        if nodes is None:
            continue
        bundles: Bundles = []
        for name in nodes:
            ledger.take(job.name, way.need, name)
            bundles.append((name, way.need))
        return model, bundles
    return None
