"""What waiting, running and fragmentation cost, and the targets of guarantees (§5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from oracle.facts import Facts, ceil_div, instant
from oracle.ground import Ground, NodeState, is_linked, needs
from oracle.parts import idle_units, is_whole, new_part
from oracle.parts import usable as part_usable
from trencadis.models import Job, Missing, Node, Queue, Quota, Request, TaskAllocation


def tier_weight(facts: Facts, job: Job) -> int:
    """`tw`."""
    if facts.policy.priority_mode == "strict":
        return 1
    return facts.policy.tiers[facts.tier(job)].weight


def waiting_weight(facts: Facts, job: Job) -> int:
    """`W_j`."""
    weight = job.weight_milli
    if facts.policy.short_first_seconds and job.runtime_seconds:
        weight = max(weight, weight * facts.policy.short_first_seconds // job.runtime_seconds)
    return min(weight, 1_000_000)


def wait(facts: Facts, job: Job, share: int) -> int:
    tau = facts.policy.aging_seconds
    cost = tier_weight(facts, job) * waiting_weight(facts, job) * (tau + facts.waited(job)) * share
    cost *= facts.size(job) * facts.policy.horizon_seconds
    return max(1, ceil_div(cost, 1_000 * tau * 1_000 * facts.U))


def seconds_left(facts: Facts, job: Job) -> int:
    """`h`: how much of the horizon the job fills."""
    horizon = facts.policy.horizon_seconds
    if job.runtime_seconds is None:
        return horizon
    rest = job.runtime_seconds
    if job.state in ("running", "draining") and job.start is not None:
        rest -= facts.now - instant(job.start)
    return min(horizon, max(0, rest))


def speed(facts: Facts, job: Job, model: str) -> int:
    """`s(m)`."""
    return job.speed_milli.get(model, facts.policy.gpu_speed_milli.get(model, 1_000))


def relative_speed(facts: Facts, job: Job, model: str | None) -> int:
    """`v`: 1,000 on the fastest model that is allowed and present."""
    if model is None:
        return 1_000
    candidates = (facts.allowed_models(job) & facts.gpus_by_model.keys()) | {model}
    fastest = max(speed(facts, job, candidate) for candidate in candidates)
    return max(1, 1_000 * speed(facts, job, model) // fastest)


def distance_loss(facts: Facts, job: Job, depth: int) -> int:
    """`L`, thousandths of time lost at this depth."""
    if depth == facts.levels + 1:
        return 0
    loss = 0
    if job.communicates:
        kinds = ["cluster"] if depth == 0 else []
        for level in facts.snapshot.fabric.levels[max(0, depth - 1) :]:
            kinds.append(level.kind or level.name)
        loss = max(facts.policy.slowdown(kind) for kind in kinds)
    if depth < facts.preferred_depth(job):
        loss += facts.policy.missed_preference_milli
    return loss


GpuSet = tuple[str, int, tuple[int, ...] | None]
"""GPUs that talk to each other: their node, how many, and which (None: unknown)."""


def ways_to_talk(
    facts: Facts, job: Job, tasks: Sequence[TaskAllocation]
) -> list[tuple[int, list[GpuSet]]]:
    """The depth that sets L, with the sets that B looks at: one way, or two to choose from."""
    per_task = job.request.gpus
    nodes = {task.node for task in tasks}
    if isinstance(job, Missing):
        nodes |= set(job.beside)
    apart: list[GpuSet] = [(task.node, per_task, task.gpus) for task in tasks]
    lone = isinstance(job, Missing) or not job.communicates or len(tasks) == 1
    if lone or len(nodes) > 1:
        return [(facts.depth(nodes), apart)]
    all_gpus: tuple[int, ...] | None = None
    if all(task.gpus is not None for task in tasks):
        all_gpus = tuple(index for task in tasks for index in task.gpus or ())
    together: list[GpuSet] = [(tasks[0].node, per_task * len(tasks), all_gpus)]
    through_node = (facts.levels + 1, together)
    through_network = (facts.levels, apart)
    return [through_node, through_network]


def spread(
    facts: Facts,
    job: Job,
    model: str | None,
    tasks: Sequence[TaskAllocation],
    counted: Mapping[str, bool],
) -> int:
    v = relative_speed(facts, job, model)
    weight = tier_weight(facts, job) * facts.policy.share_floor_milli
    h = seconds_left(facts, job)
    pcie = facts.policy.slowdown("pcie")
    costs = []
    for depth, sets in ways_to_talk(facts, job, tasks):
        loss = distance_loss(facts, job, depth)
        a = weight * facts.size(job) * h * (1_000_000 - v * (1_000 - loss))
        cost = a // (1_000 * 1_000_000 * facts.U)
        for name, k, gpus in sets:
            if k >= 2 and not is_linked(facts.node[name], counted[name], gpus):
                b = weight * k * facts.U * h * v * pcie
                cost += b // (1_000 * 1_000_000 * facts.U)
        costs.append(cost)
    return min(costs)


# guarantees


def units_of(facts: Facts, milli: int) -> int:
    return milli * facts.U // 1_000


def total_units(facts: Facts, quota: Quota) -> int | None:
    """A quota in all, in units; None where there is none."""
    milli = quota.total_milli()
    return None if milli is None else units_of(facts, milli)


def largest_sum(numbers: Sequence[int], most: int) -> int:
    """The largest sum of a subset that is at most `most`."""
    sums = {0}
    for number in numbers:
        sums |= {old + number for old in sums}
    return max(total for total in sums if total <= most)


class Target(NamedTuple):
    """A queue's target in all (model None) or on a model, in units."""

    leaves: frozenset[str]
    is_leaf: bool
    model: str | None
    units: int


