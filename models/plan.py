"""The plan: the difference from the snapshot, why the rest waits, and how good the plan is."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from trencadis.models.base import SCHEMA_VERSION, ByName, Count, Instant, Name, Record
from trencadis.models.cluster import GpuIndex, MigInstance
from trencadis.models.html import heading, table
from trencadis.models.jobs import TaskAllocation
from trencadis.models.preconditions import (
    REPAIR_PRECONDITIONS,
    START_PRECONDITIONS,
    Precondition,
)

Evidence = dict[str, int | str]
"""Figures behind a sentence."""


class Status(StrEnum):
    """How a stage, or the whole round, ended."""

    OPTIMAL = "OPTIMAL"
    """Objective and bound are equal."""
    GAP = "GAP"
    """Within the gap that was asked for."""
    FEASIBLE = "FEASIBLE"
    """All tried; a gap is left."""
    TIME_LIMIT = "TIME_LIMIT"
    INTERRUPTED = "INTERRUPTED"


class Start(Record):
    """Start a pending job."""

    job: Name
    at: Instant
    allocation: tuple[TaskAllocation, ...]
    """One entry per task."""
    further: Count = 0
    """So many of the last entries are beyond the minimum of an elastic job; what the start says of
    itself is about the others."""
    level: Name = "node"
    """The finest level of the fabric with one domain that holds all tasks; `cluster` at worst."""
    domain: str = ""
    """That domain, as a path."""
    waiting_saved: int = 0
    """Weighted GPU-seconds of waiting that end."""
    spread_cost: int = 0
    """Weighted GPU-seconds lost to distance and slower GPUs."""
    waits_for: tuple[Name, ...] = ()
    """Victims whose GPUs it gets."""
    preconditions: tuple[Precondition, ...] = START_PRECONDITIONS


class Preempt(Record):
    """Stop a running job gracefully."""

    job: Name
    at: Instant
    gpus_free_at: Instant
    makes_room_for: tuple[Name, ...] = ()
    lost_gpu_seconds: int = 0
    preconditions: tuple[Precondition, ...] = (Precondition.JOB_RUNNING_THERE,)


class Resize(Record):
    """Give a running elastic job more tasks, or fewer."""

    job: Name
    at: Instant
    add: tuple[TaskAllocation, ...] = ()
    remove: tuple[TaskAllocation, ...] = ()
    makes_room_for: tuple[Name, ...] = ()
    lost_gpu_seconds: int = 0
    preconditions: tuple[Precondition, ...] = (Precondition.JOB_RUNNING_THERE,)


class Repair(Record):
    """Give a running gang the tasks back that it lost; the others stay where they are."""

    job: Name
    at: Instant
    add: tuple[TaskAllocation, ...]
    """The new tasks."""
    replaces: tuple[TaskAllocation, ...] = ()
    """Tasks that the snapshot still lists, on nodes that are down or GPUs that are unhealthy."""
    level: Name = "node"
    """The finest level of the fabric with one domain that holds the whole gang."""
    domain: str = ""
    """That domain, as a path."""
    waiting_saved: int = 0
    """Weighted GPU-seconds of waiting that end: of the whole gang, which makes no progress."""
    spread_cost: int = 0
    """Weighted GPU-seconds lost to distance by the whole gang, and to missing NVLink by what is
    new."""
    waits_for: tuple[Name, ...] = ()
    """Victims whose GPUs it gets."""
    preconditions: tuple[Precondition, ...] = REPAIR_PRECONDITIONS


class Move(Record):
    """Checkpoint a running job and restart it elsewhere."""

    job: Name
    step: int
    """Moves are carried out in ascending order; those of one step may go at once."""
    to: tuple[TaskAllocation, ...]
    """All its tasks, those that stay where they are as well. A service moves some of its tasks at a
    time, in several steps."""
    idle_gpu_seconds: int = 0
    """What it costs: work since the last checkpoint, the grace and the restart, times its GPUs, or
    the parts of GPUs that it has."""
    fragmentation_before: int = 0
    """F of the cluster when its turn comes, GPU-seconds over the horizon."""
    fragmentation_after: int = 0
    lets_in: tuple[Name, ...] = ()
    """Waiting jobs that fit nowhere now, and fit once this move and those before it are done."""
    preconditions: tuple[Precondition, ...] = (Precondition.JOB_RUNNING_THERE,)


class Reconfigure(Record):
    """Give a GPU another MIG layout: destroy what is not in `after`, then create what is new."""

    node: Name
    gpu: GpuIndex
    step: int
    """Carried out in ascending order, before the starts; GPUs to be reset come first. In a plan of
    moves: as the moves of that step begin."""
    before: tuple[MigInstance, ...]
    after: tuple[MigInstance, ...]
    turn_on: bool = False
    """Turn MIG on first."""
    turn_off: bool = False
    """Turn MIG off, once the instances of `before`, which nobody uses, are destroyed: a start gets
    the whole GPU."""
    reset: bool = False
    """Turning it on or off resets the GPU: the node must be idle."""
    idle_gpu_seconds: int = 0
    """What it costs: the GPU's time while it happens."""


