"""Delayed starts whose time has come."""

from __future__ import annotations

from collections import Counter

from trencadis.models import Hold, Snapshot


def due(snapshot: Snapshot) -> tuple[Hold, ...]:
    """Holds of delayed starts that can begin now: nothing is left on what they keep."""
    jobs = {job.name: job for job in snapshot.jobs}
    nodes = {node.name: node for node in snapshot.nodes}
    busy: set[tuple[str, int]] = set()
    used: Counter[str] = Counter()
    for job in snapshot.jobs:
        if job.on_nodes:
            for task in job.allocation:
                used[task.node] += job.request.gpus
                busy |= {(task.node, gpu) for gpu in task.gpus or ()}

    def free(hold: Hold) -> bool:
        wanted: Counter[str] = Counter()
        for task in hold.allocation:
            wanted[task.node] += jobs[hold.job].request.gpus
            if any((task.node, gpu) in busy for gpu in task.gpus or ()):
                return False
        return all(
            not (nodes[name].down or nodes[name].cordoned)
            and used[name] + gpus <= len(nodes[name].healthy_gpus())
            for name, gpus in wanted.items()
        )

    return tuple(
        hold
        for hold in sorted(snapshot.delayed, key=lambda hold: hold.job)
        if hold.at <= snapshot.now
        and jobs[hold.job].state == "pending"
        and free(hold)
    )
