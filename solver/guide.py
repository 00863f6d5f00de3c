"""Who starts, in whole jobs, with the supply still in fractions: where the search should look.

Stage by stage the relaxation says who starts; its few close calls are decided in whole numbers
(`core`), and it then shows what the supply carries of them. No proof: a miss costs quality alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trencadis.solver.blend import blended
from trencadis.solver.bound import Ints
from trencadis.solver.clock import Limits
from trencadis.solver.core import (
    WHOLE,
    Field,
    Mask,
    decide_close,
    fractional,
    reduced_costs,
    shared_out,
    whole_part,
)
from trencadis.solver.lp import LinearProgram, Relaxation, at_most
from trencadis.solver.program import Objective, Program
from trencadis.solver.prove import trivial

PATIENCE = 2
"""Attempts of a stage at whole starts."""
DIVES = 4
"""Parts of starts that are tried in both directions; all others are rounded down."""
DIVE_SHARE = 0.03
"""Part of the time left after which the rest of them is rounded down."""
CORE_SHARE = 0.1
"""Part of the time left that one core problem may take."""
ENOUGH = 0.01
"""Part of the gap that a core problem may leave open."""
FEW = 120
"""So many fractional places a search can settle; above, jobs are lifted out of them first."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What the guide must know of the columns."""

    pieces: Ints
    """Units that start."""
    decision: Mask
    """Columns that decide who starts; all others are supply."""
    open: Ints
    """Shortfalls: they follow from the rest."""
    places: Sequence[Sequence[Ints]]
    """Jobs by domain: by level, the finest first, then by way."""


@dataclass(frozen=True, slots=True)
class Guide:
    """A point whose starts are whole."""

    point: npt.NDArray[np.float64]
    pieces: Ints
    """Columns of the units that start, whole at the point but for floats."""
    values: dict[str, float]
    """What each stage reaches there; stages that were not worked out are missing."""
    close: Sequence[dict[int, float]]
    """By stage: how far each of its pieces is from being a close call, its reduced cost."""
    reduced: npt.NDArray[np.float64]
    """Reduced costs of all columns in the last stage."""


