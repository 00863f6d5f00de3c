"""Which running jobs make room for which waiting ones."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from trencadis.models import Job
from trencadis.solver.ledger import Bundles, Ledger
from trencadis.solver.model.problem import Facts
from trencadis.solver.preempt.victims import Victim, allowance, surpluses
from trencadis.solver.preempt.world import Cost, Offer, World
from trencadis.solver.shapes import Shape, Way


@dataclass(slots=True)
class Exchange:
    """What the round disturbs, and for whom."""

    victims: dict[str, Victim] = field(default_factory=dict)
    reclaims: set[str] = field(default_factory=set)
    """Starts that give a queue what it is guaranteed."""
    winners: dict[str, tuple[str | None, Bundles]] = field(default_factory=dict)
    """Starts that victims make room for."""
    spent: bool = False
    """The budget was the limit."""


class Chooser:
    """Goes through what waits, the heaviest first, and finds the cheapest room for each."""

    def __init__(
        self, read: Facts, ledger: Ledger, shape_of: Mapping[str, Shape],
        candidates: Mapping[str, Victim],
    ) -> None:
        self.read, self.ledger, self.shape_of = read, ledger, shape_of
        self.candidates = candidates
        self.world = World(read, ledger, candidates)
        self.exchange = Exchange()
        self.left = allowance(read.snapshot, read.capacity.gpus)
        self.surplus = dict(surpluses(read))
        for name, (model, _) in ledger.started.items():
            self._count(read.values.eligible[name], model, 1)
        self.failed: set[object] = set()

    def run(self, units: Iterable[tuple[Job, ...]]) -> Exchange:
        """Units: jobs or groups in the order of their weight."""
        for unit in units:
            if any(job.name in self.world.started for job in unit):
                continue
            if len(unit) == 1:
                self._try(unit[0])
        return self.exchange

    def _count(self, job: Job, model: str | None, sign: int) -> None:
        units = self.read.values.worth[job.name].units
        self._shift(job, model, sign * units)

    def _shift(self, job: Job, model: str | None, units: int) -> None:
        for queue in self.read.values.tree.chain(job.queue):
            for key in ((queue, ""), (queue, model or "-")):
                if key in self.surplus:
                    self.surplus[key] += units

    def _try(self, job: Job) -> None:
        for reclaim in (True, False):
            if reclaim and not self._short(job):
                continue
            # Who failed once fails again: room only shrinks.
            key = (self.shape_of[job.name], job.queue, reclaim, self._tier(job))
            if key in self.failed:
                continue
            may = self._may_go(job, reclaim)
            if may and self._place(job, may, reclaim):
                return
            self.failed.add(key)

    def _tier(self, job: Job) -> int:
        return self.read.values.worth[job.name].tier

    def _short(self, job: Job) -> bool:
        """Whether its leaf queue is short of its guarantee and stays within it with the job."""
        units = self.read.values.worth[job.name].units
        for target in self.read.guarantees:
            if target.queue == job.queue and not target.model:
                missing = -self.surplus[(target.queue, "")]
                return missing > 0 and units <= missing
        return False

    def _may_go(self, job: Job, reclaim: bool) -> dict[str, Cost]:
        """Victims and starts that may go for this job, with what each costs."""
        tier, tiers = self._tier(job), self.world.tiers
        may: dict[str, Cost] = {}
        for name, victim in self.candidates.items():
            if name in self.world.out or not self._guarded(victim, job):
                continue
            lower = victim.tier > tier
            foreign = reclaim and victim.job.queue != job.queue
            if lower or (foreign and self._above(victim)):
                cost = [0] * (2 * tiers)
                cost[victim.tier] = victim.loss
                may[name] = tuple(cost)
        for name in self.world.started:
            worth = self.read.values.worth[name]
            kept = name in self.exchange.winners or self.read.values.eligible[name].group
            if worth.tier > tier and not kept:
                cost = [0] * (2 * tiers)
                cost[tiers + worth.tier] = worth.wait
                may[name] = tuple(cost)
        return may

    def _guarded(self, victim: Victim, job: Job) -> bool:
        """Whether no guarantee suffers, unless the same queue gains."""
        inside = set(self.read.values.tree.chain(job.queue))
        return all(
            queue in inside or self.surplus.get((queue, ""), victim.units) >= victim.units
            for queue in self.read.values.tree.chain(victim.job.queue)
        )

    def _above(self, victim: Victim) -> bool:
        """Whether the victim's queue keeps its target without it."""
        return all(
            self.surplus.get((queue, ""), victim.units) >= victim.units
            for queue in self.read.values.tree.chain(victim.job.queue)[:1]
        )

    def _place(self, job: Job, may: dict[str, Cost], reclaim: bool) -> bool:
        for alt in sorted(self.shape_of[job.name].alternatives, key=lambda alt: alt.cost):
            way, model = alt.way, alt.way.need.model
            if way.segment or not self.ledger.may_start([(job, model)]):
                continue
            chosen = self._cheapest(job, way, may)
            if chosen is not None and self._commit(job, model, way, chosen, may, reclaim):
                return True
        return False

    def _cheapest(self, job: Job, way: Way, may: dict[str, Cost]) -> list[Offer] | None:
        most = way.count
        if job.max_tasks_per_node is not None:
            most = min(most, max(1, job.max_tasks_per_node // way.need.sets))
        path = self.read.fabric.path
        depth = way.depth if 1 <= way.depth <= self.read.fabric.depth else 0
        domains: defaultdict[tuple[str, ...], list[Offer]] = defaultdict(list)
        for node in sorted(self.world.states):
            if way.need.columns >> self.world.columns[node] & 1:
                domains[path[node][:depth]].extend(self.world.offers(way.need, node, may, most))
        best: tuple[Cost, tuple[str, ...], list[Offer]] | None = None
        for domain, offers in sorted(domains.items()):
            if len(offers) < way.count:
                continue
            # Offers of one node come in the order in which they must be taken.
            picked = _pick(offers, way.count)
            total = tuple(map(sum, zip(*(offer.cost for offer in picked), strict=True)))
            if best is None or total < best[0]:
                best = (total, domain, picked)
        return None if best is None else best[2]

    def _commit(
        self, job: Job, model: str | None, way: Way, picked: list[Offer],
        may: dict[str, Cost], reclaim: bool,
    ) -> bool:
        wanted = Counter(offer.node for offer in picked)
        out = frozenset[str]().union(*(offer.out for offer in picked))
        # A victim on several nodes may have made others needless.
        for name in sorted(out, key=lambda n: (may[n], n), reverse=True):
            less = out - {name}
            if all(self.world.room(way.need, node, less) >= n for node, n in wanted.items()):
                out = less
        chosen = {name: self.candidates[name] for name in out if name in self.candidates}
        if not self._affordable(chosen, reclaim) or not self._pays(job, chosen):
            return False
        before = {name: self.world.started[name][0] for name in out if name in self.world.started}
        self.world.take_off(sorted(out))
        for name in before:
            self._count(self.read.values.eligible[name], before[name], -1)
            self.ledger.withdraw([name])
        bundles: Bundles = [(node, way.need) for node, n in sorted(wanted.items()) for _ in range(n)]
        self.world.start(job.name, model, bundles)
        self.ledger.start(job, model, [])
        self._count(job, model, 1)
        for victim in chosen.values():
            self._shift(victim.job, None, -victim.units)
        self.exchange.victims.update(chosen)
        if chosen:
            self.exchange.winners[job.name] = (model, bundles)
            if reclaim:
                self.exchange.reclaims.add(job.name)
        return True

    def _affordable(self, chosen: Mapping[str, Victim], reclaim: bool) -> bool:
        known, count = self.exchange.victims, len(chosen)
        gpus = sum(v.gpus for v in (*known.values(), *chosen.values()))
        used = len(known)
        fits = used + count <= self.left.jobs and gpus <= self.left.gpus
        if reclaim:
            fits = fits and count <= self.left.reclaimed - len(self.exchange.reclaims)
        self.exchange.spent |= not fits
        return fits

    def _pays(self, job: Job, chosen: Mapping[str, Victim]) -> bool:
        """Under one sum of tiers the start must save more than its victims lose."""
        if self.read.snapshot.policy.priority_mode == "strict":
            return True
        worth = self.read.values.worth[job.name]
        delay = max((victim.grace for victim in chosen.values()), default=0)
        saved = worth.wait - delayed(worth.wait, delay, self.read.values.rates.horizon)
        return saved > sum(victim.loss for victim in chosen.values())


def delayed(wait: int, delay: int, horizon: int) -> int:
    """What a start pays that comes `delay` seconds late."""
    return -(-wait * min(delay, horizon) // horizon)


def _pick(offers: list[Offer], count: int) -> list[Offer]:
    """The cheapest `count` offers that respect the order within each node."""
    by_node: defaultdict[str, list[Offer]] = defaultdict(list)
    for offer in offers:
        by_node[offer.node].append(offer)
    heads = {node: 0 for node in by_node}
    picked: list[Offer] = []
    while len(picked) < count:
        node = min(
            (n for n in by_node if heads[n] < len(by_node[n])),
            key=lambda n: (by_node[n][heads[n]].cost, n),
        )
        picked.append(by_node[node][heads[node]])
        heads[node] += 1
    return picked
