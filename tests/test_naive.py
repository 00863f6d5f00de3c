"""The plain model of the benchmarks finds what exhaustive enumeration finds on tiny clusters."""

from __future__ import annotations

import importlib.util
import random
from collections import defaultdict
from itertools import combinations_with_replacement
from pathlib import Path
from types import ModuleType

import pytest
from build import job, node, queue, quota, snapshot

from trencadis.models import Job, Limits, Snapshot

LEAVES = ("leaf",)


def load_naive() -> ModuleType:
    """The benchmark's module, by its file: benchmarks are no part of the package."""
    file = Path(__file__).parents[1] / "benchmarks" / "naive.py"
    spec = importlib.util.spec_from_file_location("benchmarks_naive", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tiny(seed: int) -> Snapshot:
    """Three nodes, two queues, five jobs; all that the plain model knows has a chance to bind."""
    rng = random.Random(seed)
    nodes = [
        node(
            f"n{i}",
            rng.randint(1, 4),
            rng.choice(("h100", "a100")),
            cpu_milli=rng.choice((4_000, 8_000)),
            memory_mib=rng.choice((40, 80)),
            fabric=(rng.choice(("l1", "l2")),),
        )
        for i in range(3)
    ]
    jobs = [
        job(
            f"j{i}",
            rng.choice((0, 1, 1, 2)),
            rng.choice((1, 1, 2, 3)),
            queue=rng.choice(("red", "blue")),
            user=rng.choice(("u", "v")),
            models=rng.choice(((), ("h100",), ("a100",))),
            waited=rng.randrange(20_000),
            cpu_milli=1_000 * rng.randint(1, 4),
            memory_mib=10 * rng.randint(1, 4),
            priority=rng.choice(("high", "normal", "low")),
            required=rng.choice((None, None, "leaf", "node")),
        )
        for i in range(5)
    ]
    per_user = Limits(quota_per_user=quota(rng.randint(1, 4)))
    return snapshot(
        nodes,
        jobs,
        queue("red", guarantee=rng.randint(0, 4), limit=rng.randint(2, 6)),
        queue("blue", guarantee=rng.randint(0, 4), limit=rng.choice((None, per_user))),
        levels=LEAVES,
    )


def placements(snap: Snapshot, entry: Job) -> list[tuple[int, ...]]:
    """Nodes of the job's tasks, by number, that model, level and number of GPUs allow."""
    found = []
    for chosen in combinations_with_replacement(range(len(snap.nodes)), entry.tasks):
        nodes = [snap.nodes[i] for i in chosen]
        models = {n.gpus[0].model for n in nodes}
        if entry.request.gpus and (
            len(models) > 1 or (entry.gpu_models and not models <= set(entry.gpu_models))
        ):
            continue
        if entry.topology and entry.tasks > 1:
            level = entry.topology.level
            places = {n.name for n in nodes} if level == "node" else {n.fabric for n in nodes}
            if len(places) > 1:
                continue
        found.append(chosen)
    return found


def best(snap: Snapshot, waits: dict[str, int], price: int) -> int:
    """The least sum of waits and shortfalls over all sets of starts and placements."""
    guarantee = {q.name: q.guarantee.gpus or 0 for q in snap.queues}
    limit = {q.name: q.limit.quota.gpus for q in snap.queues}
    per_user = {q.name: q.limit.quota_per_user.gpus for q in snap.queues}
    asked: defaultdict[str, int] = defaultdict(int)
    for entry in snap.jobs:
        asked[entry.queue] += entry.tasks * entry.request.gpus
    options = {entry.name: placements(snap, entry) for entry in snap.jobs}

    def value(started: list[Job]) -> int | None:
        used: defaultdict[str, int] = defaultdict(int)
        theirs: defaultdict[tuple[str, str], int] = defaultdict(int)
        for entry in started:
            used[entry.queue] += entry.tasks * entry.request.gpus
            theirs[entry.queue, entry.user] += entry.tasks * entry.request.gpus
        for name, most in limit.items():
            if most is not None and used[name] > most:
                return None
        for (name, _), count in theirs.items():
            most = per_user[name]
            if most is not None and count > most:
                return None
        short = sum(max(0, min(guarantee[q], asked[q]) - used[q]) for q in guarantee)
        names = {entry.name for entry in started}
        return short * price + sum(wait for name, wait in waits.items() if name not in names)

    def search(index: int, room: list[list[int]], started: list[Job]) -> int:
        if index == len(snap.jobs):
            total = value(started)
            return total if total is not None else 10**15
        entry = snap.jobs[index]
        least = search(index + 1, room, started)
        request = entry.request
        for chosen in options[entry.name]:
            left = [list(row) for row in room]
            for n in chosen:
                left[n][0] -= request.gpus
                left[n][1] -= request.cpu_milli
                left[n][2] -= request.memory_mib
            if min(min(row) for row in left) >= 0:
                least = min(least, search(index + 1, left, [*started, entry]))
        return least

    room = [[n.gpu_count, n.cpu_milli, n.memory_mib] for n in snap.nodes]
    return search(0, room, [])


@pytest.mark.parametrize("seed", range(25))
def test_plain_model_is_exact_on_tiny_clusters(seed: int) -> None:
    naive = load_naive()
    snap = tiny(seed)
    model = naive.Naive(snap)
    waits = {name: worth.wait for name, worth in model.values.worth.items()}
    solver, status = model.solve(time_limit_s=20.0, workers=1)
    assert status == "OPTIMAL"
    assert round(solver.objective_value) == best(snap, waits, model.price)
    for name, tasks in model.starts(solver).items():
        entry = next(j for j in snap.jobs if j.name == name)
        assert sum(tasks.values()) == entry.tasks
