"""What a placed job loses to distance, to slower GPUs and to missing NVLink."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trencadis.models import Job, Node, TaskAllocation
from trencadis.solver.fabric import slowdown_at
from trencadis.solver.gpus import link_graph
from trencadis.solver.model.problem import Facts
from trencadis.solver.worth import rest_of, size_of, speeds, tier_of


def spread_cost(
    facts: Facts,
    job: Job,
    tasks: Sequence[TaskAllocation],
    model: str | None,
    nodes: Mapping[str, Node],
) -> int:
    """Weighted GPU-seconds over the horizon, docs/problem.md section 5."""
    rates, fabric, supply = facts.values.rates, facts.fabric, facts.capacity
    tier = tier_of(facts.snapshot, job)
    size = size_of(job, job.gang_size if job.rest_on else len(tasks), rates, supply)
    rest = rest_of(facts.snapshot, job)
    speed = 1_000
    if model is not None:
        # A job may run on a model that it would not be started on; it is compared all the same.
        speed = speeds(facts.snapshot, job, supply.gpus_by_model, model)[model]
    depth = fabric.common_depth((*(task.node for task in tasks), *job.rest_on))

    def at(level: int) -> int:
        slow = slowdown_at(facts.snapshot, job, rates, fabric, level)
        return rates.spread(tier, size, rest, speed, slow)

    each = job.request.gpus
    apart = sum(
        rates.unlinked(tier, each, rest, speed)
        for task in tasks
        if not _linked(nodes[task.node], task.gpus, each)
    )
    if depth <= fabric.depth or len(tasks) < 2 or not job.communicates or job.rest_on:
        return at(depth) + apart
    indices = [task.gpus for task in tasks]
    together: tuple[int, ...] | None = None
    if all(part is not None for part in indices):
        together = tuple(i for part in indices for i in part or ())
    whole = 0
    if not _linked(nodes[tasks[0].node], together, each * len(tasks)):
        whole = rates.unlinked(tier, each * len(tasks), rest, speed)
    return min(at(depth) + whole, at(fabric.depth) + apart)


def _linked(node: Node, gpus: tuple[int, ...] | None, count: int) -> bool:
    """Whether NVLink joins a set of that many GPUs of a node."""
    if count < 2 or node.nvlink.kind == "nvswitch":
        return True
    if node.nvlink.kind == "none" or not gpus or node.precision == "node":
        return False
    graph = link_graph(node.nvlink, node.gpu_count, one_model=False)
    return graph.linked(sum(1 << i for i in gpus))
