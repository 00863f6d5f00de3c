"""Whether a job does not fit now whatever moves: proven by counting, on small clusters by search.

Both are relaxations: running tasks may go anywhere that admits them, one by one, wherever the rest
of their job is. What is impossible even so is impossible.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from trencadis.models import Job, Node, Snapshot
from trencadis.solver.capacity import vector
from trencadis.solver.cpsat import Effort, Window, search
from trencadis.solver.explain.menus import HOLD, Occupants, occupants
from trencadis.solver.explain.place import Place
from trencadis.solver.program import INFINITE, Objective, Program
from trencadis.solver.shapes import Way

MOST_NODES = 24
"""Larger clusters are only counted."""
EFFORT = Effort(seconds=3.0, workers=1, seed=0, deterministic=True)


def impossible(
    snapshot: Snapshot, place: Place, job: Job, models: Iterable[str | None]
) -> bool:
    """Whether it is proven that the job fits nowhere even if all that runs may move."""
    allowed = set(models)
    if job.request.gpus and _too_few(snapshot, job, allowed):
        return True
    nodes = [node for node in snapshot.nodes if not (node.down or node.cordoned)]
    if len(nodes) > MOST_NODES:
        return False
    look = place.look(job, place.supply.empty)
    here = occupants(snapshot)
    return all(
        _infeasible(place, alternative.way, nodes, here, look.column)
        for alternative in look.ways
        if alternative.way.need.model in allowed
    )


def _too_few(snapshot: Snapshot, job: Job, allowed: set[str | None]) -> bool:
    """Whether fewer GPUs are left than it asks for: of its models, or of all."""
    wanted = job.minimum * job.request.gpus
    up = {node.name: node for node in snapshot.nodes if not (node.down or node.cordoned)}
    chips = {name: node.healthy_gpus() for name, node in up.items()}
    healthy = Counter(model for node in chips.values() for model in node.values())
    used, tied = 0, 0
    for other in snapshot.jobs:
        if not other.on_nodes:
            continue
        # Only what surely occupies healthy GPUs counts: a job on broken ones may stay there.
        gpus = 0
        for task in other.allocation:
            if task.node not in up or task.mig or other.request.share is not None:
                continue
            if task.gpus is not None:
                gpus += sum(1 for index in task.gpus if index in chips[task.node])
            elif len(chips[task.node]) == up[task.node].gpu_count:
                gpus += other.request.gpus
        used += gpus
        if other.gpu_models and set(other.gpu_models) <= allowed:
            tied += gpus
    mine = sum(count for model, count in healthy.items() if model in allowed)
    return min(sum(healthy.values()) - used, mine - tied) < wanted


def _infeasible(
    place: Place,
    way: Way,
    nodes: Sequence[Node],
    here: dict[str, Occupants],
    column: Mapping[str, int],
) -> bool:
    """Whether the program has no solution: integers of alike tasks per node and model."""
    program = Program()
    names = {node.name for node in nodes}
    fixed, moving = _sorted(here, names)
    gpus: dict[tuple[str, str], list[tuple[int, int]]] = {}
    rest: dict[str, list[list[tuple[int, int]]]] = {}
    for node in nodes:
        for model in node.healthy_gpus().values():
            gpus.setdefault((node.name, model), [])
        rest[node.name] = [[] for _ in range(2 + len(place.supply.resources))]
    for sample, number in _alike(moving):
        _spread(program, place, sample, number, nodes, gpus, rest)
    needs = []
    for node in nodes:
        if way.need.columns >> column[node.name] & 1:
            y = program.column(0, way.count)
            needs.append(y)
            if way.need.gpus and (node.name, way.need.model or "") in gpus:
                gpus[(node.name, way.need.model or "")].append((y, way.need.gpus))
            elif way.need.gpus:
                program.high[y] = 0
            for d, amount in enumerate(way.need.need):
                rest[node.name][d].append((y, amount))
    if not needs:
        return True
    program.row(((y, 1) for y in needs), way.count, way.count)
    if way.depth > place.fabric.depth:
        for y in needs:
            program.high[y] = min(program.high[y], 1)
    _capacity(program, place, nodes, fixed, moving, gpus, rest)
    program.objectives.append(Objective("none"))
    window = Window(program.low, program.high)
    return search(
        program, program.objectives[0], window, program.low, None, EFFORT, threading.Event()
    ).infeasible


def _sorted(
    here: dict[str, Occupants], names: set[str]
) -> tuple[dict[str, Occupants], Occupants]:
    """What stays where it is (slices, shares, what drains, holds), and the tasks that may move."""
    fixed: dict[str, Occupants] = {name: [] for name in names}
    moving: Occupants = []
    for name, tasks in here.items():
        for job, task in tasks:
            if name not in names:
                continue
            held = job.name.startswith(HOLD)
            if job.state == "running" and not held and not task.mig and job.request.share is None:
                moving.append((job, task))
            else:
                fixed[name].append((job, task))
    return fixed, moving


def _alike(moving: Occupants) -> list[tuple[Job, int]]:
    counts: Counter[tuple[object, ...]] = Counter()
    samples: dict[tuple[object, ...], Job] = {}
    for job, _ in moving:
        key = (job.request.model_dump_json(),)
        counts[key] += 1
        samples.setdefault(key, job)
    return [(samples[key], number) for key, number in counts.items()]


def _spread(
    program: Program,
    place: Place,
    sample: Job,
    number: int,
    nodes: Sequence[Node],
    gpus: dict[tuple[str, str], list[tuple[int, int]]],
    rest: dict[str, list[list[tuple[int, int]]]],
) -> None:
    """Columns for the tasks of one kind: how many are on which node, on which model."""
    placed = []
    for node in nodes:
        models = sorted(set(node.healthy_gpus().values())) if sample.request.gpus else [""]
        for model in models:
            x = program.column(0, number)
            placed.append(x)
            if model:
                gpus[(node.name, model)].append((x, sample.request.gpus))
            for d, amount in enumerate(vector(sample, place.supply.resources)):
                rest[node.name][d].append((x, amount))
    program.row(((x, 1) for x in placed), number, number)


def _capacity(
    program: Program,
    place: Place,
    nodes: Sequence[Node],
    fixed: dict[str, Occupants],
    moving: Occupants,
    gpus: dict[tuple[str, str], list[tuple[int, int]]],
    rest: dict[str, list[list[tuple[int, int]]]],
) -> None:
    """Nothing overflows, or overflows no more than it does now."""
    for node in nodes:
        now = [(job, task) for job, task in moving if task.node == node.name]
        healthy = node.healthy_gpus()
        mig = {entry.gpu for entry in node.mig}
        taken = {i for _, task in fixed[node.name] for i in task.gpus or ()}
        for model in sorted(set(healthy.values())):
            most = sum(
                1 for i, m in healthy.items() if m == model and i not in mig and i not in taken
            )
            broken = node.gpu_count - len(healthy)
            program.row(gpus[(node.name, model)], -INFINITE, most + broken)
        have = [node.cpu_milli, node.memory_mib]
        have += [node.resources.get(name, 0) for name in place.supply.resources]
        for job, _ in fixed[node.name]:
            takes = vector(job, place.supply.resources)
            have = [a - b for a, b in zip(have, takes, strict=True)]
        for d, most in enumerate(have):
            used = sum(vector(job, place.supply.resources)[d] for job, _ in now)
            program.row(rest[node.name][d], -INFINITE, max(0, most, used))
