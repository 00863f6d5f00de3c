"""Rows: tasks without GPUs share what CPU and memory the rest leaves, pooled by family.

Pooling is a relaxation for families of several nodes; placement checks it, and a family that
can't be placed is split into single nodes, for which it is exact.
"""

from __future__ import annotations

from collections import defaultdict

from trencadis.solver.bin_classes import BinClass
from trencadis.solver.fabric import Domain
from trencadis.solver.model.columns import Columns
from trencadis.solver.model.problem import Problem
from trencadis.solver.program import INFINITE, Program
from trencadis.solver.room import fits

Terms = list[tuple[int, int]]


def add(problem: Problem, program: Program, columns: Columns) -> None:
    """Per family and dimension: all that is put there fits in all that is free."""
    supply = problem.supply
    opened = {cls.pool for cls in supply.classes if cls.opened}
    with_fillers = bool(supply.fillers or supply.located_fillers)
    if not (with_fillers or opened):
        return
    dims = 2 + len(problem.facts.capacity.resources)
    free: defaultdict[int, list[int]] = defaultdict(lambda: [0] * dims)
    cell_free: defaultdict[tuple[int, Domain], list[int]] = defaultdict(lambda: [0] * dims)
    for cls in supply.classes:
        for d in range(0 if cls.part else dims):
            free[cls.family][d] += sum(state.free[d] for state in cls.nodes)
            for domain, states in cls.cells.items():
                cell_free[(cls.family, domain)][d] += sum(state.free[d] for state in states)
    use = use_of(problem, columns, dims)
    for family, rows in use.items():
        if not (with_fillers or family in opened):
            continue
        for d, terms in enumerate(rows):
            program.row(terms, -INFINITE, free[family][d])
    cells: defaultdict[tuple[int, Domain], list[tuple[int, int]]] = defaultdict(list)
    for (need, family, domain), column in columns.cell_fillers.items():
        cells[(family, domain)].append((need, column))
    for key, entries in cells.items():
        for d in range(dims):
            terms = [(column, supply.located[need].need[d]) for need, column in entries]
            program.row(terms, -INFINITE, cell_free[key][d])
    _keep_out_of_exclusive(problem, program, columns)


def use_of(problem: Problem, columns: Columns, dims: int) -> dict[int, list[Terms]]:
    """By pool and dimension: the terms that add up what is put there."""
    supply = problem.supply
    use: defaultdict[int, list[Terms]] = defaultdict(lambda: [[] for _ in range(dims)])
    pool = {cls.family: cls.pool for cls in supply.classes}
    for d in range(dims):
        for table in (columns.flows, columns.fillers):
            for (need, family), column in table.items():
                use[pool[family]][d].append((column, supply.needs[need].need[d]))
        for (need, family, _), column in columns.cell_fillers.items():
            use[family][d].append((column, supply.located[need].need[d]))
        for (c, p), column in columns.fills.items():
            _pattern_use(problem, use, c, p, column, d)
        for (c, s, _), column in columns.pooled.items():
            located = supply.classes[c].slots[s].located
            if located >= 0:
                amount = supply.located[located].need[d]
                use[supply.classes[c].pool][d].append((column, amount))
    return use


def _pattern_use(
    problem: Problem, use: dict[int, list[Terms]], c: int, p: int, column: int, d: int
) -> None:
    """Reserves, located needs, and the whole node under an exclusive job; flows count the rest."""
    supply = problem.supply
    cls = supply.classes[c]
    assert cls.patterns is not None
    pattern = cls.patterns[p]
    amount = pattern.reserve[d]
    for slot, number in pattern.counts:
        located = cls.slots[slot].located
        if located >= 0:
            amount += number * supply.located[located].need[d]
    if _exclusive(cls, p):
        flows = sum(
            number
            * max((supply.needs[n].need[d] for n, s in cls.slot_of.items() if s == slot), default=0)
            for slot, number in pattern.counts
        )
        amount += max(0, min(state.free[d] for state in cls.nodes) - flows - amount)
    use[cls.pool][d].append((column, amount))


def _keep_out_of_exclusive(problem: Problem, program: Program, columns: Columns) -> None:
    """A node of an exclusive job takes no filler, not even one that asks for next to nothing."""
    supply = problem.supply
    taken: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for (c, p), column in columns.fills.items():
        if _exclusive(supply.classes[c], p):
            taken[supply.classes[c].family].append((column, c))
    fillers = [(supply.needs[n], f, [filler]) for (n, f), filler in columns.fillers.items()]
    located: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for (need, family, _), filler in columns.cell_fillers.items():
        located[(need, family)].append(filler)
    # Which domain an exclusive job's node is in is not counted: all domains of a family together.
    fillers += [(supply.located[n], f, cells) for (n, f), cells in located.items()]
    for ask, family, cells in fillers:
        terms = [(filler, 1) for filler in cells]
        for column, c in taken.get(family, ()):
            cls = supply.classes[c]
            least = min(fits(ask, state, cls.type.column) for state in cls.nodes)
            terms.append((column, least))
        program.row(terms, -INFINITE, sum(program.high[filler] for filler in cells))


def _exclusive(cls: BinClass, p: int) -> bool:
    assert cls.patterns is not None
    return any(cls.slots[slot].exclusive for slot, _ in cls.patterns[p].counts)
