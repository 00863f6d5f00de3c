"""Which nodes a job may use at all: labels, taints, names, time left, health."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from trencadis.models import Job, Node, Snapshot, Taint, Toleration
from trencadis.models.base import seconds
from trencadis.models.spares import EFFECT
from trencadis.solver.fabric import slowdown_at, tree
from trencadis.solver.reserve.kept import NOTHING_KEPT, Kept
from trencadis.solver.worth import rates


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether the toleration covers the taint. Spares are open to none but repairs."""
    if taint.effect == EFFECT:
        return toleration.effect == EFFECT
    return (
        toleration.key in (None, taint.key)
        and toleration.value in (None, taint.value)
        and toleration.effect in (None, taint.effect)
    )


@dataclass(frozen=True, slots=True)
class Admission:
    """Nodes in columns: two nodes of one column are open to the same jobs."""

    column: Mapping[str, int]
    """By node name."""
    masks: Mapping[str, int]
    """By job name: bit c is set if the job may use nodes of column c."""
    near: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Of what a broken gang lacks: the same by depth, for nodes that share a domain of that depth
    with all the rest of the gang."""


def admission(
    snapshot: Snapshot,
    jobs: Iterable[Job],
    nodes: Iterable[Node],
    kept: Kept = NOTHING_KEPT,
) -> Admission:
    """Sorts nodes into columns and tells each job its columns. `kept`: for reservations."""
    policy = snapshot.policy
    job_list, node_list = list(jobs), list(nodes)
    selected = {key for job in job_list for key in job.node_selector}
    named = {name for job in job_list for name in (*job.required_nodes, *job.excluded_nodes)}
    now = seconds(snapshot.now)
    leaves = {node.name: leaves_at(node, now) for node in node_list}
    ends = sorted({end for end in leaves.values() if end is not None})

    gangs = [job for job in job_list if job.rest_on]
    depths = _depths(snapshot, gangs, node_list)
    deepest = len(snapshot.fabric.levels) + 1

    def job_key(job: Job) -> Hashable:
        end = None if job.runtime_seconds is None else now + job.runtime_seconds
        late = len(ends) if end is None else sum(1 for e in ends if e < end)
        large = job.gang_size > 1 and job.gang_size * job.request.gpus >= policy.large_gang_gpus
        return (
            tuple(sorted(job.node_selector.items())),
            frozenset(job.excluded_nodes),
            frozenset(job.required_nodes),
            frozenset(job.tolerations),
            late,
            large,
            kept.bars(job),
        )

    def node_key(node: Node) -> Hashable:
        return (
            tuple((key, node.labels.get(key)) for key in sorted(selected)),
            tuple(taint for taint in node.taints if taint.effect != "PreferNoSchedule"),
            leaves[node.name],
            node.health_score_milli < policy.poor_health_milli,
            node.name if node.name in named else "",
            kept.on(node.name),
            depths.get(node.name, ()),
        )

    job_keys: dict[Hashable, Job] = {}
    key_of_job = {job.name: job_key(job) for job in job_list}
    for job in job_list:
        job_keys.setdefault(key_of_job[job.name], job)
    node_keys: dict[Hashable, Node] = {}
    key_of_node = {node.name: node_key(node) for node in node_list}
    for node in node_list:
        node_keys.setdefault(key_of_node[node.name], node)
    askers = [(job, kept.bars(job)) for job in job_keys.values()]

    def verdict(node: Node) -> tuple[bool, ...]:
        mine = kept.on(node.name)
        return tuple(
            bars.isdisjoint(mine)
            and _admits(job, node, now, policy.poor_health_milli, policy.large_gang_gpus)
            for job, bars in askers
        ) + tuple(
            depth >= level for depth in depths.get(node.name, ()) for level in range(deepest + 1)
        )

    verdicts = {key: verdict(node) for key, node in node_keys.items()}
    columns = {each: i for i, each in enumerate(sorted(set(verdicts.values())))}
    masks = {
        key: sum(1 << c for verdict, c in columns.items() if verdict[i])
        for i, key in enumerate(job_keys)
    }

    def near(position: int, job: Job) -> tuple[int, ...]:
        mask, first = masks[key_of_job[job.name]], len(askers) + position * (deepest + 1)
        return tuple(
            mask & sum(1 << c for verdict, c in columns.items() if verdict[first + level])
            for level in range(deepest + 1)
        )

    return Admission(
        column={name: columns[verdicts[key]] for name, key in key_of_node.items()},
        masks={name: masks[key] for name, key in key_of_job.items()},
        near={job.name: near(position, job) for position, job in enumerate(gangs)},
    )


def _depths(
    snapshot: Snapshot, gangs: Sequence[Job], nodes: Iterable[Node]
) -> dict[str, tuple[int, ...]]:
    """By node: the depth of each gang's rest together with the node; of depths that cost the same
    the coarsest."""
    if not gangs:
        return {}
    fabric, table = tree(snapshot), rates(snapshot)
    coarsest: list[list[int]] = []
    for gang in gangs:
        prices = [slowdown_at(snapshot, gang, table, fabric, d) for d in range(fabric.depth + 2)]
        # Depths of one price tell no nodes apart.
        coarsest.append([prices.index(price) for price in prices])
    return {
        node.name: tuple(
            coarse[fabric.common_depth((*gang.rest_on, node.name))]
            for gang, coarse in zip(gangs, coarsest, strict=True)
        )
        for node in nodes
    }


def leaves_at(node: Node, now: int) -> int | None:
    """Until when work that starts now may stay: `free_until`, or the next maintenance; None: for
    ever. Inside a window that is before now, so nothing starts."""
    ends = [] if node.free_until is None else [seconds(node.free_until)]
    for window in node.maintenance:
        if now < seconds(window.end):
            ends.append(seconds(window.start) if now < seconds(window.start) else now - 1)
    return min(ends, default=None)


def _admits(job: Job, node: Node, now: int, poor: int, large_gang: int) -> bool:
    if any(node.labels.get(key) != value for key, value in job.node_selector.items()):
        return False
    if node.name in job.excluded_nodes:
        return False
    if job.required_nodes and node.name not in job.required_nodes:
        return False
    for taint in node.taints:
        if taint.effect == "PreferNoSchedule":
            continue
        if not any(tolerates(toleration, taint) for toleration in job.tolerations):
            return False
    leaves = leaves_at(node, now)
    if leaves is not None and (
        job.runtime_seconds is None or now + job.runtime_seconds > leaves
    ):
        return False
    large = job.gang_size > 1 and job.gang_size * job.request.gpus >= large_gang
    return not (large and node.health_score_milli < poor)
