"""All stages in one sum: the goal where whole numbers are looked for near a guide."""

from __future__ import annotations

from trencadis.solver.program import Objective, Program
from trencadis.solver.stages import FRAGMENTATION


def blend_weights(program: Program) -> dict[str, int]:
    """A weight for each stage but fragmentation: each unit worth 64 of the next.

    A heuristic goal: weighted sums stay within 2^58 and so respect the order only roughly.
    """
    weights: dict[str, int] = {}
    weight, before = 0, 0
    for objective in reversed(program.objectives):
        if not objective.terms or objective.name == FRAGMENTATION:
            continue
        size = max(1, program.size(objective))
        weight = max(1, min(max(64 * weight, -(-4 * before // size)), (1 << 55) // size))
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
