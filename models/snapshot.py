"""The snapshot: all facts of one moment, and the only input of a round."""

from __future__ import annotations

import hashlib
import json
from typing import Literal

from trencadis.models.base import SCHEMA_VERSION, Instant, Record
from trencadis.models.cluster import Fabric, Licence, Node
from trencadis.models.jobs import Hold, Job
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

    def fingerprint(self) -> str:
        """SHA-256 of the content; the order of the lists of nodes, jobs or queues is no part."""
        parts = self.model_dump(mode="json", exclude_defaults=True)
        for key in ("nodes", "queues", "qos", "licences", "jobs", "holds"):
            if key in parts:
                parts[key] = sorted(json.dumps(entry, sort_keys=True) for entry in parts[key])
        text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()