def targets(facts: Facts, can_run: Mapping[str, set[str | None]]) -> list[Target]:
    found = []
    for queue in facts.snapshot.queues:
        total = total_units(facts, queue.guarantee)
        if total is not None:
            found.append(_target(facts, queue, None, total, can_run))
        for model, gpus in queue.guarantee.by_model.items():
            found.append(_target(facts, queue, model, gpus * facts.U, can_run))
    return found


def _target(
    facts: Facts,
    queue: Queue,
    model: str | None,
    guarantee: int,
    can_run: Mapping[str, set[str | None]],
) -> Target:
    leaves = facts.leaves(queue)
    numbers = []
    for job in facts.on_nodes:
        if job.queue in leaves and model in (None, facts.model_of[job.name]):
            numbers.append(facts.units(job))
    for job in facts.eligible:
        models = can_run[job.name]
        if job.queue in leaves and (models if model is None else model in models):
            numbers.append(facts.units(job))
    is_leaf = not facts.children(queue)
    return Target(frozenset(leaves), is_leaf, model, largest_sum(numbers, guarantee))


def shortfall(
    facts: Facts, goals: Sequence[Target], started: Mapping[str, str | None], *, leaf: bool
) -> int:
    """The stage `guarantee` (leaf queues) or `guarantee_parents`, in milli-GPUs."""
    models = {**facts.model_of, **started}
    missing = 0
    for goal in goals:
        if goal.is_leaf == leaf:
            in_use = sum(
                facts.units(facts.job[name])
                for name, model in models.items()
                if facts.job[name].queue in goal.leaves and goal.model in (None, model)
            )
            missing += max(0, goal.units - in_use)
    return missing * 1_000 // facts.U


# fragmentation


class Entry(NamedTuple):
    request: Request
    models: tuple[str, ...]
    nvlink_required: bool
    tasks: int
    """n_e"""


def demand(facts: Facts) -> list[Entry]:
    """Entries e with n_e; equal kinds are left apart, which changes no sum."""
    profile = facts.policy.demand_profile
    if profile:
        return [
            Entry(part, e.gpu_models, e.nvlink_required, e.weight)
            for e in profile
            for part in _each_instance(e.request)
        ]
    return [
        Entry(part, job.gpu_models, job.nvlink_required, job.tasks)
        for job in facts.snapshot.jobs
        if job.state != "held"
        for part in _each_instance(job.request)
    ]


def _each_instance(request: Request) -> list[Request]:
    """A request for several MIG profiles counts as one for each."""
    if len(request.mig) < 2:
        return [request]
    return [request.model_copy(update={"mig": (name,)}) for name in request.mig]


def unusable(facts: Facts, node: Node, state: NodeState, entry: Entry) -> int:
    """Units of idle whole GPUs of the node that tasks of this kind can't use."""
    free = dict(state.free)
    fits = all(count <= free.get(name, 0) for name, count in needs(entry.request).items())
    k = entry.request.gpus
    total = 0
    if not is_whole(entry.request):
        for model, chips in state.idle:
            mig, share = next((m, s) for name, m, s in state.ready if name == model)
            ready = share if entry.request.share is not None else mig
            use = 0
            if fits and ready and (not entry.models or model in entry.models):
                shared = entry.request.share is not None
                blank = new_part(facts, node, chips[0], model, shared=shared)
                use = part_usable(facts, blank, entry.request)
            total += len(chips) * (facts.U - use)
        return total
    for model, chips in state.idle:
        usable = fits and 0 < k <= len(chips) and (not entry.models or model in entry.models)
        if usable and entry.nvlink_required and k >= 2:
            usable = any(is_linked(node, state.counted, some) for some in combinations(chips, k))
        if not usable:
            total += len(chips) * facts.U
    return total


def node_fragmentation(facts: Facts, node: Node, state: NodeState, entries: Sequence[Entry]) -> int:
    """F_n + R_n."""
    layouts = sum(part.cost for part in state.parts)
    n = sum(entry.tasks for entry in entries)
    if n == 0 or node.down or node.cordoned or state.closed:
        return layouts
    scale = n * facts.U
    horizon = facts.policy.horizon_seconds
    lost = sum(entry.tasks * unusable(facts, node, state, entry) for entry in entries)
    total = lost * horizon // scale
    for part in state.parts:
        idle = idle_units(facts, part)
        lost = 0
        for entry in entries:
            allowed = not entry.models or part.model in entry.models
            use = part_usable(facts, part, entry.request) if allowed else 0
            lost += entry.tasks * (idle - use)
        total += lost * horizon // scale
    return total + layouts


def fragmentation(facts: Facts, ground: Ground, entries: Sequence[Entry]) -> int:
    """The sum over nodes: as it is, or each F_n weighted with `fragmentation: weighted`."""
    policy = facts.policy
    total = 0
    for node, state in zip(facts.snapshot.nodes, ground, strict=True):
        f = node_fragmentation(facts, node, state, entries)
        if policy.fragmentation == "weighted":
            f = f * policy.fragmentation_weight_milli // 1_000
        total += f
    return total
