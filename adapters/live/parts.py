"""Whether slices and shares that a start is to get are still there."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from trencadis.models import Job, Snapshot, TaskAllocation
from trencadis.models.instances import held_instances


class Parts:
    """Idle slices by node and profile, and what shares have taken of each GPU."""

    def __init__(self, snapshot: Snapshot) -> None:
        held = held_instances(snapshot)
        self._slices: dict[str, Counter[str]] = {}
        for node in snapshot.nodes:
            # Which slice of a profile a pod gets is the node's own choice.
            self._slices[node.name] = Counter(
                instance.profile
                for entry in node.mig
                for instance in entry.instances
                if instance not in held.get((node.name, entry.gpu), ())
            )
        self._most = {node.name: node.max_jobs_per_gpu for node in snapshot.nodes}
        self._milli: defaultdict[tuple[str, int], int] = defaultdict(int)
        self._number: defaultdict[tuple[str, int], int] = defaultdict(int)
        self._whole: set[tuple[str, int]] = set()
        on_nodes = [(job, job.allocation) for job in snapshot.jobs if job.on_nodes]
        jobs = {job.name: job for job in snapshot.jobs}
        on_nodes += [(jobs[h.job], h.allocation) for h in snapshot.delayed if h.job in jobs]
        for job, tasks in on_nodes:
            for task in tasks:
                self._count(job, task)

    def _count(self, job: Job, task: TaskAllocation) -> None:
        share = task.share or job.request.share
        for gpu in task.gpus or ():
            if share is not None:
                self._milli[task.node, gpu] += share.gpu_milli
                self._number[task.node, gpu] += 1
            else:
                self._whole.add((task.node, gpu))

    def take(self, job: Job, tasks: Iterable[TaskAllocation]) -> str | None:
        """Why they can't be had; None if they can, and then they are taken."""
        asked = list(tasks)
        wanted: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for task in asked:
            wanted[task.node].update(instance.profile for instance in task.mig)
        for node, profiles in wanted.items():
            for profile, count in profiles.items():
                if count > self._slices.get(node, Counter())[profile]:
                    return f"node {node} has too few idle slices {profile}"
        if job.request.share is not None:
            for task in asked:
                for gpu in task.gpus or ():
                    full = self._number[task.node, gpu] >= self._most.get(task.node, 1)
                    over = self._milli[task.node, gpu] + job.request.share.gpu_milli > 1_000
                    if full or over or (task.node, gpu) in self._whole:
                        return f"GPU {gpu} of node {task.node} has no room for the share"
        for node, profiles in wanted.items():
            self._slices[node] -= profiles
        if job.request.share is not None:
            for task in asked:
                self._count(job, task)
        return None
