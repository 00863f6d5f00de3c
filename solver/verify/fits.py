"""Whether a job fits on what is idle: exact counting for one job of interchangeable tasks."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trencadis.models import Job
from trencadis.solver.verify.admission import FOREVER, Wish, end_of, leaves_at, wish_of
from trencadis.solver.verify.board import Board
from trencadis.solver.verify.knife import Knife
from trencadis.solver.verify.linked import pack
from trencadis.solver.verify.situation import Situation
from trencadis.solver.verify.supply import NodeState
from trencadis.solver.verify.units import Ask

Ints = NDArray[np.int64]


class Shape(NamedTuple):
    """All of a job that decides whether it fits; equal ones fit alike."""

    ask: Ask
    models: tuple[str, ...]
    """Allowed GPU models; any where empty."""
    nvlink: bool
    exclusive: bool
    per_node: int
    tasks: int
    depth: int
    """The least depth that its nodes must reach."""
    segment: tuple[int, int] | None
    """Tasks of a segment, and the depth each segment must reach."""
    wish: Wish
    crowd: tuple[int, int] | None = None
    """The most tasks in one domain, and the depth of that; None where it doesn't bind."""


class Shapes:
    """Shapes of the jobs of one situation; equal ones are one object."""

    def __init__(self, situation: Situation) -> None:
        self.of = situation
        # A job's end matters only as finely as nodes leave.
        now = situation.now
        self._ends = sorted({leaves_at(n, now) for n in situation.snapshot.nodes} - {FOREVER})
        self._pool: dict[Shape, Shape] = {}
        self._known: dict[str, Shape] = {}

    def of_job(self, job: Job) -> Shape:
        """The job's shape."""
        known = self._known.get(job.name)
        if known is None:
            shape = self._shape(job)
            known = self._known[job.name] = self._pool.setdefault(shape, shape)
        return known

    def _shape(self, job: Job) -> Shape:
        of, tasks, segments = self.of, job.minimum, job.segments
        ends = FOREVER
        if self._ends:
            place = bisect_left(self._ends, end_of(job, of.now))
            ends = self._ends[place] if place < len(self._ends) else FOREVER
        return Shape(
            of.asks[job.name],
            job.gpu_models,
            job.nvlink_required,
            job.exclusive,
            min(tasks, job.max_tasks_per_node or tasks),
            tasks,
            of.levels.required(job, of.waited[job.name]),
            (segments.tasks, of.levels.depth(segments.level)) if segments else None,
            wish_of(job, ends, of.snapshot.policy),
            _crowd(of, job),
        )


def _crowd(situation: Situation, job: Job) -> tuple[int, int] | None:
    cap = job.max_tasks_per_domain
    if cap is None or cap.tasks >= job.minimum:
        return None
    return cap.tasks, situation.levels.depth(cap.level)


