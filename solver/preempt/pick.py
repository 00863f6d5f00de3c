"""Which victims are worth their loss: the relaxation of the joint model, its victims made whole."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trencadis.solver.clock import Limits
from trencadis.solver.core import whole_part
from trencadis.solver.guide import Guider
from trencadis.solver.lp import LinearProgram, Relaxation, at_most
from trencadis.solver.model.build import Model
from trencadis.solver.program import Objective, Program
from trencadis.solver.search import parts_of
from trencadis.solver.stages import FRAGMENTATION

RATIO = 50.0
"""How much more a part of a stage is worth than the same part of the next, while parts of victims
are made whole. Whole victims never meet the stages' values exactly."""
SLACK = 5e-4
"""Part of what a stage gains that later stages may take back."""
WHOLE = 1e-3


@dataclass(frozen=True, slots=True)
class Picked:
    """Victims, and what the relaxation reaches."""

    names: frozenset[str]
    values: dict[str, float]
    """By stage, with parts of victims and of starts: about what a plan may come to at best."""
    relaxed: LinearProgram

    def gaps(self, cost: Sequence[int], lost: Sequence[int], model: Model) -> list[float]:
        """How far a plan of such costs, with what victims lose, is from that, stage by stage."""
        found = []
        stages = [stage for stage in model.program.objectives if stage.name != FRAGMENTATION]
        for stage, reached, gone in zip(stages, cost, lost, strict=True):
            best = self.values.get(stage.name, 0.0)
            above, room = reached - best, stage.value(model.program.rest) + gone - best
            found.append(above / room if room > 0 else float(above > 0))
        return found


def pick(model: Model, limits: Limits, staying: Container[str] = ()) -> Picked | None:
    """Whole victims near the best, none of those `staying`; None if no relaxation was solved in
    time."""
    program = model.program
    relaxed = LinearProgram(program)
    names = list(model.columns.gone)
    columns = np.array([model.columns.gone[name] for name in names], dtype=np.int64)
    most = np.array([int(name not in staying) for name in names], dtype=np.int64)
    relaxed.restrict(columns.tolist(), np.zeros_like(most).tolist(), most.tolist())
    values: dict[str, float] = {}
    point: npt.NDArray[np.float64] | None = None
    for objective in program.objectives:
        if not objective.terms:
            continue
        reached = relaxed.solve(objective, limits.clock.left())
        if reached is None:
            break
        values[objective.name], point = reached.value, reached.point
        gained = abs(objective.value(program.rest) - reached.value)
        relaxed.add(at_most(objective, int(np.ceil(reached.value + 1 + SLACK * gained))))
    if point is None:
        return None
    relaxed.loosen()
    whole = _Dive(relaxed, _in_all(program), columns, most, limits).whole(point)
    relaxed.loosen()
    going = frozenset(name for name, gone in zip(names, whole, strict=True) if gone)
    return Picked(going, values, relaxed)


def likely(model: Model, gone: Container[str], limits: Limits) -> set[str]:
    """The waiting jobs that start in whole numbers, with these victims gone."""
    program = model.program
    low, high = list(program.low), list(program.high)
    for name, column in model.columns.gone.items():
        low[column] = high[column] = int(name in gone)
    fixed = Program(
        low=low,
        high=high,
        rest=program.rest,
        rows=program.rows,
        objectives=[stage for stage in program.objectives if stage.name != FRAGMENTATION],
    )
    guide = Guider(fixed, LinearProgram(fixed), parts_of(model), limits, limits).guide()
    names: set[str] = set()
    if guide is not None:
        counts = whole_part(guide.point)
        for cls, pieces in zip(model.problem.demand.classes, model.columns.pieces, strict=True):
            number = sum(int(counts[piece.column]) for piece in pieces)
            names.update(name for unit in cls.units[:number] for name in unit)
    return names


def _in_all(program: Program) -> Objective:
    """All stages in one sum, each in parts of what it costs if nothing starts."""
    found = Objective("all")
    weight, scale = 1.0, 1e10
    for objective in program.objectives:
        if objective.terms:
            nothing = max(1, objective.value(program.rest))
            for column, cost in objective.terms.items():
                found.add(column, round(scale * weight * cost / nothing))
            weight /= RATIO
    return found


class _Dive:
    """Makes victims whole, one after the other, each in its better direction."""

    def __init__(
        self,
        relaxed: LinearProgram,
        goal: Objective,
        columns: npt.NDArray[np.int64],
        most: npt.NDArray[np.int64],
        limits: Limits,
    ) -> None:
        self.relaxed, self.goal, self.columns, self.limits = relaxed, goal, columns, limits
        self.low = np.zeros(len(columns), dtype=np.int64)
        self.high = most

    def whole(self, point: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        """1 where a victim goes. `point`: of the relaxation, stage by stage."""
        self.low[point[self.columns] > 1 - WHOLE] = 1
        at = self._solve()
        while at is not None:
            part = at.point[self.columns]
            self.low[part > 1 - WHOLE] = 1
            broken = np.flatnonzero((part > WHOLE) & (self.low == 0))
            if not broken.size or self.limits.over():
                break
            first = int(broken[np.argmax(part[broken])])
            tried = {value: self._tried(first, value) for value in (1, 0)}
            found = {value: there for value, there in tried.items() if there is not None}
            if not found:
                break
            better = min(found, key=lambda value: (found[value].value, -value))
            self.low[first] = self.high[first] = better
            at = found[better]
        return self.low

    def _tried(self, victim: int, value: int) -> Relaxation | None:
        low, high = self.low[victim], self.high[victim]
        self.low[victim] = self.high[victim] = value
        found = self._solve()
        self.low[victim], self.high[victim] = low, high
        return found

    def _solve(self) -> Relaxation | None:
        self.relaxed.restrict(self.columns.tolist(), self.low.tolist(), self.high.tolist())
        return self.relaxed.solve(self.goal, self.limits.clock.left())
