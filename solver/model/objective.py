"""The stages as sums over columns, in lexicographic order."""

from __future__ import annotations

from trencadis.solver.model.columns import Columns
from trencadis.solver.model.problem import Facts, Problem
from trencadis.solver.program import Objective, Program
from trencadis.solver.stages import FRAGMENTATION, GUARANTEE, GUARANTEE_PARENTS, wait_stages


def add(problem: Problem, program: Program, columns: Columns) -> None:
    """Guarantees of leaves, of parents, waiting by tier, fragmentation."""
    facts = problem.facts
    for name, leaf in ((GUARANTEE, True), (GUARANTEE_PARENTS, False)):
        objective = Objective(name)
        for column, target in zip(columns.shortfalls, facts.targets, strict=True):
            if target.leaf == leaf:
                objective.add(column, 1)
        program.objectives.append(objective)
    waits = wait_stages(facts.snapshot)
    stages = [Objective(name) for name in waits]
    by_tier = [stages[0 if len(waits) == 1 else t] for t in range(_tiers(facts))]
    _waiting(problem, columns, by_tier)
    fragmentation = Objective(FRAGMENTATION)
    profile = facts.profile
    if not profile.off:
        _fragmentation(problem, columns, fragmentation)
    if profile.weight_milli is not None:
        _fragmentation(problem, columns, stages[-1])
    program.objectives.extend(stages)
    if not profile.off and profile.weight_milli is None:
        program.objectives.append(fragmentation)


def _tiers(facts: Facts) -> int:
    return len(facts.snapshot.policy.tiers)


def _waiting(problem: Problem, columns: Columns, by_tier: list[Objective]) -> None:
    for index, cls in enumerate(problem.demand.classes):
        for waits in cls.waits:
            for member, wait in zip(cls.members, waits, strict=True):
                by_tier[member.tier].constant += wait
        tiers = {member.tier for member in cls.members}
        if len(tiers) == 1:
            tier = next(iter(tiers))
            for piece in columns.pieces[index]:
                by_tier[tier].add(piece.column, -piece.slope)
        else:  # a group across tiers is a class of one unit
            for piece in columns.pieces[index]:
                for member, wait in zip(cls.members, cls.waits[0], strict=True):
                    by_tier[member.tier].add(piece.column, -wait)
    for (s, a), column in columns.chosen.items():
        shape = problem.demand.shapes[s]
        if shape.tier >= 0:
            by_tier[shape.tier].add(column, shape.alternatives[a].cost)
    classes = problem.supply.classes
    for (c, p), column in columns.fills.items():
        for tier, cost in (classes[c].patterns or ())[p].costs:
            by_tier[tier].add(column, cost)
    for (c, s, _), column in columns.pooled.items():
        slot = classes[c].slots[s]
        # Under explicit links a pooled slot may turn out linked: it costs nothing here.
        if slot.cost and classes[c].type.graph is None:
            by_tier[slot.tier].add(column, slot.cost)


def _fragmentation(problem: Problem, columns: Columns, objective: Objective) -> None:
    profile = problem.facts.profile
    scale = profile.weighted if profile.weight_milli is not None else int
    classes = problem.supply.classes
    for cls in classes:
        for kind in cls.own_kinds() if cls.feed is None else ():
            objective.constant += kind.number * scale(kind.patterns[0].fragmentation)
    for (c, p), column in columns.fills.items():
        patterns = classes[c].patterns
        assert patterns is not None
        change = scale(patterns[p].fragmentation)
        if classes[c].feed is None:
            # GPUs that are not opened cost nothing here: they are part of their node's F.
            change -= scale(patterns[0].fragmentation)
        objective.add(column, change)
