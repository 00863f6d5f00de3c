"""What a job is: tasks with a request each, where they may run, and what has become of them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from trencadis.models.base import (
    MAX_COUNT,
    ByName,
    Count,
    Instant,
    Milli,
    Name,
    Names,
    Positive,
    Record,
)
from trencadis.models.cluster import GpuIndex, MigInstance

Speed = Annotated[int, Field(strict=True, ge=1, le=1_000_000)]
"""Relative speed in thousandths; only ratios between models matter."""


class Share(Record):
    """A part of one GPU that several jobs share."""

    gpu_milli: Annotated[int, Field(strict=True, ge=1, le=1_000)]
    memory_mib: Count = 0


class Request(Record):
    """What one task needs. At most one of `gpus`, `mig`, `mig_memory_mib` and `share`."""

    gpus: Annotated[int, Field(strict=True, ge=0, le=1_024)] = 0
    """Whole GPUs, all on one node."""
    mig: tuple[Name, ...] = ()
    """MIG profiles, each an instance of its own, on one node."""
    mig_memory_mib: Count = 0
    """Any MIG instance with at least this memory, MiB."""
    mig_compute_milli: Milli = 0
    """With `mig_memory_mib` or alone: at least this compute fraction."""
    share: Share | None = None
    cpu_milli: Count = 0
    memory_mib: Count = 0
    resources: ByName[Positive] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_kind_of_gpu(self) -> Request:
        kinds = (
            bool(self.gpus),
            bool(self.mig),
            bool(self.mig_memory_mib or self.mig_compute_milli),
            self.share is not None,
        )
        if sum(kinds) > 1:
            raise ValueError("a task asks for whole GPUs, MIG or a share, not for two of them")
        return self


class Toleration(Record):
    """Lets a job onto nodes with a taint; an absent key tolerates all."""

    key: Name | None = None
    value: str | None = None
    """The taint's value; any where absent."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None


class Topology(Record):
    """How near to each other the tasks of a job must be."""

    level: Name
    """A level of the fabric, or `node`."""
    mode: Literal["required", "preferred"] = "preferred"
    relax_after_seconds: Count | None = None
    """With `required`: only preferred once the job has waited this long."""


class Segments(Record):
    """Tasks in groups of `tasks`, each group inside one domain of `level`."""

    tasks: Positive
    level: Name


class DomainCap(Record):
    """At most `tasks` tasks of a job in one domain of `level`."""

    level: Name
    """A level of the fabric; for nodes there is `max_tasks_per_node`."""
    tasks: Positive


class Checkpoint(Record):
    """What a job can save when it is asked to stop."""

    last: Instant | None = None
    interval_seconds: Positive | None = None
    size_mib: Count | None = None
    on_signal: bool = False
    """Writes a checkpoint when told to stop, within its grace."""


class TaskAllocation(Record):
    """Where one task runs."""

    node: Name
    gpus: tuple[GpuIndex, ...] | None = None
    """GPU indices; absent where only the count is known. With `mig`, the GPU of each instance."""
    mig: tuple[MigInstance, ...] = ()
    """MIG instances, in the order of `gpus`."""
    share: Share | None = None
    expected: tuple[GpuIndex, ...] | None = None
    """Where GPUs may be shared and their owner chooses them: those that the plan reckons with. A
    witness that all of it fits; no one is told, and others may turn out."""


class ArrayRef(Record):
    """Jobs of one array; at most `throttle` of them run at once."""

    name: Name
    throttle: Positive


class Job(Record):
    """A job: `tasks` interchangeable tasks that start together."""

    name: Name
    queue: Name
    user: Name = "unknown"
    qos: Name | None = None
    priority: Name | None = None
    """A tier of the policy; the policy's default where absent."""
    weight_milli: Annotated[int, Field(strict=True, ge=1_000, le=1_000_000)] = 1_000
    """Weight inside the tier, thousandths; 1,000 or more."""
    submit: Instant
    tasks: Annotated[int, Field(strict=True, ge=1, le=100_000)] = 1
    min_tasks: Positive | None = None
    """Elastic: may run with as few; absent: a gang, all or none."""
    request: Request = Request()
    gpu_models: Names = ()
    """Allowed GPU models; any where empty. All tasks run on one model."""
    speed_milli: ByName[Speed] = Field(default_factory=dict)
    """Relative speed by GPU model; the policy's value where absent."""
    node_selector: ByName[str] = Field(default_factory=dict)
    excluded_nodes: Names = ()
    required_nodes: Names = ()
    """Runs on these nodes only; on any where empty."""
    tolerations: tuple[Toleration, ...] = ()
    max_tasks_per_node: Positive | None = None
    max_tasks_per_domain: DomainCap | None = None
    """Keeps replicas apart: a rack, row or site that fails takes no more of them with it."""
    exclusive: bool = False
    """Shares its nodes with no other job."""
    nvlink_required: bool = False
    """The GPUs of each task must be joined by NVLink."""
    communicates: bool = True
    """Whether the tasks talk to each other, so that distance slows them."""
    topology: Topology | None = None
    segments: Segments | None = None
    group: Name | None = None
    """Pending jobs of one group start together or not at all."""
    after: Names = ()
    """Jobs that must have left the snapshot before this one may start."""
    not_before: Instant | None = None
    array: ArrayRef | None = None
    licences: ByName[Positive] = Field(default_factory=dict)
    runtime_seconds: Annotated[int, Field(strict=True, ge=1, le=MAX_COUNT)] | None = None
    """Estimate, or limit, of the whole run."""
    min_replicas: Count = 0
    """A service: never below this many tasks."""
    preemptible: bool = True
    requeueable: bool = True
    grace_seconds: Count | None = None
    checkpoint: Checkpoint | None = None
    preempted: Count = 0
    """How often it has been preempted."""
    preempted_at: Instant | None = None
    state: Literal["pending", "held", "running", "draining"] = "pending"
    start: Instant | None = None
    drain_ends: Instant | None = None
    allocation: tuple[TaskAllocation, ...] = ()

    @property
    def minimum(self) -> int:
        """The fewest tasks it can run with."""
        return self.tasks if self.min_tasks is None else self.min_tasks

    @property
    def gang_size(self) -> int:
        """Tasks of the whole gang that must be together."""
        return self.minimum

    @property
    def rest_on(self) -> tuple[Name, ...]:
        """Nodes of tasks of its gang that run already and are not part of it."""
        return ()

    @property
    def on_nodes(self) -> bool:
        """Whether it occupies its allocation now."""
        return self.state in ("running", "draining")


class Hold(Record):
    """What is kept for one job: GPUs of a delayed start, at once; or nodes of a reservation, from
    its time on. A reservation of the snapshot keeps its nodes in the next plan where it can."""

    job: Name
    kind: Literal["delayed_start", "reservation"] = "delayed_start"
    at: Instant
    """When the job is to start on it."""
    allocation: tuple[TaskAllocation, ...]
