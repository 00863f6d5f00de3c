"""Keeps snapshots within reach of the brute force."""

from __future__ import annotations

from math import comb

from trencadis.models import Job, Snapshot

MOST = 30_000
"""Plans, by a rough estimate from above."""


def ways(snapshot: Snapshot, job: Job) -> int:
    """An estimate of how many ways there are to place the job, not starting it included."""
    k = job.request.gpus
    tasks = job.minimum
    count = 1
    for node in snapshot.nodes:
        here = min(tasks, node.gpu_count // k) if k else tasks
        choices = 1
        if node.nvlink.kind == "links" and k and here:
            choices = comb(node.gpu_count, k)
        count *= 1 + here * choices
    return count


def trim(snapshot: Snapshot) -> Snapshot:
    """The snapshot with fewer pending jobs where it would have too many plans."""
    total = 1
    kept = []
    dropped = set()
    for job in snapshot.jobs:
        if job.state == "pending":
            more = ways(snapshot, job)
            if total * more > MOST:
                dropped.add(job.name)
                continue
            total *= more
        kept.append(job)
    holds = tuple(hold for hold in snapshot.holds if hold.job not in dropped)
    return snapshot.model_copy(update={"jobs": tuple(kept), "holds": holds})
