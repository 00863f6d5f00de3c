"""Nodes as columns of numbers; nodes that no job tells apart share a row."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from trencadis.solver.verify.admission import (
    Wish,
    leaves_at,
    marks_of,
    poor,
    tolerated,
)
from trencadis.solver.verify.fabric import domain
from trencadis.solver.verify.linked import Links
from trencadis.solver.verify.second import Second
from trencadis.solver.verify.situation import Situation
from trencadis.solver.verify.supply import NodeState

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class Board:
    """The nodes that may take work. All columns are indexed by row.

    With a depth, a row stands for `count` nodes of one domain of that depth that differ in nothing
    that a rule reads. Without one it stands for one node, and what is idle may be changed.
    """

    def __init__(
        self, situation: Situation, states: Mapping[str, NodeState], depth: int | None = None
    ) -> None:
        self._situation = situation
        self._depth = depth
        policy = situation.snapshot.policy
        wanted, named = situation.labels_read, situation.nodes_named
        threshold = policy.poor_health_milli
        rows: dict[tuple[object, ...], int] = {}
        firsts: list[NodeState] = []
        counts: list[int] = []
        for state in states.values():
            node = state.node
            if node.down or node.cordoned or state.exclusive:
                continue
            # A node whose path is short is a domain of its own, so it can't share a row.
            alone = depth is None or node.name in named or len(node.fabric) < depth
            key: tuple[object, ...] = (
                node.name if alone else None,
                node.fabric[:depth],
                tuple(node.labels.get(k) if node.labels.get(k) in v else None for k, v in wanted)
                if wanted
                else (),
                marks_of(node.taints) if node.taints else (),
                leaves_at(node, situation.now),
                node.health_score_milli < threshold,
                tuple(state.gpus.items()),
                state.cpu_milli,
                state.memory_mib,
                tuple(state.resources.items()) if state.resources else (),
                node.nvlink.kind,
                (node.nvlink.links, state.idle, state.counted, tuple(state.models.items()))
                if node.nvlink.links
                else None,
                state.occupied,
                state.second.key(),
                tuple(owner for owner, kept in situation.reserved.items() if node.name in kept),
            )
            row = rows.setdefault(key, len(firsts))
            if row == len(firsts):
                firsts.append(state)
                counts.append(0)
            counts[row] += 1
        self.states = firsts
        self.seconds = [state.second for state in firsts]
        """GPUs in parts, which a search changes."""
        self.row_of = {state.node.name: row for row, state in enumerate(firsts)}
        """Rows of nodes that jobs name, and of each row's first node."""
        self.count = np.array(counts, dtype=np.int64)
        self._fill_columns()
        self._may: dict[Wish, Ints] = {}
        self._admitted: dict[tuple[Wish, str | None, int], Ints] = {}

    def _fill_columns(self) -> None:
        states, levels = self.states, self._situation.levels
        policy = self._situation.snapshot.policy
        size = len(states)

        def column(values: list[int]) -> Ints:
            return np.array(values, dtype=np.int64)

        self.nothing = np.zeros(size, dtype=np.int64)
        models = sorted(
            {model for state in states for model in state.gpus}
            | {gpu.model for state in states for gpu in state.second.gpus.values()}
        )
        self.gpus = {m: column([state.gpus.get(m, 0) for state in states]) for m in models}
        self.off = {model: self.nothing.copy() for model in models}
        """GPUs in MIG mode that may be turned into whole ones, by model."""
        for row in range(size):
            self._count_off(row)
        self.cpu_milli = column([state.cpu_milli for state in states])
        self.memory_mib = column([state.memory_mib for state in states])
        names = sorted({name for state in states for name in state.resources})
        self.resources = {n: column([s.resources.get(n, 0) for s in states]) for n in names}
        self.occupied = np.array([state.occupied for state in states], dtype=np.bool_)
        self.closed = np.zeros(size, dtype=np.bool_)
        """Taken by an exclusive job during a search."""
        kinds = [state.node.nvlink.kind for state in states]
        self.nvswitch = np.array([kind == "nvswitch" for kind in kinds], dtype=np.bool_)
        self.has_links = np.array(
            [k == "links" and not s.counted for k, s in zip(kinds, states, strict=True)],
            dtype=np.bool_,
        )
        self._idle: dict[tuple[int, str], frozenset[int]] = {}
        self.domains: list[Ints] = []
        for depth in range((levels.node if self._depth is None else self._depth) + 1):
            ids: dict[tuple[str, ...], int] = {}
            self.domains.append(
                column([ids.setdefault(domain(levels, s.node, depth), len(ids)) for s in states])
            )
        self._leaves = column([leaves_at(s.node, self._situation.now) for s in states])
        self._poor = np.array([poor(state.node, policy) for state in states], dtype=np.bool_)
        classes: dict[tuple[tuple[str, str, str], ...], int] = {}
        self._marks = column(
            [classes.setdefault(marks_of(s.node.taints), len(classes)) for s in states]
        )
        self._mark_classes = list(classes)
        self._labelled: dict[str, dict[str, list[int]]] = {}

    def _count_off(self, row: int) -> None:
        offs = [gpu.model for gpu in self.seconds[row].offs().values()]
        for model, numbers in self.off.items():
            numbers[row] = offs.count(model)

    def takes(self, model: str) -> Ints:
        """GPUs of a model that whole-GPU tasks may have."""
        return self.gpus[model] + self.off[model]

    def set_second(self, row: int, second: Second) -> None:
        """Change the GPUs in parts; rows of single nodes only."""
        self.seconds[row] = second
        self._count_off(row)

    def admitted(self, wish: Wish, model: str | None, gpus: int) -> Ints:
        """Rows of nodes that the job may use and that have as many idle GPUs of the model."""
        key = (wish, model, gpus)
        # What is idle changes in a search.
        known = self._admitted.get(key) if self._depth is not None else None
        if known is None:
            if wish not in self._may:
                self._may[wish] = self._admit(wish)
            known = self._may[wish]
            if model is not None:
                known = known[self.takes(model)[known] >= gpus]
            self._admitted[key] = known
        return known

    def _admit(self, wish: Wish) -> Ints:
        may = self._leaves >= wish.ends
        for key, value in wish.selector:
            may &= self._with_label(key, value)
        ok = [all(tolerated(m, wish.passes) for m in marks) for marks in self._mark_classes]
        may &= np.array(ok, dtype=np.bool_)[self._marks] if ok else True
        if wish.large:
            may &= ~self._poor
        if wish.required:
            named = np.zeros(may.size, dtype=np.bool_)
            named[[self.row_of[name] for name in wish.required if name in self.row_of]] = True
            may &= named
        for owner in wish.barred:
            kept = self._situation.reserved[owner]
            may &= np.array([s.node.name not in kept for s in self.states], dtype=np.bool_)
        for name in wish.excluded:
            if name in self.row_of:
                may[self.row_of[name]] = False
        return np.flatnonzero(may)

    def _with_label(self, key: str, value: str) -> Bools:
        by_value = self._labelled.get(key)
        if by_value is None:
            by_value = self._labelled[key] = {}
            for row, state in enumerate(self.states):
                if key in state.node.labels:
                    by_value.setdefault(state.node.labels[key], []).append(row)
        has = np.zeros(len(self.states), dtype=np.bool_)
        has[by_value.get(value, [])] = True
        return has

    def links_of(self, row: int, model: str) -> tuple[Links, frozenset[int]]:
        """Links of the row's node, and its idle GPUs of a model."""
        idle = self._idle.get((row, model))
        if idle is None:
            idle = self.states[row].idle_of(model)
        return self.states[row].node.nvlink.links, idle

    def put(self, row: int, state: NodeState) -> None:
        """Change what a node has left; rows of single nodes only."""
        for model, column in self.gpus.items():
            column[row] = state.gpus.get(model, 0)
            if self.has_links[row]:
                self._idle[row, model] = state.idle_of(model)
        self.cpu_milli[row] = state.cpu_milli
        self.memory_mib[row] = state.memory_mib
        for name, column in self.resources.items():
            column[row] = state.resources.get(name, 0)
        self.occupied[row] = state.occupied
        self.closed[row] = state.exclusive
        self.set_second(row, state.second)

    def set_idle(self, row: int, model: str, idle: frozenset[int]) -> None:
        """Change which GPUs are idle; rows of single nodes only."""
        self._idle[row, model] = idle
        self.gpus[model][row] = len(idle)
