"""What follows from the snapshot alone: units, eligible jobs, tiers, share factors, states."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain

from trencadis.models import Job, Missing, Node, Snapshot, TaskAllocation
from trencadis.models.base import seconds
from trencadis.models.reckoned import reckoned
from trencadis.solver.verify.demand import ineligible, tier_of
from trencadis.solver.verify.fabric import Levels, common, levels_of
from trencadis.solver.verify.knife import Knife
from trencadis.solver.verify.mend import mended
from trencadis.solver.verify.share import entitlements, share_factors
from trencadis.solver.verify.supply import NodeState, survey
from trencadis.solver.verify.tree import Tree, tree_of
from trencadis.solver.verify.units import Ask, Scale, has_mig, scale_of, task_count

Row = tuple[str, str | None]
"""A queue, and a GPU model or None for all."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A job on nodes: one that runs or drains, or one that the plan starts."""

    job: Job
    ask: Ask
    tasks: tuple[TaskAllocation, ...]
    model: str | None
    """GPU model; None without GPUs, or where it can't be told."""
    depth: int
    path: tuple[str, ...]
    """The finest domain with all tasks."""

    @property
    def units(self) -> int:
        """Quota units."""
        return len(self.tasks) * self.ask.units


@dataclass(frozen=True, slots=True)
class Situation:
    """The snapshot, worked out."""

    snapshot: Snapshot
    now: int
    scale: Scale
    levels: Levels
    tree: Tree
    jobs: Mapping[str, Job]
    asks: Mapping[str, Ask]
    eligible: Mapping[str, Job]
    ineligible: Mapping[str, str]
    """Pending or held job -> why it may not start."""
    submits: Mapping[str, int]
    """When each job was submitted, seconds since 1970."""
    waited: Mapping[str, int]
    tiers: Mapping[str, int]
    """Tier of each job that is eligible, runs or drains."""
    shares: Mapping[str, int]
    """Share factor of each eligible job, thousandths."""
    entitled: Mapping[str, int]
    """Entitlement of each queue in units, rounded down."""
    states: Mapping[str, NodeState]
    """Nodes before any start."""
    knife: Knife
    """Answers about MIG and shares."""
    running: tuple[Placed, ...]
    """Jobs that run or drain."""
    leaf_use: Mapping[Row, int]
    """Quota units that these use, by queue and by model."""
    labels_read: tuple[tuple[str, frozenset[str]], ...]
    """Label keys that an eligible job selects by, with the values asked for."""
    nodes_named: frozenset[str]
    """Nodes that eligible jobs require or exclude by name."""
    reserved: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By job: the nodes that a plan reserves for it."""

    def units(self, job: Job) -> int:
        """Quota units of a job."""
        return task_count(job) * self.asks[job.name].units

    def tier_weight(self, job: Job) -> int:
        """The weight of the job's tier in the sum of its stage."""
        policy = self.snapshot.policy
        return policy.tiers[self.tiers[job.name]].weight if policy.priority_mode != "strict" else 1

    def weight(self, job: Job) -> int:
        """W_j: what a waiting job weighs inside its tier, thousandths."""
        span, weight = self.snapshot.policy.short_first_seconds, job.weight_milli
        if span is not None and job.runtime_seconds is not None:
            weight = max(weight, weight * span // job.runtime_seconds)
        return min(weight, 1_000_000)


def situate(snapshot: Snapshot) -> Situation:
    """Work out what the plan doesn't change; broken gangs as two jobs each."""
    snapshot = mended(reckoned(snapshot))
    now, policy = seconds(snapshot.now), snapshot.policy
    scale, levels, tree = scale_of(snapshot), levels_of(snapshot), tree_of(snapshot)
    asks = _asks(snapshot, scale)
    reasons = ineligible(snapshot, asks)
    jobs = {job.name: job for job in snapshot.jobs}
    eligible = {
        name: job for name, job in jobs.items() if job.state == "pending" and name not in reasons
    }
    on_nodes = [job for job in snapshot.jobs if job.on_nodes]
    submits = {name: seconds(job.submit) for name, job in jobs.items()}
    waited = {name: max(0, now - submit) for name, submit in submits.items()}
    index = {tier.name: i for i, tier in enumerate(policy.tiers)}
    tiers = {
        job.name: tier_of(job, waited[job.name], policy, index)
        for job in chain(on_nodes, eligible.values())
    }
    used: dict[str, int] = {}
    wanted: dict[str, int] = {}
    for job in on_nodes:
        units = len(job.allocation) * asks[job.name].units
        used[job.queue] = used.get(job.queue, 0) + units
    counts = {name: job.minimum * asks[name].units for name, job in eligible.items()}
    for name, job in eligible.items():
        wanted[job.queue] = wanted.get(job.queue, 0) + counts[name]
    entitled = entitlements(tree, scale, used, wanted)
    shares = share_factors(
        [(job, (tiers[name], submits[name]), counts[name]) for name, job in eligible.items()],
        used,
        entitled,
        policy.share_floor_milli,
    )
    shares |= {name: 1_000 for name, job in eligible.items() if isinstance(job, Missing)}
    nodes = {node.name: node for node in snapshot.nodes}
    running = tuple(
        place(job, asks[job.name], job.allocation, nodes, levels)
        for job in on_nodes
        if job.allocation
    )
    leaf_use: dict[Row, int] = {}
    add_use(leaf_use, running)
    labels: dict[str, set[str]] = {}
    named: set[str] = set()
    for job in eligible.values():
        for key, value in job.node_selector.items():
            labels.setdefault(key, set()).add(value)
        named.update(job.required_nodes, job.excluded_nodes)
    return Situation(
        snapshot=snapshot,
        now=now,
        scale=scale,
        levels=levels,
        tree=tree,
        jobs=jobs,
        asks=asks,
        eligible=eligible,
        ineligible=reasons,
        submits=submits,
        waited=waited,
        tiers=tiers,
        shares=shares,
        entitled={name: int(value) for name, value in entitled.items()},
        states=survey(snapshot, on_nodes, asks, scale.tables),
        knife=Knife(snapshot, scale.tables),
        running=running,
        leaf_use=leaf_use,
        labels_read=tuple((key, frozenset(values)) for key, values in labels.items()),
        nodes_named=frozenset(named),
    )


def add_use(leaves: dict[Row, int], placed: Iterable[Placed]) -> None:
    """Add the quota units of these jobs, in all and on their model, by queue."""
    for entry in placed:
        units, queue = entry.units, entry.job.queue
        if units:
            leaves[queue, None] = leaves.get((queue, None), 0) + units
            if entry.model is not None:
                leaves[queue, entry.model] = leaves.get((queue, entry.model), 0) + units


def place(
    job: Job,
    ask: Ask,
    tasks: tuple[TaskAllocation, ...],
    nodes: Mapping[str, Node],
    levels: Levels,
) -> Placed:
    """The job on these places; what a gang lacks is as near as the whole gang is."""
    if isinstance(job, Missing):
        together = {*(task.node for task in tasks), *job.beside}
        depth, path = common(levels, [nodes[name] for name in sorted(together)])
    elif len(tasks) == 1:
        node = nodes[tasks[0].node]
        depth, path = levels.node, (*node.fabric, node.name)
    else:
        depth, path = common(levels, [nodes[name] for name in {task.node for task in tasks}])
    return Placed(job, ask, tasks, model_of(job, ask, tasks, nodes), depth, path)


def model_of(
    job: Job, ask: Ask, tasks: Iterable[TaskAllocation], nodes: Mapping[str, Node]
) -> str | None:
    """The model of the first index named, else a node's only model, else the only one allowed."""
    if not ask.on_gpus:
        return None
    only: str | None = None
    for task in tasks:
        groups = nodes[task.node].gpus
        if task.gpus:
            return installed(nodes[task.node], task.gpus[0])
        if only is None and groups and all(g.model == groups[0].model for g in groups):
            only = groups[0].model
    if only is None and len(job.gpu_models) == 1:
        only = job.gpu_models[0]
    return only


def installed(node: Node, gpu: int) -> str | None:
    """The model of the GPU with this index, healthy or not; None where there is none."""
    for group in node.gpus:
        if gpu < group.count:
            return group.model
        gpu -= group.count
    return None


def _asks(snapshot: Snapshot, scale: Scale) -> dict[str, Ask]:
    """Each job's request as a value; equal ones are one object, so that look-ups stay cheap."""
    pool: dict[tuple[int, int, int], Ask] = {}
    asks = {}
    for job in snapshot.jobs:
        request = job.request
        if request.share or request.resources or has_mig(request):
            asks[job.name] = scale.ask(request)
            continue
        key = (request.gpus, request.cpu_milli, request.memory_mib)
        ask = pool.get(key)
        if ask is None:
            ask = pool[key] = scale.ask(request)
        asks[job.name] = ask
    return asks
