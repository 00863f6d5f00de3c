"""Rows: needs that are counted by domain find their slots there.

In a tree, interchangeable tasks of several jobs fit if and only if, for each domain, those that
must be in it or below fit the slots in it (Hall's condition for laminar families).
"""

from __future__ import annotations

from collections import defaultdict

from trencadis.solver.fabric import Domain
from trencadis.solver.model.columns import Columns
from trencadis.solver.model.problem import Problem
from trencadis.solver.program import INFINITE, Program
from trencadis.solver.shapes import Way

Terms = list[tuple[int, int]]


def add(problem: Problem, program: Program, columns: Columns) -> None:
    """Segments belong to jobs, and needs to slots of their domain."""
    index = {need: i for i, need in enumerate(problem.supply.located)}
    asked: defaultdict[int, defaultdict[Domain, Terms]] = defaultdict(lambda: defaultdict(list))
    for way, places in columns.places.items():
        domains = asked[index[way.need]]
        if way.segment:
            segments = columns.segments[way]
            _tie(program, way, places, segments)
            for domain, column in segments.items():
                domains[domain].append((column, way.segment))
        else:
            for domain, column in places.items():
                domains[domain].append((column, way.count))
    slots = _slots(problem, columns)
    for need in range(len(problem.supply.located)):
        _hall(program, asked[need], slots[need])


def _tie(
    program: Program, way: Way, places: dict[Domain, int], segments: dict[Domain, int]
) -> None:
    inside: defaultdict[Domain, Terms] = defaultdict(list)
    for domain, column in segments.items():
        parent = domain[: way.depth]
        if way.most and parent in places:
            # So many jobs of equal size split up so wherever their tasks add up to this.
            program.row([(column, 1), (places[parent], -way.most)], -INFINITE, 0)
        inside[domain[: way.depth]].append((column, 1))
    for domain, terms in inside.items():
        job = [(places[domain], -(way.count // way.segment))] if domain in places else []
        program.row([*terms, *job], 0, 0)


def _slots(
    problem: Problem, columns: Columns
) -> defaultdict[int, defaultdict[Domain, Terms]]:
    """Slots offered to each located need, by the finest domain that is counted."""
    offered: defaultdict[int, defaultdict[Domain, Terms]] = defaultdict(lambda: defaultdict(list))
    classes = problem.supply.classes
    for (c, domain, part), column in columns.parts.items():
        for slot, number in part:
            offered[classes[c].slots[slot].located][domain].append((column, number))
    for (c, slot, domain), column in columns.pooled.items():
        located = classes[c].slots[slot].located
        if located >= 0:
            offered[located][domain].append((column, 1))
    for (need, _, domain), column in columns.cell_fillers.items():
        offered[need][domain].append((column, 1))
    return offered


def _hall(
    program: Program, asked: dict[Domain, Terms], offered: dict[Domain, Terms]
) -> None:
    depths = sorted({len(domain) for domain in asked})
    for depth in depths:
        want: defaultdict[Domain, Terms] = defaultdict(list)
        have: defaultdict[Domain, Terms] = defaultdict(list)
        for domain, terms in asked.items():
            if len(domain) >= depth:
                want[domain[:depth]].extend(terms)
        for domain, terms in offered.items():
            have[domain[:depth]].extend((column, -n) for column, n in terms)
        for domain, terms in want.items():
            program.row([*terms, *have[domain]], -INFINITE, 0)
    everything = [term for terms in asked.values() for term in terms]
    supply = [(column, -n) for terms in offered.values() for column, n in terms]
    program.row([*everything, *supply], 0, 0)
