"""How much of a GPU a request counts for, in integer units, and which MIG table a model has."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from trencadis.models.base import GPU_MILLI
from trencadis.models.jobs import Job, Request
from trencadis.models.mig import MigProfile, MigTable, find_table
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


def takes_part(request: Request) -> bool:
    """Whether a task asks for a part of a GPU: slices or a share."""
    return request.share is not None or asks_for_mig(request)


def uses_gpu(request: Request) -> bool:
    """Whether a task uses GPUs: whole ones, slices or a share."""
    return bool(request.gpus) or request.share is not None or asks_for_mig(request)


def mig_tables(snapshot: Snapshot) -> dict[str, MigTable]:
    """MIG geometry by GPU model of the snapshot: the policy's table, else the built-in one.

    A model whose groups differ in memory has none unless all mean the same table.
    """
    memories: defaultdict[str, set[int]] = defaultdict(set)
    seen: defaultdict[str, set[str]] = defaultdict(set)
    for node in snapshot.nodes:
        for group in node.gpus:
            memories[group.model].add(group.memory_mib)
        if node.mig:
            models = [group.model for group in node.gpus for _ in range(group.count)]
            for entry in node.mig:
                seen[models[entry.gpu]].update(i.profile for i in entry.instances)
    found: dict[str, MigTable] = {}
    for model, sizes in sorted(memories.items()):
        if model in snapshot.policy.mig.tables:
            found[model] = snapshot.policy.mig.tables[model]
            continue
        known = sorted(sizes - {0}) or [0]
        tables = [find_table(model, size, seen[model]) for size in known]
        if tables[0] is not None and all(table is tables[0] for table in tables):
            found[model] = tables[0]
    return found


@dataclass(frozen=True)
class Sizes:
    """Quota units of requests in one snapshot."""

    unit: int
    """Units of a GPU."""
    tables: Mapping[str, MigTable]
    by_memory: bool
    """Slices count by memory instead of compute."""
    _known: dict[tuple[object, ...], int] = field(default_factory=dict, compare=False)

    def task(self, request: Request) -> int:
        """Quota units of one task: whole GPUs, a share, or MIG slices by their fraction."""
        if request.gpus:
            return request.gpus * self.unit
        if request.share is not None:
            return request.share.gpu_milli * self.unit // GPU_MILLI
        if not asks_for_mig(request):
            return 0
        key = (request.mig, request.mig_memory_mib, request.mig_compute_milli)
        if key not in self._known:
            self._known[key] = self._slices(request)
        return self._known[key]

    def job(self, job: Job) -> int:
        """Quota units of a job: of its allocation where it has one, else of its minimum."""
        tasks = len(job.allocation) if job.on_nodes else job.minimum
        return tasks * self.task(job.request)

    def profile(self, table: MigTable, profile: MigProfile) -> int:
        """Units of an instance on GPUs of this table."""
        if self.by_memory:
            return self.unit * profile.memory_slices // table.memory_slices
        return self.unit * profile.compute_slices // table.compute_slices

    def _slices(self, request: Request) -> int:
        """The largest that it counts on any model of the snapshot, so that it counts before it is
        placed as much as after."""
        if not request.mig:
            return max(
                (
                    self.profile(table, profile)
                    for table in self.tables.values()
                    if (
                        profile := table.smallest(
                            request.mig_memory_mib, request.mig_compute_milli
                        )
                    )
                ),
                default=0,
            )
        return sum(self._named(name) for name in request.mig)

    def _named(self, name: str) -> int:
        found = [
            self.profile(table, profile)
            for table in self.tables.values()
            if (profile := table.profile(name))
        ]
        if found:
            return max(found)
        match = _PROFILE.match(name)
        return int(match.group(1)) * self.unit // 7 if match else 0


def sizes(snapshot: Snapshot) -> Sizes:
    """Reads what requests count for in a snapshot."""
    return Sizes(
        unit=units_per_gpu(snapshot),
        tables=mig_tables(snapshot),
        by_memory=snapshot.policy.mig.count_by == "memory",
    )
