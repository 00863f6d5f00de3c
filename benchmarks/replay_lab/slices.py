"""What MIG and elasticity leave in pieces: one full round of each window, with real MIG layouts.

Replays place no MIG instances, so this is about a moment: an empty cluster to which a window's
first jobs are given, as many as ask for `ASKED` times its GPUs, and one round.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path

from replay_lab.cases import ELASTIC, FILES, LOADS, SHARED, WINDOWS, Case, cluster, jobs
from replay_lab.runs import code_key
from trencadis.commands.scene import gpu_count
from trencadis.models import Job, Request, Snapshot
from trencadis.models.policy import MigPolicy
from trencadis.models.units import sizes
from trencadis.solver.round import Options, solve

ASKED = 1.1
PROFILES = {"1g.10gb": 1, "2g.20gb": 2, "3g.40gb": 3}
"""Of an H100: sevenths of its compute."""
VARIANTS = ("neither", "MIG", "elastic", "both")


@dataclass(frozen=True, slots=True)
class Left:
    """What a round left, in GPUs."""

    trace: str
    window: int
    variant: str
    gpus: int
    jobs: int
    started: int
    idle: float
    stranded: float
    """Idle, and of no use to the expected task (F)."""
    unneeded: float
    """Of whole GPUs that small jobs were given: what they don't need."""


def left(data: Path, cache: Path) -> list[Left]:
    """All windows and variants; what is in the cache isn't solved again."""
    kept, code = cache / "slices.json", code_key()
    if kept.exists():
        record = json.loads(kept.read_text())
        if record["code"] == code:
            return [Left(**entry) for entry in record["left"]]
    found = [
        _solved(trace, window, variant, data)
        for trace in FILES
        for window in range(WINDOWS)
        for variant in VARIANTS
    ]
    kept.write_text(json.dumps({"code": code, "left": [asdict(entry) for entry in found]}) + "\n")
    return found


def _solved(trace: str, window: int, variant: str, data: Path) -> Left:
    place = cluster(trace)
    gpus = gpu_count(place)
    chosen = list(_first(jobs(Case(trace, LOADS[0], window, "trencadis"), place, data).jobs, gpus))
    profiles = {job.name: _profile(job) for job in chosen}
    moment = _moment(place, [_as(job, profiles[job.name], variant) for job in chosen])
    plan = solve(moment, Options(time_limit_s=5, deterministic=True, workers=1))
    units = sizes(moment)
    waiting = {entry.job for entry in plan.pending}
    by_name = {job.name: job for job in moment.jobs}
    used = Fraction(
        sum(len(s.allocation) * units.task(by_name[s.job].request) for s in plan.starts),
        units.unit,
    )
    unneeded = Fraction(0)
    for job in moment.jobs:
        if job.name not in waiting and profiles[job.name] and job.request.gpus:
            unneeded += 1 - Fraction(PROFILES[profiles[job.name]], 7)
    idle = gpus - used
    return Left(
        trace,
        window,
        variant,
        gpus,
        len(chosen),
        len(plan.starts),
        float(idle),
        float(idle * plan.metrics.fragmentation_after_milli / 1_000),
        float(unneeded),
    )


def _first(entries: object, gpus: int) -> Iterator[Job]:
    asked = 0
    for entry in entries:  # type: ignore[attr-defined]
        if asked >= ASKED * gpus:
            return
        asked += entry.gpu_milli / 1_000
        yield entry.job


def _profile(job: Job) -> str:
    """What a job of one GPU would do with, for a part of them; by name, as in `cases`."""
    rng = random.Random(job.name)
    if job.tasks == 1 and job.request.gpus == 1 and rng.random() < SHARED:
        return rng.choice(list(PROFILES))
    return ""


def _as(job: Job, profile: str, variant: str) -> Job:
    request = job.request
    if profile and variant in ("MIG", "both"):
        rest = request.model_dump(exclude={"gpus"})
        return job.model_copy(update={"request": Request(**{**rest, "mig": (profile,)})})
    gpus = job.tasks * request.gpus
    larger = gpus > 1 and random.Random(job.name).random() < ELASTIC
    if larger and variant in ("elastic", "both"):
        one = request.model_copy(update={"gpus": 1})
        update = {"request": one, "tasks": gpus, "min_tasks": max(1, gpus // 2)}
        return job.model_copy(update=update)
    return job


def _moment(place: Snapshot, waiting: list[Job]) -> Snapshot:
    rules = place.policy.model_copy(update={"mig": MigPolicy(mode="free")})
    nodes = tuple(node.model_copy(update={"shareable": False}) for node in place.nodes)
    now = max(job.submit for job in waiting)
    return place.model_copy(
        update={"now": now, "policy": rules, "nodes": nodes, "jobs": tuple(waiting)}
    )
