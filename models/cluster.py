"""What a cluster is: nodes with their GPUs, and the levels of the fabric that joins them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from trencadis.models.base import ByName, Count, Instant, Milli, Name, Positive, Record

GpuIndex = Annotated[int, Field(strict=True, ge=0, le=1023)]


class GpuGroup(Record):
    """GPUs of one model on a node. Indices run on from group to group, from 0."""

    model: Name
    count: Annotated[int, Field(strict=True, ge=1, le=64)]
    memory_mib: Count = 0
    """Memory of one GPU, MiB; 0 where unknown."""
    unhealthy: tuple[GpuIndex, ...] = ()
    """Node-wide indices of GPUs that are broken: they count as absent."""


class NvLink(Record):
    """How the GPUs of a node are joined."""

    kind: Literal["nvswitch", "links", "none"] = "none"
    """`nvswitch`: every pair linked; `links`: the pairs listed; `none`: PCIe only."""
    links: tuple[tuple[GpuIndex, GpuIndex], ...] = ()
    """Linked pairs of GPU indices, with `links` only."""

    @model_validator(mode="after")
    def _links_fit_kind(self) -> NvLink:
        if (self.kind == "links") != bool(self.links):
            raise ValueError("give links exactly when kind is 'links'")
        return self


class MigInstance(Record):
    """One MIG GPU instance: a profile at a start position (memory slice index)."""

    profile: Name
    start: Annotated[int, Field(strict=True, ge=0, le=15)]


class MigGpu(Record):
    """MIG state of one GPU; a GPU that is not listed has MIG off."""

    gpu: GpuIndex
    instances: tuple[MigInstance, ...] = ()


class Taint(Record):
    """A mark that keeps jobs away unless they tolerate it."""

    key: Name
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"


class Window(Record):
    """A span in which a node is out for maintenance."""

    start: Instant
    end: Instant

    @model_validator(mode="after")
    def _in_order(self) -> Window:
        if self.end <= self.start:
            raise ValueError("a window ends after its start")
        return self


class Node(Record):
    """A machine. Capacities are totals; what runs on it is told by the jobs' allocations."""

    name: Name
    gpus: tuple[GpuGroup, ...] = ()
    cpu_milli: Count = 0
    """CPUs, thousandths of one."""
    memory_mib: Count = 0
    resources: ByName[Count] = Field(default_factory=dict)
    """Any other countable resource by name, such as RDMA NICs or pod slots."""
    labels: ByName[str] = Field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    cordoned: bool = False
    """Takes no new work; what runs goes on."""
    down: bool = False
    """Out of service: neither runs nor takes work."""
    free_until: Instant | None = None
    """Only work that ends by then may start here (a lease that ends, maintenance without end)."""
    maintenance: tuple[Window, ...] = ()
    """Spans in which nothing may run here: what would run into one doesn't start."""
    health_score_milli: Milli = 1_000
    """1,000 is healthy; below `policy.poor_health_milli` the node takes no large gang."""
    nvlink: NvLink = NvLink()
    fabric: tuple[Name, ...] = ()
    """Place in the fabric: a domain per level, widest first. Names may repeat in other branches."""
    mig: tuple[MigGpu, ...] = ()
    mig_reconfigure: Literal["forbid", "idle", "repack"] | None = None
    """Whether MIG layouts of this node may change; the policy's where absent."""
    mig_mode_changes: bool = False
    """With `policy.mig.mode: per_node`: whether MIG may be turned on and off here."""
    shareable: bool = False
    """Whether GPUs of this node may be shared by several jobs (MPS, time slicing, vGPU)."""
    max_jobs_per_gpu: Positive = 1
    """With `shareable`: the most jobs on one shared GPU."""
    precision: Literal["node", "gpu", "mig"] = "mig"
    """The finest choice that the owner of this node leaves to us; a plan claims no finer."""

    @property
    def gpu_count(self) -> int:
        """GPUs installed, healthy or not."""
        return sum(group.count for group in self.gpus)

    @property
    def leaves(self) -> bool:
        """Whether it goes at some time, so that it matters when work ends."""
        return self.free_until is not None or bool(self.maintenance)

    def healthy_gpus(self) -> dict[int, str]:
        """Healthy GPUs: index -> model, ascending."""
        healthy: dict[int, str] = {}
        first = 0
        for group in self.gpus:
            for index in range(first, first + group.count):
                if index not in group.unhealthy:
                    healthy[index] = group.model
            first += group.count
        return healthy


class FabricLevel(Record):
    """A level of the fabric tree."""

    name: Name
    kind: Name | None = None
    """Which row of `policy.slowdown_milli` prices it; the level's name where absent."""
    boundary: bool = False
    """A site: no gang may cross from one domain of this level to another."""


class Fabric(Record):
    """The levels between the whole cluster and the node, widest first."""

    levels: tuple[FabricLevel, ...] = ()

    def depth_of(self, level: str) -> int:
        """1 for the widest level; the whole cluster is depth 0. KeyError where unknown."""
        for depth, entry in enumerate(self.levels, start=1):
            if entry.name == level:
                return depth
        raise KeyError(level)


class Licence(Record):
    """A cluster-wide licence pool."""

    name: Name
    total: Count
    used_elsewhere: Count = 0
    """In use by work that this snapshot does not show."""
