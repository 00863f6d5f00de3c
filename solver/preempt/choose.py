"""Which running jobs make room for which waiting ones."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from trencadis.models import Job, Missing
from trencadis.models.broken import missing_name
from trencadis.solver.ledger import Bundles, Ledger
from trencadis.solver.model.problem import Facts
from trencadis.solver.preempt.shelf import Shelf, pick
from trencadis.solver.preempt.tally import Exchange, Tally
from trencadis.solver.preempt.victims import Victim
from trencadis.solver.preempt.world import Cost, Offer, World
from trencadis.solver.repair import stops_gang
from trencadis.solver.shapes import Alternative, Need, Shape, Way


class Scope(NamedTuple):
    """For whom room is made: jobs of one scope have the same victims."""

    tier: int
    reclaim: bool
    own: str
    """A queue below its guarantee, whose own jobs may go for each other; else empty."""


class Group(NamedTuple):
    """Victims that guarantees don't tell apart."""

    queue: str
    units: int


class Chooser:
    """Goes through what waits, the heaviest first, and finds the cheapest room for each."""

    def __init__(
        self, read: Facts, ledger: Ledger, shape_of: Mapping[str, Shape],
        candidates: Mapping[str, Victim], *, keep: bool,
    ) -> None:
        """`keep`: starts that a guarantee asks for stay."""
        self.keep = keep
        self.read, self.ledger, self.shape_of = read, ledger, shape_of
        self.candidates = candidates
        self.world = World(read, ledger, candidates)
        self.tally = Tally(read, ledger, candidates)
        self.exchange = self.tally.exchange
        self._failed: set[tuple[Way, Scope]] = set()
        self._groups: defaultdict[Group, list[str]] = defaultdict(list)
        self._parts: defaultdict[str, list[str]] = defaultdict(list)
        """Victims that are single tasks, by job."""
        for name, victim in candidates.items():
            self._groups[Group(victim.job.queue, victim.units)].append(name)
            if victim.task is not None:
                self._parts[victim.job.name].append(name)
        self._may: dict[Scope, dict[str, Cost]] = {}
        self._guarded: dict[Scope, set[Group]] = {}
        self._shelves: dict[tuple[Need, Scope, int], Shelf] = {}

    def run(self, units: Iterable[tuple[Job, ...]]) -> Exchange:
        """Units: jobs or groups in the order of their weight. Groups don't get victims."""
        for unit in units:
            if self.tally.used_up():
                break
            if stops_gang(unit[0], self.world.out):
                continue
            if len(unit) == 1 and unit[0].name not in self.world.started:
                self._try(unit[0])
        return self.exchange

    def _try(self, job: Job) -> None:
        if self.tally.undoes_reclaim(job):
            return
        tier = self._tier(job)
        scopes = [Scope(tier, reclaim=False, own="")]
        if self.tally.short(job):
            scopes.insert(0, Scope(tier, reclaim=True, own=""))
        if self.tally.below_target(job.queue):
            scopes.append(Scope(tier, reclaim=False, own=job.queue))
        for scope in scopes:
            if self._may_go(scope) and self._place(job, scope):
                return

    def _tier(self, job: Job) -> int:
        return self.read.values.worth[job.name].tier

    def _may_go(self, scope: Scope) -> dict[str, Cost]:
        """Victims and starts that may go for a job of this scope, with what each costs."""
        if scope not in self._may:
            self._may[scope] = self._who(scope)
        return self._may[scope]

    def _who(self, scope: Scope) -> dict[str, Cost]:
        may: dict[str, Cost] = {}
        self._guarded[scope] = {g for g in self._groups if self.tally.needs(*g, scope.own)}
        for group in self._groups.keys() - self._guarded[scope]:
            may |= self._costs(group, scope)
        for name in self.world.started:
            may |= self._cost_of_start(name, scope)
        return may

    def _costs(self, group: Group, scope: Scope) -> dict[str, Cost]:
        """What the victims of a group cost that may go for jobs of the scope."""
        found = {}
        for name in self._groups[group]:
            victim = self.candidates[name]
            yields = scope.reclaim or victim.yields_below > scope.tier
            repaired = missing_name(name) in self.world.started
            gone = repaired or name in self.world.out
            if not gone and yields and not self.tally.spent(victim):
                found[name] = self.world.cost(victim.tier, victim.loss)
        return found

    def _cost_of_start(self, name: str, scope: Scope) -> dict[str, Cost]:
        """What it costs to take a start back for a job of the scope, if that may be."""
        worth = self.read.values.worth[name]
        grouped = self.read.values.eligible[name].group is not None
        kept = name in self.exchange.winners or (self.keep and self._needed(name, scope))
        if kept or grouped or worth.tier <= scope.tier:
            return {}
        return {name: self.world.cost(self.world.tiers + worth.tier, worth.wait)}

    def _needed(self, name: str, scope: Scope) -> bool:
        """Whether a guarantee would suffer without this start."""
        queue = self.read.values.eligible[name].queue
        return self.tally.needs(queue, self.read.values.worth[name].units, scope.own)

    def _place(self, job: Job, scope: Scope) -> bool:
        for alt in sorted(self.shape_of[job.name].alternatives, key=lambda alt: alt.cost):
            way, model = alt.way, alt.way.need.model
            # Room only shrinks: who failed once fails again.
            if (way.segment and not way.most) or (way, scope) in self._failed:
                continue
            if not self.ledger.may_start([(job, model)]):
                continue
            chosen = self._cheapest(job, way, scope)
            if chosen is None:
                self._failed.add((way, scope))
            elif self._commit(job, alt, chosen, scope):
                return True
        return False

    def _cheapest(self, job: Job, way: Way, scope: Scope) -> list[Offer] | None:
        most = way.count
        if job.max_tasks_per_node is not None:
            most = min(most, max(1, job.max_tasks_per_node // way.need.sets))
        path = self.read.fabric.path
        depth = way.depth if 1 <= way.depth <= self.read.fabric.depth else 0
        shelf = self._shelf(way.need, scope, most)
        if not depth and not way.most:
            return shelf.cheapest(way.count)
        domains: defaultdict[tuple[str, ...], list[list[Offer]]] = defaultdict(list)
        for node, offers in shelf.offers.items():
            domains[path[node][:depth]].append(offers)
        best: tuple[Cost, tuple[str, ...], list[Offer]] | None = None
        for domain, lists in sorted(domains.items(), key=lambda entry: entry[0]):
            there = self._apart(way, lists) if way.most else lists
            if sum(map(len, there)) < way.count:
                continue
            picked = pick(there, way.count)
            total = tuple(map(sum, zip(*(offer.cost for offer in picked), strict=True)))
            if best is None or total < best[0]:
                best = (total, domain, picked)
        return None if best is None else best[2]

    def _apart(self, way: Way, lists: list[list[Offer]]) -> list[list[Offer]]:
        """The cheapest offers of each domain that takes no more tasks of the job."""
        path, domains = self.read.fabric.path, defaultdict[tuple[str, ...], list[list[Offer]]](list)
        for offers in lists:
            domains[path[offers[0].node][: way.segment_depth]].append(offers)
        return [
            pick(inside, min(way.most, sum(map(len, inside)))) for inside in domains.values()
        ]

    def _shelf(self, need: Need, scope: Scope, most: int) -> Shelf:
        key = (need, scope, most)
        if key not in self._shelves:
            self._shelves[key] = Shelf()
            self._offer(key, self.world.states)
        return self._shelves[key]

    def _offer(self, key: tuple[Need, Scope, int], nodes: Iterable[str]) -> None:
        """Works out the offers of these nodes."""
        need, scope, most = key
        may, shelf = self._may_go(scope), self._shelves[key]
        for node in sorted(nodes):
            found: list[Offer] = []
            if need.columns >> self.world.columns[node] & 1:
                found = self.world.offers(need, node, may, most)
            shelf.put(node, found)

    def _refresh(self, touched: set[str], out: Collection[str], begun: str) -> None:
        """After a commitment: who may go now, and the offers of the nodes that it changes."""
        shrunk = {self.candidates[name].job.name for name in out if name in self.candidates}
        parts = [name for job in shrunk for name in self._parts[job]]
        spent = [name for name in parts if self.tally.spent(self.candidates[name])]
        job = self.read.values.eligible[begun]
        # Who gets its tasks back goes on.
        mended = job.gang if isinstance(job, Missing) else None
        for scope in self._may:
            may = self._may[scope]
            for name in out:
                may.pop(name, None)
            may.update(self._cost_of_start(begun, scope))
            lost = [name for name in spent if may.pop(name, None)]
            if mended and may.pop(mended, None):
                lost.append(mended)
            before = self._guarded[scope]
            now = {g for g in self._groups if self.tally.needs(*g, scope.own)}
            self._guarded[scope] = now
            for group in before - now:
                may.update(self._costs(group, scope))
            for group in now - before:
                lost += [name for name in self._groups[group] if may.pop(name, None)]
            stale = touched | {node for name in lost for node in self.world.nodes_of(name)}
            for key in self._shelves:
                if key[1] == scope:
                    self._offer(key, stale & self.world.states.keys())

    def _commit(
        self, job: Job, alt: Alternative, picked: list[Offer], scope: Scope
    ) -> bool:
        way, model, cost = alt.way, alt.way.need.model, alt.cost
        may, reclaim = self._may_go(scope), scope.reclaim
        wanted = Counter(offer.node for offer in picked)
        out = frozenset[str]().union(*(offer.out for offer in picked))
        # A victim on several nodes may have made others needless.
        for name in sorted(out, key=lambda n: (may[n], n), reverse=True):
            less = out - {name}
            if all(self.world.room(way.need, node, less) >= n for node, n in wanted.items()):
                out = less
        chosen = {name: self.candidates[name] for name in out if name in self.candidates}
        for name in self.tally.overdrawn(chosen.values()):
            # Who would give up more than it can stops, if it may.
            if name not in may:
                return False
            chosen = {n: v for n, v in chosen.items() if v.job.name != name}
            chosen[name] = self.candidates[name]
        out = frozenset(name for name in out if name not in self.candidates) | chosen.keys()
        if not self.tally.affordable(chosen, scope.own, reclaim=reclaim):
            return False
        if self.keep and any(self._needed(n, scope) for n in out if n in self.world.started):
            return False
        if not self._pays(job, cost, chosen, reclaim):
            return False
        touched = {node for name in out for node in self.world.nodes_of(name)} | set(wanted)
        before = {name: self.world.started[name][0] for name in out if name in self.world.started}
        self.world.take_off(sorted(out))
        for name, on in before.items():
            self.tally.started(self.read.values.eligible[name], on, -1)
            self.ledger.withdraw([name])
        bundles: Bundles = []
        for node, number in sorted(wanted.items()):
            bundles.extend([(node, way.need)] * number)
        self.world.start(job.name, model, bundles)
        self.ledger.start(job, model, [])
        self.tally.started(job, model, 1)
        self.tally.enter(chosen, job.name, reclaim=reclaim)
        self._refresh(touched, out, job.name)
        return True

    def _pays(self, job: Job, cost: int, chosen: Mapping[str, Victim], reclaim: bool) -> bool:
        """Whether the start gains: what it saves of its waiting, late and spread as it is.

        It must save more than those lose who are in the same sum: under strict tiers the elastic
        jobs of its own tier.
        """
        worth = self.read.values.worth[job.name]
        delay = max((victim.grace for victim in chosen.values()), default=0)
        saved = worth.wait - cost - delayed(worth.wait, delay, self.read.values.rates.horizon)
        strict = self.read.snapshot.policy.priority_mode == "strict"
        lost = sum(v.loss for v in chosen.values() if not strict or v.tier <= worth.tier)
        return (reclaim and strict) or saved > lost


def delayed(wait: int, delay: int, horizon: int) -> int:
    """What a start pays that comes `delay` seconds late."""
    return -(-wait * min(delay, horizon) // horizon)
