"""From victims that were picked, and a round without them, to an exchange that keeps all rules."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from trencadis.models import Job
from trencadis.models.broken import missing_name
from trencadis.solver.capacity import NodeState, running_model
from trencadis.solver.greedy import complete, order
from trencadis.solver.ledger import Ledger
from trencadis.solver.model.problem import Facts
from trencadis.solver.preempt.exchange import Relieved, Starts, again, relieved, spare
from trencadis.solver.preempt.tally import Exchange
from trencadis.solver.preempt.victims import Victim, allowance
from trencadis.solver.repair import stops_gang
from trencadis.solver.shapes import Need, Shape

ROUNDS = 5
"""Besides one for each victim: starts that complete a round may undo what it reclaims."""
Row = tuple[str, str]
"""A guarantee: queue, and GPU model or '' for all."""


def settled(
    read: Facts, picked: Mapping[str, Victim], starts: Starts, shape_of: Mapping[str, Shape]
) -> list[Relieved]:
    """The round with those of the victims that rules let go and that are needed.

    `starts`: what begins where with all of them gone. Where a queue ends above its guarantee nobody
    may stop for its sake: there is a second round without what is above. Empty if nobody goes.
    """
    uses = _Uses(read)
    exchange = Exchange(_affordable(read, picked))
    found = [_settled(read, exchange.victims, starts, shape_of, uses)]
    trimmed = uses.within_guarantees(exchange.victims, starts)
    if len(trimmed) < len(starts):
        found.append(_settled(read, exchange.victims, trimmed, shape_of, uses))
    return [entry for entry in found if entry is not None]


def _settled(
    read: Facts,
    victims: Mapping[str, Victim],
    starts: Starts,
    shape_of: Mapping[str, Shape],
    uses: _Uses,
) -> Relieved | None:
    exchange = Exchange(dict(victims))
    # Who is kept may cost others their starts, and these starts were why somebody else could go.
    for _ in range(len(victims) + ROUNDS):
        starts = _fitting(read, exchange, starts)
        exchange.reclaims = uses.reclaims(exchange.victims, starts)
        wrong = uses.unlawful(exchange, starts)
        for name in wrong:
            del exchange.victims[name]
        if wrong:
            continue
        number = len(exchange.victims)
        starts = spare(read, exchange, starts, shape_of)
        if not exchange.victims:
            return None
        if number != len(exchange.victims):
            continue
        exchange.reclaims = uses.reclaims(exchange.victims, starts)
        facts = relieved(read, exchange.victims)
        ledger = again(facts, starts)
        going = [unit for unit in order(facts) if not stops_gang(unit[0], exchange.victims)]
        complete(ledger, shape_of.__getitem__, uses.harmless(facts, exchange, starts, going))
        complete(ledger, shape_of.__getitem__, going)
        if uses.reclaims(exchange.victims, ledger.started) >= exchange.reclaims:
            exchange.reclaims = uses.reclaims(exchange.victims, ledger.started)
            exchange.winners, busy = _winners(read, exchange, ledger)
            wrong = uses.unlawful(exchange, ledger.started)
            wrong += _beyond(read, exchange, busy)
            if not wrong:
                return Relieved(facts, ledger, exchange)
            for name in set(wrong):
                del exchange.victims[name]
        starts = dict(ledger.started)
    return None


def _affordable(read: Facts, picked: Mapping[str, Victim]) -> dict[str, Victim]:
    """The victims, as far as budgets go, the largest first; of jobs that stop, no tasks besides."""
    left = allowance(read.snapshot, read.capacity.gpus)
    jobs, gpus, given = left.jobs, left.gpus, Counter[str]()
    found: dict[str, Victim] = {}
    for name in sorted(picked, key=lambda n: (picked[n].task is not None, -picked[n].gpus, n)):
        victim = picked[name]
        if victim.task is None:
            if jobs > 0 and gpus >= victim.gpus:
                found[name] = victim
                jobs, gpus = jobs - 1, gpus - victim.gpus
        elif victim.job.name not in found and given[victim.job.name] < victim.spare:
            found[name] = victim
            given[victim.job.name] += 1
    return found


def _fitting(read: Facts, exchange: Exchange, starts: Starts) -> Starts:
    """The starts that still fit, the heaviest first; nobody repairs a gang that stops."""
    facts = relieved(read, exchange.victims)
    kept = [
        job.name
        for unit in order(facts)
        if not stops_gang(unit[0], exchange.victims)
        for job in unit
        if job.name in starts
    ]
    ledger = again(facts, {name: starts[name] for name in kept})
    halved = {
        facts.values.eligible[name].group for name in starts if name not in ledger.started
    } - {None}
    ledger.withdraw([n for n in ledger.started if facts.values.eligible[n].group in halved])
    return dict(ledger.started)


class _Uses:
    """What leaf queues use of their guarantees, in all and by GPU model: it says who reclaims."""

    def __init__(self, read: Facts) -> None:
        self.read = read
        self.nodes = {node.name: node for node in read.snapshot.nodes}
        self.targets = {(t.queue, t.model): t for t in read.guarantees if t.leaf}
        self.before: Counter[Row] = Counter()
        for job in read.snapshot.jobs:
            if job.on_nodes:
                units = read.values.rates.sizes.job(job)
                self._count(self.before, job.queue, running_model(job, self.nodes), units)
        self.short = {row for row, target in self.targets.items() if target.missing > 0}

    def _count(self, use: Counter[Row], queue: str, model: str | None, units: int) -> None:
        for row in ((queue, ""), (queue, model or "-")):
            if row in self.targets:
                use[row] += units

    def _after(self, victims: Mapping[str, Victim], starts: Starts) -> Counter[Row]:
        use, values = self.before.copy(), self.read.values
        for victim in victims.values():
            model = running_model(victim.job, self.nodes)
            self._count(use, victim.job.queue, model, -victim.units)
        for name, (model, _) in starts.items():
            self._count(use, values.eligible[name].queue, model, values.worth[name].units)
        return use

    def reclaims(self, victims: Mapping[str, Victim], starts: Starts) -> set[str]:
        """Starts of queues that were short and end within their guarantee."""
        use, eligible = self._after(victims, starts), self.read.values.eligible
        whole = {row for row in self.short if use[row] <= self.targets[row].guarantee}
        return {
            name
            for name, (model, _) in starts.items()
            if {(eligible[name].queue, ""), (eligible[name].queue, model)} & whole
        }

    def within_guarantees(self, victims: Mapping[str, Victim], starts: Starts) -> Starts:
        """The starts without the lightest of queues that were short and end with too much."""
        use, kept = self._after(victims, starts), dict(starts)
        eligible, worth = self.read.values.eligible, self.read.values.worth
        for queue, model in sorted(self.short):
            over = use[(queue, model)] - self.targets[(queue, model)].guarantee
            mine = [
                name
                for name, (on, _) in kept.items()
                if eligible[name].queue == queue and model in ("", on) and worth[name].units
            ]
            for name in sorted(mine, key=lambda n: (-worth[n].tier, worth[n].wait, n)):
                if over <= 0:
                    break
                over -= worth[name].units
                self._count(use, queue, kept.pop(name)[0], -worth[name].units)
        return kept

    def unlawful(self, exchange: Exchange, starts: Starts) -> list[str]:
        """Victims that no start of a higher tier needs while their own queue ends short, and those
        whose gang is repaired."""
        use = self._after(exchange.victims, starts)
        ends_short = {
            queue
            for (queue, model), target in self.targets.items()
            if not model and use[(queue, "")] < self.before[(queue, "")] + target.missing
        }
        tiers = {self.read.values.worth[name].tier for name in starts}
        highest = min(tiers, default=0)
        return [
            name
            for name, victim in exchange.victims.items()
            if missing_name(name) in starts
            or (victim.job.queue in ends_short and victim.yields_below <= highest)
            or not exchange.betters(self.read, starts, victim.yields_below)
        ]

    def harmless(
        self, facts: Facts, exchange: Exchange, starts: Starts, going: list[tuple[Job, ...]]
    ) -> list[tuple[Job, ...]]:
        """What may still start without making a queue that reclaims use more than its guarantee."""
        use = self._after(exchange.victims, starts)
        eligible = facts.values.eligible
        reclaiming = {eligible[name].queue for name in exchange.reclaims}
        found = []
        for unit in going:
            more: Counter[Row] = Counter()
            for job in unit:
                for row in self.targets.keys() & self.short:
                    if row[0] == job.queue and job.queue in reclaiming:
                        more[row] += facts.values.worth[job.name].units
            if all(use[row] + n <= self.targets[row].guarantee for row, n in more.items()):
                use += more
                found.append(unit)
        return found


def _beyond(read: Facts, exchange: Exchange, busy: Mapping[str, int]) -> list[str]:
    """Victims that leave a limit's room, but no node's, and those beyond the budget of guarantees,
    the smallest first. `busy`: highest tier of the starts that victims make room for, by node."""
    wrong, reclaimed = [], []
    for name, victim in exchange.victims.items():
        tiers = [busy[task.node] for task in victim.tasks if task.node in busy]
        if not tiers:
            wrong.append(name)
        elif victim.task is None and min(tiers) >= victim.yields_below:
            reclaimed.append(name)
    most = allowance(read.snapshot, read.capacity.gpus).reclaimed
    reclaimed.sort(key=lambda name: (-exchange.victims[name].gpus, name))
    return wrong + reclaimed[most:]


def _winners(
    read: Facts, exchange: Exchange, ledger: Ledger
) -> tuple[set[str], dict[str, int]]:
    """The starts for which victims make room: those on their nodes that may have them, where not
    all such starts fit into what was idle before. And of these nodes the highest tier of such."""
    on: defaultdict[str, int] = defaultdict(int)
    for victim in exchange.victims.values():
        for task in victim.tasks:
            on[task.node] = max(on[task.node], victim.yields_below)
    arrivals: defaultdict[str, list[tuple[str, Need]]] = defaultdict(list)
    for name, (_, bundles) in ledger.started.items():
        for node, need in bundles:
            if node in on and exchange.betters(read, [name], on[node]):
                arrivals[node].append((name, need))
    states = {state.name: state for state in read.capacity.states}
    worth = read.values.worth
    busy = {
        node: min(worth[name].tier for name, _ in there)
        for node, there in arrivals.items()
        if not _fit([need for _, need in there], states.get(node))
    }
    return {name for node in busy for name, _ in arrivals[node]}, busy


def _fit(needs: Sequence[Need], state: NodeState | None) -> bool:
    """Whether all of these fit what is idle on a node; slices and shares are taken not to."""
    if state is None or any(need.exclusive or need.pieces for need in needs):
        return False
    wanted: Counter[str] = Counter()
    for need in needs:
        wanted[need.model or ""] += need.gpus
    idle = all(state.takes(m) >= gpus for m, gpus in wanted.items() if gpus)
    beside = zip(*(need.need for need in needs), strict=True)
    return idle and all(sum(d) <= have for d, have in zip(beside, state.free, strict=True))