class Reserve(Record):
    """Keep nodes for a job that can't start yet: until then they take only what will have ended,
    and jobs that go before it."""

    job: Name
    at: Instant
    """When, by the estimates, all of it is free."""
    allocation: tuple[TaskAllocation, ...]
    """One entry per task; which GPUs of the node is decided when it starts."""


class Pending(Record):
    """Why a job waits."""

    job: Name
    code: str
    """Machine-readable reason."""
    sentence: str
    evidence: Evidence = Field(default_factory=dict)


class StageProof(Record):
    """How good the plan is in one stage, given what the stages before it achieved."""

    name: Name
    unit: Literal["milli-GPU", "weighted GPU-s", "GPU-s"]
    objective: int
    bound: int
    """No plan that is as good in the earlier stages costs less."""
    do_nothing: int
    """What the stage costs if nothing starts."""
    lost: int = 0
    """What those lose who are told to stop or to shrink; part of the objective."""
    gap: float
    """(objective - bound) / (do_nothing + lost - bound); 0 where these are equal."""
    status: Status
    solve_s: float | None = None
    """Wall time; absent in deterministic mode."""


class Proof(Record):
    """The proof of the whole plan."""

    stages: tuple[StageProof, ...]
    gap: float
    """The largest gap of the stages that decide who starts (all but fragmentation)."""
    status: Status
    growth: StageProof | None = None
    """Tasks of elastic jobs beyond their minimum, given everything else in the plan; absent where
    no job is elastic."""
    bound_scope: Literal["full", "restricted"] = "full"
    """`full`: the bounds are about the problem; `restricted`: about `restricted_to`."""
    restricted_to: str = ""


class ModelCounts(Record):
    """How GPUs of one model are used, before and after."""

    gpus: int
    """Healthy, on nodes that are up."""
    used_before: int
    used_after: int


class Metrics(Record):
    """The cluster in numbers, before and after the plan."""

    gpus: int = 0
    used_before: int = 0
    used_after: int = 0
    fragmentation_before_milli: int = 0
    """Fragmentation rate F / idle, thousandths."""
    fragmentation_after_milli: int = 0
    pending_before: int = 0
    started: int = 0
    broken_before: int = 0
    """Running gangs that lack tasks, where something could be added to them."""
    repaired: int = 0
    """Of those, whose tasks the plan gives back."""
    by_model: ByName[ModelCounts] = Field(default_factory=dict)


class Made(Record):
    """What made the plan, so that it can be made again."""

    trencadis: str
    ortools: str
    seed: int
    deterministic: bool
    workers: int


class Plan(Record):
    """What to do until the next round."""

    schema_version: Literal[1] = SCHEMA_VERSION
    snapshot: str
    """Fingerprint of the snapshot that it is for."""
    now: Instant
    purpose: Literal["round", "defrag"] = "round"
    """`round`: what runs until the next round; `defrag`: moves of running jobs and nothing else."""
    starts: tuple[Start, ...] = ()
    repairs: tuple[Repair, ...] = ()
    preempts: tuple[Preempt, ...] = ()
    resizes: tuple[Resize, ...] = ()
    moves: tuple[Move, ...] = ()
    reconfigures: tuple[Reconfigure, ...] = ()
    reserves: tuple[Reserve, ...] = ()
    pending: tuple[Pending, ...] = ()
    metrics: Metrics = Metrics()
    proof: Proof
    warnings: tuple[str, ...] = ()
    made: Made
    timings_s: dict[str, float] | None = None
    """Wall time by step; absent in deterministic mode."""

    def _repr_html_(self) -> str:
        """For notebooks. `trencadis.show(snapshot, plan)` draws the cluster as well."""
        starts = [
            (start.job, ", ".join(dict.fromkeys(task.node for task in start.allocation)))
            for start in self.starts
        ]
        mended = [
            (repair.job, ", ".join(dict.fromkeys(task.node for task in repair.add)))
            for repair in self.repairs
        ]
        waits = [(entry.job, entry.code, entry.sentence) for entry in self.pending]
        stops = [(stop.job, ", ".join(stop.makes_room_for)) for stop in self.preempts]
        moves = [
            (move.job, ", ".join(dict.fromkeys(task.node for task in move.to)))
            for move in sorted(self.moves, key=lambda move: (move.step, move.job))
        ]
        reserved = [
            (
                entry.job,
                f"{entry.at:%Y-%m-%d %H:%M}",
                ", ".join(dict.fromkeys(task.node for task in entry.allocation)),
            )
            for entry in self.reserves
        ]
        return (
            heading(
                f"Plan for {self.now:%Y-%m-%d %H:%M:%S} UTC: {len(starts):,} to start, "
                f"{len(stops):,} to stop, {len(waits):,} waiting; {self.proof.status}, "
                f"gap {100 * self.proof.gap:.2f} %"
            )
            + table("Starts", ("job", "nodes"), starts)
            + table("Repairs", ("gang", "nodes of its new tasks"), mended)
            + table("Stops", ("job", "makes room for"), stops)
            + table("Moves", ("job", "to"), moves)
            + table("Reserved", ("job", "from", "nodes"), reserved)
            + table("Waits", ("job", "reason", "why"), waits)
        )