class Fits:
    """Answers about one set of node states, each shape worked out once."""

    def __init__(self, situation: Situation, states: Mapping[str, NodeState]) -> None:
        self._situation = situation
        self._states = states
        self.levels = situation.levels
        self._boards: dict[int, Board] = {}
        self._models: dict[Shape, frozenset[str | None]] = {}

    def board(self, shape: Shape) -> Board:
        """The coarsest board that tells apart the domains that this shape asks about."""
        depth = 0 if shape.depth == self.levels.node else shape.depth
        if shape.segment is not None and shape.segment[1] < self.levels.node:
            depth = max(depth, shape.segment[1])
        if shape.crowd is not None:
            depth = max(depth, shape.crowd[1])
        if depth not in self._boards:
            self._boards[depth] = Board(self._situation, self._states, depth)
        return self._boards[depth]

    def models(self, shape: Shape) -> frozenset[str | None]:
        """GPU models on which the job fits; {None} if it fits without GPUs."""
        known = self._models.get(shape)
        if known is None:
            known = frozenset(model for model in self.candidates(shape) if self.fits(shape, model))
            self._models[shape] = known
        return known

    def candidates(self, shape: Shape) -> Sequence[str | None]:
        """Models that the job allows and the board has; None for a job without GPUs."""
        if not shape.ask.on_gpus:
            return (None,)
        return [m for m in self.board(shape).gpus if not shape.models or m in shape.models]

    def fits(self, shape: Shape, model: str | None) -> bool:
        """Whether all tasks fit at once, on this model."""
        rows, tasks_on = capacity(self.board(shape), shape, model, self._situation.knife)
        if not rows.size:
            return False
        if shape.segment is not None and shape.tasks % shape.segment[0]:
            return False
        if shape.crowd is None and int(tasks_on.max()) >= shape.tasks:
            return True
        if shape.tasks == 1 or shape.depth >= self.levels.node:
            return False
        return bool(self._by_domain(shape, rows, tasks_on).max() >= shape.tasks)

    def _by_domain(self, shape: Shape, rows: Ints, tasks_on: Ints) -> Ints:
        """Tasks that each domain of the required depth holds, in whole segments."""
        board, depth = self.board(shape), shape.depth
        domains = board.domains[depth][rows]
        count = board.count[rows]
        if shape.crowd is not None:
            most, finer = max(shape.crowd[0], 0), max(shape.crowd[1], depth)
            inner = board.domains[finer][rows]
            held = np.minimum(_sums(inner, tasks_on * count), most)
            outer = np.zeros(held.size, dtype=np.int64)
            outer[inner] = domains
            return _sums(outer, held)
        if shape.segment is None or shape.segment[1] <= depth:
            return _sums(domains, tasks_on * count)
        size, finer = shape.segment
        if finer >= self.levels.node:
            return _sums(domains, tasks_on // size * size * count)
        inner = board.domains[finer][rows]
        whole = _sums(inner, tasks_on * count) // size * size
        # Each finer domain lies in one domain of the required depth.
        outer = np.zeros(whole.size, dtype=np.int64)
        outer[inner] = domains
        return _sums(outer, whole)


def capacity(
    board: Board, shape: Shape, model: str | None, knife: Knife
) -> tuple[Ints, Ints]:
    """Rows whose nodes hold a task of the job or more, and how many each node holds."""
    ask = shape.ask
    rows = board.admitted(shape.wish, model, ask.gpus)
    if board.closed.any():
        rows = rows[~board.closed[rows]]
    if shape.exclusive:
        rows = rows[~board.occupied[rows]]
    tasks = np.full(rows.size, shape.per_node, dtype=np.int64)
    if model is not None and not ask.whole:
        idle = board.gpus[model]
        for place, row in enumerate(rows):
            second = board.seconds[int(row)]
            held = knife.tasks(second, int(idle[row]), ask, model)
            tasks[place] = min(int(tasks[place]), held)
    elif model is not None:
        linked = shape.nvlink and ask.gpus >= 2
        most = board.takes(model)[rows] // ask.gpus
        if linked:
            most[~board.nvswitch[rows]] = 0
            for i in np.flatnonzero(board.has_links[rows]):
                most[i] = len(pack(*board.links_of(int(rows[i]), model), ask.gpus))
        tasks = np.minimum(tasks, most)
    for column, amount in columns(board, ask):
        tasks = np.minimum(tasks, column[rows] // amount)
    some = tasks > 0
    return rows[some], tasks[some]


def columns(board: Board, ask: Ask) -> list[tuple[Ints, int]]:
    """What is free of each thing a task asks for besides GPUs, and how much it asks."""
    found = []
    if ask.cpu_milli:
        found.append((board.cpu_milli, ask.cpu_milli))
    if ask.memory_mib:
        found.append((board.memory_mib, ask.memory_mib))
    resources: Mapping[str, Ints] = board.resources
    for name, amount in ask.resources:
        found.append((resources.get(name, board.nothing), amount))
    return found


def _sums(keys: Ints, values: Ints) -> Ints:
    return np.bincount(keys, weights=values).astype(np.int64)
