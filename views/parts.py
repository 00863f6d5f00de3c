"""GPUs in MIG mode and shared ones, as facts: who has which part, what is free, what is lost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trencadis.models import Job, Node, Snapshot, TaskAllocation
from trencadis.models.mig import MigTable
from trencadis.models.units import mig_tables
from trencadis.solver.verify.second import Instance, legal


@dataclass(frozen=True, slots=True)
class MigFacts:
    """A GPU in MIG mode."""

    node: str
    gpu: int
    model: str
    table: MigTable | None
    """None where it is unknown what the GPU can be cut into."""
    instances: tuple[tuple[Instance, str | None], ...]
    """By start, each with the job that has it; None: idle."""
    room: Mapping[str, tuple[int, ...]]
    """Plain profile -> starts at which one more could be cut beside all that is there."""

    @property
    def free(self) -> tuple[int, ...]:
        """Memory slices that no instance covers."""
        table = self.table
        return () if table is None else tuple(sorted(_all(table) - _covered(table, self.instances)))

    @property
    def lost(self) -> tuple[int, ...]:
        """Free slices that no further instance could cover beside those that jobs have."""
        table = self.table
        if table is None:
            return ()
        used = [entry for entry in self.instances if entry[1] is not None]
        reach = _covered(
            table,
            [
                ((profile.name, start), None)
                for profile in table.profiles
                for start in profile.starts
                if _fits(table, [instance for instance, _ in used], (profile.name, start))
            ],
        )
        return tuple(slot for slot in self.free if slot not in reach)


@dataclass(frozen=True, slots=True)
class ShareFacts:
    """A GPU that jobs share."""

    node: str
    gpu: int
    model: str
    shares: tuple[tuple[str, int, int], ...]
    """(job, milli-GPU, MiB)."""
    memory_mib: int
    """Of the GPU; 0 where unknown."""
    most: int
    """Shares that the GPU takes in all."""

    @property
    def milli(self) -> int:
        """Milli-GPU in use."""
        return sum(share[1] for share in self.shares)

    @property
    def memory(self) -> int:
        """MiB in use."""
        return sum(share[2] for share in self.shares)


PartFacts = MigFacts | ShareFacts


def part_facts(snapshot: Snapshot) -> dict[str, tuple[PartFacts, ...]]:
    """GPUs in parts of each node that has some, by index."""
    tables = mig_tables(snapshot)
    tenants: defaultdict[str, list[tuple[Job, TaskAllocation]]] = defaultdict(list)
    jobs = {job.name: job for job in snapshot.jobs}
    for job in snapshot.jobs:
        if job.on_nodes:
            for task in job.allocation:
                tenants[task.node].append((job, task))
    for hold in snapshot.delayed:
        for task in hold.allocation:
            if hold.job in jobs:
                tenants[task.node].append((jobs[hold.job], task))
    found: dict[str, tuple[PartFacts, ...]] = {}
    for node in snapshot.nodes:
        parts: list[PartFacts] = []
        parts += _mig(node, tables, tenants[node.name])
        parts += _shared(node, tenants[node.name])
        if parts:
            found[node.name] = tuple(sorted(parts, key=lambda part: part.gpu))
    return found


def _mig(
    node: Node, tables: Mapping[str, MigTable], tenants: Sequence[tuple[Job, TaskAllocation]]
) -> list[MigFacts]:
    models = node.healthy_gpus()
    owners: defaultdict[int, dict[Instance, str]] = defaultdict(dict)
    for job, task in tenants:
        for gpu, instance in zip(task.gpus or (), task.mig, strict=False):
            owners[gpu][instance.profile, instance.start] = job.name
    found = []
    for entry in node.mig:
        model = models.get(entry.gpu)
        if model is None:
            continue
        owner = owners[entry.gpu]
        layout = {(i.profile, i.start) for i in entry.instances} | owner.keys()
        ordered = sorted(layout, key=lambda instance: (instance[1], instance[0]))
        table = tables.get(model)
        room: dict[str, tuple[int, ...]] = {}
        for profile in table.profiles if table is not None else ():
            starts = tuple(s for s in profile.starts if _fits(table, ordered, (profile.name, s)))
            if profile.plain and starts:
                room[profile.name] = starts
        instances = tuple((instance, owner.get(instance)) for instance in ordered)
        found.append(MigFacts(node.name, entry.gpu, model, table, instances, room))
    return found


def _shared(node: Node, tenants: Sequence[tuple[Job, TaskAllocation]]) -> list[ShareFacts]:
    models = node.healthy_gpus()
    shares: defaultdict[int, list[tuple[str, int, int]]] = defaultdict(list)
    for job, task in tenants:
        share = job.request.share
        if share is not None:
            for gpu in task.gpus or ():
                shares[gpu].append((job.name, share.gpu_milli, share.memory_mib))
    memory = {
        model: min(group.memory_mib for group in node.gpus if group.model == model)
        for model in {group.model for group in node.gpus}
    }
    return [
        ShareFacts(
            node.name, gpu, models[gpu], tuple(here), memory[models[gpu]], node.max_jobs_per_gpu
        )
        for gpu, here in sorted(shares.items())
        if gpu in models
    ]


def _fits(table: MigTable | None, layout: Sequence[Instance], more: Instance) -> bool:
    return table is not None and more not in layout and legal(table, [*layout, more])


def _all(table: MigTable) -> set[int]:
    return set(range(table.memory_slices))


def _covered(table: MigTable, entries: Sequence[tuple[Instance, str | None]]) -> set[int]:
    length = {profile.name: profile.memory_slices for profile in table.profiles}
    return {
        slot
        for (name, start), _ in entries
        for slot in range(start, start + length.get(name, 1))
    }


def part_record(part: PartFacts) -> dict[str, Any]:
    """A GPU in parts for `--json`."""
    if isinstance(part, ShareFacts):
        return {
            "gpu": part.gpu,
            "kind": "shared",
            "shares": [
                {"job": job, "gpu_milli": milli, "memory_mib": memory}
                for job, milli, memory in part.shares
            ],
            "left_milli": max(0, 1_000 - part.milli),
            "left_memory_mib": max(0, part.memory_mib - part.memory) if part.memory_mib else None,
            "shares_left": max(0, part.most - len(part.shares)),
        }
    return {
        "gpu": part.gpu,
        "kind": "mig",
        "instances": [
            {"profile": name, "start": start, "job": owner}
            for (name, start), owner in part.instances
        ],
        "free_slices": list(part.free),
        "lost_slices": list(part.lost),
        "room": {name: list(starts) for name, starts in part.room.items()},
    }
