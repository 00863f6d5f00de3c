"""Hypothesis strategies of tiny snapshots in which the rules bind, by family.

A snapshot that a strategy gives is small enough for the brute force of `oracle`. Values come from
short lists, so that sums tie often; demand exceeds supply about half of the time.
"""

from __future__ import annotations

from collections.abc import Iterable

from draw_cluster import NOW, draw_cluster
from draw_jobs import draw_hold, draw_pending, draw_running
from draw_rules import draw_policy, draw_qos, draw_queues
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from pen import Pen
from relabel import renamed, shuffled
from tiny import trim

from trencadis.models import Hold, Job, Licence, Snapshot

__all__ = [
    "ALL",
    "NODES",
    "NOW",
    "PLAIN",
    "QUEUES",
    "SLICES",
    "TOPOLOGY",
    "renamed",
    "shuffled",
    "snapshots",
    "snapshots_all",
    "snapshots_nodes",
    "snapshots_plain",
    "snapshots_queues",
    "snapshots_slices",
    "snapshots_topology",
]

PLAIN = frozenset({"running", "tiers", "aging", "weights", "horizon"})
QUEUES = PLAIN | {
    "queues",
    "parents",
    "limits",
    "lending",
    "users",
    "qos",
    "fifo",
    "usage",
    "arrays",
    "licences",
    "states",
    "groups",
    "elastic",
    "models",
}
TOPOLOGY = frozenset(
    {"running", "weights", "gangs", "fabric", "topology", "segments", "nvlink", "groups", "modes"}
)
NODES = frozenset(
    {
        "running",
        "gangs",
        "cpu",
        "resources",
        "models",
        "labels",
        "names",
        "taints",
        "outages",
        "health",
        "exclusive",
        "nvlink",
        "counted",
        "unhealthy",
        "holds",
        "modes",
        "profile",
        "mig",
    }
)
SLICES = frozenset(
    {"slices", "shares", "running", "cpu", "gangs", "models", "exclusive", "modes", "profile"}
    | {"queues", "limits", "groups", "nvlink", "fabric", "topology", "tiers", "elastic"}
)
NEEDS = {
    "aging": ("tiers",),
    "health": ("gangs",),
    "topology": ("fabric", "gangs"),
    "segments": ("fabric", "gangs"),
    "users": ("queues", "limits"),
    **dict.fromkeys(("parents", "limits", "lending", "fifo", "usage"), ("queues",)),
}
"""Features without which a feature has nothing to act on."""

ALL = PLAIN | QUEUES | TOPOLOGY | NODES | SLICES


@st.composite
def snapshots(draw: DrawFn, features: Iterable[str] = ALL) -> Snapshot:
    """Tiny snapshots with at most eight of these features at a time, else none would bind.

    Without a feature its fields keep their defaults.
    """
    wanted = frozenset(features)
    some = draw(st.lists(st.sampled_from(sorted(wanted)), unique=True, min_size=3, max_size=8))
    if wanted == SLICES:
        some = some[:5] + draw(st.sampled_from((["slices"], ["shares"], ["slices", "shares"])))
    some += [needed for feature in some for needed in NEEDS.get(feature, ())]
    pen = Pen(draw, frozenset(some) | ({"running"} & wanted))
    cluster = draw_cluster(pen)
    queues = draw_queues(pen, cluster)
    qos = draw_qos(pen)
    parents = {queue.parent for queue in queues}
    leaves = [queue.name for queue in queues if queue.name not in parents]
    policy = draw_policy(pen, cluster)
    running = draw_running(pen, cluster, policy, leaves)
    pending = draw_pending(pen, cluster, policy, leaves)
    holds: list[Hold] = []
    jobs: list[Job] = [*running]
    for job in pending:
        hold = draw_hold(pen, cluster, job, running)
        # Two jobs may hope for what the same job leaves; only one of them can hold it.
        if hold is not None and all(hold.allocation != other.allocation for other in holds):
            holds.append(hold)
        jobs.append(job)
    licences: tuple[Licence, ...] = ()
    if any(job.licences for job in jobs):
        licences = (Licence(name="lic", total=pen.of(2, 1, 3), used_elsewhere=pen.of(0, 0, 1, 4)),)
    return trim(
        Snapshot(
            now=NOW,
            nodes=cluster.nodes(),
            fabric=cluster.fabric,
            queues=queues,
            qos=qos,
            licences=licences,
            jobs=tuple(jobs),
            holds=tuple(holds),
            policy=policy,
        )
    )


def snapshots_plain() -> SearchStrategy[Snapshot]:
    """Whole GPUs, one queue: tiers, ageing, weights, running jobs."""
    return snapshots(PLAIN)


def snapshots_queues() -> SearchStrategy[Snapshot]:
    """Guarantees, limits, lending, users, QOS, order, shares, arrays, licences, dependencies."""
    return snapshots(QUEUES)


def snapshots_topology() -> SearchStrategy[Snapshot]:
    """Gangs in a fabric: levels, boundaries, preferences, segments, NVLink."""
    return snapshots(TOPOLOGY)


def snapshots_nodes() -> SearchStrategy[Snapshot]:
    """CPU, memory, resources, models, constraints, exclusive jobs, counted nodes, holds."""
    return snapshots(NODES)


def snapshots_slices() -> SearchStrategy[Snapshot]:
    """MIG slices and shares, with whole GPUs beside them."""
    return snapshots(SLICES)


def snapshots_all() -> SearchStrategy[Snapshot]:
    """Everything together."""
    return snapshots(ALL)
