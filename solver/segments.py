"""The least number of GPUs of one kind that a multiset of MIG profiles needs, proven.

Bin packing by legal layouts: integer columns count the maximal layouts; the profiles that they
offer must cover those wanted. The same cuts as in a round, without nodes and jobs.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from trencadis.models import MigInstance
from trencadis.models.mig import MigTable
from trencadis.solver.cpsat import Effort, Window, search
from trencadis.solver.layouts import is_legal
from trencadis.solver.program import INFINITE, Objective, Program

Layout = tuple[MigInstance, ...]


@dataclass(frozen=True, slots=True)
class Packing:
    """GPUs with their layouts, and how few there could be at best."""

    layouts: tuple[Layout, ...]
    """One per GPU: instances in use, by start."""
    bound: int
    """No packing has fewer GPUs."""


def maximal_layouts(table: MigTable, names: frozenset[str]) -> tuple[Layout, ...]:
    """Every legal layout of these profiles to which none of them can be added; sorted."""
    instances = [
        MigInstance(profile=profile.name, start=start)
        for profile in table.profiles
        if profile.name in names
        for start in profile.starts
    ]
    found: list[Layout] = []

    def extend(first: int, layout: list[MigInstance]) -> None:
        grew = False
        for i, instance in enumerate(instances):
            if not is_legal(table, [*layout, instance]):
                continue
            grew = True
            # Each set is met once, in the order of the list.
            if i >= first:
                extend(i + 1, [*layout, instance])
        if not grew:
            found.append(tuple(sorted(layout, key=lambda entry: entry.start)))

    extend(0, [])
    return tuple(sorted(found, key=lambda layout: [(i.start, i.profile) for i in layout]))


def fewest_gpus(table: MigTable, wanted: Mapping[str, int], seconds: float = 10.0) -> Packing:
    """Packs the profiles on as few GPUs as possible.

    `wanted`: how many of each profile. Raises ValueError where the table lacks a profile.
    """
    asked = {name: count for name, count in sorted(wanted.items()) if count}
    unknown = sorted(name for name in asked if table.profile(name) is None)
    if unknown:
        raise ValueError(f"the table has no profile {', '.join(unknown)}")
    by_counts: dict[tuple[int, ...], Layout] = {}
    for layout in maximal_layouts(table, frozenset(asked)):
        have = Counter(instance.profile for instance in layout)
        by_counts.setdefault(tuple(have[name] for name in asked), layout)
    most = sum(asked.values())
    program = Program()
    objective = Objective("gpus")
    for _ in by_counts:
        objective.add(program.column(0, most), 1)
    for position, count in enumerate(asked.values()):
        terms = [(column, counts[position]) for column, counts in enumerate(by_counts)]
        program.row(terms, count, INFINITE)
    start = _one_each(list(by_counts), list(asked.values()))
    outcome = search(
        program,
        objective,
        Window(program.low, program.high),
        start,
        None,
        Effort(seconds=seconds, workers=1, seed=0, deterministic=False),
        threading.Event(),
    )
    counts = outcome.solution if outcome.solution is not None else start
    layouts: list[Layout] = []
    left = Counter(asked)
    for layout, number in zip(by_counts.values(), counts, strict=True):
        for _ in range(number):
            used = []
            for instance in layout:
                if left[instance.profile]:
                    left[instance.profile] -= 1
                    used.append(instance)
            layouts.append(tuple(used))
    bound = outcome.bound if outcome.bound is not None else 0
    return Packing(tuple(layouts), min(bound, len(layouts)))


def _one_each(layouts: list[tuple[int, ...]], asked: list[int]) -> list[int]:
    """A packing to begin with: of the layout that offers most of it, as many as a profile needs."""
    counts = [0] * len(layouts)
    for position, count in enumerate(asked):
        best = max(range(len(layouts)), key=lambda i: layouts[i][position])
        counts[best] = max(counts[best], -(-count // layouts[best][position]))
    return counts
