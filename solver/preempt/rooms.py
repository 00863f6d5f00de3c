"""Rows of the joint model: what is put on nodes fits what is idle there and what victims leave.

A node is in one of the states that its victims can bring about, by the number of its idle GPUs.
What a state offers is counted by size: tasks of the size, or larger, that its GPUs hold with the
CPU and memory beside them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from trencadis.models import Node, TaskAllocation
from trencadis.solver.bin_classes import BinClass
from trencadis.solver.capacity import NodeState, vector
from trencadis.solver.fabric import Domain
from trencadis.solver.model.columns import Columns
from trencadis.solver.model.fillers import use_of
from trencadis.solver.model.problem import Problem
from trencadis.solver.patterns.bins import Slot
from trencadis.solver.pieces import closable
from trencadis.solver.preempt.offers import Offer, Size, Sizes
from trencadis.solver.preempt.victims import Victim
from trencadis.solver.program import INFINITE, Program

Terms = list[tuple[int, int]]


class _Node(NamedTuple):
    """What a node offers now, and (column, offer) of each state that victims can bring about."""

    now: Offer
    then: list[tuple[int, Offer]]


def _part(node: _Node, size: int) -> tuple[int, Terms]:
    """What the node offers for one size, and how much more it may."""
    now = node.now.tasks[size]
    return now, [(column, offer.tasks[size] - now) for column, offer in node.then]


def _in_units(
    model: str,
    taken: Sequence[tuple[Slot, int]],
    states: Sequence[NodeState],
    nodes: Sequence[_Node],
) -> tuple[Terms, list[tuple[int, Terms]]]:
    """Whole GPUs, slices and shares together, in units of the GPUs."""
    knife = states[0].cutter
    unit = knife.sizes.unit
    terms = [
        (column, slot.gpus * unit + sum(knife.piece_units(model, piece) for piece in slot.pieces))
        for slot, column in taken
    ]
    offers = []
    for state, node in zip(states, nodes, strict=True):
        cut = sum(knife.idle_units(cut) for cut in state.cuts if cut.model == model)
        more = [(column, unit * (offer.gpus - node.now.gpus)) for column, offer in node.then]
        offers.append((cut + unit * node.now.gpus, more))
    return terms, offers


class Rooms:
    """Rows: what is put on nodes fits what is idle there and what victims leave."""

    def __init__(
        self,
        problem: Problem,
        program: Program,
        columns: Columns,
        candidates: Mapping[str, Victim],
    ) -> None:
        self.problem, self.program, self.columns = problem, program, columns
        facts = problem.facts
        self.now = {state.name: state for state in facts.capacity.states}
        nodes = {node.name: node for node in facts.snapshot.nodes}
        self.on: defaultdict[str, list[tuple[int, Mapping[str, int], tuple[int, ...], bool]]]
        self.on = defaultdict(list)
        """By node: of each victim there its column, its GPUs by model, its CPU and memory, and
        whether it is exclusive."""
        for name, victim in candidates.items():
            need = vector(victim.job, facts.capacity.resources)
            for node, tasks in _by_node(victim.tasks).items():
                gpus = _gpus_by_model(victim, tasks, nodes[node])
                use = tuple(amount * len(tasks) for amount in need)
                self.on[node].append((columns.gone[name], gpus, use, victim.job.exclusive))

    def add(self) -> None:
        """All rows."""
        for c, cls in enumerate(self.problem.supply.classes):
            self._gpus(c, cls)
            self._beside(c, cls)

    def at_once(self, gpus: int) -> int:
        """How many tasks of so many GPUs or more fit what is idle now; larger ones count more."""
        total = 0
        for cls in self.problem.supply.classes:
            for model in cls.type.counts():
                slots = [s for s in cls.slots if s.model == model and s.gpus >= gpus]
                if not slots:
                    continue
                size = Size(gpus, slots)
                for state in cls.nodes:
                    now = self.now.get(state.name)
                    if now is not None and now.takes(model):
                        total += size.most(now.takes(model), now.free)
        return total

    def _gpus(self, c: int, cls: BinClass) -> None:
        """Per GPU model and size: tasks of the size, or larger, fit the states of the nodes."""
        mine = {key: column for key, column in self.columns.pooled.items() if key[0] == c}
        for model in cls.type.counts() | {cut.model: 0 for cut in cls.type.cuts}:
            slots = [slot for slot in cls.slots if slot.model == model]
            sizes = Sizes(slots)
            states = {state.name: self._states(state, model, sizes) for state in cls.nodes}
            scopes: dict[Domain, Sequence[NodeState]] = {(): cls.nodes, **cls.cells}
            for scope, inside in scopes.items():
                taken = [
                    (cls.slots[s], column)
                    for (_, s, domain), column in mine.items()
                    if cls.slots[s].model == model and scope in ((), domain)
                ]
                there = [states[state.name] for state in inside]
                for position, size in enumerate(sizes.all):
                    terms = [
                        (column, slot.gpus // size.gpus)
                        for slot, column in taken
                        if slot in size.slots
                    ]
                    self._fit(terms, [_part(entry, position) for entry in there])
                if any(slot.pieces for slot, _ in taken):
                    self._fit(*_in_units(model, taken, inside, there))

    def _fit(self, terms: Terms, states: Sequence[tuple[int, Terms]]) -> None:
        """What is taken fits. `states`: of each node what it offers, and (column, how much more)
        once victims have gone."""
        more = [(column, -amount) for _, changes in states for column, amount in changes]
        self.program.row([*terms, *more], -INFINITE, sum(have for have, _ in states))

    def _states(self, state: NodeState, model: str, sizes: Sizes) -> _Node:
        """What a node offers of a model, and what it may once victims have gone."""
        # GPUs on which MIG may be turned off count as idle from the start, whoever must go first.
        off = closable(state.cuts, model)
        gone = len(state.idle.get(model, ())) + off
        there, now = self.on.get(state.name, ()), self.now.get(state.name)
        if now is None:
            # Who has the node for himself must go, and all of it is idle.
            (owner,) = [column for column, _, _, alone in there if alone]
            then = sizes.offer(gone, state.free)
            return _Node(sizes.offer(0, state.free), [(owner, then)])
        idle = len(now.idle.get(model, ())) + off
        base = sizes.offer(idle, now.free)
        freed = [(column, gpus[model]) for column, gpus, _, _ in there if gpus.get(model)]
        beside = [column for column, gpus, _, _ in there if not gpus]
        aside = [need for _, gpus, need, _ in there if not gpus]
        kept = tuple(have - sum(need) for have, *need in zip(state.free, *aside, strict=True))
        found: list[tuple[int, Offer]] = []
        reached = _sums(idle, [gpus for _, gpus in freed], gone)
        for gpus in range(idle, gone + 1):
            if reached >> gpus & 1:
                offer = sizes.offer(gpus, kept)
                if gpus > idle:
                    found.append((self.program.column(0, 1), offer))
                else:
                    offer = base
                relieved = sizes.offer(gpus, state.free)
                if relieved != offer:
                    found.append((self.program.column(0, 1), relieved))
                    terms = [(column, -1) for column in beside]
                    self.program.row([(found[-1][0], 1), *terms], -INFINITE, 0)
        self.columns.freed.extend(column for column, _ in found)
        self._reach(idle, gone, freed, [(column, offer.gpus) for column, offer in found])
        return _Node(base, found)

    def _reach(self, idle: int, gone: int, freed: Terms, states: Terms) -> None:
        """A node is in one state; its victims free the GPUs of it. `freed`: (victim, GPUs)."""
        program = self.program
        program.row([(column, 1) for column, _ in states], -INFINITE, 1)
        more = [(column, gpus - idle) for column, gpus in states]
        program.row([*more, *((column, -gpus) for column, gpus in freed)], -INFINITE, 0)
        for position, (victim, _) in enumerate(freed):
            others = [gpus for at, (_, gpus) in enumerate(freed) if at != position]
            without = _sums(idle, others, gone)
            needing = [(column, 1) for column, gpus in states if not without >> gpus & 1]
            if needing:
                program.row([*needing, (victim, -1)], -INFINITE, 0)

    def _beside(self, c: int, cls: BinClass) -> None:
        """Per dimension: CPU, memory and resources, over the class and over its domains."""
        dims = 2 + len(self.problem.facts.capacity.resources)
        use = use_of(self.problem, self.columns, dims)[cls.family]
        cells: defaultdict[Domain, list[tuple[int, tuple[int, ...]]]] = defaultdict(list)
        supply = self.problem.supply
        for (k, s, domain), column in self.columns.pooled.items():
            if k == c and domain:
                cells[domain].append((column, supply.located[cls.slots[s].located].need))
        for (need, family, domain), column in self.columns.cell_fillers.items():
            if family == cls.family:
                cells[domain].append((column, supply.located[need].need))
        for d in range(dims):
            self._free(use[d], cls.nodes, d)
            for domain, entries in cells.items():
                self._free([(col, need[d]) for col, need in entries], cls.cells[domain], d)

    def _free(self, terms: Terms, states: Sequence[NodeState], d: int) -> None:
        have = 0
        more: Terms = []
        for state in states:
            now = self.now.get(state.name)
            have += 0 if now is None else now.free[d]
            for column, _, need, alone in self.on.get(state.name, ()):
                more.append((column, -(state.free[d] if alone else need[d])))
        if any(amount for _, amount in terms):
            self.program.row([*terms, *more], -INFINITE, have)


def _sums(idle: int, parts: Sequence[int], most: int) -> int:
    """Bit n: so many GPUs can be idle once some of the parts have gone; at most `most` are."""
    reached = 1 << idle
    for gpus in parts:
        reached |= reached << gpus
    if reached >> most:
        reached = reached & (1 << most) - 1 | 1 << most
    return reached


def _by_node(tasks: Iterable[TaskAllocation]) -> dict[str, list[TaskAllocation]]:
    found: defaultdict[str, list[TaskAllocation]] = defaultdict(list)
    for task in tasks:
        found[task.node].append(task)
    return found


def _gpus_by_model(victim: Victim, tasks: Iterable[TaskAllocation], node: Node) -> dict[str, int]:
    """GPUs on a node that the victim leaves; of each model that they may be, where that isn't
    known."""
    found: Counter[str] = Counter()
    installed = [group.model for group in node.gpus for _ in range(group.count)]
    for task in tasks:
        if task.gpus is not None:
            found.update(installed[index] for index in task.gpus)
        elif victim.job.request.gpus:
            found.update(dict.fromkeys(installed, victim.job.request.gpus))
    return dict(found)
