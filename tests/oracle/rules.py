"""Where a job may be placed (§3)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product

from oracle.facts import Facts, instant, uses_gpus
from oracle.ground import Ground, NodeState, Placed, empty_ground, is_linked, needs
from oracle.parts import Stage, closed_choices, is_whole, ways
from trencadis.models import Job, Missing, Node, TaskAllocation
from trencadis.models.spares import EFFECT


def may_use(facts: Facts, job: Job, node: Node) -> bool:
    """Whether the node takes the job, whatever is on it."""
    if node.down or node.cordoned:
        return False
    if any(node.labels.get(key) != value for key, value in job.node_selector.items()):
        return False
    if node.name in job.excluded_nodes:
        return False
    if node.name in facts.barred.get(job.name, ()):
        return False
    if job.required_nodes and node.name not in job.required_nodes:
        return False
    for taint in node.taints:
        if taint.effect == "PreferNoSchedule":
            continue
        if taint.effect == EFFECT:
            if not isinstance(job, Missing):
                return False
            continue
        if not any(
            tol.key in (None, taint.key)
            and tol.value in (None, taint.value)
            and tol.effect in (None, taint.effect)
            for tol in job.tolerations
        ):
            return False
    if node.free_until is not None and (
        job.runtime_seconds is None or facts.now + job.runtime_seconds > instant(node.free_until)
    ):
        return False
    for window in node.maintenance:
        # From now until the job is over (for ever, where nobody says), nothing of the window.
        over = instant(window.end) <= facts.now
        in_time = (
            job.runtime_seconds is not None
            and facts.now + job.runtime_seconds <= instant(window.start)
        )
        if not (over or in_time):
            return False
    n = job.gang_tasks if isinstance(job, Missing) else facts.entries(job)
    large = n >= 2 and n * job.request.gpus >= facts.policy.large_gang_gpus
    return not (large and node.health_score_milli < facts.policy.poor_health_milli)


def most_tasks(job: Job, model: str | None, state: NodeState) -> int:
    """The most tasks of the job that fit on a node in this state."""
    if state.closed or (job.exclusive and state.busy):
        return 0
    most = minimum(job)
    if job.max_tasks_per_node is not None:
        most = min(most, job.max_tasks_per_node)
    free = dict(state.free)
    for name, count in needs(job.request).items():
        if count > 0:
            most = min(most, free.get(name, 0) // count)
    if model is not None and is_whole(job.request):
        offs = sum(part.off is not None and part.model == model for part in state.parts)
        most = min(most, (len(state.idle_of(model)) + offs) // job.request.gpus)
    return most


def minimum(job: Job) -> int:
    return job.tasks if job.min_tasks is None else job.min_tasks


def models_to_try(facts: Facts, job: Job) -> Sequence[str | None]:
    if not uses_gpus(job.request):
        return (None,)
    return sorted(facts.allowed_models(job) & facts.gpus_by_model.keys())


def placements(
    facts: Facts, job: Job, ground: Ground, alike: Sequence[object] | None = None
) -> Iterator[Placed]:
    """Every way to place the job, up to the order of its tasks.

    Which GPUs of a node is a choice only where the node has listed links and isn't counted;
    elsewhere the lowest. Nodes with equal entries in `alike` (equal but for the name, and named by
    no job) and equal states may trade places: the first of them gets the most tasks.
    """
    for model in models_to_try(facts, job):
        yield from placements_on(facts, job, model, ground, alike)


def placements_on(
    facts: Facts, job: Job, model: str | None, ground: Ground, alike: Sequence[object] | None = None
) -> Iterator[Placed]:
    """The same on one model."""
    nodes = facts.snapshot.nodes
    caps = {
        i: most_tasks(job, model, ground[i])
        for i, node in enumerate(nodes)
        if may_use(facts, job, node)
    }
    usable = [i for i in caps if caps[i] > 0]
    twin: dict[int, int] = {}
    if alike is not None:
        last: dict[object, int] = {}
        for i in usable:
            key = (alike[i], ground[i])
            if key in last:
                twin[i] = last[key]
            last[key] = i
    for counts in _splits(minimum(job), usable, caps, twin):
        if not near_enough(facts, job, {nodes[i].name: c for i, c in counts.items()}):
            continue
        choices = [
            list(gpu_choices(facts, job, model, nodes[i], ground[i], c)) for i, c in counts.items()
        ]
        for choice in product(*choices):
            yield Placed.on(model, (task for tasks in choice for task in tasks))


def _splits(
    tasks: int, nodes: Sequence[int], caps: Mapping[int, int], twin: Mapping[int, int]
) -> Iterator[dict[int, int]]:
    """Ways to split tasks over nodes; nodes without a task are left out."""

    def extend(position: int, left: int, so_far: dict[int, int]) -> Iterator[dict[int, int]]:
        if left == 0:
            yield so_far
        elif position < len(nodes):
            node = nodes[position]
            most = min(left, caps[node])
            if node in twin:
                most = min(most, so_far.get(twin[node], 0))
            for count in range(most, -1, -1):
                more = {**so_far, node: count} if count else so_far
                yield from extend(position + 1, left - count, more)

    return extend(0, tasks, {})


def gpu_choices(
    facts: Facts, job: Job, model: str | None, node: Node, state: NodeState, tasks: int
) -> Iterator[tuple[TaskAllocation, ...]]:
    """Ways to give so many tasks their GPUs on one node."""
    k = job.request.gpus
    if model is None:
        yield (TaskAllocation(node=node.name, gpus=()),) * tasks
        return
    if not is_whole(job.request):
        ready = {name: (mig, share) for name, mig, share in state.ready}
        stage = Stage(state.parts, state.idle_of(model))
        yield from ways(facts, job, model, node, stage, ready.get(model, (False, False)), tasks)
        return
    must_link = job.nvlink_required and k >= 2
    if state.counted or node.nvlink.kind != "links":
        if must_link and not is_linked(node, state.counted, None):
            return
        for number in range(k * tasks + 1):
            idle = state.idle_of(model)[: k * tasks - number]
            if len(idle) + number < k * tasks:
                continue
            for off in closed_choices(state.parts, model, number):
                chips = (*off, *idle)
                sets = [tuple(sorted(chips[i * k : (i + 1) * k])) for i in range(tasks)]
                yield tuple(
                    TaskAllocation(node=node.name, gpus=None if state.counted else one)
                    for one in sets
                )
        return
    for some in _disjoint(state.idle_of(model), k, tasks):
        if not must_link or all(is_linked(node, False, one) for one in some):
            yield tuple(TaskAllocation(node=node.name, gpus=one) for one in some)


def _disjoint(chips: Sequence[int], k: int, tasks: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    """So many disjoint sets of k, ordered by their least member."""
    if tasks == 0:
        yield ()
        return
    for one in combinations(chips, k):
        rest = [chip for chip in chips if chip > one[0] and chip not in one]
        for others in _disjoint(rest, k, tasks - 1):
            yield (one, *others)


def near_enough(facts: Facts, job: Job, counts: Mapping[str, int]) -> bool:
    """Required topology, boundaries and segments."""
    if facts.depth(set(counts)) < facts.required_depth(job):
        return False
    if not apart_enough(facts, job, counts):
        return False
    if job.segments is None:
        return True
    depth = facts.level_depth(job.segments.level)
    in_domain: dict[object, int] = {}
    for name, count in counts.items():
        path = facts.node[name].fabric
        domain: object = path[:depth] if len(path) >= depth else name
        in_domain[domain] = in_domain.get(domain, 0) + count
    # one group may be smaller where the tasks aren't a multiple
    size = job.segments.tasks
    rests = [count % size for count in in_domain.values() if count % size]
    return sum(rests) == minimum(job) % size and len(rests) <= 1


def apart_enough(facts: Facts, job: Job, counts: Mapping[str, int]) -> bool:
    """At most so many tasks in one domain."""
    cap = job.max_tasks_per_domain
    if cap is None:
        return True
    depth = facts.level_depth(cap.level)
    for name in counts:
        path = facts.node[name].fabric
        here = [
            count
            for other, count in counts.items()
            if other == name
            or (len(path) >= depth and facts.node[other].fabric[:depth] == path[:depth])
        ]
        if sum(here) > cap.tasks:
            return False
    return True


def can_run_on_empty(facts: Facts) -> dict[str, set[str | None]]:
    """For each eligible job, the models on which it could be alone; {None} without GPUs."""
    facts = Facts(facts.snapshot)
    empty = empty_ground(facts)
    empty_parts = empty_ground(facts, mig_stays=True)
    return {
        job.name: {
            model
            for model in models_to_try(facts, job)
            if any(
                True
                for _ in placements_on(
                    facts, job, model, empty if is_whole(job.request) else empty_parts
                )
            )
        }
        for job in facts.eligible
    }
