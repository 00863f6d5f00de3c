"""Who gets further tasks, and where: greedily, then exactly if a simple bound isn't reached."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from trencadis.models import TaskAllocation
from trencadis.solver.clock import Limits
from trencadis.solver.cpsat import Window, search
from trencadis.solver.elastic.jobs import Grower
from trencadis.solver.elastic.nodes import Apart, Nodes
from trencadis.solver.elastic.quotas import Quotas
from trencadis.solver.fabric import Domain
from trencadis.solver.program import INFINITE, Objective, Program

MAX_COLUMNS = 20_000
"""Larger programs are not searched: the greedy choice and its bound stand."""
SECONDS = 1.0
"""The most that the exact search may take."""

Choice = list[dict[str, int]]
"""By grower: how many further tasks it gets on which node."""


@dataclass(frozen=True, slots=True)
class Growth:
    """Further tasks by job, what they are worth, and what no other choice exceeds."""

    tasks: Mapping[str, tuple[TaskAllocation, ...]]
    value: int
    bound: int


def grow(nodes: Nodes, quotas: Quotas, limits: Limits) -> Growth:
    """The best further tasks for all who may have some."""
    growers = nodes.growers
    choice = _greedy(nodes, quotas, [{} for _ in growers])
    value, bound = _value(growers, choice), _most(nodes)
    columns = sum(len(room) for room in nodes.room) + sum(len(g.values) for g in growers)
    if value < bound and columns <= MAX_COLUMNS and not limits.over():
        choice, bound = _exact(nodes, quotas, choice, bound, limits)
        # The search need not give what is worth nothing; who has room gets it all the same.
        choice = _greedy(nodes, quotas, choice)
        value = _value(growers, choice)
    fresh = nodes.fresh()
    tasks = {
        grower.job.name: tuple(
            fresh[name].take(grower) for name, count in sorted(here.items()) for _ in range(count)
        )
        for grower, here in zip(growers, choice, strict=True)
        if here
    }
    return Growth(tasks, value, bound)


def _value(growers: Sequence[Grower], choice: Choice) -> int:
    return sum(
        sum(grower.values[: sum(here.values())])
        for grower, here in zip(growers, choice, strict=True)
    )


def _greedy(nodes: Nodes, quotas: Quotas, given: Choice) -> Choice:
    """Adds the task that is worth most for its size first, on the node that it leaves fullest."""
    growers = nodes.growers
    rest = nodes.fresh()
    choice = [dict(here) for here in given]
    counts = [sum(here.values()) for here in given]
    for grower, here in zip(growers, given, strict=True):
        for name, count in here.items():
            for _ in range(count):
                rest[name].take(grower)

    def rank(index: int) -> tuple[int, str, int]:
        grower = growers[index]
        # A whole GPU's worth, so that large tasks don't go first for their size.
        per_gpu = grower.values[counts[index]] * 1_000 // max(1, grower.gpus)
        return -per_gpu, grower.job.name, index

    heap = [rank(i) for i, grower in enumerate(growers) if counts[i] < len(grower.values)]
    heapify(heap)
    while heap:
        index = heappop(heap)[2]
        grower, room = growers[index], nodes.room[index]
        counts[index] += 1
        fitting = [
            name
            for name, most in room.items()
            if choice[index].get(name, 0) < most
            and rest[name].fits(grower)
            and _far_enough(nodes.apart[index], choice[index], name)
        ]
        # Room and limits only shrink: who finds none is done.
        if not fitting or not quotas.allow(counts):
            counts[index] -= 1
            continue
        name = min(fitting, key=lambda n: (sum(map(len, rest[n].idle.values())), n))
        rest[name].take(grower)
        choice[index][name] = choice[index].get(name, 0) + 1
        if counts[index] < len(grower.values):
            heappush(heap, rank(index))
    return choice


def _far_enough(apart: Apart | None, here: Mapping[str, int], name: str) -> bool:
    """Whether one more task may be in the node's domain."""
    if apart is None:
        return True
    mine = apart.domain(name)
    given = sum(count for other, count in here.items() if apart.domain(other) == mine)
    return given < apart.left(name)


