"""What a set of starts costs, stage by stage (problem.md, 5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from trencadis.models import Start
from trencadis.solver.verify.costs import Costs
from trencadis.solver.verify.fragmentation import Fragmentation
from trencadis.solver.verify.situation import Placed, Situation, place
from trencadis.solver.verify.supply import NodeState, with_tasks
from trencadis.solver.verify.targets import Targets, in_use


class Stages:
    """The objective of one situation, for any starts."""

    def __init__(self, situation: Situation) -> None:
        self.of = situation
        self.costs = Costs(situation)
        self.targets = Targets(situation)
        self.fragmentation = Fragmentation(situation)
        self._idle_cost = [0] * len(situation.snapshot.policy.tiers)
        """By tier: all waiting, and the spread of what runs."""
        for name, wait in self.costs.waits.items():
            self._idle_cost[situation.tiers[name]] += wait
        for entry in situation.running:
            self._idle_cost[situation.tiers[entry.job.name]] += self.costs.spread(entry)

    def values(
        self,
        starts: Sequence[Placed],
        states: Mapping[str, NodeState],
        now: Situation | None = None,
        changed: Sequence[int] = (),
    ) -> dict[str, int]:
        """Objective by stage, in order; `states` are the nodes after these starts.

        `now`: the situation without the jobs that stop; `changed`: what stopping costs, by tier.
        """
        policy = self.of.snapshot.policy
        leaves, parents = self.targets.shortfall(in_use(now or self.of, starts))
        stages = {"guarantee": leaves, "guarantee_parents": parents}
        waiting = self._by_tier(starts)
        for tier, cost in enumerate(changed):
            waiting[tier] += cost
        stages |= self.of_tiers(waiting)
        if policy.fragmentation == "weighted":
            last = next(reversed(stages))
            stages[last] += self.fragmentation.weighted_total_of(states.values())
        elif policy.fragmentation == "last":
            stages["fragmentation"] = self.fragmentation.total_of(states.values())
        return stages

    def of_tiers(self, costs: Sequence[int]) -> dict[str, int]:
        """Costs of tiers as costs of the stages of waiting."""
        policy = self.of.snapshot.policy
        if policy.priority_mode != "strict":
            return {"wait": sum(costs)}
        return {f"tier:{tier.name}": cost for tier, cost in zip(policy.tiers, costs, strict=True)}

    def _by_tier(self, starts: Sequence[Placed]) -> list[int]:
        cost = list(self._idle_cost)
        for entry in starts:
            name = entry.job.name
            if name in self.of.eligible:
                cost[self.of.tiers[name]] += self.costs.spread(entry) - self.costs.waits[name]
        return cost


def place_starts(situation: Situation, starts: Iterable[Start]) -> tuple[Placed, ...]:
    """Starts of known jobs on known nodes, as jobs on nodes."""
    nodes = {name: state.node for name, state in situation.states.items()}
    return tuple(
        place(
            situation.jobs[start.job],
            situation.asks[start.job],
            start.allocation,
            nodes,
            situation.levels,
        )
        for start in starts
    )


def states_after(situation: Situation, starts: Iterable[Placed]) -> dict[str, NodeState]:
    """The nodes after these starts."""
    by_node: dict[str, list[tuple[Placed, int]]] = {}
    for entry in starts:
        for i, task in enumerate(entry.tasks):
            by_node.setdefault(task.node, []).append((entry, i))
    states = dict(situation.states)
    for name, tasks in by_node.items():
        states[name] = with_tasks(
            states[name],
            [(e.job, e.ask, e.model, e.tasks[i]) for e, i in tasks],
            situation.knife,
        )
    return states
