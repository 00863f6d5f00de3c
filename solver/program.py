"""A linear program over bounded integers, as plain columns and rows, and its objectives."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

INFINITE = 1 << 53
"""Stands for no bound; exact as a float, far from the limits of int64."""


@dataclass(slots=True)
class Row:
    """low <= sum of coefficient x column <= high."""

    columns: list[int]
    coefficients: list[int]
    low: int
    high: int


@dataclass(slots=True)
class Objective:
    """A sum to minimise."""

    name: str
    constant: int = 0
    terms: dict[int, int] = field(default_factory=dict)

    def add(self, column: int, coefficient: int) -> None:
        """Adds a term."""
        if coefficient:
            self.terms[column] = self.terms.get(column, 0) + coefficient

    def value(self, solution: list[int]) -> int:
        """The sum at a solution."""
        return self.constant + sum(c * solution[i] for i, c in self.terms.items())


@dataclass(slots=True)
class Program:
    """Columns with integer bounds, rows, and objectives in lexicographic order."""

    low: list[int] = field(default_factory=list)
    high: list[int] = field(default_factory=list)
    rest: list[int] = field(default_factory=list)
    """A feasible point: nothing starts."""
    rows: list[Row] = field(default_factory=list)
    objectives: list[Objective] = field(default_factory=list)

    def column(self, low: int, high: int, rest: int | None = None) -> int:
        """A new integer column; its index. `rest`: its value if nothing starts, else `low`."""
        self.low.append(low)
        self.high.append(high)
        self.rest.append(low if rest is None else rest)
        return len(self.low) - 1

    def row(self, terms: Iterable[tuple[int, int]], low: int, high: int) -> None:
        """A new row; terms of one column add up. Rows without terms are left out."""
        table: dict[int, int] = {}
        for column, coefficient in terms:
            table[column] = table.get(column, 0) + coefficient
        columns = [column for column, coefficient in table.items() if coefficient]
        if columns:
            coefficients = [table[column] for column in columns]
            self.rows.append(Row(columns, coefficients, low, high))

    def size(self, objective: Objective) -> int:
        """The most that the terms of an objective can add up to."""
        return sum(
            abs(cost) * max(abs(self.low[c]), abs(self.high[c]))
            for c, cost in objective.terms.items()
        )
