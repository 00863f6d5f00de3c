"""How good counts are: for each stage, what no plan can beat that is as good in earlier stages."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from trencadis.solver.bound import SafeBound, safe_bound
from trencadis.solver.cpsat import Effort, Window
from trencadis.solver.lagrange import decide
from trencadis.solver.lp import LinearProgram, Relaxation, at_most
from trencadis.solver.program import Objective, Program, Row

HARD_SECONDS = 3.0
SHARP_SECONDS = 0.5
"""What pricing a stage may take: where the relaxation's bound is too weak, or is not."""
COLUMN_SECONDS = 1e-4
"""With less for each decision, pricing them ends without a bound."""


class Prover:
    """Bounds the stages of a program one after the other, each given the ones before it."""

    def __init__(
        self,
        program: Program,
        relaxed: LinearProgram,
        decision: npt.NDArray[np.bool_],
        counts: Sequence[int],
    ) -> None:
        """`decision`: marks the columns that decide who starts; `counts`: what is to be judged."""
        self.program, self.relaxed, self.decision = program, relaxed, decision
        self._counts = np.array(counts, dtype=np.int64)
        # Bounds that every point within the pins keeps; they narrow from stage to stage.
        self.low = np.array(program.low, dtype=np.int64)
        self.high = np.array(program.high, dtype=np.int64)
        self._cuts: list[int] = []
        self._kept: list[int] = []
        """Decisions of earlier stages."""
        self._supply: list[Row] = []
        """Supply at the prices of earlier stages: these starts must fit it, too."""

    def bound(
        self,
        objective: Objective,
        value: int,
        enough: int,
        effort: Effort,
        stop: threading.Event,
        later: int = 0,
    ) -> int:
        """A lower bound of the objective, at most `value`; tries harder while below `enough`.

        `later`: so many more stages share the effort.
        """
        best = trivial(self.program, objective)
        for tightened in (False, True):
            if best >= value or effort.seconds <= 0:
                break
            began = time.monotonic()
            relaxation = self.relaxed.solve(objective, effort.seconds)
            if relaxation is None:
                break
            spent = time.monotonic() - began
            flat = self.relaxed.flat()
            proof = safe_bound(self.program, objective, flat, relaxation.duals)
            best = max(best, proof.value)
            self.low, self.high = reach(proof, value, self.low, self.high)
            if tightened or best >= value or stop.is_set():
                break
            # Even where the bound is sharp enough for this stage: what it leaves open, the
            # relaxations of all later stages exploit. The cut ends that.
            most = SHARP_SECONDS if best >= enough else HARD_SECONDS
            if not effort.deterministic:
                effort = replace(effort, seconds=max(0.0, effort.seconds - spent))
                most = min(most, effort.seconds / (later + 2))
                if most < COLUMN_SECONDS * np.count_nonzero(self.decision):
                    break
            priced = decide(
                self.relaxed.rows,
                flat,
                objective,
                self._prices(objective, relaxation, effort.seconds),
                self.decision,
                Window(self.low.tolist(), self.high.tolist()),
                self._counts,
                replace(effort, seconds=most),
                stop,
                self._cuts,
                self._supply,
            )
            if priced.supply is not None:
                self._supply.append(priced.supply)
            if priced.bound is None or priced.cut is None or priced.bound <= best:
                break
            best = priced.bound
            self._cuts.append(len(self.relaxed.rows))
            self.relaxed.add(priced.cut)
        return min(best, value)

    def pin(self, objective: Objective, value: int) -> None:
        """From now on only points whose objective is at most `value` count."""
        if objective.terms:
            self.relaxed.add(at_most(objective, value))
            self._kept.extend(c for c in objective.terms if self.decision[c])

    def _prices(
        self, objective: Objective, relaxation: Relaxation, seconds: float
    ) -> npt.NDArray[np.float64]:
        """What supply is worth where earlier stages stay as they are.

        Their relaxation reaches less than whole starts do, and what it leaves open would make
        supply look cheaper than it is. Any prices prove something; these prove more.
        """
        if not self._kept:
            return relaxation.duals
        kept = np.array(self._kept, dtype=np.int64)
        self.relaxed.restrict(kept, self._counts[kept], self._counts[kept])
        priced = self.relaxed.solve(objective, seconds)
        program = np.array(self.program.low), np.array(self.program.high)
        self.relaxed.restrict(kept, program[0][kept], program[1][kept])
        return relaxation.duals if priced is None else priced.duals


def reach(
    proof: SafeBound,
    value: int,
    low: npt.NDArray[np.int64],
    high: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Bounds of all points whose objective is at most `value`: reduced cost fixing, exact."""
    slack = max(0, value - proof.value + 1) * proof.scale
    steps = slack // np.maximum(1, np.abs(proof.reduced))
    up = np.where(proof.reduced > 0, np.minimum(high, proof.low + steps), high)
    down = np.where(proof.reduced < 0, np.maximum(low, proof.high - steps), low)
    return np.minimum(down, up), np.maximum(down, up)


def trivial(program: Program, objective: Objective) -> int:
    """The objective with each column at its better bound."""
    return objective.constant + sum(
        cost * (program.low[c] if cost > 0 else program.high[c])
        for c, cost in objective.terms.items()
    )

