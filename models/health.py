"""The state of a cluster as a person on call asks for it."""

from __future__ import annotations

from typing import Literal

from trencadis.models.base import SCHEMA_VERSION, Count, Instant, Milli, Name, Names, Record
from trencadis.models.plan import Evidence


class Slots(Record):
    """Room for GPU counts of one model within single domains of one level."""

    model: Name
    level: Name
    """`node`, a level of the fabric, or `cluster`."""
    idle: Count
    """Idle GPUs of the model on nodes that take work."""
    fragmentation_milli: Milli
    """Part of the idle GPUs, thousandths, in domains too small for a job, mean over the jobs."""
    slots: dict[int, int]
    """Number of GPUs asked for at once -> how many such requests fit, one domain each."""


class Stranded(Record):
    """Idle GPUs that no task of the kinds seen can use."""

    node: Name
    model: Name
    gpus: Count
    why: Literal["cpu", "memory", "resources", "cordoned", "exclusive", "held"]


class QueueHealth(Record):
    """A queue against its guarantee."""

    queue: Name
    state: Literal["below", "above"]
    guarantee_milli: Count
    used_milli: Count
    asked_milli: Count
    """By its waiting jobs."""
    seconds: Count
    """Below: how long its oldest waiting job has waited; above: since the use passed the guarantee,
    by what still runs."""


class Doomed(Record):
    """A waiting job that can never run while cluster and limits stay as they are."""

    job: Name
    queue: Name
    code: str
    sentence: str
    evidence: Evidence


class Unsaved(Record):
    """A preemptible running job without checkpoints: what stopping it would lose."""

    job: Name
    queue: Name
    gpus: Count
    lost_gpu_seconds: int


class Health(Record):
    """The answer of `trencadis doctor`."""

    schema_version: Literal[1] = SCHEMA_VERSION
    snapshot: str
    now: Instant
    verdict: Literal["full", "fragmented", "room", "empty"]
    """`full`: at most a fiftieth of the GPUs is idle; `fragmented`: waiting jobs need no more than
    is idle but don't fit; `room`: neither; `empty`: no GPUs."""
    sentence: str
    gpus: Count
    """Healthy, on nodes that are up."""
    allocated: Count
    idle: Count
    """On nodes that take work."""
    active: Count | None = None
    """GPUs at work; absent where no utilisation is known."""
    waiting: Count
    waiting_by_reason: dict[str, int]
    """As if each of them came alone to the present state."""
    fit_now: Count
    """Waiting jobs that would start if they came alone."""
    slots: tuple[Slots, ...] = ()
    stranded: tuple[Stranded, ...] = ()
    queues: tuple[QueueHealth, ...] = ()
    never: tuple[Doomed, ...] = ()
    unsaved: tuple[Unsaved, ...] = ()
    broken_gpus: Count = 0
    nodes_out: Names = ()
    """Down or cordoned."""
