"""The stages, and what a plan costs in each (§5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from oracle.costs import (
    Entry,
    Target,
    demand,
    fragmentation,
    shortfall,
    spread,
    targets,
    wait,
)
from oracle.facts import Facts
from oracle.ground import Ground, Placed, ground_now, model_of_plan, occupy
from oracle.limits import Limits
from oracle.reserves import barred
from oracle.rules import can_run_on_empty
from oracle.shares import shares
from trencadis.models import Job, Plan, Snapshot, TaskAllocation

StartSets = Mapping[str, Sequence[TaskAllocation]]
"""Where the tasks of each starting job are, by the job's name."""


def stage_names(snapshot: Snapshot) -> list[str]:
    policy = snapshot.policy
    names = ["guarantee", "guarantee_parents"]
    if policy.priority_mode == "weighted":
        names.append("wait")
    else:
        names += [f"tier:{tier.name}" for tier in policy.tiers]
    if policy.fragmentation == "last":
        names.append("fragmentation")
    return names


class Pricing:
    """A snapshot with all that the stages need, worked out when first asked for."""

    def __init__(self, snapshot: Snapshot, plan: Plan | None = None) -> None:
        """`plan`: whose reservations hold."""
        self.facts = Facts(snapshot, {} if plan is None else barred(snapshot, plan))
        self.names = stage_names(snapshot)
        self.ground: Ground = ground_now(self.facts)
        self.counted = {
            node.name: state.counted
            for node, state in zip(snapshot.nodes, self.ground, strict=True)
        }

    @cached_property
    def can_run(self) -> dict[str, set[str | None]]:
        return can_run_on_empty(self.facts)

    @cached_property
    def limits(self) -> Limits:
        return Limits(self.facts, self.can_run)

    @cached_property
    def targets(self) -> list[Target]:
        return targets(self.facts, self.can_run)

    @cached_property
    def entries(self) -> list[Entry]:
        return demand(self.facts)

    @cached_property
    def waits(self) -> dict[str, int]:
        """What each eligible job costs if it doesn't start."""
        share = shares(self.facts)
        return {job.name: wait(self.facts, job, share[job.name]) for job in self.facts.eligible}

    def spread(self, job: Job, model: str | None, tasks: Sequence[TaskAllocation]) -> int:
        return spread(self.facts, job, model, tasks, self.counted)

    def row(self, job: Job) -> int:
        """Which of the tier sums the job's cost is in."""
        return 0 if self.facts.policy.priority_mode == "weighted" else self.facts.tier(job)

    def rows(self) -> int:
        policy = self.facts.policy
        return 1 if policy.priority_mode == "weighted" else len(policy.tiers)

    def running(self) -> list[int]:
        """The tier sums' part that no plan changes: spread of what runs and drains."""
        sums = [0] * self.rows()
        for job in self.facts.on_nodes:
            sums[self.row(job)] += self.spread(job, self.facts.model_of[job.name], job.allocation)
        return sums

    def total(
        self, started: Mapping[str, str | None], tiers: Sequence[int], ground: Ground
    ) -> tuple[int, ...]:
        """The value of every stage, from the tier sums and the final state."""
        leaves = shortfall(self.facts, self.targets, started, leaf=True)
        parents = shortfall(self.facts, self.targets, started, leaf=False)
        sums = list(tiers)
        mode = self.facts.policy.fragmentation
        if mode == "off":
            return (leaves, parents, *sums)
        scattered = fragmentation(self.facts, ground, self.entries)
        if mode == "last":
            return (leaves, parents, *sums, scattered)
        sums[-1] += scattered
        return (leaves, parents, *sums)


def stage_values(snapshot: Snapshot, plan: StartSets) -> dict[str, int]:
    """What the plan costs in each stage. It is taken to be feasible."""
    pricing = Pricing(snapshot)
    facts = pricing.facts
    ground = pricing.ground
    sums = pricing.running()
    started: dict[str, str | None] = {}
    for job in facts.eligible:
        if job.name not in plan:
            sums[pricing.row(job)] += pricing.waits[job.name]
            continue
        tasks = plan[job.name]
        model = model_of_plan(facts, job, tasks)
        started[job.name] = model
        sums[pricing.row(job)] += pricing.spread(job, model, tasks)
        ground = occupy(facts, ground, job, Placed.on(model, tasks))
    return dict(zip(pricing.names, pricing.total(started, sums, ground), strict=True))
