"""The proof that a plan carries: each stage's objective, and a bound given the stages before."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from trencadis.models import Proof, StageProof, Status
from trencadis.solver.clock import Clock, Limits
from trencadis.solver.lp import LinearProgram
from trencadis.solver.model.build import Model
from trencadis.solver.model.problem import Facts
from trencadis.solver.prove import Prover, trivial
from trencadis.solver.search import Solution, decision_columns
from trencadis.solver.stages import (
    FRAGMENTATION,
    GUARANTEE,
    GUARANTEE_PARENTS,
    unit_of,
    wait_stages,
)

PROOF_SECONDS = 0.8
PROOF_SHARE = 0.3
"""What the bounds may take together: the longest of this long, this part of the search's time, and
what the search left of it."""


def prove(
    facts: Facts,
    model: Model,
    solution: Solution,
    decided: Sequence[int],
    constants: Sequence[int],
    nothing: Mapping[str, int],
    achieved: Mapping[str, int],
    lost: Mapping[str, int],
    limits: Limits,
    opened: bool = False,
) -> list[StageProof]:
    """Bounds for what the plan achieved.

    `opened`: victims may go in the model: what a plan with preemption can reach at best, but no
    bound for fragmentation, which counts what is idle.

    `decided`: the plan as counts of the model; `constants`: spread of what runs, by tier, which the
    model leaves out; `nothing` and `achieved`: the stages if nothing starts, and under the plan;
    `lost`: what victims lose, by stage.
    """
    prover: Prover | None = None
    seconds = max(PROOF_SECONDS, PROOF_SHARE * limits.clock.seconds, limits.clock.left())
    clock = Clock(seconds, limits.clock.deterministic)
    found: list[StageProof] = []
    holds = True  # what the search proved holds as long as the plan kept its promises
    earlier: list[tuple[int, int]] = []
    objectives = model.program.objectives
    shifts = stage_shifts(facts, constants)
    for position, objective in enumerate(objectives):
        name = objective.name
        began = time.monotonic()
        shift = shifts.get(name, 0)
        value = achieved[name] - shift
        known = solution.stages.get(name)
        bound = known.bound if known is not None and holds else trivial(model.program, objective)
        gone = lost.get(name, 0)
        slack = int(limits.gap * max(0, nothing[name] + gone - achieved[name]))
        hopeless = opened and name == FRAGMENTATION
        if not hopeless and (bound < value - slack or not holds):
            if prover is None:
                relaxed = solution.relaxed or LinearProgram(model.program)
                relaxed.loosen()
                prover = Prover(model.program, relaxed, decision_columns(model), decided)
                for before, (pinned, _) in zip(objectives[:position], earlier, strict=True):
                    prover.pin(before, pinned)
            effort = replace(limits.effort(), seconds=clock.left())
            later = len(objectives) - position - 1
            proven = prover.bound(objective, value, value - slack, effort, limits.stop, later)
            bound = max(bound, proven)
        if prover is not None:
            prover.pin(objective, value)
        earlier.append((value, bound))
        holds = holds and known is not None and value <= known.value
        found.append(
            _stage(
                facts,
                name,
                achieved[name],
                0 if hopeless else min(max(bound + shift, 0), achieved[name]),
                nothing[name],
                gone,
                limits,
                time.monotonic() - began + (known.seconds if known else 0.0),
            )
        )
    return found


def stage_shifts(facts: Facts, constants: Sequence[int]) -> dict[str, int]:
    """By stage of waiting what is given by tier, such as the spread of what runs."""
    names = wait_stages(facts.snapshot)
    if len(names) == 1:
        return {names[0]: sum(constants)}
    return dict(zip(names, constants, strict=True))


def _stage(
    facts: Facts,
    name: str,
    objective: int,
    bound: int,
    nothing: int,
    lost: int,
    limits: Limits,
    seconds: float,
) -> StageProof:
    if name in (GUARANTEE, GUARANTEE_PARENTS):
        unit = facts.values.rates.unit
        objective, bound, nothing = (n * 1_000 // unit for n in (objective, bound, nothing))
    room = nothing + lost - bound
    gap = (objective - bound) / room if room else 0.0
    if objective == bound:
        status = Status.OPTIMAL
    elif limits.stop.is_set():
        status = Status.INTERRUPTED
    elif gap <= limits.gap:
        status = Status.GAP
    else:
        status = Status.TIME_LIMIT if limits.clock.expired() else Status.FEASIBLE
    return StageProof(
        name=name,
        unit=unit_of(name),
        objective=objective,
        bound=bound,
        do_nothing=nothing,
        lost=lost,
        gap=gap,
        status=status,
        solve_s=None if limits.clock.deterministic else round(seconds, 3),
    )


def overall(stages: Sequence[StageProof]) -> Proof:
    """The proof of the plan as a whole."""
    worst = (
        Status.INTERRUPTED,
        Status.TIME_LIMIT,
        Status.FEASIBLE,
        Status.GAP,
        Status.OPTIMAL,
    )
    deciding = [stage.gap for stage in stages if stage.name != FRAGMENTATION]
    return Proof(
        stages=tuple(stages),
        gap=max(deciding, default=0.0),
        status=min((stage.status for stage in stages), key=worst.index, default=Status.OPTIMAL),
    )
