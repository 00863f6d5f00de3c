"""How many requests of each size fit at each level, and which idle GPUs no one can use."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from trencadis.models.health import Slots, Stranded
from trencadis.solver.capacity import NodeState
from trencadis.solver.fabric import Domain
from trencadis.solver.fragmentation import Entry
from trencadis.solver.model.problem import Facts


def slot_tables(read: Facts) -> tuple[Slots, ...]:
    """A table per GPU model and level, the finest level first."""
    tree = read.fabric
    sizes = _job_sizes(read)
    found = []
    for model in read.capacity.gpus_by_model:
        for depth in range(tree.depth + 1, -1, -1):
            idle = _idle(read, model, depth)
            total = sum(idle.values())
            found.append(
                Slots(
                    model=model,
                    level=tree.names[depth],
                    idle=total,
                    fragmentation_milli=_fragmentation(idle, total, sizes.get(model, Counter())),
                    slots=_slots(idle),
                )
            )
    return tuple(found)


def _idle(read: Facts, model: str, depth: int) -> dict[Domain, int]:
    """Idle GPUs of the model by domain of the depth; D + 1 are the nodes."""
    found: defaultdict[Domain, int] = defaultdict(int)
    for state in read.capacity.states:
        path = read.fabric.path[state.name]
        domain = (*path, state.name) if depth > read.fabric.depth else path[:depth]
        found[domain] += len(state.idle.get(model, ()))
    return dict(found)


def _slots(idle: Mapping[Domain, int]) -> dict[int, int]:
    """1, 2, 4, 8, ... GPUs -> domains' room for them, up to the largest that fits somewhere."""
    largest = max(idle.values(), default=0)
    found, size = {}, 1
    while size <= max(1, largest):
        found[size] = sum(count // size for count in idle.values())
        size *= 2
    return found


def _job_sizes(read: Facts) -> dict[str, Counter[int]]:
    """By model: how many jobs, running or waiting, ask for so many GPUs in all."""
    found: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for job in read.snapshot.jobs:
        if not job.request.gpus or job.state == "held":
            continue
        size = (len(job.allocation) if job.on_nodes else job.minimum) * job.request.gpus
        for model in read.capacity.gpus_by_model:
            if not job.gpu_models or model in job.gpu_models:
                found[model][size] += 1
    return dict(found)


def _fragmentation(idle: Mapping[Domain, int], total: int, sizes: Counter[int]) -> int:
    """Part of the idle GPUs in domains too small for a job, thousandths, mean over the jobs."""
    jobs = sum(sizes.values())
    if not total or not jobs:
        return 0
    lost = sum(
        number * sum(count for count in idle.values() if count < size)
        for size, number in sizes.items()
    )
    return 1_000 * lost // (jobs * total)


def stranded(read: Facts) -> tuple[Stranded, ...]:
    """Idle GPUs that none of the kinds of task can use, and what is short beside them."""
    found: list[Stranded] = []
    entries = [entry for entry in read.profile.entries if entry.gpus]
    open_ = {state.name for state in read.capacity.states}
    for state in read.capacity.states:
        for model, indices in state.idle.items():
            count, why = _unusable(state, model, len(indices), entries)
            if count:
                found.append(
                    Stranded.model_validate(
                        {"node": state.name, "model": model, "gpus": count, "why": why}
                    )
                )
    busy: defaultdict[str, set[int]] = defaultdict(set)
    unknown: set[str] = set()
    for job in read.snapshot.jobs:
        if job.on_nodes:
            for task in job.allocation:
                busy[task.node].update(task.gpus or ())
                if task.gpus is None and job.request.gpus:
                    unknown.add(task.node)
    found.extend(_held(read, busy))
    for node in read.snapshot.nodes:
        if node.down or node.name in open_ or node.name in unknown:
            continue
        mig = {entry.gpu for entry in node.mig}
        by_model = Counter(
            model
            for index, model in node.healthy_gpus().items()
            if index not in busy[node.name] and index not in mig
        )
        why = "cordoned" if node.cordoned else "exclusive"
        found.extend(
            Stranded.model_validate({"node": node.name, "model": model, "gpus": n, "why": why})
            for model, n in sorted(by_model.items())
        )
    return tuple(sorted(found, key=lambda entry: (-entry.gpus, entry.node, entry.model, entry.why)))


def _held(read: Facts, busy: Mapping[str, set[int]]) -> list[Stranded]:
    """Idle GPUs that are on hold."""
    nodes = {node.name: node.healthy_gpus() for node in read.snapshot.nodes}
    held: Counter[tuple[str, str]] = Counter()
    seen: set[tuple[str, int]] = set()
    for hold in read.snapshot.delayed:
        for task in hold.allocation:
            for index in task.gpus or ():
                model = nodes[task.node].get(index)
                free = index not in busy.get(task.node, ()) and (task.node, index) not in seen
                if model is not None and free:
                    seen.add((task.node, index))
                    held[(task.node, model)] += 1
    return [
        Stranded(node=node, model=model, gpus=count, why="held")
        for (node, model), count in sorted(held.items())
    ]


def _unusable(
    state: NodeState, model: str, idle: int, entries: list[Entry]
) -> tuple[int, str]:
    """Idle GPUs beyond the most that tasks of one kind could use, and what stops that kind."""
    best, why = -1, "cpu"
    for entry in entries:
        if entry.models and model not in entry.models:
            continue
        tasks, short = idle // entry.gpus, ""
        if not tasks:
            continue
        for d, amount in enumerate(entry.need):
            if amount and state.free[d] // amount < tasks:
                tasks = state.free[d] // amount
                short = "cpu" if d == 0 else "memory" if d == 1 else "resources"
        used = tasks * entry.gpus
        if not short:
            return 0, ""
        if used > best:
            best, why = used, short
    return (idle - best, why) if best >= 0 else (0, "")
