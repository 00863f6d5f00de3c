"""GPUs in MIG mode and shared GPUs: states, ways to use them, what is lost (§3, §5)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import combinations, product
from typing import NamedTuple

from oracle.facts import Facts, has_mig
from trencadis.models import Job, MigInstance, Node, Request, TaskAllocation
from trencadis.models.mig import MigTable

Instance = tuple[int, str]
"""Start and profile."""


class Part(NamedTuple):
    """A GPU that is not whole."""

    gpu: int
    model: str
    shared: bool
    used: tuple[Instance, ...] = ()
    idle: tuple[Instance, ...] = ()
    fixed: bool = False
    cost: int = 0
    """GPU-seconds of reconfiguration."""
    milli: int = 0
    memory: int | None = None
    slots: int = 0
    off: int | None = None
    """GPU-seconds to turn MIG off; None where it stays on."""
    whole: bool = False
    """MIG is turned off: a start has the whole GPU."""


def is_whole(request: Request) -> bool:
    return request.share is None and not has_mig(request)


def is_legal(table: MigTable, layout: Sequence[Instance]) -> bool:
    slices: list[int] = []
    engines: dict[str, int] = {}
    for start, name in layout:
        profile = table.profile(name)
        if profile is None or start not in profile.starts:
            return False
        slices += range(start, start + profile.memory_slices)
        for engine, number in profile.engines.items():
            engines[engine] = engines.get(engine, 0) + number
        if sum(other == name for _, other in layout) > profile.most:
            return False
    if len(slices) != len(set(slices)):
        return False
    return all(n <= table.engines.get(engine, n) for engine, n in engines.items())


def is_fixed(facts: Facts, node: Node) -> bool:
    own = node.mig_reconfigure
    return (facts.policy.mig.reconfigure if own is None else own) == "forbid"


def may_turn_on(facts: Facts, node: Node, model: str, here: Sequence[object]) -> bool:
    """`here`: what runs, drains or is held on the node."""
    mode = facts.policy.mig.mode
    if mode == "fixed" or (mode == "per_node" and not node.mig_mode_changes):
        return False
    if node.precision != "mig" or is_fixed(facts, node) or model not in facts.tables:
        return False
    return facts.tables[model].mode_change == "live" or not here


def gpu_memory(node: Node, model: str) -> int | None:
    return min(group.memory_mib for group in node.gpus if group.model == model) or None


def can_share(node: Node, here: Sequence[tuple[Job, TaskAllocation]]) -> bool:
    vague = any(job.request.share is not None and not task.gpus for job, task in here)
    return node.shareable and not vague


def parts_of(
    facts: Facts, node: Node, here: Sequence[tuple[Job, TaskAllocation]]
) -> tuple[Part, ...]:
    """Its GPUs that are open to slices or shared; `here` as above. The node is not counted."""
    healthy = node.healthy_gpus()
    parts = []
    migs = [(job, task) for job, task in here if has_mig(job.request)]
    clear = all(task.mig and len(task.mig) == len(task.gpus or ()) for _, task in migs)
    if node.precision == "mig" and clear:
        for entry in node.mig:
            model = healthy.get(entry.gpu)
            if model is None or model not in facts.tables:
                continue
            if any(
                entry.gpu in (task.gpus or ()) for job, task in here if not has_mig(job.request)
            ):
                continue
            used = [
                (instance.start, instance.profile)
                for _, task in migs
                for gpu, instance in zip(task.gpus or (), task.mig, strict=True)
                if gpu == entry.gpu
            ]
            listed = [(instance.start, instance.profile) for instance in entry.instances]
            idle = [instance for instance in listed if instance not in used]
            off = None
            linked = node.nvlink.kind == "links"
            if not used and not linked and may_turn_on(facts, node, model, here):
                mig = facts.policy.mig
                off = mig.mode_seconds + (mig.reconfigure_seconds if idle else 0)
            if is_legal(facts.tables[model], used + idle):
                parts.append(
                    Part(
                        entry.gpu,
                        model,
                        shared=False,
                        used=tuple(sorted(used)),
                        idle=tuple(sorted(idle)),
                        fixed=is_fixed(facts, node),
                        off=off,
                    )
                )
    in_mig = {entry.gpu for entry in node.mig}
    for gpu, model in healthy.items():
        mine = [job for job, task in here if gpu in (task.gpus or ())]
        shares = [job.request.share for job in mine if job.request.share is not None]
        if not shares or len(shares) < len(mine) or gpu in in_mig:
            continue
        total = gpu_memory(node, model)
        left = None
        if total is not None:
            left = max(0, total - sum(share.memory_mib for share in shares))
        parts.append(
            Part(
                gpu,
                model,
                shared=True,
                milli=max(0, 1_000 - sum(share.gpu_milli for share in shares)),
                memory=left,
                slots=max(0, node.max_jobs_per_gpu - len(shares)) if node.shareable else 0,
            )
        )
    return tuple(sorted(parts))


def new_part(facts: Facts, node: Node, gpu: int, model: str, *, shared: bool) -> Part:
    """A whole GPU that is made ready."""
    if shared:
        memory = gpu_memory(node, model)
        return Part(
            gpu, model, shared=True, milli=1_000, memory=memory, slots=node.max_jobs_per_gpu
        )
    mig = facts.policy.mig
    return Part(gpu, model, shared=False, cost=mig.reconfigure_seconds + mig.mode_seconds)


def profiles(facts: Facts, request: Request, model: str) -> tuple[str, ...] | None:
    """What a task asks for on this model; None: it has no such instances."""
    table = facts.tables.get(model)
    if table is None:
        return None
    if request.mig:
        return request.mig if all(table.profile(name) for name in request.mig) else None
    fitting = [
        (p.compute_slices, p.memory_slices, p.name)
        for p in table.profiles
        if not set("+-") & set(p.name)
        and p.memory_mib >= request.mig_memory_mib
        and 1_000 * p.compute_slices >= request.mig_compute_milli * table.compute_slices
    ]
    return (min(fitting)[2],) if fitting else None


def with_instance(facts: Facts, part: Part, new: Instance) -> Part | None:
    """The GPU with one more instance in use; None where that can't be."""
    if part.shared or part.whole:
        return None
    if not is_legal(facts.tables[part.model], (*part.used, new)):
        return None
    if part.fixed and new not in part.idle:
        return None
    cost = part.cost
    if new not in part.idle:
        cost = max(cost, facts.policy.mig.reconfigure_seconds)
    idle = tuple(instance for instance in part.idle if instance != new)
    used = tuple(sorted((*part.used, new)))
    return part._replace(used=used, idle=idle, cost=cost, off=None)


