"""Places for jobs that start together: first fit with a small budget of second thoughts.

Counting is exact for one job; jobs of one group compete for the same GPUs, so a place is looked
for and only what was found is reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trencadis.models import TaskAllocation
from trencadis.solver.verify.board import Board
from trencadis.solver.verify.fabric import Levels
from trencadis.solver.verify.fits import Ints, Shape, capacity, columns
from trencadis.solver.verify.knife import Knife
from trencadis.solver.verify.linked import pack
from trencadis.solver.verify.seat import Seat
from trencadis.solver.verify.second import Second
from trencadis.solver.verify.supply import NodeState

Counts = list[tuple[int, int]]
"""(row, tasks on it)."""


@dataclass(frozen=True, slots=True)
class Found:
    """Places of one job."""

    model: str | None
    tasks: tuple[TaskAllocation, ...]
    rows: tuple[int, ...]


class Search:
    """Looks for places of several jobs at once on a board with a row per node."""

    def __init__(
        self, board: Board, levels: Levels, knife: Knife, budget: int = 200
    ) -> None:
        self.board = board
        self.knife = knife
        self.levels = levels
        self.budget = budget
        self._left = 0

    def together(
        self, wanted: Sequence[tuple[Shape, Sequence[str | None]]]
    ) -> Iterator[tuple[Found, ...]]:
        """Places for all of them; a job is its shape and the GPU models it may use.

        While a result is being looked at, the board stands as if these jobs ran.
        """
        self._left = self.budget
        yield from self._from(list(wanted), ())

    def stop(self) -> None:
        """Look no further."""
        self._left = 0

    def _from(
        self, wanted: list[tuple[Shape, Sequence[str | None]]], found: tuple[Found, ...]
    ) -> Iterator[tuple[Found, ...]]:
        if len(found) == len(wanted):
            yield found
            return
        shape, models = wanted[len(found)]
        for model in models:
            for counts in options(self.board, self.levels, shape, model, self.knife):
                if self._left <= 0:
                    return
                self._left -= 1
                before = [(row, _saved(self.board, row)) for row, _ in counts]
                taken = self._take(shape, model, counts)
                if taken is not None:
                    yield from self._from(wanted, (*found, taken))
                for row, values in before:
                    _restore(self.board, row, values)

    def _take(self, shape: Shape, model: str | None, counts: Counts) -> Found | None:
        """Takes what the job needs; None where its slices or shares found no place after all."""
        board, tasks = self.board, list[TaskAllocation]()
        for row, count in counts:
            name = board.states[row].node.name
            for column, amount in columns(board, shape.ask):
                column[row] -= amount * count
            board.occupied[row] = True
            board.closed[row] = shape.exclusive
            if model is None:
                tasks += [TaskAllocation(node=name)] * count
            elif not shape.ask.whole:
                parts = self._cut(shape, model, row, count)
                if parts is None:
                    return None
                tasks += parts
            elif board.has_links[row]:
                for gpus in self._choose(shape, model, row, count):
                    tasks.append(TaskAllocation(node=name, gpus=tuple(sorted(gpus))))
            else:
                # Which GPUs makes no difference where all are linked or none is.
                self._whole(model, row, shape.ask.gpus * count)
                tasks += [TaskAllocation(node=name)] * count
        return Found(model, tuple(tasks), tuple(row for row, _ in counts))

    def _whole(self, model: str, row: int, number: int) -> None:
        """Takes whole GPUs of a node: idle ones, then such on which MIG may be turned off."""
        board = self.board
        idle = min(number, int(board.gpus[model][row]))
        board.gpus[model][row] -= idle
        if idle < number:
            second = board.seconds[row]
            offs = [index for index, gpu in second.offs().items() if gpu.model == model]
            board.set_second(row, second.turned_off(offs[: number - idle]))

    def _cut(
        self, shape: Shape, model: str, row: int, count: int
    ) -> list[TaskAllocation] | None:
        """Places of slices or shares on a node; GPUs that are opened are idle no more."""
        board = self.board
        state, second = board.states[row], board.seconds[row]
        idle = board.links_of(row, model)[1] if board.has_links[row] else state.idle_of(model)
        # By count alone no more GPUs are to be had than are idle, whichever these are.
        fresh = sorted(idle - second.gpus.keys())[: int(board.gpus[model][row])]
        seat = Seat(self.knife, second, state.models, fresh)
        found = seat.tasks(state.node.name, shape.ask, model, count)
        if found is None:
            return None
        tasks, after = found
        board.set_second(row, after)
        opened = board.seconds[row].gpus.keys() - second.gpus.keys()
        if board.has_links[row]:
            board.set_idle(row, model, idle - opened)
        else:
            board.gpus[model][row] -= len(opened)
        return tasks

    def _choose(self, shape: Shape, model: str, row: int, count: int) -> list[frozenset[int]]:
        links, idle = self.board.links_of(row, model)
        size = shape.ask.gpus
        chosen = list(pack(links, idle, size)[:count]) if size >= 2 else []
        rest = sorted(idle.difference(*chosen))
        while len(chosen) < count:
            chosen.append(frozenset(rest[:size]))
            rest = rest[size:]
        self.board.set_idle(row, model, idle.difference(*chosen))
        return chosen


def options(
    board: Board, levels: Levels, shape: Shape, model: str | None, knife: Knife
) -> Iterator[Counts]:
    """Ways to place one job: on each kind of node that holds all of it, then in each domain."""
    rows, tasks_on = capacity(board, shape, model, knife)
    segment = shape.segment
    if not rows.size or (segment and shape.tasks % segment[0]):
        return
    seen: set[tuple[object, ...]] = set()
    for i in np.argsort(tasks_on, kind="stable"):
        row = int(rows[i])
        if shape.crowd is None and tasks_on[i] >= shape.tasks and _look(board, row) not in seen:
            seen.add(_look(board, row))
            yield [(row, shape.tasks)]
    if shape.tasks == 1 or shape.depth >= levels.node:
        return
    domains = board.domains[shape.depth][rows]
    held = np.bincount(domains, weights=tasks_on)
    for place in np.argsort(held, kind="stable"):
        if held[place] >= shape.tasks:
            inside = domains == place
            counts = _fill(board, levels, shape, rows[inside], tasks_on[inside])
            if counts is not None:
                yield counts


def _fill(board: Board, levels: Levels, shape: Shape, rows: Ints, tasks_on: Ints) -> Counts | None:
    """Fill the fullest nodes of a domain first, segment by segment."""
    size, depth = shape.segment or (shape.tasks, shape.depth)
    most = shape.tasks
    if shape.crowd is not None:
        size, (most, depth) = 1, shape.crowd
    elif depth <= shape.depth:
        size, depth = shape.tasks, shape.depth
    parts: dict[int, list[int]] = {}
    for i in np.argsort(-tasks_on, kind="stable"):
        key = int(rows[i]) if depth >= levels.node else int(board.domains[depth][rows[i]])
        parts.setdefault(key, []).append(int(i))
    left, counts = shape.tasks, Counts()
    for part in parts.values():
        here = min(left, most, int(tasks_on[part].sum()) // size * size)
        left -= here
        for i in part:
            count = min(here, int(tasks_on[i]))
            here -= count
            if count:
                counts.append((int(rows[i]), count))
    return None if left else counts


def state_at(board: Board, row: int) -> NodeState:
    """The row's node as the board has it now."""
    state = board.states[row]
    gpus = {model: int(column[row]) for model, column in board.gpus.items()}
    idle = state.idle
    if board.has_links[row]:
        idle = frozenset[int]().union(*(board.links_of(row, model)[1] for model in gpus))
    return replace(
        state,
        idle=idle,
        gpus={model: count for model, count in gpus.items() if model in state.gpus},
        cpu_milli=int(board.cpu_milli[row]),
        memory_mib=int(board.memory_mib[row]),
        resources={name: int(board.resources[name][row]) for name in state.resources},
        occupied=bool(board.occupied[row]),
        exclusive=bool(board.closed[row]),
        second=board.seconds[row],
    )


