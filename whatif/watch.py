"""What is measured while a replay goes on: GPU time by use, fragmentation, guarantees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from trencadis.models import Queue
from trencadis.models.base import GPU_MILLI
from trencadis.models.trace import Trace
from trencadis.whatif.books import Books
from trencadis.whatif.cluster import ClusterState, Ints
from trencadis.whatif.placing import Placer
from trencadis.whatif.reach import largest_sum, reachable, size, without_borrowers
from trencadis.whatif.runs import JobRun, State


@dataclass(slots=True)
class GpuTime:
    """Milli-GPU-seconds of the cluster."""

    capacity: int = 0
    """Healthy, on nodes that are up."""
    idle: int = 0
    """Free for anybody."""
    held: int = 0
    """Kept for delayed starts whose other places are not free yet."""

    def pass_time(self, state: ClusterState, span: int, held: Iterable[JobRun]) -> None:
        """Adds what a span of time offers in this state."""
        self.capacity += int(state.capacity[state.up].sum()) * span
        self.idle += state.idle_milli() * span
        holds = list(held)
        if holds:
            self.held += _held_milli(state, holds) * span


def _held_milli(state: ClusterState, holds: Sequence[JobRun]) -> int:
    """What holds occupy beyond what their victims still do: victims come first on each GPU."""
    amount = np.zeros_like(state.gpus)
    for run in holds:
        milli = GPU_MILLI if run.job.request.share is None else run.job.request.share.gpu_milli
        for task in run.allocation:
            for gpu in task.gpus or ():
                amount[state.row[task.node], gpu] += milli
    others = state.capacity - state.gpus - amount
    return int(np.minimum(amount, state.capacity - others).clip(0)[state.up].sum())


class Fragments:
    """F of FGD (ATC'23, section 3) with the popularity of all tasks of the trace.

    The popularity is that of the whole trace for every policy and all the time, so that curves of
    different policies compare.
    """

    def __init__(self, trace: Trace, state: ClusterState) -> None:
        counts: Counter[tuple[int, int, tuple[int, ...], tuple[str, ...]]] = Counter()
        for entry in trace.jobs:
            job = entry.job
            share = 0 if job.request.share is None else job.request.share.gpu_milli
            rest = tuple(int(x) for x in state.need(job))
            counts[(job.request.gpus, share, rest, tuple(job.gpu_models))] += job.tasks
        self.kinds = sorted(counts.items())
        self.total = sum(counts.values())
        self._allowed = {
            models: np.isin(state.model, [i for i, m in enumerate(state.models) if m in models])
            if models
            else state.model >= 0
            for _, _, _, models in counts
        }

    def by_node(self, gpus: Ints, rest: Ints, rows: Ints) -> Ints:
        """Expected milli-GPUs that a task can't use, times the number of tasks, by row.

        `gpus`, `rest`: free, of the nodes `rows`; shapes (n, GPUs) and (n, resources).
        """
        free = np.maximum(gpus, 0)
        all_idle = free.sum(axis=1)
        lost = np.zeros(len(rows), dtype=np.int64)
        for (whole, share, need, models), count in self.kinds:
            allowed = self._allowed[models][rows]
            if share:
                pieces = np.where(allowed & (free >= share), free, 0)
                usable = pieces.sum(axis=1)
            elif whole:
                pieces = np.where(allowed & (free == GPU_MILLI), free, 0)
                usable = pieces.sum(axis=1)
                usable = np.where(usable >= whole * GPU_MILLI, usable, 0)
            else:
                usable = np.zeros(len(rows), dtype=np.int64)
            fits = (rest >= np.array(need, dtype=np.int64)).all(axis=1)
            lost += count * (all_idle - np.where(fits, usable, 0))
        return lost

    def milli(self, state: ClusterState) -> int:
        """F of the cluster, milli-GPUs."""
        rows = np.flatnonzero(state.up & state.open)
        if not self.total or not len(rows):
            return 0
        return int(self.by_node(state.gpus[rows], state.rest[rows], rows).sum()) // self.total


@dataclass(slots=True)
class Shortfall:
    """Milli-GPU-seconds below a queue's guarantee."""

    total: int = 0
    beyond_grace: int = 0
    """After it had lasted longer than the grace."""
    unavoidable: int = 0
    """Of that: what no start on idle or reclaimed GPUs could have covered."""
    since: int | None = None
    now_milli: int = 0
    now_unavoidable: int = 0


@dataclass(slots=True)
class Guarantees:
    """Guarantees of leaf queues against what their jobs have and ask for.

    The target is the largest sum of sizes of running and waiting jobs within the guarantee.
    """

    queues: tuple[Queue, ...]
    grace: int
    least: int = 0
    """Seconds that a job must have run before it may be stopped."""
    short: dict[str, Shortfall] = field(default_factory=dict)

    def pass_time(self, now: int, span: int) -> None:
        """Adds a span that ends now, in the state last seen."""
        for entry in self.short.values():
            if not entry.now_milli or entry.since is None:
                continue
            entry.total += entry.now_milli * span
            late = min(span, max(0, now - entry.since - self.grace))
            entry.beyond_grace += entry.now_milli * late
            entry.unavoidable += entry.now_unavoidable * late

    def look(
        self, now: int, state: ClusterState, books: Books, active: Iterable[JobRun], placer: Placer
    ) -> None:
        """Notes which queues are short, and by how much they need not be.

        Unavoidable is what its own jobs stand in the way of (they leave no whole job's room below
        the guarantee), and what no waiting job has a place for even if all go who may be stopped
        for it: past their least runtime, of queues that keep their guarantees without them.
        """
        promised = {q.name: q.guarantee.total_milli() or 0 for q in self.queues}
        if not any(promised.values()):
            return
        jobs: dict[str, list[JobRun]] = {queue.name: [] for queue in self.queues}
        for run in active:
            if run.job.queue in jobs:
                jobs[run.job.queue].append(run)
        use = {name: books.in_use(name) for name in jobs}
        running = [r for each in jobs.values() for r in each if r.state is State.RUNNING]
        left: ClusterState | None = None
        for name, guarantee in promised.items():
            if not guarantee:
                continue
            entry = self.short.setdefault(name, Shortfall())
            missing = 0
            if use[name] < guarantee:
                target = largest_sum([size(run) for run in jobs[name]], guarantee)
                missing = max(0, target - use[name])
            entry.now_milli = missing
            entry.now_unavoidable = 0
            if not missing:
                entry.since = None
                continue
            if entry.since is None:
                entry.since = now
            if left is None:
                left = without_borrowers(state, running, use, promised, now, self.least)
            waiting = [run for run in jobs[name] if run.state is State.WAITING]
            could = reachable(waiting, guarantee - use[name], left, placer, now)
            entry.now_unavoidable = max(0, missing - could)
