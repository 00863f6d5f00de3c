"""Keeps snapshots within reach of the brute force."""

from __future__ import annotations

from math import comb

from trencadis.models import Job, Node, Snapshot

MOST = 30_000
"""Plans, by a rough estimate from above."""


def ways(snapshot: Snapshot, job: Job) -> int:
    """An estimate of how many ways there are to place the job, not starting it included."""
    k = job.request.gpus
    tasks = job.minimum
    pieces = _pieces(job) * tasks
    if pieces:
        spots = sum(_spots(node) for node in snapshot.nodes)
        return int(1 + spots**pieces)
    count = 1
    for node in snapshot.nodes:
        here = min(tasks, node.gpu_count // k) if k else tasks
        choices = 1 + (len(node.mig) if node.mig_mode_changes else 0)
        if node.nvlink.kind == "links" and k and here:
            choices = comb(node.gpu_count, k)
        count *= 1 + here * choices
    return count


def _pieces(job: Job) -> int:
    """Slices or shares of one task."""
    request = job.request
    one = request.share is not None or request.mig_memory_mib or request.mig_compute_milli
    return len(request.mig) or int(bool(one))


def _spots(node: Node) -> int:
    """About how many different places a slice has on a node."""
    return 4 * len(node.mig) + min(4 if node.mig_mode_changes else 1, node.gpu_count)


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
