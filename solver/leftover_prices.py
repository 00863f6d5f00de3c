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

import numpy as np
from ortools.linear_solver import pywraplp

from trencadis.solver.leftover import GPU_MILLI, Floats, Wanted, share_unit

TOLERANCE = 1e-3
"""Least gain per unit of a column, in milli-GPU."""


@dataclass(frozen=True, slots=True)
class IdleClass:
    """Nodes that have the same left."""

    model: str
    cpu: int
    """Idle milli-CPU of each."""
    gpus: tuple[int, ...]
    """Idle milli-GPU of each GPU that has any."""
    nodes: int


class PriceProgram:
    """The linear program, with columns kept from solve to solve while its classes stay."""

    def __init__(self, wanted: Sequence[Wanted], classes: Sequence[IdleClass]) -> None:
        self.wanted = wanted
        self.classes = classes
        self.unit = share_unit(wanted)
        self._solver = pywraplp.Solver.CreateSolver("GLOP")
        self._solver.SuppressOutput()
        self._solver.SetSolverSpecificParametersAsString("use_preprocessing: false")
        self._goal = self._solver.Objective()
        self._goal.SetMaximization()
        infinity = self._solver.infinity()
        self._demand = [self._solver.RowConstraint(-infinity, k.count, "") for k in wanted]
        self._cpu = [self._solver.RowConstraint(-infinity, c.cpu * c.nodes, "") for c in classes]
        self._room = [
            {
                amount: self._solver.RowConstraint(-infinity, count * c.nodes, "")
                for amount, count in sorted(Counter(c.gpus).items())
            }
            for c in classes
        ]
        self._known: set[tuple[int, int, tuple[int, ...]]] = set()
        self._fits = [
            [i for i, k in enumerate(wanted) if not k.models or c.model in k.models or not k.gpus]
            for c in classes
        ]
        for row, members in enumerate(self._fits):
            for i in members:
                kind = wanted[i]
                if not kind.gpus and kind.cpu <= classes[row].cpu:
                    self._add(row, 0, (i,))
                elif kind.gpus > 1 and self._serves(row, kind):
                    self._add(row, GPU_MILLI, (i,))

    def _serves(self, row: int, kind: Wanted) -> bool:
        entry = self.classes[row]
        return kind.cpu <= entry.cpu and entry.gpus.count(GPU_MILLI) >= kind.gpus

    def _add(self, row: int, amount: int, tasks: tuple[int, ...]) -> bool:
        """A column: these tasks on one piece (or several whole GPUs) of a node of the class."""
        if (row, amount, tasks) in self._known:
            return False
        self._known.add((row, amount, tasks))
        column = self._solver.NumVar(0, self._solver.infinity(), "")
        kinds = [self.wanted[i] for i in tasks]
        self._goal.SetCoefficient(column, sum(kind.worth for kind in kinds))
        for i, count in Counter(tasks).items():
            self._demand[i].SetCoefficient(column, count)
        cpu = sum(kind.cpu for kind in kinds)
        if cpu:
            self._cpu[row].SetCoefficient(column, cpu)
        if amount:
            pieces = max((kind.gpus for kind in kinds), default=1)
            self._room[row][amount].SetCoefficient(column, pieces)
        return True

    def solve(self, rounds: int = 60) -> tuple[float, Floats]:
        """Value and price of each kind, in milli-GPU; stops early after `rounds` of new columns."""
        for _ in range(rounds):
            if self._solver.Solve() != pywraplp.Solver.OPTIMAL:
                raise ArithmeticError("the program of prices has no optimum")
            if not self._grow(self._prices()):
                break
        return float(self._goal.Value()), self._prices()

    def _prices(self) -> Floats:
        worth = np.array([kind.worth for kind in self.wanted])
        return worth - np.array([row.dual_value() for row in self._demand])

    def _grow(self, prices: Floats) -> int:
        """Adds the best pattern for each piece of each class, where it gains; how many."""
        rates = np.array([row.dual_value() for row in self._cpu])
        added = 0
        by_members: dict[tuple[int, ...], list[int]] = {}
        for row, members in enumerate(self._fits):
            if self._room[row]:
                by_members.setdefault(tuple(members), []).append(row)
        for members, rows in by_members.items():
            table = Patterns(self.wanted, members, prices, rates[rows], self.unit)
            for position, row in enumerate(rows):
                for amount, room in self._room[row].items():
                    units = amount // self.unit
                    gain = table.value[units, position] - room.dual_value()
                    if gain > TOLERANCE:
                        added += self._add(row, amount, table.tasks(units, position))
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


def prices(wanted: Sequence[Wanted], classes: Sequence[IdleClass]) -> Floats:
    """The price of each kind, in milli-GPU."""
    return PriceProgram(wanted, classes).solve()[1]
