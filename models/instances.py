"""Which MIG instances jobs have: a node's own list may lack them."""

from __future__ import annotations

from collections import defaultdict

from trencadis.models.cluster import MigInstance
from trencadis.models.snapshot import Snapshot

Held = dict[tuple[str, int], set[MigInstance]]
"""(node, GPU) -> instances."""


def held_instances(snapshot: Snapshot) -> Held:
    """Instances that running, draining and held tasks have."""
    found: defaultdict[tuple[str, int], set[MigInstance]] = defaultdict(set)
    tasks = [task for job in snapshot.jobs if job.on_nodes for task in job.allocation]
    tasks += [task for hold in snapshot.delayed for task in hold.allocation]
    for task in tasks:
        for gpu, instance in zip(task.gpus or (), task.mig, strict=False):
            found[task.node, gpu].add(instance)
    return dict(found)
