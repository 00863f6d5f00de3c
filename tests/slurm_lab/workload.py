"""Forty jobs of two accounts, from one GPU to gangs of two nodes, and how a run of them went."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from slurm_lab.lab import Lab

ACCOUNTS = ("alpha", "beta")
GUARANTEE = 16
"""GPUs of each account, as in CONFIG."""
# GPUs per node, nodes, how many of them an account has.
KINDS = ((1, 1, 8), (2, 1, 4), (4, 1, 4), (8, 1, 2), (8, 2, 2))

CONFIG = """\
[live]
mode = "{mode}"
interval_seconds = {interval}
start_timeout_seconds = 20
retry_after_seconds = 2
missed_rounds = 4

[slurm]
partition_tiers = {{ high = "high", low = "low" }}
held_partitions = {{ inbox = "low" }}

[[queues]]
name = "alpha"
guarantee = {{ gpus = 16 }}

[[queues]]
name = "beta"
guarantee = {{ gpus = 16 }}
"""


@dataclass(frozen=True)
class Wish:
    """One job."""

    account: str
    gpus: int
    nodes: int
    seconds: int
    partition: str

    @property
    def options(self) -> list[str]:
        """For sbatch."""
        return [
            "-A", self.account, "-p", self.partition, "-N", str(self.nodes), "-c", "2",
            "-t", str(-(-self.seconds // 60)), f"--gres=gpu:h100:{self.gpus}",
        ]  # fmt: skip


def mixed(
    seed: int = 1, most: int | None = None, seconds: tuple[int, int] = (2, 5)
) -> list[Wish]:
    """The jobs, in the order of their submission; `seconds`: the shortest and the longest."""
    draw = random.Random(seed)
    wishes = [
        Wish(account, gpus, nodes, draw.randint(*seconds), draw.choice(("high", "low", "low")))
        for account in ACCOUNTS
        for gpus, nodes, number in KINDS
        for _ in range(number)
    ]
    draw.shuffle(wishes)
    return wishes[:most]


def submit(lab: Lab, wishes: list[Wish], *, held: bool = True) -> dict[str, Wish]:
    """Submits them; the wish by job."""
    return {lab.submit(wish.seconds, *wish.options, held=held): wish for wish in wishes}


def ended(lab: Lab, jobs: Iterable[str]) -> bool:
    """Whether all have said that they end."""
    return set(jobs) <= {job for word, job, _, _ in lab.told() if word == "end"}


@dataclass(frozen=True)
class Outcome:
    """How it went. Waits from the first submission, in seconds."""

    jobs: int
    mean_wait_s: float
    gpu_wait_s: float
    """Mean wait, weighted by GPUs."""
    high_wait_s: float
    """Mean wait of the high partition's jobs."""
    makespan_s: float
    used: float
    """Part of the GPU-seconds until the end that jobs ran."""
    short_gpu_s: float
    """GPU-seconds that accounts with waiting jobs were below what they are guaranteed of them."""


def outcome(lab: Lab, jobs: dict[str, Wish], began: float) -> Outcome:
    """From what the jobs said."""
    told = lab.told()
    starts = {job: at for word, job, at, _ in told if word == "start" and job in jobs}
    ends = {job: at for word, job, at, _ in told if word == "end" and job in jobs}
    size = {job: wish.gpus * wish.nodes for job, wish in jobs.items()}
    waits = {job: starts[job] - began for job in jobs}
    high = [waits[job] for job, wish in jobs.items() if wish.partition == "high"]
    makespan = max(ends.values()) - began
    ran = sum(size[job] * (ends[job] - starts[job]) for job in jobs)
    return Outcome(
        jobs=len(jobs),
        mean_wait_s=sum(waits.values()) / len(waits),
        gpu_wait_s=sum(size[job] * waits[job] for job in jobs) / sum(size.values()),
        high_wait_s=sum(high) / max(1, len(high)),
        makespan_s=makespan,
        used=ran / (makespan * 8 * len(lab.names)),
        short_gpu_s=sum(_short(jobs, starts, ends, name, began) for name in ACCOUNTS),
    )


def _short(
    jobs: dict[str, Wish],
    starts: dict[str, float],
    ends: dict[str, float],
    account: str,
    began: float,
) -> float:
    """Over time: what is guaranteed of all that the account wants, less what it has."""
    mine = {job: wish.gpus * wish.nodes for job, wish in jobs.items() if wish.account == account}
    moments = sorted({began, *(starts[job] for job in mine), *(ends[job] for job in mine)})
    total = 0.0
    for now, then in pairwise(moments):
        wanted = sum(size for job, size in mine.items() if now < ends[job])
        has = sum(size for job, size in mine.items() if starts[job] <= now < ends[job])
        total += max(0, min(GUARANTEE, wanted) - has) * (then - now)
    return total
