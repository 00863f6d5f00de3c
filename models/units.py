"""How much of a GPU a request counts for, in integer units."""

from __future__ import annotations

import re

from trencadis.models.base import GPU_MILLI
from trencadis.models.jobs import Job, Request
from trencadis.models.snapshot import Snapshot

MIG_UNITS = 7_000
"""Units of a GPU where MIG (sevenths) and milli-GPUs meet: lcm(1000, 7)."""

_PROFILE = re.compile(r"^(\d+)g\.")


def units_per_gpu(snapshot: Snapshot) -> int:
    """1,000, or 7,000 if the snapshot has MIG anywhere."""
    mig = (
        any(node.mig for node in snapshot.nodes)
        or any(asks_for_mig(job.request) for job in snapshot.jobs)
        or any(asks_for_mig(entry.request) for entry in snapshot.policy.demand_profile)
    )
    return MIG_UNITS if mig else GPU_MILLI


def asks_for_mig(request: Request) -> bool:
    """Whether a task asks for MIG, by profile or by memory and compute."""
    return bool(request.mig or request.mig_memory_mib or request.mig_compute_milli)


def task_units(request: Request, unit: int) -> int:
    """Quota units of one task: whole GPUs, a share, or MIG slices by compute fraction."""
    if request.gpus:
        return request.gpus * unit
    if request.share is not None:
        return request.share.gpu_milli * unit // GPU_MILLI
    return sum(_slices(profile) * unit // 7 for profile in request.mig)


def job_units(job: Job, unit: int) -> int:
    """Quota units of a job: of its allocation where it has one, else of its minimum."""
    tasks = len(job.allocation) if job.on_nodes else job.minimum
    return tasks * task_units(job.request, unit)


def _slices(profile: str) -> int:
    match = _PROFILE.match(profile)
    return int(match.group(1)) if match else 0
