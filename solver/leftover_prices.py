"""What one more task of each kind is worth: prices from a linear program over share patterns.

The program fills what is idle with expected tasks, at most as many of a kind as are expected, so
that the sum of their worth is largest. Its columns are patterns of shares on one GPU, found one
by one from the duals (column generation, Gilmore and Gomory 1961). CPU is counted per class of
nodes. The price of a kind is its worth less the dual of its row: a kind that is scarce leaves
space behind that no other kind fills, and is then worth less space than it takes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
from ortools.linear_solver import pywraplp

from trencadis.models.base import GPU_MILLI
from trencadis.solver.leftover import Floats, Ints, Wanted, share_unit

CPU_UNIT = 1_000
"""Milli-CPU to one unit of the program, so that its coefficients are of one size."""
TOLERANCE = 1e-3
"""Least gain per unit of a column, in milli-GPU."""


@dataclass(frozen=True, slots=True)
class IdleClass:
    """Nodes that are alike, pooled."""

    model: str
    cpu: int
    """Idle milli-CPU in all."""
    gpus: tuple[tuple[int, int], ...]
    """Idle milli-GPU of a GPU, and how many have that."""
    widest: int
    """The most whole GPUs that one of the nodes has idle."""


CPU_PER_GPU = (2, 4, 6, 8, 10, 12, 14, 17, 20, 25, 30, 40, 60)
"""Idle CPUs per idle GPU at which nodes pass from one pool to the next."""


def pool(models: Sequence[str], model: Ints, cpu: Ints, gpu: Ints) -> list[IdleClass]:
    """Nodes of one model with about the same idle CPU per idle GPU, pooled.

    `model`: index into `models`; `cpu`: idle milli-CPU; `gpu`: idle milli-GPU (nodes, GPUs).
    Pooling lets nodes lend each other CPU, so the program allows too much, never too little.
    """
    idle = gpu.sum(axis=1)
    band = np.searchsorted(CPU_PER_GPU, cpu / np.maximum(idle, 1))
    band = np.where(idle > 0, band, len(CPU_PER_GPU) + 1)
    whole = (gpu == GPU_MILLI).sum(axis=1)
    classes = []
    for name, level in sorted(set(zip(model.tolist(), band.tolist(), strict=True))):
        members = (model == name) & (band == level)
        amounts, counts = np.unique(gpu[members], return_counts=True)
        pieces = zip(amounts.tolist(), counts.tolist(), strict=True)
        entry = IdleClass(
            model=models[name],
            cpu=int(cpu[members].sum()),
            gpus=tuple((amount, number) for amount, number in pieces if amount),
            widest=int(whole[members].max()),
        )
        if entry.cpu:
            classes.append(entry)
    return classes


class PriceProgram:
    """The linear program, with columns added as they pay."""

    def __init__(self, wanted: Sequence[Wanted], classes: Sequence[IdleClass]) -> None:
        self.wanted = wanted
        self.classes = classes
        self.unit = share_unit(wanted)
        self._solver = pywraplp.Solver.CreateSolver("GLOP")
        self._solver.SuppressOutput()
        self._goal = self._solver.Objective()
        self._goal.SetMaximization()
        low = -self._solver.infinity()
        self._demand = [self._solver.RowConstraint(low, kind.count, "") for kind in wanted]
        self._cpu = [self._solver.RowConstraint(low, entry.cpu / CPU_UNIT, "") for entry in classes]
        self._room = [
            {amount: self._solver.RowConstraint(low, pieces, "") for amount, pieces in entry.gpus}
            for entry in classes
        ]
        self._known: set[tuple[int, int, tuple[int, ...]]] = set()
        self._fits = [
            tuple(i for i, kind in enumerate(wanted) if kind.allows(entry.model))
            for entry in classes
        ]
        for row, members in enumerate(self._fits):
            for i in members:
                self._add_alone(row, i)

    def _add_alone(self, row: int, i: int) -> None:
        """Columns with nothing but one task."""
        kind, entry = self.wanted[i], self.classes[row]
        if kind.cpu > entry.cpu or kind.gpus > entry.widest:
            return
        if kind.gpus != 1:
            self._add(row, GPU_MILLI if kind.gpus else 0, (i,))
        elif kind.milli == GPU_MILLI:
            self._add(row, GPU_MILLI, (i,))

    def _add(self, row: int, amount: int, tasks: tuple[int, ...]) -> bool:
        """A column: these tasks on one piece (or several whole GPUs) of the class."""
        if (row, amount, tasks) in self._known:
            return False
        self._known.add((row, amount, tasks))
        column = self._solver.NumVar(0, self._solver.infinity(), "")
        kinds = [self.wanted[i] for i in tasks]
        self._goal.SetCoefficient(column, sum(kind.worth for kind in kinds))
        for i, times in Counter(tasks).items():
            self._demand[i].SetCoefficient(column, times)
        cpu = sum(kind.cpu for kind in kinds)
        if cpu:
            self._cpu[row].SetCoefficient(column, cpu / CPU_UNIT)
        if amount:
            pieces = max((kind.gpus for kind in kinds), default=1)
            self._room[row][amount].SetCoefficient(column, pieces)
        return True

    def solve(self, start: Floats | None = None, rounds: int | None = 60) -> tuple[float, Floats]:
        """Value and price of each kind, in milli-GPU.

        `start`: prices to find the first columns at. Ends after `rounds` of new columns, though
        there may be more that pay; None: when no more do, so that the value is the optimum, to
        `TOLERANCE` per GPU. Raises ArithmeticError where the LP solver finds no optimum.
        """
        worth = np.array([kind.worth for kind in self.wanted])
        self._grow(worth if start is None else start, None)
        for _ in count() if rounds is None else range(rounds):
            self._optimise()
            value, prices = float(self._goal.Value()), self._prices()
            if not self._grow(prices, [row.dual_value() / CPU_UNIT for row in self._cpu]):
                break
        return value, prices

    def _optimise(self) -> None:
        # Scaling makes GLOP give up now and then (ABNORMAL); without it, it then succeeds.
        for scaling in ("true", "false"):
            parameters = f"use_preprocessing: false use_scaling: {scaling}"
            self._solver.SetSolverSpecificParametersAsString(parameters)
            if self._solver.Solve() == pywraplp.Solver.OPTIMAL:
                return
        raise ArithmeticError("the program of prices has no optimum")

    def _prices(self) -> Floats:
        worth = np.array([kind.worth for kind in self.wanted])
        return np.asarray(worth - np.array([row.dual_value() for row in self._demand]))

    def _grow(self, prices: Floats, duals: list[float] | None) -> int:
        """Adds, for each size of share on each piece, the best pattern with it; how many.

        `duals` of CPU by class; None for patterns at free CPU whatever they gain.
        """
        # Read all duals before the first new column makes the solver forget them.
        rooms = [
            {amount: -np.inf if duals is None else row.dual_value() for amount, row in room.items()}
            for room in self._room
        ]
        rates = np.zeros(len(self.classes)) if duals is None else np.array(duals)
        added = 0
        groups: dict[tuple[int, ...], list[int]] = {}
        for row, members in enumerate(self._fits):
            if rooms[row]:
                groups.setdefault(members, []).append(row)
        for members, rows in groups.items():
            table = Patterns(self.wanted, members, prices, rates[rows], self.unit)
            for position, row in enumerate(rows):
                for amount, paid in rooms[row].items():
                    for tasks in table.paying(amount // self.unit, position, paid + TOLERANCE):
                        added += self._add(row, amount, tasks)
        return added


class Patterns:
    """Best patterns of shares for every amount of a GPU and several CPU rates at once."""

    def __init__(
        self,
        wanted: Sequence[Wanted],
        members: Iterable[int],
        prices: Floats,
        rates: Floats,
        unit: int,
    ) -> None:
        singles = [i for i in members if wanted[i].gpus == 1]
        self.sizes = sorted({wanted[i].milli // unit for i in singles})
        gains, kinds = [], []
        for size in self.sizes:
            same = [i for i in singles if wanted[i].milli // unit == size]
            net = np.array([prices[i] - rates * wanted[i].cpu for i in same])
            best = net.argmax(axis=0)
            gains.append(net[best, np.arange(len(rates))])
            kinds.append(np.array(same)[best])
        self._kinds = kinds
        self._gains = gains
        units = GPU_MILLI // unit
        self.value: Floats = np.zeros((units + 1, len(rates)))
        self._choice = np.full((units + 1, len(rates)), -1, dtype=np.int64)
        for room in range(1, units + 1):
            best_value = self.value[room - 1].copy()
            choice = np.full(len(rates), -1)
            for position, size in enumerate(self.sizes):
                if size > room:
                    break
                candidate = self.value[room - size] + gains[position]
                better = candidate > best_value + 1e-9
                best_value = np.where(better, candidate, best_value)
                choice = np.where(better, position, choice)
            self.value[room] = best_value
            self._choice[room] = choice

    def paying(self, units: int, column: int, least: float) -> Iterable[tuple[int, ...]]:
        """For each size, the best pattern that has it, if that is worth more than `least`."""
        for position, size in enumerate(self.sizes):
            rest = units - size
            if rest >= 0 and self._gains[position][column] + self.value[rest, column] > least:
                first = int(self._kinds[position][column])
                yield tuple(sorted((first, *self.tasks(rest, column))))

    def tasks(self, units: int, column: int) -> tuple[int, ...]:
        """The kinds in the best pattern."""
        found: list[int] = []
        while units > 0:
            position = int(self._choice[units, column])
            if position < 0:
                units -= 1
            else:
                found.append(int(self._kinds[position][column]))
                units -= self.sizes[position]
        return tuple(sorted(found))
