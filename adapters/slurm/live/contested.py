"""Where Slurm may start jobs that aren't ours: there it has to be told what a plan keeps."""

from __future__ import annotations

from collections.abc import Mapping

from trencadis.adapters.live.cluster import Terms
from trencadis.adapters.live.config import Scope
from trencadis.adapters.slurm.fields import Record, entries, states, text
from trencadis.adapters.slurm.hostlist import HostlistError, expand
from trencadis.adapters.slurm.live.records import Prepared


def contested(
    partitions: Record, prepared: Prepared, remembered: Mapping[str, Terms], scope: Scope
) -> frozenset[str]:
    """Nodes of open partitions that are out of scope, or that jobs wait for which Slurm may start.

    A job that we let go, and whose terms are `remembered`, is ours still.
    """
    theirs = {
        partition
        for name, view in prepared.views.items()
        if view.state == "released" and name not in remembered
        for partition in prepared.partitions.get(name, ())
    }
    found: set[str] = set()
    for record in entries(partitions, "partitions", "partitions"):
        name = text(record.get("name"))
        inside = record.get("partition")
        state = inside.get("state") if isinstance(inside, dict) else record.get("state")
        if states(state) & {"DOWN", "INACTIVE"} or (scope.has_pools([name]) and name not in theirs):
            continue
        configured = record.get("nodes")
        if isinstance(configured, dict):
            configured = configured.get("configured")
        try:
            found.update(expand(text(configured)))
        except HostlistError:
            continue  # the import says so
    return frozenset(found)
