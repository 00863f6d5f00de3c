"""Makes room for what waits: victims, then a reprieve for those that were not needed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

from trencadis.models import Job, Snapshot, TaskAllocation
from trencadis.solver.accounts import books
from trencadis.solver.capacity import Capacity, capacity, running_model, vector
from trencadis.solver.greedy import complete, order
from trencadis.solver.ledger import Bundles, Ledger
from trencadis.solver.model.problem import Facts, read_accounts
from trencadis.solver.preempt.choose import Chooser
from trencadis.solver.preempt.tally import Exchange
from trencadis.solver.preempt.victims import Victim, victims
from trencadis.solver.preempt.world import as_counted
from trencadis.solver.repair import stops_gang
from trencadis.solver.score import owed
from trencadis.solver.shapes import Need, Shape

Starts = Mapping[str, tuple[str | None, Bundles]]


@dataclass(frozen=True, slots=True)
class Relieved:
    """The round with its victims gone."""

    facts: Facts
    ledger: Ledger
    exchange: Exchange


def relevant(read: Facts) -> dict[str, Victim]:
    """The victims that some rule could give to a waiting job of this snapshot."""
    if not read.values.worth:
        return {}
    highest = min(worth.tier for worth in read.values.worth.values())
    # A queue that is short may reclaim from any other; whose queue needs him is known in the end.
    short = any(target.leaf for target in read.targets)
    return {
        name: victim
        for name, victim in victims(read).items()
        if short or victim.yields_below > highest
    }


def make_room(
    read: Facts, ledger: Ledger, shape_of: Mapping[str, Shape], candidates: Mapping[str, Victim]
) -> Relieved | None:
    """Preempts where that starts what waits; None where nothing is gained.

    A start that a guarantee asks for may go for a better one if it finds other room; where in the
    end it does not, all begins again with such starts kept.
    """
    before = _owed(read, ledger)
    for keep in (False, True):
        found = _exchanged(read, ledger, shape_of, candidates, keep=keep)
        if found is None or _owed(found.facts, found.ledger) <= before:
            return found
    return None


def _owed(facts: Facts, ledger: Ledger) -> tuple[int, int]:
    eligible = facts.values.eligible
    return owed(facts, ((eligible[name], model) for name, (model, _) in ledger.started.items()))


def _exchanged(
    read: Facts,
    ledger: Ledger,
    shape_of: Mapping[str, Shape],
    candidates: Mapping[str, Victim],
    *,
    keep: bool,
) -> Relieved | None:
    """Victims and starts; `keep`: no start goes that a guarantee asks for."""
    chooser = Chooser(read, again(read, ledger.started), shape_of, candidates, keep=keep)
    exchange = chooser.run(order(read))
    if not exchange.victims:
        return None
    started: Starts = dict(chooser.world.started)
    number = 0
    # With a reprieve starts may go that others had to make room for: they are asked again.
    while number != len(exchange.victims):
        number = len(exchange.victims)
        started = spare(read, exchange, started, shape_of)
    if not exchange.victims:
        return None
    facts = relieved(read, exchange.victims)
    after = again(facts, started)
    going = [unit for unit in order(facts) if not stops_gang(unit[0], exchange.victims)]
    complete(after, shape_of.__getitem__, going)
    return Relieved(facts, after, exchange)


def spare(
    read: Facts, exchange: Exchange, started: Starts, shape_of: Mapping[str, Shape]
) -> Starts:
    """Takes back each victim whose betters fit without, the dearest first; the starts that hold."""
    facts = relieved(read, exchange.victims)
    trials: dict[int, Trial] = {}
    for name in sorted(exchange.victims, key=lambda n: (-exchange.victims[n].loss, n)):
        below = exchange.victims[name].yields_below
        if below not in trials:
            trials[below] = Trial(facts, exchange, started, below)
        if not trials[below].fits_without(exchange.victims[name], shape_of):
            continue
        without = _reprieved(read, exchange, started, shape_of, name)
        if without is not None:
            started = without
            del exchange.victims[name]
            facts = relieved(read, exchange.victims)
            trials.clear()
    return started


def relieved(read: Facts, gone: Mapping[str, Victim]) -> Facts:
    """The facts with these victims off their nodes; what waiting is worth stays."""
    rest = _without(read, gone)
    lost: Counter[tuple[str, str]] = Counter()
    nodes = {node.name: node for node in read.snapshot.nodes}
    for victim in gone.values():
        model = running_model(victim.job, nodes)
        for queue in read.values.tree.chain(victim.job.queue):
            lost[(queue, "")] += victim.units
            lost[(queue, model or "-")] += victim.units
    guarantees = tuple(
        replace(t, missing=t.missing + lost[(t.queue, t.model)]) for t in read.guarantees
    )
    short = tuple(target for target in guarantees if target.missing > 0)
    return replace(
        read,
        capacity=_capacity(read, rest),
        books=books(rest, read.values, read_accounts(read.snapshot, list(short))),
        guarantees=guarantees,
        targets=short,
    )


def without_victims(read: Facts, candidates: Mapping[str, Victim]) -> Facts:
    """The facts with all candidates gone and no guarantee the poorer: what no plan can beat."""
    rest = _without(read, candidates)
    keys = read_accounts(read.snapshot, list(read.targets))
    return replace(read, capacity=_capacity(read, rest), books=books(rest, read.values, keys))


def _capacity(read: Facts, rest: Snapshot) -> Capacity:
    """The supply of the rest; nodes whose GPUs were only counted stay so."""
    counted = {state.name for state in read.capacity.states if state.counted}
    found = capacity(rest)
    states = tuple(as_counted(s) if s.name in counted else s for s in found.states)
    return replace(found, states=states)


def _without(read: Facts, gone: Mapping[str, Victim]) -> Snapshot:
    jobs = [job for job in read.snapshot.jobs if job.name not in gone]
    lost: defaultdict[str, list[TaskAllocation]] = defaultdict(list)
    for victim in gone.values():
        if victim.task is not None:
            lost[victim.job.name].append(victim.task)
    for position, job in enumerate(jobs):
        if job.name in lost:
            left = list(job.allocation)
            for task in lost[job.name]:
                left.remove(task)
            jobs[position] = job.model_copy(update={"allocation": tuple(left)})
    return read.snapshot.model_copy(update={"jobs": tuple(jobs)})


def again(facts: Facts, starts: Starts) -> Ledger:
    """A ledger with these starts entered; what no longer fits, or may not, is left out."""
    ledger = Ledger(facts)
    rest = dict(starts)
    number = len(rest) + 1
    # Whom a strict order holds back may go once others have.
    while len(rest) < number:
        number = len(rest)
        for name, (model, bundles) in list(rest.items()):
            if enter(ledger, facts.values.eligible[name], model, bundles):
                del rest[name]
    return ledger


def enter(ledger: Ledger, job: Job, model: str | None, bundles: Bundles) -> bool:
    """Puts a start where it was, if it still fits there and limits let it."""
    if not ledger.may_start([(job, model)]) or not ledger.take_all(job.name, bundles):
        return False
    ledger.start(job, model, bundles)
    return True


def _reprieved(
    read: Facts,
    exchange: Exchange,
    started: Starts,
    shape_of: Mapping[str, Shape],
    name: str,
) -> dict[str, tuple[str | None, Bundles]] | None:
    """The starts that still hold with this victim kept; None if one of its betters lost its place.

    Starts of the victim's tier and below don't count, except those that a guarantee asks for.
    """
    kept = {n: v for n, v in exchange.victims.items() if n != name}
    below = exchange.victims[name].yields_below
    facts = relieved(read, kept)
    ledger = Ledger(facts)
    betters = exchange.betters(facts, started, below)
    homeless: list[tuple[Job, ...]] = []
    for job in sorted(started, key=lambda n: (n not in betters, n)):
        model, bundles = started[job]
        if not enter(ledger, facts.values.eligible[job], model, bundles) and job in betters:
            homeless.append((facts.values.eligible[job],))
    if homeless:
        # Lower starts must not be in their way.
        ledger.withdraw([job for job in ledger.started if job not in betters])
        complete(ledger, shape_of.__getitem__, homeless)
        if any(unit[0].name not in ledger.started for unit in homeless):
            return None
        for job, (model, bundles) in started.items():
            if job not in betters:
                enter(ledger, facts.values.eligible[job], model, bundles)
    return dict(ledger.started)


class Trial:
    """A quick look at whether a victim could stay, on counts of GPUs alone."""

    def __init__(self, facts: Facts, exchange: Exchange, started: Starts, below: int) -> None:
        """`facts`: with all victims gone. `below`: of the victims, `yields_below`."""
        self.facts = facts
        betters = exchange.betters(facts, started, below)
        self.starts = {name: start for name, start in started.items() if name in betters}
        self.ledger = again(facts, self.starts)
        self.nodes = {node.name: node for node in facts.snapshot.nodes}
        self.on: defaultdict[str, list[str]] = defaultdict(list)
        """Starts by node."""
        for name in sorted(self.ledger.started):
            for node in dict.fromkeys(node for node, _ in self.starts[name][1]):
                self.on[node].append(name)
        needs = [need for _, bundles in self.starts.values() for _, need in bundles]
        # Pieces of GPUs may move together and so make a whole GPU idle.
        self.idle = None if any(need.pieces for need in needs) else self._idle()
        """Idle GPUs in all, where that limits who may stay."""

    def _idle(self) -> int:
        return sum(
            sum(node.idle.values()) + node.state.takes_count - node.state.idle_count
            for node in self.ledger.nodes.values()
        )

    def fits_without(self, victim: Victim, shape_of: Mapping[str, Shape]) -> bool:
        """Whether its betters find places with the victim back on its nodes."""
        ledger, job = self.ledger, victim.job
        back = [(task.node, self._need(job)) for task in victim.tasks if task.node in ledger.nodes]
        # Wherever its betters go, all of them and the victim need no more GPUs than there are.
        if self.idle is not None and sum(need.gpus for _, need in back) > self.idle:
            return False
        moved = list(dict.fromkeys(name for node, _ in back for name in self.on[node]))
        ledger.withdraw(moved)
        for node, need in back:
            ledger.take(job.name, need, node)
        complete(
            ledger,
            shape_of.__getitem__,
            [(self.facts.values.eligible[name],) for name in sorted(moved)],
        )
        found = all(name in ledger.started for name in moved)
        ledger.withdraw([name for name in moved if name in ledger.started])
        ledger.give_back(job.name, back)
        for name in moved:
            enter(ledger, self.facts.values.eligible[name], *self.starts[name])
        return found

    def _need(self, job: Job) -> Need:
        model = running_model(job, self.nodes)
        return Need(
            gpus=job.request.gpus if model is not None else 0,
            sets=1,
            need=vector(job, self.facts.capacity.resources),
            model=model,
            columns=-1,
            linked=False,
            union=False,
            unlinked_cost=0,
            tier=-1,
            exclusive=False,
            cap=0,
            owner="",
        )
