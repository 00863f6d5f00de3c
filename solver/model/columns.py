"""The columns of the counting model: what is counted."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain

from trencadis.solver.bin_classes import BinClass
from trencadis.solver.demand import JobClass
from trencadis.solver.fabric import Domain
from trencadis.solver.model.class_room import ClassRoom
from trencadis.solver.model.problem import Problem
from trencadis.solver.patterns.whole import Pattern
from trencadis.solver.program import Program
from trencadis.solver.shapes import Way

Part = tuple[tuple[int, int], ...]
"""The located slots of a pattern, (slot, how many): all that a domain needs to know of it."""


def located_part(cls: BinClass, pattern: Pattern) -> Part:
    """The pattern's slots that are counted by domain."""
    return tuple((s, n) for s, n in pattern.counts if cls.slots[s].located >= 0)


@dataclass(frozen=True, slots=True)
class Piece:
    """Units of a job class that start, on one linear piece of their reward."""

    column: int
    length: int
    slope: int
    """Waiting saved per unit."""


@dataclass(slots=True)
class Columns:
    """Column indices by meaning."""

    pieces: list[list[Piece]] = field(default_factory=list)
    """By job class, steepest first."""
    on_model: dict[tuple[int, int, str], int] = field(default_factory=dict)
    """(class, member, model): units on that model; only where some account asks."""
    chosen: dict[tuple[int, int], int] = field(default_factory=dict)
    """(shape, alternative): jobs that go this way."""
    places: dict[Way, dict[Domain, int]] = field(default_factory=dict)
    """Jobs by domain, for ways that are counted by domain (and all with segments)."""
    segments: dict[Way, dict[Domain, int]] = field(default_factory=dict)
    """Segments by domain."""
    flows: dict[tuple[int, int], int] = field(default_factory=dict)
    """(need, family): needs put into slots of that family."""
    fills: dict[tuple[int, int], int] = field(default_factory=dict)
    """(class, pattern): bins filled so; the empty pattern has no column."""
    parts: dict[tuple[int, Domain, Part], int] = field(default_factory=dict)
    """(class, domain, located part): bins of a domain whose pattern has that part."""
    pooled: dict[tuple[int, int, Domain], int] = field(default_factory=dict)
    """(class, slot, domain): slots taken in a pooled class; domain () for free slots."""
    fillers: dict[tuple[int, int], int] = field(default_factory=dict)
    """(need, family): needs without GPUs put there."""
    cell_fillers: dict[tuple[int, int, Domain], int] = field(default_factory=dict)
    """(located need, family, domain)."""
    shortfalls: list[int] = field(default_factory=list)
    """By target of the facts."""
    charged: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """Account -> the terms that add up what the started jobs charge to it."""
    gone: dict[str, int] = field(default_factory=dict)
    """Victim -> 1 if it goes; only where the model decides that."""
    freed: list[int] = field(default_factory=list)
    """Nodes with so many GPUs idle once victims have gone."""

    def supply(self) -> set[int]:
        """The columns that say where things go; all others decide who starts."""
        tables: tuple[Iterable[int], ...] = (
            *(table.values() for table in self.places.values()),
            *(table.values() for table in self.segments.values()),
            self.flows.values(),
            self.fills.values(),
            self.parts.values(),
            self.pooled.values(),
            self.fillers.values(),
            self.cell_fillers.values(),
            self.freed,
        )
        return set(chain.from_iterable(tables))

    def started(self, index: int) -> list[tuple[int, int]]:
        """Terms that count the units of a class that start."""
        return [(piece.column, 1) for piece in self.pieces[index]]


