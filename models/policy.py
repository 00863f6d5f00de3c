"""What the owner of the cluster wants: tiers, weights, budgets and tolerances, with defaults."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from trencadis.models.base import (
    SCHEMA_VERSION,
    ByName,
    Count,
    Milli,
    Name,
    Names,
    Positive,
    Record,
)
from trencadis.models.jobs import Request, Speed
from trencadis.models.mig import MigTable

Horizon = Annotated[int, Field(strict=True, ge=1, le=31 * 86_400)]

# Estimates of time lost to communication, thousandths, for data-parallel training with overlap.
# NVSwitch, NVL72, PCIe and 400 Gb/s InfiniBand or RoCE per GPU; then slower networks.
DEFAULT_SLOWDOWN_MILLI: dict[str, int] = {
    "nvswitch": 0,
    "nvl72": 10,
    "pcie": 150,
    "leaf": 30,
    "spine": 50,
    "cluster": 100,
    "leaf-8x200": 50,
    "spine-8x200": 80,
    "roce-8x400-leaf": 50,
    "roce-8x400-spine": 80,
    "roce-1x100": 250,
    "ethernet-100g": 350,
    "ethernet-10g": 800,
    "other": 50,
}


class Tier(Record):
    """A priority class."""

    name: Name
    weight: Annotated[int, Field(strict=True, ge=1, le=10_000)] = 1
    """Its weight where tiers share one sum (`priority_mode: weighted`)."""


class DemandEntry(Record):
    """A kind of task that the cluster should stay fit for."""

    request: Request
    gpu_models: Names = ()
    nvlink_required: bool = False
    weight: Positive = 1


class Budget(Record):
    """The most that a round, an hour or a day may disturb."""

    jobs: Count = 10
    jobs_milli_of_running: Milli = 200
    """The budget is the larger of `jobs` and this part of the running jobs."""
    gpus_per_hour_milli: Milli = 50
    """Preempted GPUs in an hour, part of the cluster."""
    jobs_per_day_milli: Milli = 200
    per_job_and_day: Count = 2
    reclaim_jobs: Count = 10
    """Of these jobs, those that stop for no job of a higher tier but for a queue's guarantee."""
    moves: Count = 0
    """Jobs that a plan may move, less those moved in the last hour; 0 turns migration off."""
    lost_gpu_hours_per_day: Count | None = None


class BudgetUse(Record):
    """What earlier rounds of the sliding windows have used."""

    preempted_gpus_last_hour: Count = 0
    preempted_jobs_last_day: Count = 0
    lost_gpu_seconds_last_day: Count = 0
    moves_last_hour: Count = 0


class Preemption(Record):
    """How running work is asked to make room."""

    mode: Literal["graceful", "immediate", "suspend", "none"] = "graceful"
    grace_seconds: Count = 300
    checkpoint_interval_seconds: Positive = 1_800
    restart_seconds: Count = 300
    """Restart on one node."""
    restart_seconds_multi_node: Count = 600
    min_runtime_seconds: Count = 1_800
    budget: Budget = Budget()


class MigPolicy(Record):
    """Whether MIG layouts are ours to change."""

    reconfigure: Literal["forbid", "idle", "repack"] = "idle"
    """`forbid`: layouts stay as they are; `idle`: instances that nobody uses may be destroyed, and
    free slices cut; `repack`: as `idle`. (`trencadis defrag` moves running slices within
    `budget.moves`.)"""
    reconfigure_seconds: Count = 30
    """How long a GPU is busy with a change of its layout."""
    mode: Literal["fixed", "per_node", "free"] = "per_node"
    """Where MIG may be turned on and off: nowhere, on nodes with `mig_mode_changes`, anywhere."""
    mode_seconds: Count = 60
    """How long a GPU is busy with turning MIG on or off."""
    count_by: Literal["compute", "memory"] = "compute"
    """How a slice counts against quotas."""
    tables: ByName[MigTable] = Field(default_factory=dict)
    """Geometry by GPU model, in place of the built-in table."""


class Spare(Record):
    """Idle nodes that are kept for repairs of broken gangs."""

    level: Name
    """A level of the fabric, or `cluster`."""
    nodes: Positive
    """So many nodes of each kind in each domain of that level."""


