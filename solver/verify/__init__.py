"""Checks a plan against every rule, without the solver.

Everything here is worked out from snapshot and plan by itself: sizes, weights, costs, targets and
stages, as `docs/problem.md` defines them. A rule is a function that yields violations; `RULES`
lists them, and `verify` knows none of them by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trencadis.models import Plan, Snapshot, Start
from trencadis.models.order import in_order
from trencadis.models.reckoned import as_reckoned
from trencadis.solver.verify import (
    mend,
    rule_claims,
    rule_form,
    rule_growth,
    rule_holds,
    rule_limits,
    rule_moves,
    rule_nodes,
    rule_parts,
    rule_preempt,
    rule_reserves,
    rule_topology,
    rule_work_conserving,
)
from trencadis.solver.verify.facts import gather
from trencadis.solver.verify.growing import without_further
from trencadis.solver.verify.situation import Situation, situate
from trencadis.solver.verify.stages import Stages, place_starts, states_after
from trencadis.solver.verify.verdict import Verdict, Violation

__all__ = ["Prepared", "Verdict", "Violation", "prepare", "stage_values", "verify"]

RULES = (
    *rule_nodes.RULES,
    *rule_parts.RULES,
    *rule_topology.RULES,
    *rule_limits.RULES,
    *rule_work_conserving.RULES,
    *rule_preempt.RULES,
    *rule_claims.RULES,
)
"""Rules about what a well-formed plan does."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A snapshot, worked out for any plan: on large ones about half of a verification."""

    fingerprint: str
    situation: Situation
    stages: Stages
    do_nothing: Mapping[str, int]
    """Objective by stage if nothing starts."""


def prepare(snapshot: Snapshot) -> Prepared:
    """What `verify` needs of the snapshot, which must be sound (`trencadis.models.check`)."""
    situation = situate(snapshot)
    stages = Stages(situation)
    nothing = stages.values((), situation.states)
    return Prepared(snapshot.fingerprint(), situation, stages, nothing)


def verify(snapshot: Snapshot, plan: Plan, prepared: Prepared | None = None) -> Verdict:
    """Every rule that the plan breaks, and what its stages cost.

    The snapshot must be sound (`trencadis.models.check`). A plan whose form is broken
    (`rule_form`) is not judged further. `prepared` is the same snapshot's, where the caller has it.
    """
    if prepared is None:
        # Plans name tasks and GPUs in order, whatever order the snapshot lists them in.
        snapshot = in_order(snapshot)
        prepared = prepare(snapshot)
    situation = prepared.situation
    broken = tuple(rule_form.fingerprint(prepared.fingerprint, plan))
    broken += tuple(rule_form.finer(snapshot, plan))
    plan = as_reckoned(plan, snapshot)
    if plan.purpose == "defrag":
        return _of_moves(prepared, plan, broken)
    broken += tuple(mend.replaced(snapshot, plan))
    plan, wrong = mend.as_starts(situation.snapshot, plan)
    broken += wrong
    broken += tuple(rule_holds.held(situation, plan))
    plan = rule_holds.without_held(situation, plan)
    form = (*rule_form.RULES, *rule_preempt.FORM, *rule_growth.FORM, *rule_reserves.FORM)
    broken += tuple(v for rule in form for v in rule(situation, plan))
    if broken:
        return Verdict(broken)
    core = without_further(plan)
    facts = gather(situation, core, prepared.stages, prepared.do_nothing, plan)
    broken = tuple(violation for rule in RULES for violation in rule(facts, core))
    whole = (*rule_growth.RULES, *rule_reserves.RULES)
    broken += tuple(violation for rule in whole for violation in rule(facts, plan))
    return Verdict(
        broken,
        dict(facts.objective),
        dict(facts.do_nothing),
    )


def _of_moves(prepared: Prepared, plan: Plan, broken: tuple[Violation, ...]) -> Verdict:
    """The same for a plan that only moves running jobs."""
    situation = prepared.situation
    plan, _ = mend.as_starts(situation.snapshot, plan)
    broken += tuple(v for rule in rule_moves.FORM for v in rule(situation, plan))
    if broken:
        return Verdict(broken)
    facts = rule_moves.facts_of(situation, plan, prepared.stages, prepared.do_nothing)
    broken = tuple(violation for rule in rule_moves.RULES for violation in rule(facts, plan))
    return Verdict(broken, facts.objective, facts.do_nothing)


def stage_values(snapshot: Snapshot, starts: Iterable[Start] = ()) -> dict[str, int]:
    """Objective by stage, in order, if just these starts are made. Their form must be sound."""
    situation = situate(snapshot)
    placed = place_starts(situation, starts)
    return Stages(situation).values(placed, states_after(situation, placed))