def closed_choices(parts: Sequence[Part], model: str, number: int) -> Iterator[tuple[int, ...]]:
    """Ways to turn MIG off on so many GPUs of a model; equal GPUs are interchangeable."""
    seen: set[tuple[Part, ...]] = set()
    open_ = [part for part in parts if part.off is not None and part.model == model]
    for some in combinations(open_, number):
        look = tuple(sorted(part._replace(gpu=0) for part in some))
        if look not in seen:
            seen.add(look)
            yield tuple(part.gpu for part in some)


def closed(parts: tuple[Part, ...], gpus: Collection[int]) -> tuple[Part, ...]:
    """The parts once whole-GPU tasks have these GPUs."""
    return tuple(
        part._replace(whole=True, cost=part.off or 0, idle=(), off=None)
        if part.gpu in gpus
        else part
        for part in parts
    )


def with_share(part: Part, milli: int, memory: int) -> Part | None:
    if not part.shared or part.slots < 1 or part.milli < milli:
        return None
    if part.memory is not None and part.memory < memory:
        return None
    left = None if part.memory is None else part.memory - memory
    return part._replace(milli=part.milli - milli, memory=left, slots=part.slots - 1)


class Stage(NamedTuple):
    """A node's GPUs while a job's tasks are placed."""

    parts: tuple[Part, ...]
    chips: tuple[int, ...]
    """Idle whole GPUs of the model."""


def ways(
    facts: Facts, job: Job, model: str, node: Node, stage: Stage, ready: tuple[bool, bool], n: int
) -> Iterator[tuple[TaskAllocation, ...]]:
    """Ways to give n tasks their slices or shares. `ready`: whether whole GPUs can be put in MIG
    mode, and be shared."""
    request = job.request
    if request.share is not None:
        single: list[str] | None = [""]
    else:
        found = profiles(facts, request, model)
        single = None if found is None else sorted(found)
    if single is None:
        return
    for places, _ in _place(facts, request, model, node, stage, ready, single * n):
        tasks = []
        for i in range(n):
            mine = sorted(places[i * len(single) : (i + 1) * len(single)])
            tasks.append(
                TaskAllocation(
                    node=node.name,
                    gpus=tuple(gpu for gpu, _, _ in mine),
                    mig=tuple(
                        MigInstance(profile=name, start=start) for _, start, name in mine if name
                    ),
                    share=request.share,
                )
            )
        yield tuple(tasks)