class Policy(Record):
    """What is optimised, and within which bounds. Every field has a default that works."""

    schema_version: Literal[1] = SCHEMA_VERSION
    tiers: Annotated[tuple[Tier, ...], Field(min_length=1, max_length=32)] = (
        Tier(name="high", weight=16),
        Tier(name="normal", weight=4),
        Tier(name="low", weight=1),
    )
    """From the top."""
    default_tier: Name = "normal"
    priority_mode: Literal["strict", "weighted"] = "strict"
    """`strict`: a tier outranks any amount of lower tiers; `weighted`: one sum."""
    fragmentation: Literal["last", "weighted", "off"] = "last"
    """`last`: only among plans that are equal otherwise; `weighted`: part of the sum."""
    fragmentation_weight_milli: Annotated[int, Field(strict=True, ge=0, le=1_000_000)] = 1_000
    promote_after_seconds: Positive | None = 86_400
    """Waiting this long lifts a job by a tier, each time; absent: never."""
    horizon_seconds: Horizon = 3_600
    """Costs are weighted GPU-seconds over this span, whatever the round's length."""
    round_seconds: Positive = 60
    aging_seconds: Positive = 14_400
    """After this wait a job weighs twice what it weighed at first."""
    short_first_seconds: Positive | None = None
    """Jobs that say they run shorter than this weigh more, in inverse proportion to their time, up
    to a weight of 1,000: this lowers mean waits. Absent: runtimes don't matter to weights."""
    share_floor_milli: Annotated[int, Field(strict=True, ge=1, le=1_000)] = 100
    """Weight of the part of a queue above its entitlement."""
    slowdown_milli: ByName[Milli] = Field(
        default_factory=lambda: dict(sorted(DEFAULT_SLOWDOWN_MILLI.items()))
    )
    """Time lost to communication, by kind of the widest level that a job spans."""
    missed_preference_milli: Milli = 40
    """Added where a preferred level is missed."""
    gpu_speed_milli: ByName[Speed] = Field(default_factory=dict)
    """Relative speed of GPU models; 1,000 where absent."""
    demand_profile: tuple[DemandEntry, ...] = ()
    """Kinds of task for fragmentation; the snapshot's own tasks where empty."""
    poor_health_milli: Milli = 500
    large_gang_gpus: Positive = 16
    """Gangs of at least so many GPUs keep off nodes in poor health."""
    elastic_milli: Milli = 500
    """Worth of a further task of an elastic job to one of its minimum; less with each that it has.
    0: elastic jobs are left at the tasks they have."""
    reservations: Count = 0
    """So many of the waiting jobs that come first get a reservation: nodes, and a time. Jobs behind
    them then start on these nodes only if they end by that time."""
    runtime_unknown: Literal["hold", "queue_median"] = "hold"
    """What is assumed of a job that doesn't say how long it runs: that it stays (`hold`), or the
    median of what other jobs of its queue say."""
    repairs: bool = True
    """Whether running gangs that lost tasks to broken nodes get them back. False: where nothing
    can add tasks to a running job."""
    spares: tuple[Spare, ...] = ()
    """Idle nodes that no job starts on, so that repairs find room. Without `repairs` there are
    none."""
    preemption: Preemption = Preemption()
    mig: MigPolicy = MigPolicy()
    time_limit_seconds: Positive = 30
    gap_micro: Annotated[int, Field(strict=True, ge=0, le=1_000_000)] = 100
    """A stage is good enough at this gap, millionths."""

    @model_validator(mode="after")
    def _consistent(self) -> Policy:
        names = [tier.name for tier in self.tiers]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"tier names must differ; given twice: {', '.join(twice)}")
        if self.default_tier not in names:
            raise ValueError(f"default_tier {self.default_tier!r} is not one of the tiers {names}")
        levels = [self.slowdown(kind) for kind in (*self.slowdown_milli, "other")]
        worst = max(levels) + self.slowdown("pcie") + self.missed_preference_milli
        if worst >= 1_000:
            raise ValueError(
                "slowdown_milli: the largest level, pcie and missed_preference_milli add up to "
                f"{worst}; keep the sum below 1000, so that running anywhere beats waiting"
            )
        return self

    def slowdown(self, kind: str) -> int:
        """Thousandths of time lost at a level of this kind; unknown kinds count as `other`."""
        table = self.slowdown_milli
        for key in (kind, "other"):
            if key in table:
                return table[key]
        return DEFAULT_SLOWDOWN_MILLI.get(kind, DEFAULT_SLOWDOWN_MILLI["other"])
