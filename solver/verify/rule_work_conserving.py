"""Whether a job waits though it could start on what the plan leaves idle (problem.md, 7)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence

from trencadis.models import Job, Missing, Plan
from trencadis.solver.verify.board import Board
from trencadis.solver.verify.facts import Facts
from trencadis.solver.verify.fits import Fits, Shape
from trencadis.solver.verify.gain import Gain
from trencadis.solver.verify.ledger import Charge
from trencadis.solver.verify.search import Found, Search
from trencadis.solver.verify.verdict import Violation

Member = tuple[Job, Shape]


class Idle:
    """What is idle after the plan, and who could still start on it."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        situation = facts.situation
        self.fits = Fits(situation, facts.states)
        self.weighted = situation.snapshot.policy.fragmentation == "weighted"
        self._search: Search | None = None
        self._gain: Gain | None = None
        self._known: dict[Hashable, bool] = {}

    def could_start(self, job: Job) -> bool:
        """Whether a job without a group could."""
        if job.name in self.facts.blocked:
            return False
        shape = self.facts.shape(job)
        models = [m for m in self.fits.models(shape) if self._room([job], [m])]
        if not models or not self.weighted:
            return bool(models)
        if not shape.ask.whole:
            # Whether a slice is worth its place depends on its start; none is looked for here.
            return False
        return self._found([(job, shape)], [models])

    def could_start_together(self, jobs: Sequence[Job]) -> bool:
        """Whether all eligible jobs of a group could; only if places were found for them."""
        facts = self.facts
        names = facts.started | {job.name for job in jobs}
        queues = {job.queue for job in jobs} & facts.order.queues.keys()
        if queues and not names.isdisjoint(
            facts.order.blocked(names, queues).keys() - facts.started
        ):
            return False
        members = [(job, self.facts.shape(job)) for job in jobs]
        if self.weighted and not all(shape.ask.whole for _, shape in members):
            return False
        # Large tasks first: they find a place less easily.
        members.sort(key=lambda m: (m[1].ask.gpus, m[1].ask.units, m[1].tasks), reverse=True)
        models = [
            [m for m in self.fits.models(shape) if self._room([job], [m])] for job, shape in members
        ]
        if not all(models):
            return False
        key = frozenset(Counter(_kind(job, shape) for job, shape in members).items())
        if self.weighted:
            return self._found(members, models)
        if key not in self._known:
            self._known[key] = self._found(members, models)
        return self._known[key]

    def _found(self, members: Sequence[Member], models: Sequence[Sequence[str | None]]) -> bool:
        if self._search is None:
            situation = self.facts.situation
            board = Board(situation, self.facts.states)
            self._search = Search(board, situation.levels, situation.knife)
            self._gain = Gain(self.facts, board)
        jobs = [job for job, _ in members]
        wanted = [(shape, m) for (_, shape), m in zip(members, models, strict=True)]
        places = self._search.together(wanted)
        try:
            return any(self._accept(jobs, found) for found in places)
        finally:
            # The search stops where it is; let it put the board back.
            self._search.stop()
            for _ in places:
                pass

    def _accept(self, jobs: Sequence[Job], found: Sequence[Found]) -> bool:
        if not self._room(jobs, [places.model for places in found]):
            return False
        return not self.weighted or (self._gain is not None and self._gain.lowers(jobs, found))

    def _room(self, jobs: Sequence[Job], models: Sequence[str | None]) -> bool:
        """Whether limits and lending leave room for these jobs on these models."""
        facts = self.facts
        charges: list[Charge] = []
        more: dict[tuple[str, str | None], int] = {}
        for job, model in zip(jobs, models, strict=True):
            units = facts.situation.units(job)
            charges += facts.ledger.charges(job, units, model)
            more[job.queue, model] = more.get((job.queue, model), 0) + units
        return facts.ledger.room(facts.used, charges) and facts.lending.room(facts.in_use, more)


def _kind(job: Job, shape: Shape) -> Hashable:
    licences = tuple(sorted(job.licences.items()))
    return shape, job.queue, job.user, job.qos, job.array and job.array.name, licences


def work_conserving(facts: Facts, plan: Plan) -> Iterable[Violation]:
    """No eligible job that waits, with all of its group, could be added to the plan."""
    idle = Idle(facts)
    groups: dict[str, list[Job]] = {}
    stopped = {stop.job for stop in plan.preempts}
    for job in facts.situation.eligible.values():
        if job.name in facts.started or (isinstance(job, Missing) and job.gang in stopped):
            continue
        if job.group is not None:
            groups.setdefault(job.group, []).append(job)
        elif idle.could_start(job):
            yield Violation("work-conserving", f"job {job.name} waits, but could start as well")
    for group, jobs in groups.items():
        if idle.could_start_together(jobs):
            yield Violation("work-conserving", f"group {group} waits, but could start as well")


RULES = (work_conserving,)
