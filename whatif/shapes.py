"""Which jobs fit the same places at any time, so that a round looks for each kind once."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from trencadis.models import Job, Snapshot
from trencadis.whatif.runs import JobRun


def shapes_of(snapshot: Snapshot, runs: Sequence[JobRun]) -> list[int]:
    """A number for each job, equal for jobs that fit the same places."""
    timed = any(node.free_until is not None for node in snapshot.nodes)
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(_key(run.job, timed), len(numbers)) for run in runs]


def _key(job: Job, timed: bool) -> Hashable:
    relaxes = job.topology is not None and job.topology.relax_after_seconds is not None
    return (
        job.request.model_dump_json(),
        job.tasks,
        job.minimum,
        job.gpu_models,
        tuple(job.speed_milli.items()),
        tuple(job.node_selector.items()),
        job.excluded_nodes,
        job.required_nodes,
        frozenset(job.tolerations),
        job.max_tasks_per_node,
        job.exclusive,
        job.nvlink_required,
        job.topology,
        # Where time counts, no two jobs are alike.
        job.name if relaxes or timed else "",
    )