def _most(nodes: Nodes) -> int:
    """A bound: each job alone, and by model no more GPUs than are idle, the dearest first."""
    total = 0
    by_model: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for grower, room in zip(nodes.growers, nodes.room, strict=True):
        values = grower.values[: sum(room.values())]
        if grower.gpus:
            by_model[grower.model or ""] += [(value, grower.gpus) for value in values]
        else:
            total += sum(values)
    for model, items in by_model.items():
        idle = sum(len(nodes.left[name].idle.get(model, ())) for name in nodes.states)
        for value, gpus in sorted(items, key=lambda item: (-item[0] / item[1], item)):
            part = min(gpus, idle)
            total += value if part == gpus else -(-value * part // gpus)
            idle -= part
    return total


def _exact(
    nodes: Nodes, quotas: Quotas, hint: Choice, bound: int, limits: Limits
) -> tuple[Choice, int]:
    """The best choice by search, and what it proves; the hint's where nothing better is found."""
    growers = nodes.growers
    program, objective = Program(), Objective("growth")
    tasks: list[list[int]] = []
    place: list[dict[str, int]] = []
    start: list[int] = []
    for grower, room, given in zip(growers, nodes.room, hint, strict=True):
        place.append({name: program.column(0, most) for name, most in room.items()})
        start += [given.get(name, 0) for name in room]
        levels = [program.column(0, 1) for _ in grower.values]
        start += [int(i < sum(given.values())) for i in range(len(levels))]
        for column, value in zip(levels, grower.values, strict=True):
            objective.add(column, -value)
        tasks.append(list(place[-1].values()))
        counted = [(column, 1) for column in tasks[-1]]
        program.row([*counted, *((column, -1) for column in levels)], 0, 0)
    _fill(nodes, program, place)
    _keep_apart(nodes, program, place)
    quotas.constrain(program, tasks)
    start += program.rest[len(start) :]
    found = search(
        program,
        objective,
        Window(program.low, program.high),
        start,
        None,
        limits.effort(SECONDS),
        limits.stop,
    )
    proven = bound if found.bound is None else min(bound, -found.bound)
    if found.solution is None:
        return hint, proven
    solution = found.solution
    choice = [{n: solution[c] for n, c in here.items() if solution[c]} for here in place]
    better = _value(growers, choice) > _value(growers, hint)
    return (choice if better else hint), proven


def _fill(nodes: Nodes, program: Program, place: Sequence[Mapping[str, int]]) -> None:
    """Rows: what a node has left of GPUs by model, CPU, memory and named resources."""
    on_node: defaultdict[str, list[tuple[int, Grower]]] = defaultdict(list)
    for grower, here in zip(nodes.growers, place, strict=True):
        for name, column in here.items():
            on_node[name].append((column, grower))
    for name, entries in on_node.items():
        left = nodes.left[name]
        for model, idle in left.idle.items():
            terms = [(c, grower.gpus) for c, grower in entries if grower.model == model]
            program.row(terms, -INFINITE, len(idle))
        for d, free in enumerate(left.free):
            program.row([(c, g.need[d]) for c, g in entries], -INFINITE, free)


def _keep_apart(nodes: Nodes, program: Program, place: Sequence[Mapping[str, int]]) -> None:
    """Rows: at most so many tasks of a job in one domain."""
    for apart, here in zip(nodes.apart, place, strict=True):
        if apart is None:
            continue
        by_domain: defaultdict[Domain, list[tuple[int, int]]] = defaultdict(list)
        left: dict[Domain, int] = {}
        for name, column in here.items():
            by_domain[apart.domain(name)].append((column, 1))
            left[apart.domain(name)] = apart.left(name)
        for domain, terms in by_domain.items():
            program.row(terms, -INFINITE, left[domain])
