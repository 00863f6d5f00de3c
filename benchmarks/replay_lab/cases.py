"""What is replayed: two public traces in windows, at two loads, a mix of sizes, and gangs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from trencadis.commands.scene import dealt, gpu_count
from trencadis.instances.traces.read import read_trace
from trencadis.models import Job, Policy, Queue, Quota, Share, Snapshot
from trencadis.models.trace import Trace
from trencadis.whatif.clusters import cluster_of, parse_mix
from trencadis.whatif.policies.registry import POLICIES
from trencadis.whatif.prices import example_prices

WINDOWS = 5
LOADS = (0.9, 1.1)
QUEUES = 4
FILES = {
    "muri": ("muri/trace1.csv", "8xh100-8"),
    "philly": ("gavel_philly_vc/seed0_6c71a0.trace", "14xh100-8"),
}
"""File below the traces, cluster."""
TITLES = {
    "muri": "Muri trace1, 8 nodes of 8 GPUs",
    "philly": "Philly virtual cluster 6c71a0, 14 nodes of 8 GPUs",
}
MADE = {"mixed": "philly", "mixed-muri": "muri", "gangs": "muri"}
"""Traces made from another one, and its load."""
MADE_LOAD = {"mixed": LOADS[0], "mixed-muri": LOADS[1], "gangs": LOADS[1]}
RULES = {
    "short-first": Policy(short_first_seconds=2_592_000, promote_after_seconds=1_000_000_000),
    "defaults": Policy(),
}
"""Policies of the cluster. Of what differs only the solver takes notice; see decision 052."""
MIXED = ("trencadis", "trencadis+no-elastic", "trencadis+no-mig", "trencadis+no-elastic+no-mig")
PLAIN = ("fifo", "best-fit")
"""Schedulers to which sizes are given without shares and elasticity."""
GANGS = ("fifo", "best-fit", "volcano")
ONE_LESS = ("trencadis+no-gang", "best-fit+no-gang", "trencadis+kill")
SHARED, ELASTIC = 0.5, 0.5
"""Parts of the jobs of one GPU that become shares, and of larger jobs that become elastic."""


@dataclass(frozen=True, slots=True)
class Case:
    """One replay."""

    trace: str
    load: float
    window: int
    policy: str
    rules: str = "short-first"

    @property
    def name(self) -> str:
        """For files."""
        end = "" if self.rules == "short-first" else f"-{self.rules}"
        return f"{self.trace}-{round(self.load * 100)}-{self.window}-{self.policy}{end}"


def cases() -> Iterator[Case]:
    """All replays, the cheap ones first in each window."""
    for trace in FILES:
        for load in LOADS:
            for window in range(WINDOWS):
                yield from (Case(trace, load, window, policy) for policy in POLICIES)
                yield Case(trace, load, window, "trencadis", "defaults")
    for window in range(WINDOWS):
        yield from (Case("philly", LOADS[0], window, policy) for policy in ONE_LESS)
        for trace in ("mixed", "mixed-muri"):
            simple = (f"{policy}+no-elastic+no-mig" for policy in PLAIN)
            for policy in (*MIXED, *simple):
                yield Case(trace, MADE_LOAD[trace], window, policy)
        for policy in GANGS:
            for spec in (policy, f"{policy}+no-gang"):
                yield Case("gangs", MADE_LOAD["gangs"], window, spec)


def cluster(trace: str, rules: str = "short-first") -> Snapshot:
    """The nodes, and queues that are each guaranteed an eighth of the GPUs."""
    prices = example_prices()
    mix = FILES[MADE.get(trace, trace)][1]
    place = cluster_of(parse_mix(mix, prices), prices, "infiniband", RULES[rules])
    part = gpu_count(place) // (2 * QUEUES)
    queues = tuple(
        Queue(name=f"queue-{number + 1}", guarantee=Quota(gpus=part)) for number in range(QUEUES)
    )
    return place.model_copy(update={"queues": queues})


def jobs(case: Case, place: Snapshot, data: Path) -> Trace:
    """A window of consecutive jobs, a fifth of the trace, spaced for the load."""
    whole = _whole(MADE.get(case.trace, case.trace), data)
    size = len(whole.jobs) // WINDOWS
    part = replace(whole, jobs=whole.jobs[case.window * size : (case.window + 1) * size])
    if case.trace in ("mixed", "mixed-muri"):
        part = mixed(part)
    if case.trace == "gangs":
        part = part.shaped_for(1)
    part = part.shaped_for(8)
    part = part.faster(case.load / part.offered_load(gpu_count(place)))
    return dealt(part, QUEUES)


@cache
def _whole(trace: str, data: Path) -> Trace:
    return read_trace(data / FILES[trace][0], None)


def mixed(trace: Trace) -> Trace:
    """Some jobs of one GPU ask for a half or a quarter, some larger ones make do with half."""

    def change(job: Job) -> Job:
        # By name, so that a job is the same in every window and whatever comes before it.
        rng = random.Random(job.name)
        request = job.request
        if request.gpus == 1 and rng.random() < SHARED:
            share = Share(gpu_milli=rng.choice([250, 500]))
            request = request.model_copy(update={"gpus": 0, "share": share})
            return job.model_copy(update={"request": request})
        if request.gpus > 1 and rng.random() < ELASTIC:
            tasks = request.gpus
            one = request.model_copy(update={"gpus": 1})
            update = {"request": one, "tasks": tasks, "min_tasks": max(1, tasks // 2)}
            return job.model_copy(update=update)
        return job

    return trace.changed(change)
