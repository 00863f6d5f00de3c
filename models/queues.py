"""What a queue is: a share of the cluster with a guarantee, limits and an order."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from trencadis.models.base import ByName, Count, Name, Positive, Record


class Quota(Record):
    """GPUs, in all and by model. MIG slices and shares count by compute fraction."""

    gpus: Count | None = None
    """In all; none where absent."""
    by_model: ByName[Count] = Field(default_factory=dict)
    gpu_milli: Count | None = None
    """In all, in thousandths of a GPU: for quotas finer than a GPU. Outranks `gpus`."""

    def total_milli(self) -> int | None:
        """The quota in all, milli-GPU; None where there is none."""
        if self.gpu_milli is not None:
            return self.gpu_milli
        return None if self.gpus is None else self.gpus * 1_000


class Limits(Record):
    """What may be in use at once; each is hard."""

    quota: Quota = Quota()
    quota_per_user: Quota = Quota()
    jobs: Count | None = None
    jobs_per_user: Count | None = None


class Queue(Record):
    """A queue, or a node of the tree of queues. Jobs belong to leaves."""

    name: Name
    parent: Name | None = None
    weight: Positive = 1
    """Share of the surplus among siblings."""
    guarantee: Quota = Quota()
    """GPUs the queue may always have if it asks for them."""
    limit: Limits = Limits()
    lending_limit: Quota | None = None
    """How much of an unused guarantee others may borrow; absent: all, 0: none."""
    past_usage_gpu_hours: Count = 0
    """Decayed usage before the snapshot's instant."""
    order: Literal["best_effort", "strict_fifo"] = "best_effort"


class Qos(Record):
    """A quality of service that jobs name, with limits of its own."""

    name: Name
    limit: Limits = Limits()
