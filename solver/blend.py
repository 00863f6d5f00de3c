"""All stages in one sum: the goal where whole numbers are looked for near a guide."""

from __future__ import annotations

from trencadis.solver.program import Objective, Program
from trencadis.solver.stages import FRAGMENTATION

RATIO = 512
"""Units of a stage that one of the stage before is worth. With 64, a tier gave up ten thousandths
of its cost for the next one's sake, and every bound below suffered for it."""


def blend_weights(program: Program) -> dict[str, int]:
    """A weight for each stage but fragmentation: each unit worth `RATIO` of the next.

    A heuristic goal: weighted sums stay within 2^58 and so respect the order only roughly.
    """
    weights: dict[str, int] = {}
    weight, before = 0, 0
    for objective in reversed(program.objectives):
        if not objective.terms or objective.name == FRAGMENTATION:
            continue
        size = max(1, program.size(objective))
        weight = max(1, min(max(RATIO * weight, -(-4 * before // size)), (1 << 55) // size))
        before = weight * size
        weights[objective.name] = weight
    return weights


def blended(program: Program) -> Objective:
    """The weighted sum of all stages but fragmentation."""
    weights = blend_weights(program)
    blend = Objective("blend")
    for objective in program.objectives:
        weight = weights.get(objective.name, 0)
        blend.constant += weight * objective.constant
        for column, cost in objective.terms.items():
            blend.add(column, weight * cost)
    return blend
