"""What is odd but usable: promises above capacity, over-allocation, unmeetable requests."""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from trencadis.models.base import GPU_MILLI
from trencadis.models.broken import breakage, is_broken, standing
from trencadis.models.cluster import Node
from trencadis.models.faults import Fault
from trencadis.models.jobs import Job
from trencadis.models.queues import Queue
from trencadis.models.snapshot import Snapshot


def check_capacity(snapshot: Snapshot) -> list[Fault]:
    """Warnings about a snapshot without faults."""
    return [
        *_policy(snapshot),
        *_fabric(snapshot),
        *_guarantees(snapshot),
        *_residents(snapshot),
        *_broken(snapshot),
        *_requests(snapshot),
    ]


def _policy(snapshot: Snapshot) -> Iterator[Fault]:
    if snapshot.policy.preemption.mode == "suspend":
        yield Fault(
            "$.policy.preemption.mode",
            "jobs can't be suspended in place by this version: nobody is preempted, as with none. "
            "Maybe graceful, or immediate?",
        )
    if snapshot.policy.spares and not snapshot.policy.repairs:
        yield Fault("$.policy.spares", "without repairs no spares are kept")


def _fabric(snapshot: Snapshot) -> Iterator[Fault]:
    priced = snapshot.policy.slowdown_milli
    for index, level in enumerate(snapshot.fabric.levels):
        kind = level.kind or level.name
        if kind not in priced:
            yield Fault(
                f"$.fabric.levels[{index}]",
                f"level {level.name} is of kind {kind}, which policy.slowdown_milli doesn't price; "
                f"it counts as other ({snapshot.policy.slowdown(kind)}). "
                f"Maybe set its kind to one of {', '.join(sorted(priced))}.",
            )
    if not snapshot.fabric.levels:
        return
    lost = [
        (index, node) for index, node in enumerate(snapshot.nodes) if node.gpus and not node.fabric
    ]
    if lost:
        index, node = lost[0]
        others = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
        yield Fault(
            f"$.nodes[{index}].fabric",
            f"node {node.name}{others} with GPUs has no place in the fabric: "
            "what spans it and another node spans the whole cluster",
        )


def _guarantees(snapshot: Snapshot) -> Iterator[Fault]:
    """Whether guarantees fit the capacity, and those of children their parent's."""
    capacity: dict[str | None, int] = defaultdict(int)
    for node in snapshot.nodes:
        if not node.down:
            for model, count in _healthy(node).items():
                capacity[model] += count * GPU_MILLI
                capacity[None] += count * GPU_MILLI
    children: dict[str | None, list[int]] = defaultdict(list)
    for index, queue in enumerate(snapshot.queues):
        children[queue.parent].append(index)
    promised: dict[int, dict[str | None, int]] = {}
    for index in reversed(_parents_first(children, snapshot.queues)):
        queue = snapshot.queues[index]
        own = _guarantee(queue)
        below = _sum(promised[child] for child in children[queue.name])
        for kind, amount in sorted(below.items(), key=lambda item: item[0] or ""):
            if kind in own and amount > own[kind]:
                yield Fault(
                    f"$.queues[{index}].guarantee",
                    f"the queues below {queue.name} are guaranteed {_gpus(amount, kind)}; "
                    f"{queue.name} itself {_gpus(own[kind], kind)}",
                )
        promised[index] = {
            kind: max(own.get(kind, 0), below.get(kind, 0)) for kind in own.keys() | below.keys()
        }
    total = _sum(promised[index] for index in children[None])
    for kind, amount in sorted(total.items(), key=lambda item: item[0] or ""):
        if amount > capacity[kind]:
            yield Fault(
                "$.queues",
                f"the guarantees add up to {_gpus(amount, kind)}; the healthy nodes that are up "
                f"have {_gpus(capacity[kind], kind)}",
            )


def _parents_first(children: dict[str | None, list[int]], queues: tuple[Queue, ...]) -> list[int]:
    order = list(children[None])
    for index in order:
        order.extend(children[queues[index].name])
    return order


def _guarantee(queue: Queue) -> dict[str | None, int]:
    quota: dict[str | None, int] = {
        model: count * GPU_MILLI for model, count in queue.guarantee.by_model.items()
    }
    total = queue.guarantee.total_milli()
    if total is not None:
        quota[None] = total
    return quota


def _sum(parts: Iterator[dict[str | None, int]]) -> dict[str | None, int]:
    total: dict[str | None, int] = defaultdict(int)
    for part in parts:
        for model, amount in part.items():
            total[model] += amount
    return total


def _gpus(milli: int, model: str | None) -> str:
    number = f"{milli // GPU_MILLI}" if milli % GPU_MILLI == 0 else f"{milli / GPU_MILLI:.3f}"
    return f"{number} {model + ' ' if model else ''}GPUs"


def _healthy(node: Node) -> dict[str, int]:
    """Healthy GPUs of a node by model, counted."""
    counts: dict[str, int] = {}
    for group in node.gpus:
        healthy = group.count - len(group.unhealthy)
        counts[group.model] = counts.get(group.model, 0) + healthy
    return counts


