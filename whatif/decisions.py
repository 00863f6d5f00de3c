"""What a scheduling policy sees at a round, and what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from trencadis.models import Snapshot, TaskAllocation
from trencadis.whatif.books import Books
from trencadis.whatif.cluster import ClusterState
from trencadis.whatif.placing import NO_MODEL, Placer, Ranking
from trencadis.whatif.runs import JobRun


@dataclass(frozen=True, slots=True)
class StartAction:
    """Start a job; or add tasks to one whose tasks wait for each other."""

    job: str
    allocation: tuple[TaskAllocation, ...]
    waits_for: tuple[str, ...] = ()
    """Victims whose places it gets: it starts once they are gone."""


@dataclass(frozen=True, slots=True)
class PreemptAction:
    """Stop a running job; it waits again."""

    job: str
    grace: int
    """Seconds until its GPUs are free."""
    signal: bool = True
    """Whether it is told, so that it can write a checkpoint if it knows how to."""


@dataclass(frozen=True, slots=True)
class ResizeAction:
    """A running job goes on with these tasks: fewer, more, or elsewhere."""

    job: str
    allocation: tuple[TaskAllocation, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """What happens at a round, in this order."""

    preempts: tuple[PreemptAction, ...] = ()
    resizes: tuple[ResizeAction, ...] = ()
    starts: tuple[StartAction, ...] = ()
    releases: tuple[str, ...] = ()
    """Jobs whose tasks give back the GPUs on which they wait for each other."""
    wake: int | None = None
    """Look again then, even if nothing changes."""


@dataclass(frozen=True, slots=True)
class Disturbance:
    """A job that was told to stop."""

    at: int
    milli: int
    """Milli-GPUs that it had."""


@dataclass(frozen=True, slots=True)
class View:
    """The cluster at a round. Nothing in it may be changed: `draft()` gives copies."""

    now: int
    snapshot: Snapshot
    """Nodes, queues and policy; its jobs and instant are not those of the replay."""
    placer: Placer
    state: ClusterState
    books: Books
    pending: Sequence[JobRun]
    """Eligible, by submission."""
    running: Sequence[JobRun]
    """By index."""
    draining: Sequence[JobRun]
    held: Sequence[JobRun]
    """Delayed starts."""
    holding: Sequence[JobRun]
    waiting_elsewhere: Sequence[JobRun] = ()
    """Submitted, but not eligible yet."""
    disturbed: tuple[Disturbance, ...] = ()
    """Of the last day, the oldest first: what budgets count."""

    def draft(self) -> Draft:
        """A decision in the making."""
        return Draft(self, self.state.copy(), self.books.copy())


class SchedulingPolicy(Protocol):
    """Decides who starts and who stops."""

    name: str

    def decide(self, view: View) -> Decision:
        """What to do now."""
        ...


class Around:
    """What policies around another one have in common."""

    def __init__(self, policy: SchedulingPolicy, suffix: str = "") -> None:
        self.name = policy.name + suffix
        self._policy = policy

    def observe(self, view: View) -> None:
        """Tells the policy, if it remembers the past, of a round that was decided earlier."""
        if observe := getattr(self._policy, "observe", None):
            observe(view)


@dataclass(slots=True)
class Draft:
    """A decision in the making, on copies of state and books."""

    view: View
    state: ClusterState
    books: Books
    starts: list[StartAction] = field(default_factory=list)
    preempts: list[PreemptAction] = field(default_factory=list)
    resizes: list[ResizeAction] = field(default_factory=list)
    gone: set[int] = field(default_factory=set)
    """Jobs, by index, that this decision started or stopped."""
    _unfit: set[int] = field(default_factory=set)

    def fit(self, run: JobRun, ranking: Ranking) -> tuple[TaskAllocation, ...] | None:
        """Where the job could start now, or None. Remembers shapes that don't fit."""
        if run.shape in self._unfit:
            return None
        found = self.view.placer.place(self.state, run.job, self.view.now, ranking)
        if found is None:
            self._unfit.add(run.shape)
            return None
        model = model_of(self.state, found)
        return found if self.books.allows(run.job, len(found), model) else None

    def limited(self, run: JobRun) -> bool:
        """Whether a limit keeps it waiting, whatever is free."""
        return not self.books.allows(run.job, run.job.minimum, "")

    def start(
        self,
        run: JobRun,
        allocation: tuple[TaskAllocation, ...],
        waits_for: tuple[str, ...] = (),
    ) -> None:
        """Starts it there."""
        self.state.take(run.job, allocation)
        self.books.book(run.job, len(allocation), model_of(self.state, allocation))
        self.starts.append(StartAction(run.name, allocation, waits_for))
        self.gone.add(run.index)

    def try_start(self, run: JobRun, ranking: Ranking) -> bool:
        """Starts it where it fits best, if it fits."""
        allocation = self.fit(run, ranking)
        if allocation is None:
            return False
        self.start(run, allocation)
        return True

    def replace(
        self, run: JobRun, allocation: tuple[TaskAllocation, ...], victims: Sequence[JobRun]
    ) -> None:
        """Stops the victims; the job gets its places once they are gone."""
        for victim in victims:
            grace = grace_of(victim, self.view.snapshot)
            self.preempts.append(PreemptAction(victim.name, grace))
            self.books.clear(
                victim.job, len(victim.allocation), model_of(self.state, victim.allocation)
            )
            self.gone.add(victim.index)
        self.start(run, allocation, tuple(victim.name for victim in victims))

    def decision(self) -> Decision:
        """The finished decision."""
        return Decision(tuple(self.preempts), tuple(self.resizes), tuple(self.starts))


def grace_of(run: JobRun, snapshot: Snapshot) -> int:
    """How long a job that is told to stop may keep its GPUs."""
    own = run.job.grace_seconds
    return snapshot.policy.preemption.grace_seconds if own is None else own


def model_of(state: ClusterState, allocation: Sequence[TaskAllocation]) -> str:
    """The GPU model of an allocation; empty without GPUs."""
    for task in allocation:
        for gpu in task.gpus or ():
            position = int(state.model[state.row[task.node], gpu])
            return "" if position == NO_MODEL else state.models[position]
    return ""