def _columns(board: Board) -> list[Ints]:
    return [board.cpu_milli, board.memory_mib, *board.resources.values(), *board.gpus.values()]


def _look(board: Board, row: int) -> tuple[object, ...]:
    """All by which nodes differ for a search; those with links are all different."""
    values = [int(column[row]) for column in _columns(board)]
    alone = row if board.has_links[row] else -1 - int(board.nvswitch[row])
    return (*values, alone, board.seconds[row].key())


def _saved(board: Board, row: int) -> tuple[object, ...]:
    idle = {m: board.links_of(row, m) for m in board.gpus} if board.has_links[row] else {}
    numbers = [int(column[row]) for column in _columns(board)]
    return (
        numbers,
        {m: gpus for m, (_, gpus) in idle.items()},
        bool(board.occupied[row]),
        bool(board.closed[row]),
        board.seconds[row],
    )


def _restore(board: Board, row: int, values: tuple[object, ...]) -> None:
    numbers, idle, occupied, closed, second = values
    assert isinstance(numbers, list)
    assert isinstance(idle, dict)
    assert isinstance(second, Second)
    for model, gpus in idle.items():
        board.set_idle(row, model, gpus)
    for column, number in zip(_columns(board), numbers, strict=True):
        column[row] = number
    board.occupied[row], board.closed[row] = occupied, closed
    board.set_second(row, second)
