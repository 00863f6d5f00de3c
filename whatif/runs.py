"""What becomes of a job during a replay: progress, checkpoints, and where its GPU time went."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from trencadis.models import Job, Policy, TaskAllocation
from trencadis.models.base import seconds
from trencadis.models.trace import TraceJob, task_milli

MICRO = 1_000_000


class State(StrEnum):
    """Where a job stands."""

    FUTURE = "future"
    WAITING = "waiting"
    HOLDING = "holding"
    """Some of its tasks sit on GPUs and wait for the others (only without gangs)."""
    AWAY = "away"
    """On burst nodes, beside the cluster."""
    HELD = "held"
    """Its GPUs are being freed: a delayed start."""
    RUNNING = "running"
    DRAINING = "draining"
    DONE = "done"
    LOST = "lost"
    """It ended before its work was done and may not be started again."""
    REJECTED = "rejected"
    """It could not run on the empty cluster."""


@dataclass(slots=True)
class Spent:
    """Micro-GPU-seconds by what they went into; their sum is what the job occupied."""

    useful: int = 0
    spread: int = 0
    """Slower because of distance or PCIe."""
    restart: int = 0
    rework: int = 0
    """Work after the last checkpoint that was lost."""
    grace: int = 0
    """Between the order to stop and the GPUs being free."""
    gang_wait: int = 0
    """Tasks that waited on their GPUs for the rest of their gang."""

    @property
    def total(self) -> int:
        """All of it."""
        return self.useful + self.lost

    @property
    def lost(self) -> int:
        """All but the useful part."""
        return self.spread + self.restart + self.rework + self.grace + self.gang_wait


@dataclass(slots=True, eq=False)
class JobRun:
    """A job of the trace on its way."""

    index: int
    """In the trace: the order among jobs submitted at the same second."""
    entry: TraceJob
    job: Job
    """As a scheduler sees it now."""
    tier: int
    submit: int
    work_left: int
    """Micro-seconds on all tasks at full speed."""
    estimate_left: int | None
    """What is left of the estimate, likewise; None where unknown."""
    interval: int
    """Between checkpoints, seconds."""
    on_signal: bool
    shape: int = 0
    """Jobs of one shape fit the same places."""
    state: State = State.FUTURE
    allocation: tuple[TaskAllocation, ...] = ()
    began: int = 0
    """When it got its present allocation."""
    restart: int = 0
    """Seconds at the beginning of the present segment that go into starting again."""
    rate: int = MICRO
    """Micro-seconds of work a second."""
    slow: int = 0
    """Thousandths lost to distance."""
    epoch: int = 0
    """Changes with each segment, so that old events are known as such."""
    first_start: int | None = None
    end: int | None = None
    starts: int = 0
    preemptions: int = 0
    failures: int = 0
    last_preempted: int | None = None
    stopped: bool = False
    """It was told to stop, and has not begun again."""
    waits_for: set[int] = field(default_factory=set)
    """Victims, by index, that still occupy its places."""
    spent: Spent = field(default_factory=Spent)
    """On the cluster."""
    away: Spent = field(default_factory=Spent)
    """On burst nodes."""

    @property
    def name(self) -> str:
        """The job's name."""
        return self.job.name

    @property
    def milli(self) -> int:
        """Milli-GPUs of the present allocation."""
        return len(self.allocation) * task_milli(self.job)

    @property
    def asks_milli(self) -> int:
        """Milli-GPUs that it needs to start."""
        return self.job.minimum * task_milli(self.job)

    def expected_end(self, now: int) -> int | None:
        """When it ends by its estimate, at its present speed; never in the past."""
        if self.estimate_left is None:
            return None
        return max(now + 1, self.began + self.restart + -(-self.estimate_left // self.rate))

    def finishes_at(self) -> int:
        """When its work is done if nothing happens to it."""
        return self.began + self.restart + -(-self.work_left // self.rate)

    def close(self, now: int, *, saved: bool) -> None:
        """Ends a segment of running. `saved`: nothing is lost (done, or a checkpoint was written).

        Without it, the work since the last periodic checkpoint of the segment is lost.
        """
        elapsed = now - self.began
        restart = min(elapsed, self.restart)
        ran = elapsed - restart
        kept = ran if saved else ran - ran % self.interval
        spent = self.away if self.state is State.AWAY else self.spent
        spent.restart += restart * self.milli * 1_000
        spent.useful += kept * self.milli * (1_000 - self.slow)
        spent.spread += kept * self.milli * self.slow
        spent.rework += (ran - kept) * self.milli * 1_000
        done = kept * self.rate
        self.work_left = max(0, self.work_left - done)
        if self.estimate_left is not None:
            self.estimate_left = max(0, self.estimate_left - done)
        self.epoch += 1

    def forfeit(self) -> None:
        """All it did is lost: it may not be started again."""
        self.spent.rework += self.spent.useful + self.spent.spread
        self.spent.useful = self.spent.spread = 0


def new_run(index: int, entry: TraceJob, policy: Policy) -> JobRun:
    """A job that has not been submitted yet."""
    job = entry.job
    tiers = [tier.name for tier in policy.tiers]
    checkpoint = job.checkpoint
    interval = None if checkpoint is None else checkpoint.interval_seconds
    estimate = job.runtime_seconds
    return JobRun(
        index=index,
        entry=entry,
        job=job,
        tier=tiers.index(job.priority or policy.default_tier),
        submit=seconds(job.submit),
        work_left=entry.seconds * MICRO,
        estimate_left=None if estimate is None else estimate * MICRO,
        interval=interval or policy.preemption.checkpoint_interval_seconds,
        on_signal=checkpoint is not None and checkpoint.on_signal,
    )


def rate_of(job: Job, tasks: int, speed: int, slow: int, serial: int) -> int:
    """Micro-seconds of work a second with so many of its tasks.

    `speed`: thousandths, of the GPU model; `slow`: thousandths lost to distance; `serial`:
    thousandths of a task's work that don't run in parallel (Amdahl's law), relative to all tasks.
    """
    full = job.tasks * (1_000 + serial * (tasks - 1))
    return max(1, speed * (1_000 - slow) * tasks * (1_000 + serial * (job.tasks - 1)) // full)
