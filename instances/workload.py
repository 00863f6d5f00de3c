"""The jobs of a synthetic cluster: which run where and since when, which wait and for how long."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from trencadis.instances.mix import GIB, RUNTIMES, TIERS, Mix, Shape, Wheel
from trencadis.instances.packing import Floor, Seat
from trencadis.models import Checkpoint, Job, Node, TaskAllocation

NOW = datetime(2026, 1, 15, 9, 0, tzinfo=UTC)
WAIT_SPAN_SECONDS = 130_000
"""About the age of the oldest pending job."""
USERS_PER_QUEUE = 15
MISSES = 200
"""Jobs in a row that find no seat before the cluster counts as full."""

_TIERS = Wheel.of(TIERS)
_RUNTIMES = Wheel.of(RUNTIMES)


@dataclass(frozen=True, slots=True)
class Shares:
    """Of which leaf queue a job is: weights for what runs, others for what waits."""

    running: Wheel[str]
    pending: Wheel[str]


class Clock:
    """Gives every job a submit time: a second of its own."""

    def __init__(self, rng: random.Random, pending: int) -> None:
        self.rng = rng
        self.waits: list[int] = []
        mean = WAIT_SPAN_SECONDS / max(1, pending)
        age = 0
        for i in range(pending):
            # Few have waited long: the gaps widen with age.
            widening = 0.2 + 1.6 * i / pending
            age += 1 + int(rng.expovariate(1 / (mean * widening)))
            self.waits.append(age)
        self.taken = set(self.waits)
        rng.shuffle(self.waits)

    def pending(self) -> datetime:
        """The submit time of the next pending job."""
        return NOW - timedelta(seconds=self.waits.pop())

    def running(self, elapsed: int) -> datetime:
        """The submit time of a job that started `elapsed` seconds ago."""
        age = elapsed + 1 + int(self.rng.expovariate(1 / 3_600))
        while age in self.taken:
            age += self.rng.randint(1, 600)
        self.taken.add(age)
        return NOW - timedelta(seconds=age)


def fill(
    rng: random.Random, mix: Mix, floor: Floor, load: float, gang_fraction: float
) -> list[tuple[Shape, list[Seat]]]:
    """Jobs on `load` of the GPUs: seats are filled beyond that, then random jobs leave holes."""
    seated: list[tuple[Shape, list[Seat]]] = []
    target = round(load * floor.gpus)
    beyond = min(1.35 * load, load + 0.8 * (1 - load)) * floor.gpus
    misses = 0
    while floor.used < beyond and misses < MISSES:
        shape = mix.running(rng.random() < gang_fraction)
        seats = floor.seat(shape)
        if seats is None:
            misses += 1
            continue
        misses = 0
        seated.append((shape, seats))
    rng.shuffle(seated)
    kept: list[tuple[Shape, list[Seat]]] = []
    for shape, seats in seated:
        leaves = shape.gpus and floor.used - shape.gpus >= target
        if leaves:
            floor.leave(shape, seats)
        else:
            kept.append((shape, seats))
    for model in floor.stacks:
        shape = mix.small(model)
        while floor.used < target and (seats := floor.seat(shape)) is not None:
            kept.append((shape, seats))
    rng.shuffle(kept)
    return kept


def running_jobs(
    rng: random.Random,
    mix: Mix,
    *,
    nodes: Sequence[Node],
    apart: frozenset[int],
    load: float,
    gang_fraction: float,
    shares: Shares,
    clock: Clock,
) -> list[Job]:
    """Running jobs with exact GPUs, start, runtime and checkpoints; none on nodes `apart`."""
    jobs = []
    seated = fill(rng, mix, Floor(rng, nodes, apart), load, gang_fraction)
    for number, (shape, seats) in enumerate(seated):
        facts = _facts(rng, f"run-{number:06d}", shape, shares.running)
        runtime = facts["runtime_seconds"]
        elapsed = max(60, int((runtime or 86_400) * rng.uniform(0.02, 0.98)))
        if shape.gpus and elapsed > 3_600 and rng.random() < 0.7:
            interval = rng.choice((1_800, 3_600))
            facts["checkpoint"] = Checkpoint(
                last=NOW - timedelta(seconds=rng.randrange(interval)),
                interval_seconds=interval,
                size_mib=shape.gpus * 20 * GIB,
            )
        facts["allocation"] = tuple(
            TaskAllocation(node=nodes[node].name, gpus=gpus) for node, gpus in seats
        )
        jobs.append(
            Job(
                **facts,
                submit=clock.running(elapsed),
                state="running",
                start=NOW - timedelta(seconds=elapsed),
            )
        )
    return jobs


def pending_jobs(
    rng: random.Random, mix: Mix, *, count: int, gang_fraction: float, shares: Shares, clock: Clock
) -> list[Job]:
    """Pending jobs; exactly the given part of them are gangs."""
    gangs = set(rng.sample(range(count), round(count * gang_fraction)))
    jobs = []
    for number in range(count):
        shape = mix.pending(number in gangs)
        facts = _facts(rng, f"job-{number:06d}", shape, shares.pending)
        jobs.append(Job(**facts, submit=clock.pending()))
    return jobs


def _facts(rng: random.Random, name: str, shape: Shape, queues: Wheel[str]) -> dict[str, Any]:
    """What pending and running jobs have in common."""
    queue = queues.draw(rng)
    # A few users of each queue submit most of its jobs.
    user = int(USERS_PER_QUEUE * rng.random() ** 2)
    return {
        "name": name,
        "queue": queue,
        "user": f"{queue}-user-{user:02d}",
        "priority": _TIERS.draw(rng),
        "tasks": shape.tasks,
        "request": shape.request,
        "gpu_models": shape.gpu_models,
        "communicates": shape.communicates,
        "topology": shape.topology,
        "runtime_seconds": _RUNTIMES.draw(rng),
        "preemptible": rng.random() < 0.9,
    }
