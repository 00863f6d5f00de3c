"""How much idle GPU the tasks of the snapshot can't use where it is (problem.md, 5)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from trencadis.solver.verify.linked import components
from trencadis.solver.verify.situation import Situation
from trencadis.solver.verify.supply import NodeState
from trencadis.solver.verify.units import Ask

Kind = tuple[Ask, frozenset[str], bool]
Ints = NDArray[np.int64]


class Fragmentation:
    """F of nodes, for the tasks of one situation. Same states are worked out once."""

    def __init__(self, situation: Situation) -> None:
        self.policy = situation.snapshot.policy
        self.kinds = kinds_of(situation)
        self.total = sum(self.kinds.values())
        self._known: dict[tuple[object, ...], int] = {}

    def total_of(self, states: Iterable[NodeState]) -> int:
        """Sum of F over nodes: GPU-seconds."""
        return sum(self._values(states))

    def weighted_total_of(self, states: Iterable[NodeState]) -> int:
        """The same where fragmentation is part of the sum: weighted node by node."""
        weight = self.policy.fragmentation_weight_milli
        return sum(value * weight // 1_000 for value in self._values(states))

    def _values(self, states: Iterable[NodeState]) -> list[int]:
        keys = []
        fresh: dict[tuple[object, ...], NodeState] = {}
        for state in states:
            node = state.node
            if node.down or node.cordoned or state.exclusive or not any(state.gpus.values()):
                continue
            key = _key(state)
            keys.append(key)
            if key not in self._known:
                fresh[key] = state
        if fresh:
            horizon, total = self.policy.horizon_seconds, self.total
            for key, waste in zip(fresh, self._waste(list(fresh.values())), strict=True):
                self._known[key] = waste * horizon // total if total else 0
        return [self._known[key] for key in keys]

    def _waste(self, states: Sequence[NodeState]) -> list[int]:
        """Per state: unusable idle GPUs, summed over the kinds of task."""
        models = sorted({model for state in states for model in state.gpus})
        idle = {m: _column(state.gpus.get(m, 0) for state in states) for m in models}
        joined = {m: _column(_joined(state, m) for state in states) for m in models}
        cpu = _column(state.cpu_milli for state in states)
        memory = _column(state.memory_mib for state in states)
        names = {name for ask, _, _ in self.kinds for name, _ in ask.resources}
        free = {n: _column(state.resources.get(n, 0) for state in states) for n in names}
        everything = sum(idle.values(), start=np.zeros(len(states), dtype=np.int64))
        waste = everything * self.total
        for (ask, allowed, nvlink), count in self.kinds.items():
            if not ask.gpus:
                continue
            fits = (cpu >= ask.cpu_milli) & (memory >= ask.memory_mib)
            for name, amount in ask.resources:
                fits &= free[name] >= amount
            for model in models:
                if not allowed or model in allowed:
                    most = joined[model] if nvlink and ask.gpus >= 2 else idle[model]
                    waste -= count * np.where(fits & (most >= ask.gpus), idle[model], 0)
        return [int(value) for value in waste]


def kinds_of(situation: Situation) -> dict[Kind, int]:
    """Kinds of task and how many there are: the policy's profile, else the snapshot's own."""
    snapshot, kinds = situation.snapshot, dict[Kind, int]()
    for entry in snapshot.policy.demand_profile:
        kind = (
            situation.scale.ask(entry.request),
            frozenset(entry.gpu_models),
            entry.nvlink_required,
        )
        kinds[kind] = kinds.get(kind, 0) + entry.weight
    if kinds:
        return kinds
    for job in snapshot.jobs:
        ask = situation.asks[job.name]
        if job.state != "held" and ask.whole:
            kind = (ask, frozenset(job.gpu_models), job.nvlink_required)
            kinds[kind] = kinds.get(kind, 0) + job.tasks
    return kinds


def _column(values: Iterable[int]) -> Ints:
    return np.fromiter(values, dtype=np.int64)


def _joined(state: NodeState, model: str) -> int:
    """The largest linked set among the idle GPUs of a model."""
    if state.node.nvlink.kind == "nvswitch":
        return state.gpus.get(model, 0)
    if state.node.nvlink.kind == "none" or state.counted:
        return 0
    parts = components(state.node.nvlink.links, state.idle_of(model))
    return max((len(part) for part in parts), default=0)


def _key(state: NodeState) -> tuple[object, ...]:
    nvlink = state.node.nvlink
    links = (nvlink.links, state.idle, tuple(state.models.items())) if nvlink.links else None
    return (
        tuple(sorted(state.gpus.items())),
        state.cpu_milli,
        state.memory_mib,
        tuple(sorted(state.resources.items())) if state.resources else (),
        nvlink.kind,
        state.counted,
        links,
    )
