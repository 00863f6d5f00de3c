"""The snapshot: all facts of one moment, and the only input of a round."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Literal

from trencadis.models.base import SCHEMA_VERSION, Instant, Record
from trencadis.models.cluster import Fabric, Licence, Node
from trencadis.models.html import heading, table
from trencadis.models.jobs import Hold, Job
from trencadis.models.order import in_order
from trencadis.models.policy import BudgetUse, Policy
from trencadis.models.queues import Qos, Queue


class Snapshot(Record):
    """A cluster at one instant: what there is, what runs, what waits, and the rules."""

    schema_version: Literal[1] = SCHEMA_VERSION
    now: Instant
    nodes: tuple[Node, ...] = ()
    fabric: Fabric = Fabric()
    queues: tuple[Queue, ...] = ()
    qos: tuple[Qos, ...] = ()
    licences: tuple[Licence, ...] = ()
    jobs: tuple[Job, ...] = ()
    holds: tuple[Hold, ...] = ()
    policy: Policy = Policy()
    budget_use: BudgetUse = BudgetUse()

    @property
    def delayed(self) -> tuple[Hold, ...]:
        """Holds that keep their places now: those of delayed starts. What is reserved is not
        taken before its time."""
        return tuple(hold for hold in self.holds if hold.kind == "delayed_start")

    def fingerprint(self) -> str:
        """SHA-256 of the content; the order of the lists of nodes, jobs or queues is no part."""
        text = in_order(self).model_dump_json(exclude_defaults=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def _repr_html_(self) -> str:
        """For notebooks. `trencadis.show(snapshot)` draws the cluster as well."""
        states = Counter((job.queue, job.state) for job in self.jobs)
        rows = [
            (
                queue.name,
                states[queue.name, "running"] + states[queue.name, "draining"],
                states[queue.name, "pending"] + states[queue.name, "held"],
            )
            for queue in self.queues
        ]
        gpus = sum(len(node.healthy_gpus()) for node in self.nodes if not node.down)
        return heading(
            f"Cluster at {self.now:%Y-%m-%d %H:%M:%S} UTC: {len(self.nodes):,} nodes, {gpus:,} "
            f"GPUs, {len(self.jobs):,} jobs"
        ) + table("Jobs by queue", ("queue", "on nodes", "waiting"), rows)
