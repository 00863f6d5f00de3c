"""Whether more starts would lower the objective where fragmentation is part of the sum."""

from __future__ import annotations

from collections.abc import Sequence

from trencadis.models import Job
from trencadis.solver.verify.board import Board
from trencadis.solver.verify.facts import Facts
from trencadis.solver.verify.search import Found, state_at
from trencadis.solver.verify.situation import Placed, place


class Gain:
    """Compares the plan with the plan plus some starts; the board stands as if these ran."""

    def __init__(self, facts: Facts, board: Board) -> None:
        self.facts = facts
        self.board = board
        self.nodes = {name: state.node for name, state in facts.states.items()}

    def lowers(self, jobs: Sequence[Job], found: Sequence[Found]) -> bool:
        """Whether the objective is lower, in the order of its stages, if these jobs start too."""
        facts, of = self.facts, self.facts.situation
        starts = [
            Placed(job, of.asks[job.name], places.tasks, places.model, entry.depth, entry.path)
            for job, places in zip(jobs, found, strict=True)
            for entry in (place(job, of.asks[job.name], places.tasks, self.nodes, of.levels),)
        ]
        short = self._shortfall(starts)
        change = [0] * (len(of.snapshot.policy.tiers) if self._strict else 1)
        costs = facts.stages.costs
        for entry in starts:
            name = entry.job.name
            stage = of.tiers[name] if self._strict else 0
            change[stage] += costs.spread(entry) - costs.waits[name]
        rows = {row for places in found for row in places.rows}
        measure = facts.stages.fragmentation.weighted_total_of
        change[-1] += measure(state_at(self.board, row) for row in rows)
        change[-1] -= measure(facts.states[self.board.states[row].node.name] for row in rows)
        return [*short, *change] < [0] * (len(short) + len(change))

    @property
    def _strict(self) -> bool:
        return self.facts.situation.snapshot.policy.priority_mode == "strict"

    def _shortfall(self, starts: Sequence[Placed]) -> list[int]:
        """How the guarantee stages change."""
        facts, of = self.facts, self.facts.situation
        total = dict(facts.in_use)
        for entry in starts:
            for name in of.tree.chains[entry.job.queue]:
                for key in {(name, None), (name, entry.model)}:
                    total[key] = total.get(key, 0) + entry.units
        now = (facts.objective["guarantee"], facts.objective["guarantee_parents"])
        then = facts.stages.targets.shortfall(total)
        return [after - before for after, before in zip(then, now, strict=True)]
