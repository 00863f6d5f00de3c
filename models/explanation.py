"""Why a job waits or runs where it does, what would help, and when it may start."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from trencadis.models.base import SCHEMA_VERSION, ByName, Count, Instant, Name, Names, Record
from trencadis.models.jobs import Job, TaskAllocation
from trencadis.models.plan import Evidence


class Reason(StrEnum):
    """What keeps a job waiting; the first that holds, in this order."""

    DEPENDENCY = "dependency"
    """Jobs that it comes after are still there."""
    NOT_BEFORE = "not-before"
    HELD_GPUS = "held-gpus"
    """GPUs are on hold for it; it starts when they are free."""
    SLICES_TALK = "slices-talk"
    """Its tasks communicate, and it asks for MIG slices, which can't."""
    KIND_OF_GPU = "kind-of-gpu"
    """It asks for a MIG slice that no GPU model here has, or for a share where none is shared."""
    GROUP = "group"
    """It would fit, but its group starts as a whole or not at all."""
    NEVER_FITS = "never-fits"
    """Larger than anything that this cluster has."""
    CONSTRAINTS = "constraints"
    """No nodes meet all that it asks for, on the empty cluster either."""
    OUTAGE = "outage"
    """Nodes that it needs are down, cordoned or in poor health."""
    WINDOW = "window"
    """It would not end before nodes that it needs are taken out of service."""
    NEVER_UNDER_LIMIT = "never-under-limit"
    """Larger than a limit that holds for it, or than a licence pool."""
    LIMIT = "limit"
    THROTTLE = "throttle"
    """As many jobs of its array run as may."""
    LICENCE = "licence"
    STRICT_ORDER = "strict-order"
    """Its queue is strict_fifo, and a job ahead of it waits."""
    LENDING = "lending"
    """Idle GPUs are kept for guarantees that queues don't lend."""
    NOT_WORTH_IT = "not-worth-it"
    """It fits, but would cost more in fragmentation than its waiting does."""
    OUTRANKED = "outranked"
    """It fits now, but jobs that the plan starts get the room."""
    DRAINING = "draining"
    """It fits once draining jobs have left."""
    RESERVATION = "reservation"
    """It would fit on GPUs that are on hold for others."""
    BUDGET = "budget"
    """Room could be made for it, but by stopping more than the preemption budget leaves."""
    NOT_ENOUGH_FREE = "not-enough-free"
    """Fewer GPUs are idle, where it may run, than it asks for."""
    FRAGMENTED = "fragmented"
    """Enough GPUs are idle, but in pieces that are too small."""
    MIG_LAYOUT = "mig-layout"
    """Enough of GPUs in MIG mode is idle, but not at starts where the slices may lie."""
    CPU_MEMORY = "cpu-memory"
    """Enough GPUs are idle, but CPU, memory, resources or NVLink beside them are short."""
    TOPOLOGY = "topology"
    """Enough of its tasks fit, but not near enough to each other."""


NEVER = frozenset({Reason.NEVER_FITS, Reason.CONSTRAINTS, Reason.NEVER_UNDER_LIMIT})
"""What no waiting ends while cluster, limits and job stay as they are."""

RemedyKind = Literal["stop", "move", "wait", "shape", "limit", "nodes"]


class Raise(Record):
    """A larger limit."""

    owner: Literal["queue", "qos", "array", "licence", "budget"]
    name: Name
    what: Literal["gpu_milli", "gpus", "jobs", "throttle", "total"]
    """`gpu_milli`: in all, milli-GPU; `gpus`: of one model; else a number. Of the preemption
    budget: `jobs`, from which what it allows at least in a round, an hour and a day follows."""
    model: Name | None = None
    per_user: bool = False
    current: Count
    needed: Count


class Relocation(Record):
    """A running job, and where it would go."""

    job: Name
    to: tuple[TaskAllocation, ...]


class Remedy(Record):
    """A change after which the job starts, with no other waiting job in its way."""

    kind: RemedyKind
    sentence: str
    stop: Names = ()
    """Running jobs to stop."""
    move: tuple[Relocation, ...] = ()
    at: Instant | None = None
    """With `wait`: when it can start, by the estimates."""
    ends: Names = ()
    """With `wait`: the jobs whose end it takes."""
    ask: Job | None = None
    """With `shape`: the job as it would have to ask."""
    raises: tuple[Raise, ...] = ()
    """Limits to raise, with `limit` or beside another kind."""
    add: Count = 0
    """With `nodes`: how many more."""
    like: Name | None = None
    """With `nodes`: nodes such as this one, beside it in the fabric."""
    cost: dict[str, int] = Field(default_factory=dict)
    """What it takes: jobs, gpus, gpu_seconds lost, ..."""
    in_round: bool | None = None
    """Whether the next round, with all that waits, starts the job too; absent: not solved."""
    instead: Names = ()
    """With `in_round` false: some of the jobs that would start instead."""
    cheapest: bool = True
    """Whether nothing cheaper of its kind exists: proven, not only the best found. Shapes have no
    common price: the first that fit are given, the least change first."""


class StartRange(Record):
    """When a waiting job may start. Absent: not within what is known."""

    best: Instant | None = None
    """Nobody else takes what becomes free."""
    likely: Instant | None = None
    """All that waits is served in order, each job as soon as it fits."""
    worst: Instant | None = None
    """All others that wait start first."""
    assumptions: tuple[str, ...] = ()


class Explanation(Record):
    """Everything about one job's place or wait."""

    job: Name
    queue: Name
    state: Literal["pending", "started", "running", "draining", "held"] = "pending"
    code: str
    """Machine-readable reason; `starts` for a job that starts, `runs` for one that runs."""
    sentence: str
    evidence: Evidence = Field(default_factory=dict)
    proof: Literal["rules", "alone-empty", "alone-now", "moved", "plan", "open"]
    """What was solved: `rules`: nothing, the rules forbid it; `alone-empty`: the job alone on the
    emptied cluster; `alone-now`: alone on the present state; `moved`: alone, with all that runs
    allowed to move; `plan`: the round; `open`: not settled with everything allowed to move."""
    conflicts: tuple[str, ...] = ()
    """A smallest set of demands that no nodes meet together; without any one of them some do."""
    remedies: tuple[Remedy, ...] = ()
    no_remedy: ByName[str] = Field(default_factory=dict)
    """Kind -> why none of this kind was found."""
    when: StartRange | None = None
    assumptions: tuple[str, ...] = ()


class ReasonGroup(Record):
    """Waiting jobs that are alike in reason, request and queue."""

    code: str
    queue: Name
    sentence: str
    """Of the first of them."""
    jobs: Names
    gpus: Count
    """GPUs that they ask for together."""


class Report(Record):
    """The answer of `trencadis explain`."""

    schema_version: Literal[1] = SCHEMA_VERSION
    snapshot: str
    now: Instant
    plan: str
    """Which plan decided who starts, and how good it is."""
    jobs: tuple[Explanation, ...] = ()
    groups: tuple[ReasonGroup, ...] = ()
