"""What is measured while a replay goes on: GPU time by use, fragmentation, guarantees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import gcd

import numpy as np

from trencadis.models import Queue
from trencadis.models.base import GPU_MILLI
from trencadis.models.trace import Trace, task_milli
from trencadis.whatif.books import Books
from trencadis.whatif.cluster import ClusterState, Ints
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
    """Of that: what idle GPUs and others' use above their guarantees could not have covered."""
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

    def look(self, now: int, state: ClusterState, books: Books, active: Iterable[JobRun]) -> None:
        """Notes which queues are short."""
        promised = [queue for queue in self.queues if queue.guarantee.total_milli()]
        if not promised:
            return
        jobs: dict[str, list[JobRun]] = {queue.name: [] for queue in self.queues}
        for run in active:
            if run.job.queue in jobs:
                jobs[run.job.queue].append(run)
        use = {queue.name: books.in_use(queue.name) for queue in self.queues}
        above = {
            queue.name: min(
                max(0, use[queue.name] - (queue.guarantee.total_milli() or 0)),
                sum(
                    run.milli
                    for run in jobs[queue.name]
                    if run.state is State.RUNNING and run.job.preemptible
                ),
            )
            for queue in self.queues
        }
        idle = state.idle_milli()
        for queue in promised:
            guarantee = queue.guarantee.total_milli() or 0
            entry = self.short.setdefault(queue.name, Shortfall())
            missing = 0
            if use[queue.name] < guarantee:
                target = _largest_sum([_size(run) for run in jobs[queue.name]], guarantee)
                missing = max(0, target - use[queue.name])
            entry.now_milli = missing
            others = sum(value for name, value in above.items() if name != queue.name)
            entry.now_unavoidable = max(0, missing - idle - others)
            if not missing:
                entry.since = None
            elif entry.since is None:
                entry.since = now


def _size(run: JobRun) -> int:
    if run.state in (State.RUNNING, State.DRAINING):
        return run.milli
    return run.job.minimum * task_milli(run.job)


def _largest_sum(sizes: Iterable[int], bound: int) -> int:
    """The largest subset sum that is at most `bound`; a bit per reachable sum."""
    counts = Counter(size for size in sizes if 0 < size <= bound)
    unit = gcd(*counts) or 1
    reachable, mask = 1, (1 << (bound // unit + 1)) - 1
    for whole, count in sorted(counts.items()):
        left, step = count, 1
        while left:
            taken = min(step, left)
            reachable |= (reachable << (whole // unit * taken)) & mask
            left -= taken
            step *= 2
    return (reachable.bit_length() - 1) * unit
