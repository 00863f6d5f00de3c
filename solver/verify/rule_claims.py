"""Whether what the plan says about itself is true: places, costs, stages, gaps, who waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from trencadis.models import Plan, Status
from trencadis.solver.verify.facts import Facts
from trencadis.solver.verify.verdict import Violation

TOLERANCE = 1e-6


def claims(facts: Facts, plan: Plan) -> Iterable[Violation]:
    """Level, domain, waiting saved and spread cost of each start."""
    costs, levels = facts.stages.costs, facts.situation.levels
    for start, entry in zip(plan.starts, facts.starts, strict=True):
        for what, said, found in (
            ("level", start.level, levels.name(entry.depth)),
            ("domain", start.domain, "/".join(entry.path)),
            ("waiting_saved", start.waiting_saved, costs.waits[start.job]),
            ("spread_cost", start.spread_cost, costs.spread(entry)),
        ):
            if said != found:
                yield Violation("claims", f"job {start.job}: {what} is {found!r}, not {said!r}")


def objective(facts: Facts, plan: Plan) -> Iterable[Violation]:
    """Stages in order, each with its objective, what doing nothing costs and what victims lose."""
    said = [stage.name for stage in plan.proof.stages]
    if said != list(facts.objective):
        yield Violation("objective", f"the stages are {list(facts.objective)}, not {said}")
        return
    for stage in plan.proof.stages:
        for what, value, found in (
            ("objective", stage.objective, facts.objective[stage.name]),
            ("do_nothing", stage.do_nothing, facts.do_nothing[stage.name]),
            ("lost", stage.lost, facts.lost.get(stage.name, 0)),
        ):
            if value != found:
                yield Violation("objective", f"stage {stage.name}: {what} is {found}, not {value}")


def bounds(_: Facts, plan: Plan) -> Iterable[Violation]:
    """Bounds are below objectives, gaps follow from them, statuses don't promise more."""
    worst = 0.0
    for stage in plan.proof.stages:
        name = stage.name
        if stage.bound > stage.objective:
            yield Violation("bounds", f"stage {name}: the bound is above the objective")
        room = stage.do_nothing + stage.lost - stage.bound
        gap = (stage.objective - stage.bound) / room if room else 0.0
        if abs(gap - stage.gap) > TOLERANCE:
            yield Violation("bounds", f"stage {name}: the gap is {gap}, not {stage.gap}")
        if stage.status is Status.OPTIMAL and stage.bound != stage.objective:
            yield Violation("bounds", f"stage {name} is called OPTIMAL, its bound is not reached")
        if name != "fragmentation":
            worst = max(worst, gap)
    if abs(worst - plan.proof.gap) > TOLERANCE:
        yield Violation("bounds", f"the plan's gap is {worst}, not {plan.proof.gap}")


def pending(facts: Facts, plan: Plan) -> Iterable[Violation]:
    """Each job that stays pending has one reason, and no other job has."""
    reasons = Counter(entry.job for entry in plan.pending)
    for job in facts.situation.snapshot.jobs:
        waits = job.state == "pending" and job.name not in facts.started
        found = reasons.pop(job.name, 0)
        if found != waits:
            yield Violation("pending", f"job {job.name} has {found} reasons, not {int(waits)}")
    for name in reasons:
        yield Violation("pending", f"job {name} is not in the snapshot")


RULES = (claims, objective, bounds, pending)
