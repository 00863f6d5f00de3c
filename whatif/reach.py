"""What a queue below its guarantee could be given: whole jobs, on GPUs that can be had."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import gcd

from trencadis.models.trace import task_milli
from trencadis.whatif.cluster import ClusterState
from trencadis.whatif.legality import may_stop
from trencadis.whatif.placing import Placer
from trencadis.whatif.policies.ranking import BestFit
from trencadis.whatif.runs import JobRun, State


def size(run: JobRun) -> int:
    """Milli-GPUs that it has, or needs to start."""
    if run.state in (State.RUNNING, State.DRAINING):
        return run.milli
    return run.job.minimum * task_milli(run.job)


def reachable(
    waiting: Sequence[JobRun], room: int, state: ClusterState, placer: Placer, now: int
) -> int:
    """Milli-GPUs of the waiting jobs that, one by one, have a place in `state`, at most `room`.

    `state`: with all gone who may be stopped for them. Errs on the side of too much, as what fits
    one by one need not fit together.
    """
    fits: dict[int, bool] = {}
    sizes = []
    for run in waiting:
        if size(run) > room:
            continue
        if run.shape not in fits:
            fits[run.shape] = placer.place(state, run.job, now, BestFit()) is not None
        if fits[run.shape]:
            sizes.append(size(run))
    return largest_sum(sizes, room)


def without_borrowers(
    state: ClusterState,
    running: Iterable[JobRun],
    use: Mapping[str, int],
    guarantees: Mapping[str, int],
    now: int,
    least: int,
) -> ClusterState:
    """The cluster without the jobs each of which its queue could lose and keep its guarantee.

    `least`: seconds that a job must have run before it may be stopped.
    """
    left = state.copy()
    for run in running:
        queue = run.job.queue
        if may_stop(run) or now - run.began < least:
            continue
        if use[queue] - run.milli >= guarantees.get(queue, 0):
            left.release(run.job, run.allocation)
    return left


def largest_sum(sizes: Iterable[int], bound: int) -> int:
    """The largest subset sum that is at most `bound`; a bit per reachable sum."""
    counts = Counter(size for size in sizes if 0 < size <= bound)
    unit = gcd(*counts) or 1
    reached, mask = 1, (1 << (bound // unit + 1)) - 1
    for whole, count in sorted(counts.items()):
        left, step = count, 1
        while left:
            taken = min(step, left)
            reached |= (reached << (whole // unit * taken)) & mask
            left -= taken
            step *= 2
    return (reached.bit_length() - 1) * unit