def _place(
    facts: Facts, request: Request, model: str, node: Node, stage: Stage,
    ready: tuple[bool, bool], pieces: list[str],
) -> Iterator[tuple[list[tuple[int, int, str]], Stage]]:
    if not pieces:
        yield [], stage
        return
    seen: set[Stage] = set()
    for place, after in _one(facts, request, model, node, stage, ready, pieces[0]):
        # equal GPUs are interchangeable
        look = Stage(tuple(sorted(part._replace(gpu=0) for part in after.parts)), after.chips)
        if look in seen:
            continue
        seen.add(look)
        for rest, last in _place(facts, request, model, node, after, ready, pieces[1:]):
            yield [place, *rest], last


def _one(
    facts: Facts, request: Request, model: str, node: Node, stage: Stage,
    ready: tuple[bool, bool], name: str,
) -> Iterator[tuple[tuple[int, int, str], Stage]]:
    candidates = [(part, stage.parts, stage.chips) for part in stage.parts]
    shared = request.share is not None
    if ready[1] if shared else ready[0]:
        links = node.nvlink.kind == "links"
        for chip in stage.chips if links else stage.chips[:1]:
            fresh = new_part(facts, node, chip, model, shared=shared)
            rest = tuple(other for other in stage.chips if other != chip)
            candidates.append((fresh, (*stage.parts, fresh), rest))
    for part, parts, chips in candidates:
        if part.model != model or part.shared != shared:
            continue
        if request.share is not None:
            steps = [(0, with_share(part, request.share.gpu_milli, request.share.memory_mib))]
        else:
            profile = facts.tables[model].profile(name)
            starts = profile.starts if profile else ()
            steps = [(s, with_instance(facts, part, (s, name))) for s in starts]
        for start, after in steps:
            if after is not None:
                others = tuple(after if other is part else other for other in parts)
                yield (part.gpu, start, name), Stage(others, chips)


def parts_after(
    facts: Facts, node: Node, parts: tuple[Part, ...], tasks: Sequence[TaskAllocation], model: str
) -> tuple[Part, ...]:
    """The parts after these tasks."""
    now = {part.gpu: part for part in parts}
    for task in tasks:
        for gpu in task.gpus or ():
            if gpu not in now:
                now[gpu] = new_part(facts, node, gpu, model, shared=task.share is not None)
        if task.share is not None:
            assert task.gpus is not None
            gpu = task.gpus[0]
            after = with_share(now[gpu], task.share.gpu_milli, task.share.memory_mib)
            assert after is not None
            now[gpu] = after
        for gpu, instance in zip(task.gpus or (), task.mig, strict=False):
            after = with_instance(facts, now[gpu], (instance.start, instance.profile))
            assert after is not None
            now[gpu] = after
    return tuple(sorted(now.values()))


# fragmentation


def idle_units(facts: Facts, part: Part) -> int:
    if part.whole:
        return 0
    if part.shared:
        return part.milli * facts.U // 1_000
    return max(0, facts.U - sum(size(facts, part.model, name) for _, name in part.used))


def size(facts: Facts, model: str, name: str) -> int:
    """`s`."""
    table = facts.tables[model]
    profile = table.profile(name)
    assert profile is not None
    return facts.U * profile.compute_slices // table.compute_slices


def most_instances(facts: Facts, part: Part, name: str) -> int:
    """The most further instances of a profile, by trying all sets of starts."""
    profile = facts.tables[part.model].profile(name)
    assert profile is not None
    if part.fixed:
        return sum(other == name for _, other in part.idle)
    best = 0
    for chosen in product((False, True), repeat=len(profile.starts)):
        new = [(s, name) for s, use in zip(profile.starts, chosen, strict=True) if use]
        if len(new) > best and is_legal(facts.tables[part.model], (*part.used, *new)):
            best = len(new)
    return best


def usable(facts: Facts, part: Part, request: Request) -> int:
    """Idle units of the GPU that tasks with this request can use."""
    if request.share is not None:
        one = with_share(part, request.share.gpu_milli, request.share.memory_mib)
        return 0 if one is None else idle_units(facts, part)
    if part.shared or part.whole or not has_mig(request):
        return 0
    found = profiles(facts, request, part.model)
    if found is None:
        return 0
    return most_instances(facts, part, found[0]) * size(facts, part.model, found[0])
