"""Rows: in a strict_fifo queue nobody passes the head of his pool."""

from __future__ import annotations

from collections import defaultdict

from trencadis.models import Job, Missing, Queue
from trencadis.models.base import seconds
from trencadis.models.units import uses_gpu
from trencadis.solver.model.columns import Columns
from trencadis.solver.model.problem import Problem
from trencadis.solver.program import INFINITE, Program

Pool = frozenset[str] | None
"""Allowed GPU models, empty for any; None for jobs without GPUs."""


def pool_of(job: Job) -> Pool:
    """The pool of resources that a job competes in."""
    return frozenset(job.gpu_models) if uses_gpu(job.request) else None


def same_pool(a: Pool, b: Pool) -> bool:
    """Whether jobs of the two pools may wait for the same GPUs."""
    if a is None or b is None:
        return a is b
    return not a or not b or bool(a & b)


def in_line(job: Job, queue: Queue) -> bool:
    """Whether the queue's order is about the job: not about repairs of what runs already."""
    return queue.order == "strict_fifo" and not isinstance(job, Missing)


def add(problem: Problem, program: Program, columns: Columns) -> None:
    """Per queue and pool, a chain: `done` columns say that all up to a rank have started."""
    values = problem.facts.values
    started: dict[str, list[tuple[int, int]]] = {}
    for index, cls in enumerate(problem.demand.classes):
        if len(cls.units) == 1:
            started.update(dict.fromkeys(cls.units[0], columns.started(index)))
    by_queue: defaultdict[str, list[Job]] = defaultdict(list)
    for job in values.eligible.values():
        if in_line(job, values.tree.queues[job.queue]):
            by_queue[job.queue].append(job)
    for jobs in by_queue.values():
        _chain(problem, program, started, jobs)


def _chain(
    problem: Problem,
    program: Program,
    started: dict[str, list[tuple[int, int]]],
    jobs: list[Job],
) -> None:
    worth = problem.facts.values.worth
    ranks: defaultdict[tuple[int, int], list[Job]] = defaultdict(list)
    for job in jobs:
        ranks[(worth[job.name].tier, seconds(job.submit))].append(job)
    done: dict[Pool, int] = {}
    for rank in sorted(ranks):
        for job in ranks[rank]:
            for pool, column in done.items():
                if same_pool(pool, pool_of(job)):
                    program.row([*started[job.name], (column, -1)], -INFINITE, 0)
        # Jobs that could not run even on the empty cluster hold nobody up.
        heads: defaultdict[Pool, list[Job]] = defaultdict(list)
        for job in ranks[rank]:
            if problem.facts.can_run[job.name]:
                heads[pool_of(job)].append(job)
        for pool, members in heads.items():
            column = program.column(0, 1)
            for job in members:
                if started[job.name]:
                    minus = [(c, -1) for c, _ in started[job.name]]
                    program.row([(column, 1), *minus], -INFINITE, 0)
                else:
                    program.high[column] = 0
            if pool in done:
                program.row([(column, 1), (done[pool], -1)], -INFINITE, 0)
            done[pool] = column