@dataclass(slots=True)
class _Used:
    """What runs on a node takes."""

    cpu_milli: int = 0
    memory_mib: int = 0
    counted_gpus: int = 0
    """Whole GPUs of tasks that don't say which."""
    gpus: set[int] = field(default_factory=set)
    resources: dict[str, int] = field(default_factory=dict)


def _residents(snapshot: Snapshot) -> Iterator[Fault]:
    used: dict[str, _Used] = {}
    broken = {
        node.name: {gpu for group in node.gpus for gpu in group.unhealthy}
        for node in snapshot.nodes
        if any(group.unhealthy for group in node.gpus)
    }
    down = {node.name for node in snapshot.nodes if node.down}
    for number, job in enumerate(snapshot.jobs):
        if job.state not in ("running", "draining"):
            continue
        request = job.request
        for entry, task in enumerate(job.allocation):
            here = used.get(task.node)
            if here is None:
                here = used[task.node] = _Used()
            here.cpu_milli += request.cpu_milli
            here.memory_mib += request.memory_mib
            for name, amount in request.resources.items():
                here.resources[name] = here.resources.get(name, 0) + amount
            if task.gpus is None:
                here.counted_gpus += request.gpus
            else:
                here.gpus.update(task.gpus)
                if task.node in broken:
                    yield from _on_broken(f"$.jobs[{number}]", entry, job, broken[task.node])
            if task.node in down:
                yield Fault(
                    f"$.jobs[{number}].allocation[{entry}].node",
                    f"job {job.name} is {job.state} on node {task.node}, which is down",
                )
    for index, node in enumerate(snapshot.nodes):
        if node.name in used:
            yield from _over(f"$.nodes[{index}]", node, used[node.name])


def _broken(snapshot: Snapshot) -> Iterator[Fault]:
    """Gangs that run with too few tasks."""
    broken = breakage(snapshot)
    for number, job in enumerate(snapshot.jobs):
        if job.state == "running" and (len(job.allocation) < job.minimum or broken):
            left = standing(job, broken)
            if is_broken(job, left):
                yield Fault(
                    f"$.jobs[{number}].allocation",
                    f"job {job.name} lost {job.minimum - len(left)} of its {job.minimum} tasks",
                )


def _on_broken(path: str, entry: int, job: Job, broken: set[int]) -> Iterator[Fault]:
    task = job.allocation[entry]
    bad = sorted(broken.intersection(task.gpus or ()))
    if bad:
        yield Fault(
            f"{path}.allocation[{entry}].gpus",
            f"job {job.name} is {job.state} on GPU {', '.join(map(str, bad))} of node {task.node}, "
            "which is unhealthy and counts as absent",
        )


def _over(path: str, node: Node, used: _Used) -> Iterator[Fault]:
    rows = [
        ("cpu_milli", used.cpu_milli, node.cpu_milli),
        ("memory_mib", used.memory_mib, node.memory_mib),
    ]
    if used.resources:
        rows += [(name, n, node.resources.get(name, 0)) for name, n in used.resources.items()]
    if used.counted_gpus:
        rows.append(("GPUs", used.counted_gpus + len(used.gpus), node.gpu_count))
    for what, amount, capacity in rows:
        if amount > capacity:
            yield Fault(
                path,
                f"node {node.name} is over-allocated: {amount} {what} in use, it has {capacity}",
            )


def _requests(snapshot: Snapshot) -> Iterator[Fault]:
    """Pending requests that no node could ever meet: one warning for all jobs that ask alike."""
    largest: dict[str, int] = {}
    for node in snapshot.nodes:
        for model, count in _healthy(node).items():
            if count > largest.get(model, -1):
                largest[model] = count
    most_anywhere = max(largest.values(), default=0)
    names = {node.name for node in snapshot.nodes}
    alike: dict[tuple[int, tuple[str, ...]], list[int]] = defaultdict(list)
    for number, job in enumerate(snapshot.jobs):
        if job.state in ("running", "draining"):
            continue
        gpus = job.request.gpus
        if gpus > most_anywhere or (gpus and job.gpu_models):
            alike[gpus, job.gpu_models].append(number)
        for entry, name in enumerate(job.required_nodes):
            if name not in names:
                yield Fault(
                    f"$.jobs[{number}].required_nodes[{entry}]",
                    f"job {job.name} requires node {name}, which isn't there",
                )
    for (gpus, models), numbers in alike.items():
        most = max((largest.get(model, 0) for model in models or largest), default=0)
        if gpus <= most:
            continue
        number = numbers[0]
        others = f" ({len(numbers) - 1} more jobs ask alike)" if len(numbers) > 1 else ""
        yield Fault(
            f"$.jobs[{number}].request.gpus",
            f"job {snapshot.jobs[number].name} {_too_many(gpus, most, models, largest)}{others}",
        )


def _too_many(gpus: int, most: int, models: tuple[str, ...], largest: dict[str, int]) -> str:
    asked = f"{gpus} {'/'.join(models)} GPUs" if models else f"{gpus} GPUs"
    if most == 0:
        near = [hit for model in models for hit in difflib.get_close_matches(model, largest, n=1)]
        have = f"; there are {', '.join(sorted(largest))}" if largest else ""
        hint = f". Maybe {near[0]}?" if near else ""
        return f"asks for {asked} on one node; no node has any{have}{hint}"
    return f"asks for {asked} on one node; the largest node has {most}. Maybe split it into tasks."
