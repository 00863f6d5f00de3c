"""CP-SAT on a program whose columns may be narrowed. The one module that talks to CP-SAT."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from ortools.sat.python import cp_model

from trencadis.solver.program import INFINITE, Objective, Program


@dataclass(frozen=True, slots=True)
class Effort:
    """How much a search may cost."""

    seconds: float
    workers: int
    seed: int
    deterministic: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a search found."""

    solution: list[int] | None
    bound: int | None
    """Proven for the program as narrowed; None if nothing was proven."""
    optimal: bool
    infeasible: bool


@dataclass(frozen=True, slots=True)
class Window:
    """Bounds to search within, inside those of the program."""

    low: Sequence[int]
    high: Sequence[int]


def search(
    program: Program,
    pins: Sequence[tuple[Objective, int]],
    objective: Objective,
    window: Window,
    hint: Sequence[int],
    target: int,
    effort: Effort,
    stop: threading.Event,
) -> Outcome:
    """Minimises the objective within the window, earlier objectives pinned.

    `hint` is a point of the window; the search ends early once the objective is at most `target`.
    """
    model = cp_model.CpModel()
    columns: list[cp_model.IntVar | int] = [
        low if low == high else model.new_int_var(low, high, "")
        for low, high in zip(window.low, window.high, strict=True)
    ]
    for row in program.rows:
        if not _add(model, columns, row.columns, row.coefficients, row.low, row.high):
            return Outcome(None, None, optimal=False, infeasible=True)
    for pinned, value in pins:
        rest = value - pinned.constant
        terms = list(pinned.terms.items())
        if not _add(model, columns, [c for c, _ in terms], [n for _, n in terms], -INFINITE, rest):
            return Outcome(None, None, optimal=False, infeasible=True)
    constant = objective.constant
    free: list[cp_model.IntVar] = []
    costs: list[int] = []
    for column, cost in objective.terms.items():
        entry = columns[column]
        if isinstance(entry, int):
            constant += cost * entry
        else:
            free.append(entry)
            costs.append(cost)
    model.minimize(cp_model.LinearExpr.weighted_sum(free, costs))
    for entry, value in zip(columns, hint, strict=True):
        if not isinstance(entry, int):
            model.add_hint(entry, value)
    solver = cp_model.CpSolver()
    _configure(solver, effort)
    status = _run(solver, model, _Enough(target - constant), stop)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        infeasible = status == cp_model.INFEASIBLE
        return Outcome(None, None, optimal=False, infeasible=infeasible)
    solution = [
        entry if isinstance(entry, int) else solver.value(entry) for entry in columns
    ]
    return Outcome(
        solution=solution,
        bound=constant + round(solver.best_objective_bound),
        optimal=status == cp_model.OPTIMAL,
        infeasible=False,
    )


def _add(
    model: cp_model.CpModel,
    columns: Sequence[cp_model.IntVar | int],
    indices: Sequence[int],
    coefficients: Sequence[int],
    low: int,
    high: int,
) -> bool:
    """Adds a row over what is not fixed; False if nothing is left and it is broken."""
    free: list[cp_model.IntVar] = []
    factors: list[int] = []
    fixed = 0
    for index, factor in zip(indices, coefficients, strict=True):
        entry = columns[index]
        if isinstance(entry, int):
            fixed += factor * entry
        else:
            free.append(entry)
            factors.append(factor)
    if not free:
        return low <= fixed <= high
    model.add_linear_constraint(
        cp_model.LinearExpr.weighted_sum(free, factors),
        -INFINITE if low <= -INFINITE else low - fixed,
        INFINITE if high >= INFINITE else high - fixed,
    )
    return True


def _configure(solver: cp_model.CpSolver, effort: Effort) -> None:
    parameters = solver.parameters
    parameters.random_seed = effort.seed
    # Probing and symmetry detection cost more than the search on these models.
    parameters.cp_model_probing_level = 0
    parameters.symmetry_level = 0
    parameters.catch_sigint_signal = False
    if effort.deterministic:
        parameters.num_workers = 1
        parameters.max_deterministic_time = max(0.01, effort.seconds)
    else:
        parameters.num_workers = effort.workers
        parameters.max_time_in_seconds = max(0.01, effort.seconds)


class _Enough(cp_model.CpSolverSolutionCallback):  # type: ignore[misc]
    """Ends the search at the first solution that is good enough."""

    def __init__(self, target: int) -> None:
        super().__init__()
        self.target = target

    def on_solution_callback(self) -> None:
        """Called by CP-SAT for each improving solution."""
        if self.objective_value <= self.target:
            self.stop_search()


def _run(
    solver: cp_model.CpSolver, model: cp_model.CpModel, enough: _Enough, stop: threading.Event
) -> int:
    """Solves in a thread, so that an interrupt reaches us and can stop the search."""
    result: list[int] = []
    thread = threading.Thread(
        target=lambda: result.append(int(solver.solve(model, enough))), daemon=True
    )
    thread.start()
    while thread.is_alive():
        thread.join(0.05)
        if stop.is_set():
            solver.stop_search()
            thread.join()
    return result[0]
