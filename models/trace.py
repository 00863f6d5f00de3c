"""What a trace is: jobs as they were submitted, and how long each really ran."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from math import gcd

from trencadis.models.base import seconds
from trencadis.models.jobs import Job

EPOCH = datetime(2024, 1, 1, tzinfo=UTC)
"""The first instant of a trace that has no dates of its own."""


@dataclass(frozen=True, slots=True)
class TraceJob:
    """A job of a trace."""

    job: Job
    """As submitted: pending, with its estimate in `runtime_seconds`."""
    seconds: int
    """What it really runs with all its tasks, near to each other, on GPUs of speed 1,000."""
    tokens_per_second: int | None = None
    """What it makes at that speed."""

    @property
    def gpu_milli(self) -> int:
        """Milli-GPUs of all its tasks."""
        return self.job.tasks * task_milli(self.job)


@dataclass(frozen=True, slots=True)
class Trace:
    """Jobs in order of submission."""

    name: str
    jobs: tuple[TraceJob, ...]
    warnings: tuple[str, ...] = ()

    @property
    def gpu_seconds(self) -> int:
        """What all jobs ask for, GPU-seconds, rounded down."""
        return sum(entry.gpu_milli * entry.seconds for entry in self.jobs) // 1_000

    @property
    def span_seconds(self) -> int:
        """From the first submission to the last."""
        if not self.jobs:
            return 0
        return seconds(self.jobs[-1].job.submit) - seconds(self.jobs[0].job.submit)

    def offered_load(self, gpus: int) -> float:
        """GPU-seconds that arrive per GPU-second of a cluster of so many GPUs."""
        return self.gpu_seconds / max(1, gpus * self.span_seconds)

    def faster(self, factor: float) -> Trace:
        """The same jobs, arriving `factor` times as fast."""
        if factor <= 0:
            raise ValueError(f"the factor of the load must be above 0 (got {factor})")
        if not self.jobs:
            return self
        first = self.jobs[0].job.submit

        def moved(job: Job) -> Job:
            after = seconds(job.submit) - seconds(first)
            submit = first + timedelta(seconds=round(after / factor))
            return job.model_copy(update={"submit": submit})

        return self.changed(moved)

    def changed(self, change: Callable[[Job], Job]) -> Trace:
        """The same trace of jobs changed in that way; they run as long as before."""
        jobs = tuple(replace(entry, job=change(entry.job)) for entry in self.jobs)
        return replace(self, jobs=jobs)

    def between(self, start_s: int, end_s: int) -> Trace:
        """The jobs submitted in [start, end), in seconds after the first submission."""
        if not self.jobs:
            return self
        first = seconds(self.jobs[0].job.submit)
        kept = tuple(
            entry for entry in self.jobs if start_s <= seconds(entry.job.submit) - first < end_s
        )
        return replace(self, jobs=kept)

    def shaped_for(self, gpus_per_node: int) -> Trace:
        """Tasks that are larger than a node become gangs of tasks that fill it.

        A job of one task and g GPUs, g above the node's size n, gets tasks of n GPUs, or of the
        greatest common divisor of g and n where n doesn't divide g.
        """
        return self.changed(lambda job: _shaped(job, gpus_per_node))


def task_milli(job: Job) -> int:
    """Milli-GPUs of one task; whole GPUs or a share."""
    if job.request.share is not None:
        return job.request.share.gpu_milli
    return job.request.gpus * 1_000


def in_order(jobs: Iterable[TraceJob]) -> tuple[TraceJob, ...]:
    """By submission, then in the order given."""
    return tuple(sorted(jobs, key=lambda entry: entry.job.submit))


def _shaped(job: Job, size: int) -> Job:
    request = job.request
    if job.tasks != 1 or request.gpus <= size or size < 1:
        return job
    each = size if request.gpus % size == 0 else gcd(request.gpus, size)
    tasks = request.gpus // each
    part = request.model_copy(
        update={
            "gpus": each,
            "cpu_milli": -(-request.cpu_milli // tasks),
            "memory_mib": -(-request.memory_mib // tasks),
            "resources": {name: -(-count // tasks) for name, count in request.resources.items()},
        }
    )
    return job.model_copy(update={"tasks": tasks, "request": part})