def pieces_of(waits: list[int], limit: int) -> list[tuple[int, int]]:
    """A concave upper envelope of the sums of the heaviest k waits, as (length, slope) pieces.

    `waits` descending. Exact if there are at most `limit` distinct waits; else exact at `limit`
    break points and above the true sum between them.
    """
    runs: list[list[int]] = []
    for wait in waits:
        if runs and runs[-1][1] == wait:
            runs[-1][0] += 1
        else:
            runs.append([1, wait])
    if len(runs) <= limit:
        return [(length, slope) for length, slope in runs]
    total, size = len(waits), -(-len(waits) // max(1, limit))
    pieces: list[tuple[int, int]] = []
    for first in range(0, total, size):
        pieces.extend(_chord(waits[first : first + size]))
    return pieces


def _chord(part: list[int]) -> list[tuple[int, int]]:
    """Pieces over one bucket: steepest slope, then flattest, with a remainder where they meet."""
    steep, flat, n = part[0], part[-1], len(part)
    if steep == flat:
        return [(n, steep)]
    extra = sum(part) - n * flat
    whole, rest = divmod(extra, steep - flat)
    pieces = [(whole, steep)]
    if rest:
        pieces.append((1, flat + rest))
    left = n - whole - (1 if rest else 0)
    pieces.append((left, flat))
    return [(length, slope) for length, slope in pieces if length]


def add_columns(problem: Problem, program: Program) -> Columns:
    """All columns with their bounds."""
    columns = Columns()
    room = ClassRoom(problem)
    shapes = problem.demand.shapes
    shape_room = [sum(_most(problem, room, alt.way) for alt in s.alternatives) for s in shapes]
    jobs: Counter[int] = Counter()
    for cls in problem.demand.classes:
        _class_columns(problem, program, columns, cls, shape_room)
        for member in cls.members:
            jobs[member.shape] += len(cls.units)
    going: Counter[Way] = Counter()
    for s, shape in enumerate(shapes):
        for a, alt in enumerate(shape.alternatives):
            most = min(jobs[s], _most(problem, room, alt.way))
            columns.chosen[(s, a)] = program.column(0, most)
            going[alt.way] += most
    for way, most in going.items():
        _place_columns(problem, program, columns, room, way, most)
    _supply_columns(problem, program, columns, room)
    for target in problem.facts.targets:
        columns.shortfalls.append(program.column(0, target.missing, rest=target.missing))
    return columns


def counted_by_domain(problem: Problem, way: Way) -> bool:
    """Whether a way needs columns by domain."""
    return way.segment > 0 or 1 <= way.depth <= problem.facts.fabric.depth


def _most(problem: Problem, room: ClassRoom, way: Way) -> int:
    if not counted_by_domain(problem, way):
        return room.total(way.need) // way.count
    by_domain = room.by_domain(way.need, max(way.depth, way.segment_depth))
    return sum(by_domain.values()) // way.count


def _class_columns(
    problem: Problem, program: Program, columns: Columns, cls: JobClass, shape_room: list[int]
) -> None:
    # No more units can start than the cluster has room for: the rest needs no column.
    most = min(shape_room[member.shape] for member in cls.members)
    waits = [sum(unit) for unit in cls.waits][:most]
    columns.pieces.append(
        [
            Piece(program.column(0, length), length, slope)
            for length, slope in pieces_of(waits, problem.thresholds.segments)
        ]
    )
    index = len(columns.pieces) - 1
    for m, member in enumerate(cls.members):
        models = problem.demand.shapes[member.shape].models()
        if len(models) > 1 and any(charge.model for charge in member.charges):
            for model in models:
                columns.on_model[(index, m, model or "")] = program.column(0, len(waits))


def _place_columns(
    problem: Problem, program: Program, columns: Columns, room: ClassRoom, way: Way, jobs: int
) -> None:
    if not counted_by_domain(problem, way):
        return
    places = columns.places.setdefault(way, {})
    if not way.segment:
        for domain, slots in room.by_domain(way.need, way.depth).items():
            # The bound that makes the relaxation tight: whole jobs per domain.
            if slots >= way.count:
                places[domain] = program.column(0, min(jobs, slots // way.count))
        return
    per_domain: Counter[Domain] = Counter()
    segments = columns.segments.setdefault(way, {})
    alone: Counter[Domain] = Counter()  # for one job
    for domain, slots in room.by_domain(way.need, way.segment_depth).items():
        if slots >= way.segment:
            most = min(slots // way.segment, (way.most or slots) * jobs)
            alone[domain[: way.depth]] += min(most, way.most or most)
            segments[domain] = program.column(0, most)
            per_domain[domain[: way.depth]] += most
    wanted = way.count // way.segment
    for domain, number in sorted(per_domain.items()):
        most = number // wanted if alone[domain] >= wanted else 0
        if most:
            places[domain] = program.column(0, min(jobs, most))


def _supply_columns(problem: Problem, program: Program, columns: Columns, room: ClassRoom) -> None:
    supply = problem.supply
    families: defaultdict[int, list[BinClass]] = defaultdict(list)
    for cls in supply.classes:
        if not cls.part:
            families[cls.family].append(cls)
    for (family, need), pairs in sorted(supply.flows.items()):
        classes = [supply.classes[c] for c, _ in pairs]
        most = sum(room.of(supply.needs[need], cls, cls.nodes) for cls in classes)
        columns.flows[(need, family)] = program.column(0, most)
    for need in sorted(supply.fillers):
        for family, members in families.items():
            most = sum(room.of(supply.needs[need], cls, cls.nodes) for cls in members)
            if most:
                columns.fillers[(need, family)] = program.column(0, most)
    for need in sorted(supply.located_fillers):
        for family, members in families.items():
            cells: Counter[Domain] = Counter()
            for cls in members:
                for domain, states in cls.cells.items():
                    cells[domain] += room.of(supply.located[need], cls, states)
            for domain, most in sorted(cells.items()):
                if most:
                    columns.cell_fillers[(need, family, domain)] = program.column(0, most)
    for c, cls in enumerate(supply.classes):
        if cls.mixed:
            _mixed_columns(problem, program, columns, room, c, cls)
        else:
            _fill_columns(program, columns, c, cls)


def _fill_columns(program: Program, columns: Columns, c: int, cls: BinClass) -> None:
    if cls.patterns is None:
        for s, slot in enumerate(cls.slots):
            have = cls.type.counts().get(slot.model or "", 0)
            each = cls.type.takes(slot.model) // slot.gpus if slot.gpus else 1
            if slot.pieces:
                blank = cls.type.blank(slot.model)
                each = cls.nodes[0].cutter.most_on(
                    cls.type.cuts, blank, have, slot.model or "", slot.pieces
                )
            cells = {(): cls.nodes} if slot.located < 0 else cls.cells
            for domain, states in cells.items():
                columns.pooled[(c, s, domain)] = program.column(0, each * len(states))
        return
    parts: set[Part] = set()
    for p, pattern in enumerate(cls.patterns):
        if p:
            columns.fills[(c, p)] = program.column(0, len(cls.nodes))
            parts.add(located_part(cls, pattern))
    for part in sorted(parts - {()}):
        for domain, states in cls.cells.items():
            columns.parts[(c, domain, part)] = program.column(0, len(states))


def _mixed_columns(
    problem: Problem, program: Program, columns: Columns, room: ClassRoom, c: int, cls: BinClass
) -> None:
    supply = problem.supply
    for table, needs in ((cls.slot_of, supply.needs), (cls.located_slot_of, supply.located)):
        for n, s in table.items():
            cells = {(): cls.nodes} if cls.slots[s].located < 0 else cls.cells
            for domain, states in cells.items():
                most = room.of(needs[n], cls, states)
                key = (c, s, domain)
                if key in columns.pooled:
                    column = columns.pooled[key]
                    program.high[column] = max(program.high[column], most)
                elif most:
                    columns.pooled[key] = program.column(0, most)
