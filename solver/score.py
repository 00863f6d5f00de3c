"""What a set of starts costs, stage by stage: the solver's own reckoning, from names not counts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trencadis.models import Job, Node, TaskAllocation
from trencadis.solver.bin_types import bin_fragmentation
from trencadis.solver.capacity import NodeState, running_model, vector
from trencadis.solver.fragmentation import reconfiguration
from trencadis.solver.model.problem import Facts
from trencadis.solver.pieces import Cut, Piece, closed
from trencadis.solver.spread import spread_cost
from trencadis.solver.stages import FRAGMENTATION, GUARANTEE, GUARANTEE_PARENTS, wait_stages
from trencadis.solver.worth import tier_of


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a started job's tasks are."""

    job: Job
    model: str | None
    tasks: tuple[TaskAllocation, ...]
    spread: int
    depth: int


@dataclass(frozen=True, slots=True)
class Left:
    """What a node has left."""

    idle: Mapping[str, tuple[int, ...]]
    free: tuple[int, ...]
    exclusive: bool
    cuts: Mapping[int, Cut]
    """GPUs of the second stage by index."""

    def layout_cost(self) -> int:
        """What new MIG layouts cost, GPU-seconds."""
        return sum(reconfiguration(cut) for cut in self.cuts.values())


def in_both(one: Mapping[str, Left], other: Mapping[str, Left]) -> dict[str, Left]:
    """What nodes have left at both of two times; GPUs in parts are those of the latter."""
    found = {}
    for name in one.keys() & other.keys():
        a, b = one[name], other[name]
        idle = {m: tuple(g for g in gpus if g in b.idle.get(m, ())) for m, gpus in a.idle.items()}
        free = tuple(map(min, a.free, b.free))
        found[name] = Left(idle, free, a.exclusive or b.exclusive, b.cuts)
    return found


def running_spread(facts: Facts, nodes: Mapping[str, Node]) -> list[int]:
    """Spread of what runs already, by tier: a constant of each stage."""
    total = [0] * len(facts.snapshot.policy.tiers)
    for job in facts.snapshot.jobs:
        if job.on_nodes:
            model = running_model(job, nodes)
            cost = spread_cost(facts, job, job.allocation, model, nodes)
            total[tier_of(facts.snapshot, job)] += cost
    return total


def leftovers(facts: Facts, placements: Mapping[str, Placement]) -> dict[str, Left]:
    """What every node that takes work has left after the starts."""
    arrived: defaultdict[str, list[tuple[Placement, TaskAllocation]]] = defaultdict(list)
    for placement in placements.values():
        for task in placement.tasks:
            arrived[task.node].append((placement, task))
    left: dict[str, Left] = {}
    for state in facts.capacity.states:
        tasks = arrived.get(state.name)
        if tasks is None:
            cuts = dict(zip(state.cut_gpus, state.cuts, strict=True))
            left[state.name] = Left(state.idle, state.free, exclusive=False, cuts=cuts)
        else:
            left[state.name] = _after(facts, state, tasks)
    return left


def _after(
    facts: Facts, state: NodeState, tasks: list[tuple[Placement, TaskAllocation]]
) -> Left:
    idle = {model: list(indices) for model, indices in state.idle.items()}
    free = list(state.free)
    cuts = dict(zip(state.cut_gpus, state.cuts, strict=True))
    for placement, task in tasks:
        for d, amount in enumerate(vector(placement.job, facts.capacity.resources)):
            free[d] -= amount
        if placement.job.request.gpus:
            pool = idle.get(placement.model or "", [])
            for gpu in (gpu for gpu in task.gpus or () if gpu in cuts):
                cuts[gpu] = closed(cuts[gpu])[0][1]
            if task.gpus is None:
                del pool[: placement.job.request.gpus]
            else:
                pool[:] = [i for i in pool if i not in task.gpus]
        for gpu, start, piece in pieces_of(task):
            cut = cuts.get(gpu)
            if cut is None:
                model = placement.model or ""
                cut = state.cutter.opened(state.blanks[model], piece)
                assert cut is not None
                idle[model].remove(gpu)
            cuts[gpu] = dict(state.cutter.places(cut, piece))[start]
    return Left(
        {model: tuple(pool) for model, pool in idle.items()},
        tuple(free),
        exclusive=any(placement.job.exclusive for placement, _ in tasks),
        cuts=cuts,
    )