class Guider:
    """Works out a guide on a relaxation, which it leaves narrowed."""

    def __init__(
        self, program: Program, relaxed: LinearProgram, parts: Parts,
        limits: Limits, staging: Limits,
    ) -> None:
        """`staging`: for the stages alone."""
        self.program, self.relaxed, self.parts = program, relaxed, parts
        self.limits, self.staging = limits, staging
        self.low = np.array(program.low, dtype=np.int64)
        self.high = np.array(program.high, dtype=np.int64)
        self.settled = np.zeros(len(self.low), dtype=bool)
        self.values: dict[str, float] = {}
        self.close: list[dict[int, float]] = []

    def guide(self) -> Guide | None:
        """The guide; None if no relaxation was solved."""
        last: tuple[Objective, Relaxation] | None = None
        for objective in self.program.objectives:
            if not objective.terms or (last and self._met(objective, last[1])):
                continue
            reached = None if self.staging.over() else self._stage(objective)
            if reached is None:
                # No time, or floats got in each other's way: the stages so far are guide enough.
                break
            last = (objective, reached)
        if last is None:
            return None
        reduced = reduced_costs(self.relaxed.flat(), *last)
        lifted = None if self.limits.over() else self._lift(last[1])
        if lifted is not None:
            last, reduced = lifted, reduced_costs(self.relaxed.flat(), *lifted)
        return Guide(last[1].point, self.parts.pieces, self.values, self.close, reduced)

    def _solve(self, objective: Objective) -> Relaxation | None:
        return self.relaxed.solve(objective, self.limits.clock.left())

    def _met(self, objective: Objective, relaxation: Relaxation) -> bool:
        """Whether a stage without starts of its own is as good as it can be already."""
        terms = objective.terms.items()
        reached = objective.constant + sum(cost * relaxation.point[c] for c, cost in terms)
        if reached > trivial(self.program, objective) + WHOLE:
            return False
        self.values[objective.name] = reached
        self._pin(objective, reached + 1.0)
        return True

    def _stage(self, objective: Objective) -> Relaxation | None:
        relaxation = self._solve(objective)
        if relaxation is None:
            return None
        slack = 1.0
        mine = np.array(
            [c for c in self.parts.pieces if c in objective.terms and not self.settled[c]],
            dtype=np.int64,
        )
        if mine.size:
            reduced = reduced_costs(self.relaxed.flat(), objective, relaxation)
            close = np.abs(reduced[mine]).tolist()
            self.close.append(dict(zip(mine.tolist(), close, strict=True)))
            if fractional(relaxation.point[mine]).any():
                relaxation = self._make_whole(objective, relaxation, mine)
            whole = whole_part(relaxation.point[mine])
            # Neither what is whole to three digits only must make this infeasible, nor parts that
            # nothing made whole: a guarantee may need them.
            parts = fractional(relaxation.point[mine])
            self._restrict(mine, np.maximum(self.low[mine], whole - 1), whole + parts)
            self.settled[mine] = True
            slack += sum(
                abs(objective.terms[c]) * abs(relaxation.point[c] - n)
                for c, n in zip(mine.tolist(), whole.tolist(), strict=True)
            )
        self.values[objective.name] = relaxation.value
        self._pin(objective, relaxation.value + slack)
        return relaxation

    def _pin(self, objective: Objective, value: float) -> None:
        self.relaxed.add(at_most(objective, int(np.ceil(value + 1e-8 * abs(value)))))

    def _restrict(self, columns: Ints, low: Ints, high: Ints) -> None:
        self.low[columns], self.high[columns] = low, high
        self.relaxed.restrict(columns.tolist(), low.tolist(), high.tolist())

    def _make_whole(
        self, objective: Objective, relaxation: Relaxation, mine: Ints
    ) -> Relaxation:
        """Whole starts for this stage: the best of a few attempts."""
        room = max(0.0, objective.value(self.program.rest) - relaxation.value)
        low, high = self.low[mine].copy(), self.high[mine].copy()
        start = low, high.copy()
        best: Relaxation | None = None
        fallback, goal = relaxation, relaxation.value
        for _ in range(PATIENCE):
            tried = self._decided(objective, relaxation, mine, int(ENOUGH * self.limits.gap * room))
            if tried is None:
                break
            dived, broken = tried
            if best is None or dived.value < best.value:
                best = dived
            good = dived.value <= goal + self.limits.gap * room / 10 or not broken.size
            if good or self.staging.over():
                break
            # Without what the supply can't carry whole, the others get another chance.
            floor = np.isin(mine, broken)
            high[floor] = np.minimum(high, whole_part(dived.point[mine]))[floor]
            self._restrict(mine, np.minimum(low, high), high)
            again = self._solve(objective)
            if again is None:
                break
            relaxation = again
        if best is None:
            # No time, or no legal way to round: the whole part of what there is must do.
            self._restrict(mine, *start)
            return fallback
        whole = whole_part(best.point[mine])
        self._restrict(mine, np.minimum(low, whole), whole)
        return best

    def _decided(
        self, objective: Objective, relaxation: Relaxation, mine: Ints, slack: int
    ) -> tuple[Relaxation, Ints] | None:
        """One attempt: whole starts, and the pieces that the supply did not carry."""
        parts = self.parts
        settled = self.settled[parts.pieces]
        field = Field(
            decision=parts.decision,
            mine=mine,
            later=np.setdiff1d(parts.pieces[~settled], mine),
            settled=parts.pieces[settled],
            open=parts.open,
            low=self.low,
            high=self.high,
        )
        effort = self.limits.effort(CORE_SHARE * self.limits.clock.left())
        decided = decide_close(
            self.relaxed, objective, relaxation, field, slack, effort, self.limits.stop
        )
        if decided is not None:
            most = np.array([decided[c] for c in mine], dtype=np.int64)
            self._restrict(mine, np.minimum(self.low[mine], most), most)
            again = self._solve(objective)
            if again is None:
                return None
            relaxation = again
        broken = mine[fractional(relaxation.point[mine])]
        dived = self._dive(objective, relaxation, mine, slack)
        return None if dived is None else (dived, broken)

    def _dive(
        self, objective: Objective, relaxation: Relaxation, mine: Ints, slack: int
    ) -> Relaxation | None:
        """Makes parts of starts whole, the costliest first, each in its better direction; all at
        once where rounding them down costs no more than `slack`."""
        most = self.limits.clock.left() * (1 - DIVE_SHARE)
        for attempt in range(DIVES):
            broken = mine[fractional(relaxation.point[mine])]
            if not broken.size:
                return relaxation
            if attempt and (self.limits.clock.left() < most or self.staging.over()):
                break
            if attempt == 0:
                low, high = self.low[broken].copy(), self.high[broken].copy()
                floor = np.floor(relaxation.point[broken]).astype(np.int64)
                self._restrict(broken, np.minimum(low, floor), floor)
                down = self._solve(objective)
                if down is not None and down.value <= relaxation.value + slack:
                    return down
                self._restrict(broken, low, high)
            cost = np.array([abs(objective.terms[c]) for c in broken])
            part = relaxation.point[broken] % 1.0
            piece = broken[[int(np.argmax(cost * np.minimum(part, 1.0 - part)))]]
            low, high = self.low[piece].copy(), self.high[piece].copy()
            floor = np.floor(relaxation.point[piece]).astype(np.int64)
            self._restrict(piece, np.maximum(low, floor + 1), high)
            up = self._solve(objective)
            self._restrict(piece, np.minimum(low, floor), floor)
            down = self._solve(objective)
            if up is not None and (down is None or up.value < down.value):
                self._restrict(piece, np.maximum(low, floor + 1), high)
                down = up
            if down is None:
                return None
            relaxation = down
        whole = whole_part(relaxation.point[mine])
        self._restrict(mine, np.minimum(self.low[mine], whole), whole)
        return self._solve(objective)

    def _lift(self, relaxation: Relaxation) -> tuple[Objective, Relaxation] | None:
        """Where many jobs are spread over parts of domains: whole jobs per domain, level by level.

        Jobs that don't fill a domain in whole numbers go up to the next level. That costs some
        spread, so all stages together are the goal here, and only guarantees stay pinned.
        """
        blend = blended(self.program)
        lifted = False
        for level in self.parts.places:
            columns = np.concatenate(level)
            if np.count_nonzero(fractional(relaxation.point[columns])) <= FEW:
                continue
            if not lifted:
                self.relaxed.loosen()
                for stage in self.program.objectives:
                    if stage.name in self.values and stage.terms.keys() <= set(self.parts.open):
                        self._pin(stage, self.values[stage.name] + 1.0)
                pieces = self.parts.pieces
                self._restrict(pieces, self.low[pieces], self.high[pieces])
                lifted = True
            # First as many whole jobs as there are in all, then none that is not whole.
            for share_out in (shared_out, whole_part):
                most = np.concatenate([share_out(relaxation.point[way]) for way in level])
                self._restrict(columns, np.minimum(self.low[columns], most), most)
                again = self._solve(blend)
                if again is None:
                    return None
                relaxation = again
        if not lifted:
            return None
        for objective in self.program.objectives:
            reached = (cost * relaxation.point[c] for c, cost in objective.terms.items())
            self.values[objective.name] = objective.constant + sum(reached)
        self._pin(blend, relaxation.value + 1)
        last = self.program.objectives[-1]
        final = self._solve(last)
        return (blend, relaxation) if final is None else (last, final)
