"""How good counts are: for each stage, what no plan can beat that is as good in earlier stages."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from trencadis.solver.bound import SafeBound, safe_bound
from trencadis.solver.cpsat import Effort, Window
from trencadis.solver.lagrange import decide
from trencadis.solver.lp import LinearProgram, at_most
from trencadis.solver.program import Objective, Program


class Prover:
    """Bounds the stages of a program one after the other, each given the ones before it."""

    def __init__(
        self, program: Program, relaxed: LinearProgram, decision: npt.NDArray[np.bool_]
    ) -> None:
        self.program, self.relaxed, self.decision = program, relaxed, decision
        # Bounds that every point within the pins keeps; they narrow from stage to stage.
        self.low = np.array(program.low, dtype=np.int64)
        self.high = np.array(program.high, dtype=np.int64)

    def bound(
        self,
        objective: Objective,
        value: int,
        enough: int,
        effort: Effort,
        stop: threading.Event,
    ) -> int:
        """A lower bound of the objective, at most `value`; tries harder while below `enough`."""
        best = trivial(self.program, objective)
        proof: SafeBound | None = None
        relaxation = None
        if best < value and effort.seconds > 0:
            relaxation = self.relaxed.solve(objective, effort.seconds)
        if relaxation is not None:
            flat = self.relaxed.flat()
            proof = safe_bound(self.program, objective, flat, relaxation.duals)
            best = max(best, proof.value)
            if best < min(value, enough) and not stop.is_set():
                priced = decide(
                    self.relaxed.rows,
                    flat,
                    objective,
                    relaxation.duals,
                    self.decision,
                    Window(self.low.tolist(), self.high.tolist()),
                    np.rint(relaxation.point).astype(np.int64),
                    replace(effort, seconds=min(effort.seconds / 3, 2.0)),
                    stop,
                )
                if priced.bound is not None:
                    best = max(best, priced.bound)
        if proof is not None:
            self.low, self.high = reach(proof, value, self.low, self.high)
        return min(best, value)

    def pin(self, objective: Objective, value: int) -> None:
        """From now on only points whose objective is at most `value` count."""
        if objective.terms:
            self.relaxed.add(at_most(objective, value))


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

