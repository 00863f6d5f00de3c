"""Which starts wait for which victims, and for how long."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import timedelta

from trencadis.models import Node, TaskAllocation
from trencadis.models.plan import Preempt, Resize
from trencadis.solver.capacity import NodeState, running_model, vector
from trencadis.solver.model.problem import Facts
from trencadis.solver.pieces import closable
from trencadis.solver.preempt.choose import delayed
from trencadis.solver.preempt.tally import Exchange
from trencadis.solver.preempt.victims import Victim
from trencadis.solver.score import Placement
from trencadis.solver.spread import spread_cost


def waits_for(
    read: Facts, exchange: Exchange, placements: Mapping[str, Placement]
) -> dict[str, tuple[str, ...]]:
    """The victims of each start that can't begin at once, by name of the start.

    A start begins at once if what it takes was idle before; else it waits for all victims on the
    nodes where it was not.
    """
    on_node: defaultdict[str, set[str]] = defaultdict(set)
    for victim in exchange.victims.values():
        for task in victim.tasks:
            on_node[task.node].add(victim.job.name)
    states = {state.name: state for state in read.capacity.states}
    arrivals: defaultdict[str, list[tuple[str, TaskAllocation]]] = defaultdict(list)
    for name, placement in placements.items():
        for task in placement.tasks:
            if task.node in on_node:
                arrivals[task.node].append((name, task))
    waiting: defaultdict[str, set[str]] = defaultdict(set)
    for node, tasks in sorted(arrivals.items()):
        before = _Before(read, states.get(node))
        # Who was meant to wait leaves what is idle to those who need not.
        for name, task in sorted(tasks, key=lambda e: (e[0] in exchange.winners, e[0])):
            if name in exchange.winners or not before.take(placements[name], task):
                waiting[name] |= on_node[node]
    return {name: tuple(sorted(victims)) for name, victims in sorted(waiting.items())}


def losses(read: Facts, gone: Mapping[str, Victim], nodes: Mapping[str, Node]) -> list[int]:
    """By tier: what victims lose, less the spread that ends."""
    total = [0] * len(read.snapshot.policy.tiers)
    for victim in gone.values():
        total[victim.tier] += victim.loss
        if victim.task is None:
            job, model = victim.job, running_model(victim.job, nodes)
            total[victim.tier] -= spread_cost(read, job, job.allocation, model, nodes)
    return total


def changed_by(
    read: Facts,
    gone: Mapping[str, Victim],
    waiting: Mapping[str, tuple[str, ...]],
    constants: list[int],
    nodes: Mapping[str, Node],
) -> list[int]:
    """By tier: the spread of what runs on, the loss of victims, and what starts pay for delay."""
    total = [a + b for a, b in zip(constants, losses(read, gone, nodes), strict=True)]
    for name, victims in waiting.items():
        worth = read.values.worth[name]
        delay = delay_of(victims, gone)
        total[worth.tier] += delayed(worth.wait, delay, read.values.rates.horizon)
    return total


def delay_of(victims: Iterable[str], gone: Mapping[str, Victim]) -> int:
    """Seconds until the last of these victims has gone; single tasks go at once."""
    return max((gone[name].grace for name in victims if name in gone), default=0)


def makes_room(waiting: Mapping[str, tuple[str, ...]]) -> dict[str, list[str]]:
    """The starts that wait for each victim."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name, victims in sorted(waiting.items()):
        for victim in victims:
            found[victim].append(name)
    return found


def preempts(
    read: Facts, exchange: Exchange, waiting: Mapping[str, tuple[str, ...]]
) -> tuple[Preempt, ...]:
    """The plan's preemptions, by name."""
    gainers, now = makes_room(waiting), read.snapshot.now
    return tuple(
        Preempt(
            job=name,
            at=now,
            gpus_free_at=now + timedelta(seconds=victim.grace),
            makes_room_for=tuple(gainers[name]),
            lost_gpu_seconds=victim.lost,
        )
        for name, victim in sorted(exchange.stopped().items())
    )


def shrinks(
    read: Facts, exchange: Exchange, waiting: Mapping[str, tuple[str, ...]]
) -> tuple[Resize, ...]:
    """What elastic jobs give up, by name."""
    gainers = makes_room(waiting)
    return tuple(
        Resize(
            job=name,
            at=read.snapshot.now,
            remove=tuple(task for part in parts for task in part.tasks),
            makes_room_for=tuple(gainers[name]),
            lost_gpu_seconds=sum(part.lost for part in parts),
        )
        for name, parts in sorted(exchange.shrunk().items())
    )


class _Before:
    """What a node had idle before its victims went."""

    def __init__(self, read: Facts, state: NodeState | None) -> None:
        self.read, self.state = read, state
        self.idle = {} if state is None else {m: list(gpus) for m, gpus in state.idle.items()}
        if state is not None:
            for cut, gpu in zip(state.cuts, state.cut_gpus, strict=True):
                if closable((cut,), cut.model):
                    self.idle.setdefault(cut.model, []).append(gpu)
        self.free = [] if state is None else list(state.free)

    def take(self, placement: Placement, task: TaskAllocation) -> bool:
        """Whether one task fits there; then it is entered."""
        if self.state is None or placement.job.exclusive or task.mig or task.share:
            return False
        need = vector(placement.job, self.read.capacity.resources)
        pool = self.idle.get(placement.model or "", [])
        gpus = placement.job.request.gpus
        if any(want > have for want, have in zip(need, self.free, strict=True)):
            return False
        if len(pool) < gpus or (task.gpus and not set(task.gpus) <= set(pool)):
            return False
        self.free = [have - want for have, want in zip(self.free, need, strict=True)]
        gone = set(task.gpus) if task.gpus else set(pool[:gpus])
        self.idle[placement.model or ""] = [gpu for gpu in pool if gpu not in gone]
        return True
