"""How much a request counts: quota units of a task, and the size of a job (problem.md, 1)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from trencadis.models import Job, Request, Snapshot
from trencadis.models.mig import MigProfile, MigTable
from trencadis.models.units import mig_tables

_SLICES = re.compile(r"(\d+)g\.")


class Ask(NamedTuple):
    """What one task asks for, as a value that hashes."""

    gpus: int
    cpu_milli: int
    memory_mib: int
    resources: tuple[tuple[str, int], ...]
    units: int
    """Quota units."""
    mig: tuple[str, ...] = ()
    """MIG profiles, sorted."""
    at_least: tuple[int, int] = (0, 0)
    """MIB and thousandths of the compute that one MIG instance must have."""
    share: tuple[int, int] = (0, 0)
    """Milli-GPU and MiB of a share."""

    @property
    def slices(self) -> bool:
        """Whether it asks for MIG."""
        return bool(self.mig) or self.at_least != (0, 0)

    @property
    def whole(self) -> bool:
        """Asks for neither MIG nor a share."""
        return not self.slices and self.share == (0, 0)

    @property
    def on_gpus(self) -> bool:
        """Asks for GPUs, whole or in parts."""
        return self.gpus > 0 or not self.whole


@dataclass(frozen=True, slots=True)
class Scale:
    """The unit, and the capacities that turn CPUs and memory into GPUs; nodes that are up only."""

    unit: int
    """U: units in a GPU."""
    healthy: int
    """Healthy GPUs."""
    gpus: int
    """G: the same, or the number of nodes where there are no GPUs; at least 1."""
    cpu_milli: int
    memory_mib: int
    by_model: dict[str, int]
    """Healthy GPUs by model."""
    tables: dict[str, MigTable]
    by_memory: bool
    """Slices count by memory."""
    _slices: dict[tuple[object, ...], int] = field(default_factory=dict, compare=False, repr=False)

    def ask(self, request: Request) -> Ask:
        """The request as a value."""
        if request.gpus:
            units = request.gpus * self.unit
        elif request.share is not None:
            units = request.share.gpu_milli * self.unit // 1_000
        else:
            key = (request.mig, request.mig_memory_mib, request.mig_compute_milli)
            if key not in self._slices:
                self._slices[key] = self._slice_units(request)
            units = self._slices[key]
        return Ask(
            request.gpus,
            request.cpu_milli,
            request.memory_mib,
            tuple(sorted(request.resources.items())) if request.resources else (),
            units,
            tuple(sorted(request.mig)),
            (request.mig_memory_mib, request.mig_compute_milli),
            (request.share.gpu_milli, request.share.memory_mib) if request.share else (0, 0),
        )

    def _slice_units(self, request: Request) -> int:
        """The most that the instances count on any GPU model of the snapshot."""
        tables = self.tables.values()
        if not request.mig:
            if not has_mig(request):
                return 0
            ask = (request.mig_memory_mib, request.mig_compute_milli)
            best = [(table, smallest(table, *ask)) for table in tables]
            return max((self._part(t, p) for t, p in best if p is not None), default=0)
        total = 0
        for name in request.mig:
            parts = [self._part(t, p) for t in tables for p in t.profiles if p.name == name]
            total += max(parts) if parts else _slices(name) * self.unit // 7
        return total

    def _part(self, table: MigTable, profile: MigProfile) -> int:
        if self.by_memory:
            return self.unit * profile.memory_slices // table.memory_slices
        return self.unit * profile.compute_slices // table.compute_slices

    def size(self, ask: Ask, tasks: int) -> int:
        """Size of a job of so many tasks, in units."""
        size = max(1, tasks * ask.units)
        whole = self.unit * self.gpus
        if self.cpu_milli and ask.cpu_milli:
            size = max(size, -(-tasks * ask.cpu_milli * whole // self.cpu_milli))
        if self.memory_mib and ask.memory_mib:
            size = max(size, -(-tasks * ask.memory_mib * whole // self.memory_mib))
        return size


def has_mig(request: Request) -> bool:
    """Whether a task asks for MIG, by profile or by memory and compute."""
    return bool(request.mig or request.mig_memory_mib or request.mig_compute_milli)


def task_count(job: Job) -> int:
    """Tasks that count: of the allocation where the job runs or drains, else the minimum."""
    return len(job.allocation) if job.on_nodes else job.minimum


def scale_of(snapshot: Snapshot) -> Scale:
    """The snapshot's unit and capacities."""
    requests = chain(
        (job.request for job in snapshot.jobs),
        (entry.request for entry in snapshot.policy.demand_profile),
    )
    mig = any(node.mig for node in snapshot.nodes) or any(
        r.mig or r.mig_memory_mib or r.mig_compute_milli for r in requests
    )
    by_model: dict[str, int] = {}
    up = [node for node in snapshot.nodes if not node.down]
    for node in up:
        for group in node.gpus:
            healthy = group.count - len(set(group.unhealthy))
            by_model[group.model] = by_model.get(group.model, 0) + healthy
    by_model = {model: count for model, count in by_model.items() if count}
    healthy = sum(by_model.values())
    return Scale(
        unit=7_000 if mig else 1_000,
        healthy=healthy,
        gpus=healthy or max(1, len(up)),
        cpu_milli=sum(node.cpu_milli for node in up),
        memory_mib=sum(node.memory_mib for node in up),
        by_model=by_model,
        tables=mig_tables(snapshot),
        by_memory=snapshot.policy.mig.count_by == "memory",
    )


def _slices(profile: str) -> int:
    match = _SLICES.match(profile)
    return int(match.group(1)) if match else 0


def smallest(table: MigTable, memory_mib: int, compute_milli: int) -> MigProfile | None:
    """The plain profile of fewest compute, then memory slices that is at least so large."""
    best: MigProfile | None = None
    for profile in table.profiles:
        if "+" in profile.name or "-" in profile.name:
            continue
        if profile.memory_mib < memory_mib:
            continue
        if 1_000 * profile.compute_slices < compute_milli * table.compute_slices:
            continue
        rank = (profile.compute_slices, profile.memory_slices, profile.name)
        if best is None or rank < (best.compute_slices, best.memory_slices, best.name):
            best = profile
    return best
