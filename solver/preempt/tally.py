"""What a round disturbs so far: victims and winners, and what guarantees and budgets leave."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from trencadis.models import Job
from trencadis.solver.capacity import running_model
from trencadis.solver.ledger import Ledger
from trencadis.solver.model.problem import Facts
from trencadis.solver.preempt.victims import Victim, allowance, surpluses


@dataclass(slots=True)
class Exchange:
    """What the round disturbs, and for whom."""

    victims: dict[str, Victim] = field(default_factory=dict)
    """Whole jobs, and single tasks of elastic ones."""
    reclaims: set[str] = field(default_factory=set)
    """Starts that give a queue what it is guaranteed."""
    winners: set[str] = field(default_factory=set)
    """Starts that victims make room for."""

    def betters(self, facts: Facts, started: Iterable[str], below: int) -> set[str]:
        """The starts that a victim may have to make room for. `below`: its `yields_below`."""
        worth = facts.values.worth
        return {job for job in started if worth[job].tier < below or job in self.reclaims}

    def stopped(self) -> dict[str, Victim]:
        """The jobs that stop."""
        return {name: victim for name, victim in self.victims.items() if victim.task is None}

    def shrunk(self) -> dict[str, list[Victim]]:
        """The jobs that give tasks up, with these tasks; by name."""
        found: dict[str, list[Victim]] = {}
        for _, victim in sorted(self.victims.items()):
            if victim.task is not None:
                found.setdefault(victim.job.name, []).append(victim)
        return found


class Tally:
    """Keeps count while victims are chosen."""

    def __init__(self, read: Facts, ledger: Ledger, candidates: Mapping[str, Victim]) -> None:
        self.read = read
        self.exchange = Exchange()
        self.left = allowance(read.snapshot, read.capacity.gpus)
        self.surplus = dict(surpluses(read))
        """Units above its target of each guarantee."""
        self._nodes = {node.name: node for node in read.snapshot.nodes}
        self._stopped = self._freed = 0
        self._elastic = any(victim.task is not None for victim in candidates.values())
        self._given: defaultdict[str, list[str]] = defaultdict(list)
        """By job: names of the tasks that it gives up."""
        for name, (model, _) in ledger.started.items():
            self.started(read.values.eligible[name], model, 1)

    def used_up(self) -> bool:
        """Whether no job may be stopped any more, and none can shrink."""
        return self._stopped >= self.left.jobs and not self._elastic

    def started(self, job: Job, model: str | None, sign: int) -> None:
        """Enters a start, or with -1 takes it back."""
        self._shift(job, model, sign * self.read.values.worth[job.name].units)

    def _shift(self, job: Job, model: str | None, units: int) -> None:
        for queue in self.read.values.tree.chain(job.queue):
            for key in ((queue, ""), (queue, model or "-")):
                if key in self.surplus:
                    self.surplus[key] += units

    def enter(self, chosen: Mapping[str, Victim], winner: str, *, reclaim: bool) -> None:
        """Enters victims, and the start that they make room for."""
        for name, victim in chosen.items():
            self._gone(victim, 1)
            if victim.task is not None:
                self._given[victim.job.name].append(name)
                continue
            # Who stops has given up nothing before.
            for part in self._given.pop(victim.job.name, ()):
                self._gone(self.exchange.victims.pop(part), -1)
        self.exchange.victims.update(chosen)
        if chosen:
            self.exchange.winners.add(winner)
            if reclaim:
                self.exchange.reclaims.add(winner)

    def _gone(self, victim: Victim, sign: int) -> None:
        self._shift(victim.job, running_model(victim.job, self._nodes), -sign * victim.units)
        if victim.task is None:
            self._stopped += sign
            self._freed += sign * victim.gpus

    def short(self, job: Job) -> bool:
        """Whether its leaf queue was short of its guarantee before the round, still is, and stays
        within it with the job. Who falls short by this round's own victims reclaims nothing."""
        units = self.read.values.worth[job.name].units
        for target in self.read.guarantees:
            if target.queue == job.queue and not target.model:
                missing = -self.surplus[(target.queue, "")]
                return target.missing > 0 and 0 < units <= missing
        return False

    def undoes_reclaim(self, job: Job) -> bool:
        """Whether its start takes a queue above the guarantee for which others were stopped."""
        eligible = self.read.values.eligible
        if not any(eligible[winner].queue == job.queue for winner in self.exchange.reclaims):
            return False
        units = self.read.values.worth[job.name].units
        return self.surplus.get((job.queue, ""), 0) + units > 0

    def below_target(self, queue: str) -> bool:
        """Whether the queue or one above it is short of its guarantee."""
        return any(self.surplus.get((q, ""), 0) < 0 for q in self.read.values.tree.chain(queue))

    def needs(self, queue: str, units: int, own: str) -> bool:
        """Whether a guarantee would suffer if the queue lost so many units; `own`, the queue that
        gains, is not asked, nor are those above it."""
        tree = self.read.values.tree
        inside = set(tree.chain(own)) if own else set()
        return any(
            name not in inside and self.surplus.get((name, ""), units) < units
            for name in tree.chain(queue)
        )

    def affordable(self, chosen: Mapping[str, Victim], own: str, *, reclaim: bool) -> bool:
        """Whether budgets, guarantees and minima let all of these go together."""
        whole = [victim for victim in chosen.values() if victim.task is None]
        lost: Counter[str] = Counter()
        for victim in chosen.values():
            lost[victim.job.queue] += victim.units
        if any(self.needs(queue, units, own) for queue, units in lost.items()):
            return False
        gpus = self._freed + sum(victim.gpus for victim in whole)
        if whole and (self._stopped + len(whole) > self.left.jobs or gpus > self.left.gpus):
            return False
        return not reclaim or len(whole) <= self.left.reclaimed - len(self.exchange.reclaims)

    def spent(self, victim: Victim) -> bool:
        """Whether it is a task of a job that gives up as many as it may."""
        return victim.task is not None and len(self._given[victim.job.name]) >= victim.spare

    def overdrawn(self, chosen: Iterable[Victim]) -> set[str]:
        """Jobs that would give up more tasks than they may, together with those before."""
        parts = [victim for victim in chosen if victim.task is not None]
        count = Counter(victim.job.name for victim in parts)
        most = {victim.job.name: victim.spare for victim in parts}
        return {n for n, more in count.items() if more + len(self._given[n]) > most[n]}
