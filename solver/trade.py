"""A search in which running jobs may go: victims and starts together, then each in its place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from trencadis.solver.again import Beginning
from trencadis.solver.attempt import search_and_place
from trencadis.solver.clock import Limits
from trencadis.solver.greedy import order
from trencadis.solver.ledger import Ledger
from trencadis.solver.model.build import Model
from trencadis.solver.model.problem import Facts, Thresholds
from trencadis.solver.preempt.exchange import (
    Relieved,
    Starts,
    make_room,
    relevant,
    relieved,
    without_victims,
)
from trencadis.solver.preempt.joint import joint_model
from trencadis.solver.preempt.pick import Picked, likely, pick
from trencadis.solver.preempt.settled import settled
from trencadis.solver.preempt.tally import Exchange
from trencadis.solver.preempt.victims import Victim
from trencadis.solver.report import Joint, Round, cost_of
from trencadis.solver.search import Solution
from trencadis.solver.shapes import Shape
from trencadis.solver.timer import Timer

NONE: frozenset[str] = frozenset()
NEAR = 0.03
"""Where many wait, a round is not solved in other ways if all stages but the last are so near to
the relaxation: room made job by job was never better there, and takes longer than all the rest."""
SHARE = 0.5
"""Part of the time left that picking victims may take."""
FEW = 300
"""With so many waiting jobs, all of them are searched again once victims are picked. With more,
those that the joint model starts, and as many that are next in line for their places."""


def searched(
    read: Facts,
    thresholds: Thresholds,
    limits: Limits,
    timer: Timer,
    built: Callable[[], object] = lambda: None,
    beginning: Beginning | None = None,
    spared: frozenset[str] = NONE,
) -> Round:
    """The best round that was found, with running work making room where rules and budgets let it.

    Victims that the joint model picks come first; where it can't show that what comes of them is
    about the best, a round without victims and one with room made job by job are compared with it.
    `spared`: running jobs that stay as they are.
    """
    candidates = relevant(read)
    if not candidates:
        return search_and_place(read, thresholds, limits, timer, built, beginning)
    outcome: Round | None = None
    if _ample(read):
        outcome = search_and_place(read, thresholds, limits, timer, built, beginning)
        if _all_start(read, outcome):
            return outcome
    trade = _Trade(read, candidates, spared, thresholds, limits, timer)
    built()
    offers = trade.offers()
    if beginning is None and any(trade.met(offer) for offer in offers):
        return trade.round(Ledger(read), offers)
    if outcome is None:
        outcome = search_and_place(read, thresholds, limits, timer, built, beginning)
        if _all_start(read, outcome):
            return outcome
    if not any(trade.met(offer) for offer in offers):
        going = {n: v for n, v in candidates.items() if v.job.name not in spared}
        room = make_room(read, outcome.ledger, outcome.shape_of, going)
        if room is not None:
            offers += trade.settled(room.exchange.victims, room.ledger.started)
        timer.lap("preempt")
    return trade.round(outcome.ledger, offers)


def _ample(read: Facts) -> bool:
    """Whether there are as many idle GPUs as are asked for."""
    idle = sum(state.idle_count for state in read.capacity.states)
    asked = (job.minimum * job.request.gpus for job in read.values.eligible.values())
    return sum(asked) <= idle


def _all_start(read: Facts, outcome: Round) -> bool:
    """Whether nobody waits: then, by the reprieve, nobody may be stopped either."""
    return read.values.eligible.keys() <= outcome.ledger.started.keys()


@dataclass(frozen=True, slots=True)
class _Offer:
    """A round with victims."""

    cost: list[int]
    """By stage."""
    lost: list[int]
    """Of that, what victims lose."""
    relieved: Relieved


class _Trade:
    """The joint model of a round, and what comes of the victims that it picks."""

    def __init__(
        self,
        read: Facts,
        candidates: Mapping[str, Victim],
        spared: frozenset[str],
        thresholds: Thresholds,
        limits: Limits,
        timer: Timer,
    ) -> None:
        self.read, self.candidates = read, candidates
        self.thresholds, self.limits, self.timer = thresholds, limits, timer
        self.model: Model = joint_model(
            read, candidates, without_victims(read, candidates), thresholds
        )
        timer.lap("join")
        staying = {name for name, victim in candidates.items() if victim.job.name in spared}
        self.picked: Picked | None = pick(self.model, limits.part(SHARE), staying)
        timer.lap("pick")
        demand = self.model.problem.demand
        self.shape_of: Mapping[str, Shape] = {
            name: demand.shapes[shape] for name, shape in demand.shape_of.items()
        }

    def offers(self) -> list[_Offer]:
        """Rounds with the victims that were picked."""
        if self.picked is None or not self.picked.names:
            return []
        going = {name: self.candidates[name] for name in self.picked.names}
        limits = replace(self.limits, proves=False)
        there = search_and_place(self._asked(going), self.thresholds, limits, self.timer)
        found = self.settled(going, there.ledger.started)
        self.timer.lap("settle")
        return found

    def settled(self, going: Mapping[str, Victim], starts: Starts) -> list[_Offer]:
        """What the rules leave of these victims and starts."""
        found = settled(self.read, going, starts, self.shape_of)
        return [_Offer(*cost_of(self.read, entry), entry) for entry in found]

    def _asked(self, going: Mapping[str, Victim]) -> Facts:
        """The facts without the victims, and with the waiting jobs that come into question."""
        later = relieved(self.read, going)
        values = later.values
        if len(values.eligible) <= FEW:
            return later
        names = likely(self.model, going.keys(), self.limits)
        self.timer.lap("guide")
        line = (job.name for unit in order(later) for job in unit if job.name not in names)
        names |= {name for name, _ in zip(line, range(FEW), strict=False)}
        groups = {values.eligible[name].group for name in names} - {None}
        kept = {n: job for n, job in values.eligible.items() if n in names or job.group in groups}
        # Fragmentation comes last: to count it makes the model four times as large.
        return replace(
            later,
            values=replace(values, eligible=kept),
            profile=replace(later.profile, off=True),
        )

    def met(self, offer: _Offer) -> bool:
        """Whether the relaxation shows that hardly anything is better."""
        if self.picked is None:
            return False
        gaps = self.picked.gaps(offer.cost, offer.lost, self.model)
        if all(gap <= self.limits.gap for gap in gaps):
            return True
        many = len(self.read.values.eligible) > FEW
        return many and all(gap <= NEAR for gap in gaps[:-1])

    def round(self, ledger: Ledger, offers: list[_Offer]) -> Round:
        """The best of the offers, or the round without victims. `ledger`: its starts."""
        nobody = Relieved(self.read, ledger, Exchange())
        best = min(offers, key=lambda offer: offer.cost, default=None)
        if best is not None and ledger.started and best.cost >= cost_of(self.read, nobody)[0]:
            best = None
        return Round(
            model=self.model,
            ledger=ledger,
            solution=Solution([], {}),
            shape_of=self.shape_of,
            relieved=None if best is None else best.relieved,
            joint=Joint(self.model, None if self.picked is None else self.picked.relaxed),
        )