def pieces_of(task: TaskAllocation) -> list[tuple[int, int, Piece]]:
    """(GPU, start, piece) of what a task has of GPUs of the second stage."""
    gpus = task.gpus or ()
    if task.share is not None:
        return [(gpus[0], 0, Piece("", task.share.gpu_milli, task.share.memory_mib))]
    return [
        (gpu, instance.start, Piece(instance.profile))
        for gpu, instance in zip(gpus, task.mig, strict=False)
    ]


def fragmentation(facts: Facts, left: Mapping[str, Left]) -> dict[str, int]:
    """F of each node, GPU-seconds; nodes that are full or exclusive have none."""
    profile = facts.profile
    found: dict[str, int] = {}
    known: dict[object, int] = {}
    for state in facts.capacity.states:
        rest = left[state.name]
        if rest.exclusive or not (rest.cuts or any(rest.idle.values())):
            continue
        found[state.name] = sum(profile.cut_cost(cut) for cut in rest.cuts.values())
        if not any(rest.idle.values()):
            continue
        explicit = state.node.nvlink.kind == "links"
        idle = tuple((m, gpus if explicit else len(gpus)) for m, gpus in rest.idle.items())
        blanks = tuple(state.blanks.values())
        key = (idle, rest.free, state.node.nvlink, state.counted, blanks)
        if key not in known:
            known[key] = bin_fragmentation(facts.profile, state, rest.idle, rest.free)
        found[state.name] += known[key]
    return found


def owed(facts: Facts, starts: Iterable[tuple[Job, str | None]]) -> tuple[int, int]:
    """Units that guarantees lack with these starts (jobs and their models): leaves', parents'."""
    gained: defaultdict[tuple[str, str], int] = defaultdict(int)
    for job, model in starts:
        units = facts.values.rates.sizes.job(job)
        for queue in facts.values.tree.chain(job.queue):
            gained[(queue, "")] += units
            gained[(queue, model or "-")] += units
    short = {True: 0, False: 0}
    for target in facts.targets:
        short[target.leaf] += max(0, target.missing - gained[(target.queue, target.model)])
    return short[True], short[False]


def score(
    facts: Facts,
    placements: Mapping[str, Placement],
    constants: list[int],
    fragments: Mapping[str, int],
    layouts: Mapping[str, int],
) -> dict[str, int]:
    """Objective by stage, in order; guarantees in units. `constants`: running spread by tier;
    `fragments`, `layouts`: F, and the cost of new MIG layouts, by node."""
    leaves, parents = owed(facts, ((p.job, p.model) for p in placements.values()))
    stages = {GUARANTEE: leaves, GUARANTEE_PARENTS: parents}
    by_tier = list(constants)
    for name, worth in facts.values.worth.items():
        placed = placements.get(name)
        by_tier[worth.tier] += worth.wait if placed is None else placed.spread
    names = wait_stages(facts.snapshot)
    if len(names) == 1:
        stages[names[0]] = sum(by_tier)
    else:
        stages.update(zip(names, by_tier, strict=True))
    if not facts.profile.off:
        if facts.profile.weight_milli is None:
            stages[FRAGMENTATION] = sum(fragments.values()) + sum(layouts.values())
        else:
            stages[names[-1]] += sum(
                facts.profile.weighted(fragments.get(name, 0) + layouts.get(name, 0))
                for name in fragments.keys() | layouts.keys()
            )
    return stages
