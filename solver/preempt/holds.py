"""Delayed starts whose time has come."""

from __future__ import annotations

from trencadis.models import Hold, Snapshot


def due(snapshot: Snapshot) -> tuple[Hold, ...]:
    """Holds of delayed starts that can begin now: nothing is left on what they keep."""
    jobs = {job.name: job for job in snapshot.jobs}
    nodes = {node.name: node for node in snapshot.nodes}
    busy: set[tuple[str, int]] = set()
    unknown: set[str] = set()
    for job in snapshot.jobs:
        if job.on_nodes:
            for task in job.allocation:
                if task.gpus is None and job.request.gpus:
                    unknown.add(task.node)
                busy |= {(task.node, gpu) for gpu in task.gpus or ()}
    draining = {
        task.node for job in snapshot.jobs if job.state == "draining" for task in job.allocation
    }

    def free(hold: Hold) -> bool:
        for task in hold.allocation:
            node = nodes[task.node]
            if node.down or node.cordoned or (task.node in draining and not task.gpus):
                return False
            if task.node in unknown and task.node in draining:
                return False
            if any((task.node, gpu) in busy for gpu in task.gpus or ()):
                return False
        return True

    return tuple(
        hold
        for hold in sorted(snapshot.holds, key=lambda hold: hold.job)
        if hold.kind == "delayed_start"
        and hold.at <= snapshot.now
        and jobs[hold.job].state == "pending"
        and free(hold)
    )
