"""Checks a plan against every rule, without the solver.

Everything here is worked out from snapshot and plan by itself: sizes, weights, costs, targets and
stages, as `docs/problem.md` defines them. A rule is a function that yields violations; `RULES`
lists them, and `verify` knows none of them by name.
"""

from __future__ import annotations

from collections.abc import Iterable

from trencadis.models import Plan, Snapshot, Start
from trencadis.solver.verify import (
    rule_claims,
    rule_form,
    rule_growth,
    rule_holds,
    rule_limits,
    rule_nodes,
    rule_parts,
    rule_preempt,
    rule_topology,
    rule_work_conserving,
)
from trencadis.solver.verify.facts import gather
from trencadis.solver.verify.growing import without_further
from trencadis.solver.verify.situation import situate
from trencadis.solver.verify.stages import Stages, place_starts, states_after
from trencadis.solver.verify.verdict import Verdict, Violation

__all__ = ["Verdict", "Violation", "stage_values", "verify"]

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


def verify(snapshot: Snapshot, plan: Plan, *, fingerprint: str | None = None) -> Verdict:
    """Every rule that the plan breaks, and what its stages cost.

    The snapshot must be sound (`trencadis.models.check`). A plan whose form is broken
    (`rule_form`) is not judged further. `fingerprint` is the snapshot's, for callers that have just
    worked it out: on large snapshots that takes as long as everything else.
    """
    situation = situate(snapshot)
    broken = tuple(rule_form.fingerprint(fingerprint or snapshot.fingerprint(), plan))
    broken += tuple(rule_holds.held(situation, plan))
    plan = rule_holds.without_held(situation, plan)
    form = (*rule_form.RULES, *rule_preempt.FORM, *rule_growth.FORM)
    broken += tuple(v for rule in form for v in rule(situation, plan))
    if broken:
        return Verdict(broken)
    core = without_further(plan)
    facts = gather(situation, core)
    broken = tuple(violation for rule in RULES for violation in rule(facts, core))
    broken += tuple(violation for rule in rule_growth.RULES for violation in rule(facts, plan))
    return Verdict(
        broken,
        dict(facts.objective),
        dict(facts.do_nothing),
    )


def stage_values(snapshot: Snapshot, starts: Iterable[Start] = ()) -> dict[str, int]:
    """Objective by stage, in order, if just these starts are made. Their form must be sound."""
    situation = situate(snapshot)
    placed = place_starts(situation, starts)
    return Stages(situation).values(placed, states_after(situation, placed))
