"""What a snapshot's parts must agree on; raises every fault, returns what is odd but usable."""

from __future__ import annotations

from trencadis.models.check_allocations import check_allocations
from trencadis.models.check_capacity import check_capacity
from trencadis.models.check_cluster import check_cluster
from trencadis.models.check_jobs import check_jobs
from trencadis.models.check_layouts import check_layouts
from trencadis.models.check_queues import check_queues
from trencadis.models.faults import Fault, InvalidInputError
from trencadis.models.snapshot import Snapshot


def check(snapshot: Snapshot) -> list[Fault]:
    """Warnings. Raises InvalidInputError where the snapshot contradicts itself."""
    faults = [
        *check_cluster(snapshot),
        *check_queues(snapshot),
        *check_jobs(snapshot),
        *check_allocations(snapshot),
    ]
    faults = faults or list(check_layouts(snapshot))
    if faults:
        raise InvalidInputError(faults)
    return check_capacity(snapshot)
