"""How much idle GPU the tasks of the snapshot can't use where it is (problem.md, 5)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from trencadis.solver.verify.linked import components
from trencadis.solver.verify.second import Mig, Shared
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
        self.knife, self.unit = situation.knife, situation.scale.unit
        self._parts: dict[Mig | Shared, int] = {}
        self._known: dict[tuple[object, ...], int] = {}

    def total_of(self, states: Iterable[NodeState]) -> int:
        """Sum of F over nodes: GPU-seconds."""
        return sum(self._values(states))

    def weighted_total_of(self, states: Iterable[NodeState]) -> int:
        """The same where fragmentation is part of the sum: weighted node by node."""
        weight = self.policy.fragmentation_weight_milli
        return sum(value * weight // 1_000 for value in self._values(states))

    def _values(self, states: Iterable[NodeState]) -> list[int]:
        """F of each node that has any, with the cost of its new MIG layouts."""
        keys: list[tuple[tuple[object, ...] | None, int]] = []
        fresh: dict[tuple[object, ...], NodeState] = {}
        for state in states:
            node, cost = state.node, state.second.cost
            idle = any(state.gpus.values()) or state.second.gpus
            if node.down or node.cordoned or state.exclusive or not idle:
                keys.append((None, cost))
                continue
            key = _key(state)
            keys.append((key, cost))
            if key not in self._known:
                fresh[key] = state
        if fresh:
            whole = self._waste(list(fresh.values()))
            for (key, state), waste in zip(fresh.items(), whole, strict=True):
                parts = (self._part(gpu) for gpu in state.second.gpus.values())
                self._known[key] = self._cost(waste) + sum(parts)
        return [(0 if key is None else self._known[key]) + cost for key, cost in keys]

    def _cost(self, waste: int) -> int:
        """GPU-seconds of units that go to waste, summed over the kinds."""
        if not self.total:
            return 0
        return waste * self.policy.horizon_seconds // (self.total * self.unit)

    def _part(self, gpu: Mig | Shared) -> int:
        """F of one GPU in MIG mode or shared."""
        if isinstance(gpu, Mig):
            # What stands idle is in nobody's way, unless the layout is fixed.
            gpu = Mig(gpu.model, gpu.used, gpu.idle if gpu.fixed else frozenset(), gpu.fixed)
        if gpu not in self._parts:
            idle = self.knife.idle_units(gpu, self.unit)
            waste = idle * self.total
            for (ask, allowed, _), count in self.kinds.items():
                if not ask.whole and (not allowed or gpu.model in allowed):
                    waste -= count * self._usable(gpu, ask)
            self._parts[gpu] = self._cost(waste)
        return self._parts[gpu]

    def _usable(self, gpu: Mig | Shared, ask: Ask) -> int:
        """Idle units of the GPU that tasks of the kind can use."""
        if not ask.slices:
            return self.knife.idle_units(gpu, self.unit) if self.knife.most(gpu, ask, "") else 0
        profiles = self.knife.wanted(ask, gpu.model)
        if profiles is None or isinstance(gpu, Shared):
            return 0
        size = self.knife.units(self.knife.tables[gpu.model], profiles[0], self.unit)
        return self.knife.most(gpu, ask, profiles[0]) * size

    def _waste(self, states: Sequence[NodeState]) -> list[int]:
        """Per state: units of idle whole GPUs that go to waste, summed over the kinds of task."""
        models = sorted({model for state in states for model in state.gpus})
        idle = {m: _column(state.gpus.get(m, 0) for state in states) for m in models}
        joined = {m: _column(_joined(state, m) for state in states) for m in models}
        cpu = _column(state.cpu_milli for state in states)
        memory = _column(state.memory_mib for state in states)
        names = {name for ask, _, _ in self.kinds for name, _ in ask.resources}
        free = {n: _column(state.resources.get(n, 0) for state in states) for n in names}
        everything = sum(idle.values(), start=np.zeros(len(states), dtype=np.int64))
        waste = everything * self.total * self.unit
        for (ask, allowed, nvlink), count in self.kinds.items():
            if not ask.on_gpus:
                continue
            fits = (cpu >= ask.cpu_milli) & (memory >= ask.memory_mib)
            for name, amount in ask.resources:
                fits &= free[name] >= amount
            for model in models:
                if allowed and model not in allowed:
                    continue
                if not ask.whole:
                    each = _column(self._of_blank(state, ask, model) for state in states)
                    waste -= count * np.where(fits, idle[model] * each, 0)
                    continue
                most = joined[model] if nvlink and ask.gpus >= 2 else idle[model]
                usable = np.where(fits & (most >= ask.gpus), idle[model], 0)
                waste -= count * self.unit * usable
        return [int(value) for value in waste]

    def _of_blank(self, state: NodeState, ask: Ask, model: str) -> int:
        """Units of one idle GPU that tasks of the kind could use if it were made ready."""
        second = state.second
        if ask.slices:
            if model not in second.turn_on:
                return 0
            return self._usable(Mig(model, frozenset(), frozenset(), fixed=False), ask)
        if not second.slots or model not in dict(second.memory):
            return 0
        return self._usable(Shared(model, 1_000, dict(second.memory)[model], second.slots), ask)


def kinds_of(situation: Situation) -> dict[Kind, int]:
    """Kinds of task and how many there are: the policy's profile, else the snapshot's own."""
    snapshot, kinds = situation.snapshot, dict[Kind, int]()
    for entry in snapshot.policy.demand_profile:
        for part in _parts(situation.scale.ask(entry.request)):
            kind = (part, frozenset(entry.gpu_models), entry.nvlink_required)
            kinds[kind] = kinds.get(kind, 0) + entry.weight
    if kinds:
        return kinds
    for job in snapshot.jobs:
        ask = situation.asks[job.name]
        if job.state != "held":
            for part in _parts(ask):
                kind = (part, frozenset(job.gpu_models), job.nvlink_required)
                kinds[kind] = kinds.get(kind, 0) + job.tasks
    return kinds


def _parts(ask: Ask) -> list[Ask]:
    """A task of several MIG instances is a kind for each."""
    return [ask._replace(mig=(profile,)) for profile in ask.mig] or [ask]


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
        state.second.key(),
    )
