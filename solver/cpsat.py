"""CP-SAT on a program whose columns may be narrowed. The one module that talks to CP-SAT."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from ortools.sat.python import cp_model

from trencadis.solver.program import INFINITE, Objective, Program, Row

MOMENT = 0.05
"""Seconds that a search takes to start, whatever it is about."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much a search may cost."""

    seconds: float
    workers: int
    seed: int
    deterministic: bool
    presolve: bool = True
    linearization: int = 1
    """How much of the model its linear relaxation takes in, 0 to 2."""
    strategies: tuple[str, ...] = ()
    """Of CP-SAT's portfolio only these, a worker each, and no local search; all where empty."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a search found."""

    solution: list[int] | None
    bound: int | None
    """Proven for the program as narrowed; None if nothing was proven."""
    optimal: bool
    infeasible: bool


@dataclass(frozen=True, slots=True)
class News:
    """What a search has found while it goes on; None: nothing new."""

    solution: list[int] | None
    """Better than all before."""
    bound: int | None
    """Proven for the program as narrowed; above the best solution where that is proven optimal."""


Hear = Callable[[News], None]


@dataclass(frozen=True, slots=True)
class Window:
    """Bounds to search within, inside those of the program."""

    low: Sequence[int]
    high: Sequence[int]


def search(
    program: Program,
    objective: Objective,
    window: Window,
    hint: Sequence[int],
    target: int | None,
    effort: Effort,
    stop: threading.Event,
    further: Sequence[Row] = (),
    enough: Callable[[list[int]], bool] | None = None,
    patience: float = 0.0,
    hear: Hear | None = None,
) -> Outcome:
    """Minimises the objective within the window.

    `hint`: where to start looking. `target`: the search ends early at this value or below.
    `further`: rows besides the program's. `enough`: says of a solution whether to end with it
    (any where None); `patience`: how long to wait for a better one first, in times of what this one
    took; 0 in deterministic mode, and then no solution ends the search unless `enough` says so.
    `hear`: called in this thread with solutions and bounds while the search goes on; what it
    raises ends the search.
    """
    model = cp_model.CpModel()
    columns: list[cp_model.IntVar | int] = [
        low if low == high else model.new_int_var(low, high, "")
        for low, high in zip(window.low, window.high, strict=True)
    ]
    for row in (*program.rows, *further):
        if not _add(model, columns, row):
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
    goal = -math.inf if target is None else target - constant
    news: SimpleQueue[News] | None = None
    if hear is not None:
        # CP-SAT calls back in threads of its own; the listener is called in this one.
        news = SimpleQueue()
        solver.best_bound_callback = _Bounds(constant, news)
    callback = _Enough(goal, columns, enough, 0.0 if effort.deterministic else patience, news)
    status = _run(solver, model, callback, stop, news, hear)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        # Without a solution CP-SAT's bound may never have been set: it is not to be trusted.
        return Outcome(None, None, optimal=False, infeasible=status == cp_model.INFEASIBLE)
    proven = constant + _whole(solver.best_objective_bound)
    solution = [
        entry if isinstance(entry, int) else solver.value(entry) for entry in columns
    ]
    return Outcome(
        solution=solution,
        bound=proven,
        optimal=status == cp_model.OPTIMAL,
        infeasible=False,
    )


def _add(model: cp_model.CpModel, columns: Sequence[cp_model.IntVar | int], row: Row) -> bool:
    """Adds a row over what is not fixed; False if nothing is left and it is broken."""
    low, high = row.low, row.high
    free: list[cp_model.IntVar] = []
    factors: list[int] = []
    fixed = 0
    for index, factor in zip(row.columns, row.coefficients, strict=True):
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
    parameters.cp_model_presolve = effort.presolve
    parameters.linearization_level = effort.linearization
    if effort.deterministic:
        parameters.num_workers = 1
        parameters.max_deterministic_time = max(0.01, effort.seconds)
    else:
        parameters.num_workers = effort.workers
        parameters.max_time_in_seconds = max(0.01, effort.seconds)
    if effort.strategies:
        workers = min(parameters.num_workers, len(effort.strategies))
        parameters.num_workers = workers
        parameters.subsolvers.extend(effort.strategies[:workers])
        parameters.use_lns = False
        parameters.use_rins_lns = False
        parameters.use_feasibility_jump = False
        parameters.num_violation_ls = 0


class _Enough(cp_model.CpSolverSolutionCallback):
    """Ends the search at the first solution that is good enough, or a while later."""

    def __init__(
        self,
        target: float,
        columns: Sequence[cp_model.IntVar | int],
        enough: Callable[[list[int]], bool] | None,
        patience: float,
        news: SimpleQueue[News] | None,
    ) -> None:
        super().__init__()
        self.target, self.columns, self.enough, self.news = target, columns, enough, news
        self.patience, self.began = patience, time.monotonic()
        self.until = math.inf
        """When to end with what there is."""

    def on_solution_callback(self) -> None:
        """Called by CP-SAT for each improving solution."""
        values: list[int] = []
        if self.news is not None or self.enough is not None:
            values = [c if isinstance(c, int) else self.value(c) for c in self.columns]
        if self.news is not None:
            self.news.put(News(values, None))
        now = time.monotonic()
        good = self.patience > 0 if self.enough is None else self.enough(values)
        if good:
            self.until = now + self.patience * max(MOMENT, now - self.began)
        if self.objective_value <= self.target or now >= self.until:
            self.stop_search()


class _Bounds:
    """Passes on each better bound."""

    def __init__(self, constant: int, news: SimpleQueue[News]) -> None:
        self.constant, self.news = constant, news

    def __call__(self, bound: float) -> None:
        if math.isfinite(bound):
            self.news.put(News(None, self.constant + _whole(bound)))


def _whole(bound: float) -> int:
    """The least whole value that a bound in floats allows."""
    return math.ceil(bound - 1e-6)


def _run(
    solver: cp_model.CpSolver,
    model: cp_model.CpModel,
    enough: _Enough,
    stop: threading.Event,
    news: SimpleQueue[News] | None,
    hear: Hear | None,
) -> int:
    """Solves in a thread, so that an interrupt reaches us and can stop the search."""
    result: list[int] = []
    thread = threading.Thread(
        target=lambda: result.append(int(solver.solve(model, enough))), daemon=True
    )
    thread.start()
    try:
        while thread.is_alive():
            thread.join(0.05)
            if stop.is_set() or time.monotonic() >= enough.until:
                solver.stop_search()
                thread.join()
            _pass_on(news, hear)
    except BaseException:
        solver.stop_search()
        thread.join()
        raise
    _pass_on(news, hear)
    return result[0]


def _pass_on(news: SimpleQueue[News] | None, hear: Hear | None) -> None:
    """Tells the listener what has come in since."""
    if news is None or hear is None:
        return
    while True:
        try:
            found = news.get_nowait()
        except Empty:
            return
        hear(found)
