"""A verdict as a person reads it: rules broken, and what the plan's stages cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from trencadis.models.plan import Plan
from trencadis.views import words
from trencadis.views.io import clean

if TYPE_CHECKING:
    from rich.console import RenderableType

    from trencadis.solver.verify.verdict import Verdict


def verdict_view(verdict: Verdict, plan: Plan) -> Iterator[RenderableType]:
    """The parts of the picture, from the top."""
    broken = len(verdict.violations)
    if broken:
        yield f"The plan breaks the rules in {words.count(broken, 'place')}:"
    else:
        yield "The plan keeps every rule."
    for violation in verdict.violations[: words.MAX_ROWS]:
        yield clean(f"{violation.rule}: {violation.message}")
    if left := words.fold(broken):
        yield left
    if verdict.stages:
        claimed = {stage.name: stage.objective for stage in plan.proof.stages}
        table = words.table("Cost", "stage", "claimed", "found", right=("claimed", "found"))
        for name, cost in verdict.stages.items():
            said = claimed.get(name)
            table.add_row(
                clean(name), "-" if said is None else words.number(said), words.number(cost)
            )
        yield table


def verdict_record(verdict: Verdict) -> dict[str, Any]:
    """The verdict for `--json`."""
    return {
        "ok": not verdict.violations,
        "violations": [
            {"rule": violation.rule, "message": violation.message}
            for violation in verdict.violations
        ],
        "stages": dict(verdict.stages),
    }
