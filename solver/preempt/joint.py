"""The counting model in which running jobs may go, too: who starts and who stops, in one program.

Nodes are not filled by patterns: their room is counted by size (`rooms`), CPU and memory once more
over the nodes of a class. That admits too much, never too little: the program bounds what any plan
with preemption can reach, and says which victims are worth their loss.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain

from trencadis.solver.accounts import books
from trencadis.solver.capacity import running_model
from trencadis.solver.model import (
    bins,
    domains,
    guarantees,
    lending,
    limits,
    objective,
    order,
    starts,
)
from trencadis.solver.model.build import Family, Model
from trencadis.solver.model.charges import charged
from trencadis.solver.model.columns import Columns, add_columns
from trencadis.solver.model.problem import Facts, Problem, Thresholds, read_accounts, wanted
from trencadis.solver.preempt.emptied import emptied
from trencadis.solver.preempt.rooms import Rooms
from trencadis.solver.preempt.victims import Victim, allowance
from trencadis.solver.program import INFINITE, Program
from trencadis.solver.shapes import Need
from trencadis.solver.spread import spread_cost
from trencadis.solver.stages import wait_stages

FAMILIES: tuple[Family, ...] = (
    starts.add,
    bins.flows,
    domains.add,
    limits.add,
    guarantees.add,
    lending.add,
    order.add,
    objective.add,
)


def joint_model(
    read: Facts, candidates: Mapping[str, Victim], gone: Facts, thresholds: Thresholds
) -> Model:
    """The model. `gone`: the facts with all candidates gone."""
    read = _watching(read, candidates)
    demand = wanted(read, frozenset())
    problem = Problem(read, demand, emptied(read, gone.capacity.states, demand), thresholds)
    program = Program()
    columns = add_columns(problem, program)
    columns.charged = charged(problem, columns)
    columns.gone = {name: program.column(0, 1) for name in candidates}
    _give_back(read, candidates, columns)
    _open_shortfalls(read, candidates, program, columns)
    for family in FAMILIES:
        family(problem, program, columns)
    _budgets(read, candidates, program, columns)
    _losses(read, candidates, program, columns)
    rooms = Rooms(problem, program, columns, candidates)
    rooms.add()
    _delays(problem, program, columns, candidates, rooms)
    return Model(problem, program, columns)


def _watching(read: Facts, candidates: Mapping[str, Victim]) -> Facts:
    """The facts with all guarantees as targets that victims may leave short."""
    at_stake: defaultdict[str, int] = defaultdict(int)
    for victim in candidates.values():
        for queue in read.values.tree.chain(victim.job.queue):
            at_stake[queue] += victim.units
    targets = tuple(t for t in read.guarantees if t.missing + at_stake[t.queue] > 0)
    keys = read_accounts(read.snapshot, list(targets))
    return replace(read, targets=targets, books=books(read.snapshot, read.values, keys))


def _give_back(read: Facts, candidates: Mapping[str, Victim], columns: Columns) -> None:
    """Accounts get back what victims have in use."""
    accounts = read.books.accounts
    for name, victim in candidates.items():
        for charge in read.books.held.get(victim.job.name, ()):
            key, amount = accounts[charge.account].key, charge.amount
            if victim.task is not None:
                if key[0] != "use" and key[2:3] not in (("gpus",), ("model",)):
                    continue  # a job that runs on with fewer tasks is still one job
                amount = victim.units
            terms = columns.charged.setdefault(charge.account, [])
            terms.append((columns.gone[name], -amount))


def _open_shortfalls(
    read: Facts, candidates: Mapping[str, Victim], program: Program, columns: Columns
) -> None:
    for column, target in zip(columns.shortfalls, read.targets, strict=True):
        chain = read.values.tree.chain
        lost = sum(v.units for v in candidates.values() if target.queue in chain(v.job.queue))
        program.rest[column] = max(0, target.missing)
        program.high[column] = program.rest[column] + lost


def _budgets(
    read: Facts, candidates: Mapping[str, Victim], program: Program, columns: Columns
) -> None:
    left = allowance(read.snapshot, read.capacity.gpus)
    whole = [(columns.gone[name], v) for name, v in candidates.items() if v.task is None]
    program.row([(column, 1) for column, _ in whole], -INFINITE, left.jobs)
    program.row([(column, victim.gpus) for column, victim in whole], -INFINITE, left.gpus)
    highest = min(worth.tier for worth in read.values.worth.values())
    reclaimed = [(column, 1) for column, victim in whole if victim.yields_below <= highest]
    program.row(reclaimed, -INFINITE, left.reclaimed)
    tasks: defaultdict[str, list[str]] = defaultdict(list)
    for name, victim in candidates.items():
        if victim.task is not None:
            tasks[victim.job.name].append(name)
    for job, parts in tasks.items():
        spare = candidates[parts[0]].spare
        terms = [(columns.gone[name], 1) for name in parts]
        if job in columns.gone:
            terms.append((columns.gone[job], spare))
        program.row(terms, -INFINITE, spare)


def _losses(
    read: Facts, candidates: Mapping[str, Victim], program: Program, columns: Columns
) -> None:
    waits = wait_stages(read.snapshot)
    stages = {stage.name: stage for stage in program.objectives}
    nodes = {node.name: node for node in read.snapshot.nodes}
    for name, victim in candidates.items():
        loss = victim.loss
        if victim.task is None:
            model = running_model(victim.job, nodes)
            loss -= spread_cost(read, victim.job, victim.job.allocation, model, nodes)
        stages[waits[victim.tier if len(waits) > 1 else 0]].add(columns.gone[name], loss)


def _delays(
    problem: Problem,
    program: Program,
    columns: Columns,
    candidates: Mapping[str, Victim],
    rooms: Rooms,
) -> None:
    """What starts at once fits what is idle now; all others wait, at least for the quickest."""
    read = problem.facts
    horizon = read.values.rates.horizon
    least = min([horizon, *(victim.grace for victim in candidates.values())])
    waits = wait_stages(read.snapshot)
    stages = {stage.name: stage for stage in program.objectives}
    prompt: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    sizes = sorted({n.gpus // n.sets for n in _needs(problem) if n.gpus and not n.pieces})
    for index, cls in enumerate(problem.demand.classes if least else ()):
        if len(cls.members) > 1:
            continue
        (member,) = cls.members
        ways = [alt.way for alt in problem.demand.shapes[member.shape].alternatives]
        if any(way.need.pieces or not way.need.gpus for way in ways):
            continue
        stage = stages[waits[member.tier if len(waits) > 1 else 0]]
        for piece in columns.pieces[index]:
            late = program.column(0, piece.length)
            program.row([(late, 1), (piece.column, -1)], -INFINITE, 0)
            stage.add(late, piece.slope * least // horizon)
            for size in sizes:
                weight = min(way.count * _weight(way.need, size) for way in ways)
                prompt[size] += [(piece.column, weight), (late, -weight)]
    for size, terms in prompt.items():
        program.row(terms, -INFINITE, rooms.at_once(size))


def _weight(need: Need, size: int) -> int:
    """Tasks of a need, each as often as it holds so many GPUs."""
    return need.sets * (need.gpus // need.sets // size)


def _needs(problem: Problem) -> Iterable[Need]:
    return chain(problem.supply.needs, problem.supply.located)
