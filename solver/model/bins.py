"""Rows: each bin is filled by one pattern, and the slots of the patterns hold the needs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from trencadis.solver.bin_classes import BinClass
from trencadis.solver.fabric import Domain
from trencadis.solver.model.columns import Columns, Part, counted_by_domain, located_part
from trencadis.solver.model.problem import Problem
from trencadis.solver.patterns.whole import Slot
from trencadis.solver.program import Program


def add(problem: Problem, program: Program, columns: Columns) -> None:
    """Bins, slots and needs."""
    _bins(problem, program, columns)
    _pooled_bins(problem, program, columns)
    flows(problem, program, columns)


def flows(problem: Problem, program: Program, columns: Columns) -> None:
    """Slots hold what their families are given of each need, and that is all that is asked for."""
    slots = _slot_supply(problem, columns)
    taken: defaultdict[tuple[int, Slot], list[tuple[int, int]]] = defaultdict(list)
    offered: defaultdict[tuple[int, Slot], list[tuple[int, int]]] = defaultdict(list)
    seen: set[tuple[int, int]] = set()
    for (family, need), pairs in problem.supply.flows.items():
        # Slots of equal kind are one supply in the whole family.
        first, slot = pairs[0]
        kind = (family, problem.supply.classes[first].slots[slot])
        taken[kind].append((columns.flows[(need, family)], -1))
        for pair in pairs:
            if pair not in seen:
                seen.add(pair)
                offered[kind].extend(slots[pair])
    for key, terms in offered.items():
        program.row([*terms, *taken[key]], 0, 0)
    wanted = _wanted(problem, columns)
    for need in range(len(problem.supply.needs)):
        given = [
            (column, -1)
            for table in (columns.flows, columns.fillers)
            for (n, _), column in table.items()
            if n == need
        ]
        program.row([*wanted[need], *given], 0, 0)


def _bins(problem: Problem, program: Program, columns: Columns) -> None:
    classes = problem.supply.classes
    whole: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    part: defaultdict[tuple[int, Domain], list[tuple[int, int]]] = defaultdict(list)
    for (c, _), column in columns.fills.items():
        whole[c].append((column, 1))
    split: defaultdict[tuple[int, Part], list[tuple[int, int]]] = defaultdict(list)
    for (c, domain, located), column in columns.parts.items():
        part[(c, domain)].append((column, 1))
        split[(c, located)].append((column, -1))
    for (c, p), column in columns.fills.items():
        located = located_part(classes[c], (classes[c].patterns or ())[p])
        if located:
            split[(c, located)].append((column, 1))
    for terms in split.values():
        # Bins with equal located parts may swap the rest of their patterns between domains.
        program.row(terms, 0, 0)
    for c, terms in whole.items():
        feed = classes[c].feed
        if feed is None:
            program.row(terms, 0, len(classes[c].nodes))
    _feeds(problem, program, columns, whole)
    for (c, domain), terms in part.items():
        program.row(terms, 0, len(classes[c].cells[domain]))


def _feeds(
    problem: Problem,
    program: Program,
    columns: Columns,
    whole: Mapping[int, list[tuple[int, int]]],
) -> None:
    """Whole GPUs that patterns hand over are those that are opened, each with something in it."""
    classes = problem.supply.classes
    handed: defaultdict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    feeding = {cls.feed for cls in classes if cls.feed is not None}
    for (c, p), column in columns.fills.items():
        for slot, number in (classes[c].patterns or ())[p].counts:
            if (c, slot) in feeding:
                handed[(c, slot)].append((column, -number))
    for c, cls in enumerate(classes):
        if cls.feed is not None:
            program.row([*whole.get(c, ()), *handed[cls.feed]], 0, 0)


def _pooled_bins(problem: Problem, program: Program, columns: Columns) -> None:
    """A class with too many patterns: GPUs, CPU and memory of its bins as one pool."""
    for c, cls in enumerate(problem.supply.classes):
        if cls.patterns is not None:
            continue
        mine = {key: col for key, col in columns.pooled.items() if key[0] == c}
        scopes: dict[Domain, int] = {(): len(cls.nodes)}
        scopes |= {domain: len(states) for domain, states in cls.cells.items()}
        for scope, bins in scopes.items():
            inside = [
                (cls.slots[s], col) for (_, s, domain), col in mine.items() if scope in ((), domain)
            ]
            for model in sorted({slot.model for slot, _ in inside if slot.gpus and slot.model}):
                idle = cls.type.takes(model)
                program.row(
                    [(col, slot.gpus) for slot, col in inside if slot.model == model],
                    0,
                    idle * bins,
                )
            _pooled_pieces(program, cls, inside, bins)
            for d, have in enumerate(cls.type.free):
                if have is not None:
                    program.row([(col, slot.need[d]) for slot, col in inside], 0, have * bins)


def _pooled_pieces(
    program: Program, cls: BinClass, inside: list[tuple[Slot, int]], bins: int
) -> None:
    """Slices and shares of a pooled class: all units of its GPUs as one pool, by model."""
    knife = cls.nodes[0].cutter
    unit = knife.sizes.unit
    for model in sorted({slot.model or "" for slot, _ in inside if slot.pieces}):
        have = cls.type.counts().get(model, 0) * unit
        have += sum(knife.idle_units(cut) for cut in cls.type.cuts if cut.model == model)
        terms = [
            (col, slot.gpus * unit + sum(knife.piece_units(model, p) for p in slot.pieces))
            for slot, col in inside
            if slot.model == model
        ]
        program.row(terms, 0, have * bins)


def _slot_supply(
    problem: Problem, columns: Columns
) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """Terms that count the free slots offered, by (class, slot)."""
    supply: defaultdict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    classes = problem.supply.classes

    for (c, p), column in columns.fills.items():
        patterns = classes[c].patterns
        assert patterns is not None
        for slot, number in patterns[p].counts:
            if classes[c].slots[slot].located < 0:
                supply[(c, slot)].append((column, number))
    for (c, slot, domain), column in columns.pooled.items():
        if not domain and classes[c].slots[slot].located < 0:
            supply[(c, slot)].append((column, 1))
    return supply


def _wanted(problem: Problem, columns: Columns) -> dict[int, list[tuple[int, int]]]:
    """Terms that count how often each free need is asked for."""
    index = {need: i for i, need in enumerate(problem.supply.needs)}
    wanted: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for (s, a), column in columns.chosen.items():
        way = problem.demand.shapes[s].alternatives[a].way
        if not counted_by_domain(problem, way):
            wanted[index[way.need]].append((column, way.count))
    return wanted
