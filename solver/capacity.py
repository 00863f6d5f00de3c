"""What is idle on each node, and what a node was before anything ran on it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from trencadis.models import Job, Node, Snapshot, TaskAllocation
from trencadis.models.units import uses_gpu
from trencadis.solver.cuts import Cuts, cuts_of, cutter, empty_cuts
from trencadis.solver.pieces import Blank, Cut, closable
from trencadis.solver.slices import Cutter


@dataclass(frozen=True, slots=True)
class NodeState:
    """One node that takes work, as a bin."""

    name: str
    node: Node
    idle: Mapping[str, tuple[int, ...]]
    """Idle healthy GPU indices by model; placeholders 0..n-1 where `counted`."""
    counted: bool
    """Only the number of idle GPUs is known, so a plan names no indices."""
    free: tuple[int, ...]
    """Free milli-CPU, MiB, then the named resources in `Capacity.resources` order."""
    vacant: bool
    """Nothing runs, drains or is held here."""
    cutter: Cutter = field(compare=False)
    cuts: tuple[Cut, ...] = ()
    """GPUs of the second stage, sorted: in MIG mode, or shared."""
    cut_gpus: tuple[int, ...] = ()
    """Their indices."""
    blanks: Mapping[str, Blank] = field(default_factory=dict)
    """By model: what a whole idle GPU may be made into, where that is anything."""

    @property
    def idle_count(self) -> int:
        """Idle GPUs of all models."""
        return sum(len(indices) for indices in self.idle.values())

    def takes(self, model: str | None) -> int:
        """GPUs of a model that whole-GPU tasks may have: idle ones, and those in MIG mode that may
        be turned into such."""
        return len(self.idle.get(model or "", ())) + closable(self.cuts, model)

    @property
    def takes_count(self) -> int:
        """The same of all models."""
        return self.idle_count + sum(closable((cut,), cut.model) for cut in self.cuts)


@dataclass(frozen=True, slots=True)
class Capacity:
    """The cluster's supply."""

    resources: tuple[str, ...]
    """Named resources, sorted."""
    cutter: Cutter
    states: tuple[NodeState, ...]
    """Nodes that are up, not cordoned and not taken by an exclusive job; sorted by name."""
    empty: tuple[NodeState, ...]
    """The nodes that take work as if nothing ran; sorted by name."""
    empty_cut: tuple[NodeState, ...]
    """Likewise, for jobs that ask for slices or shares: GPUs in MIG mode stay so."""
    gpus: int
    """G: healthy GPUs on nodes that are up; the number of such nodes if there are none."""
    cpu_milli: int
    memory_mib: int
    gpus_by_model: Mapping[str, int]
    """Healthy GPUs on nodes that are up."""
    idle_elsewhere: int
    """Idle GPUs on nodes that take no work."""


def vector(job: Job, resources: tuple[str, ...]) -> tuple[int, ...]:
    """One task's CPU, memory and named resources."""
    request = job.request
    named = tuple(request.resources.get(name, 0) for name in resources)
    return (request.cpu_milli, request.memory_mib, *named)


def occupants(snapshot: Snapshot) -> dict[str, list[tuple[Job, TaskAllocation]]]:
    """By node: the tasks that run or drain there, and what is held there for a job."""
    found: defaultdict[str, list[tuple[Job, TaskAllocation]]] = defaultdict(list)
    jobs = {job.name: job for job in snapshot.jobs}
    for job in snapshot.jobs:
        if job.on_nodes:
            for task in job.allocation:
                found[task.node].append((job, task))
    for hold in snapshot.delayed:
        for task in hold.allocation:
            found[task.node].append((jobs[hold.job], task))
    return found


def capacity(snapshot: Snapshot) -> Capacity:
    """Reads the nodes and what occupies them."""
    names: set[str] = set()
    for node in snapshot.nodes:
        names.update(node.resources)
    for job in snapshot.jobs:
        names.update(job.request.resources)
    resources = tuple(sorted(names))
    taken = occupants(snapshot)
    knife = cutter(snapshot)
    states, empty, empty_cut, idle_elsewhere = [], [], [], 0
    up = [node for node in snapshot.nodes if not node.down]
    by_model: Counter[str] = Counter()
    for node in sorted(up, key=lambda node: node.name):
        by_model.update(node.healthy_gpus().values())
        here = taken.get(node.name, [])
        state = _state(node, here, resources, knife, cuts_of(snapshot, knife, node, here))
        exclusive = any(job.exclusive and job.on_nodes for job, _ in here)
        if node.cordoned or exclusive:
            idle_elsewhere += state.idle_count
        else:
            states.append(state)
        if not node.cordoned:
            cleared, cut = _emptied(snapshot, state, resources, knife)
            empty.append(cleared)
            empty_cut.append(cut)
    return Capacity(
        resources=resources,
        cutter=knife,
        states=tuple(states),
        empty=tuple(empty),
        empty_cut=tuple(empty_cut),
        gpus=sum(by_model.values()) or max(1, len(up)),
        cpu_milli=sum(node.cpu_milli for node in up),
        memory_mib=sum(node.memory_mib for node in up),
        gpus_by_model=dict(sorted(by_model.items())),
        idle_elsewhere=idle_elsewhere,
    )


def _emptied(
    snapshot: Snapshot, state: NodeState, resources: tuple[str, ...], knife: Cutter
) -> tuple[NodeState, NodeState]:
    """The node as if nothing ran: for whole GPUs, and for slices and shares."""
    node = state.node
    if state.vacant and not node.mig:
        return state, state
    bare = node.model_copy(update={"mig": ()}) if node.mig else node
    whole = _state(bare, [], resources, knife, Cuts((), (), {}))
    cuts = empty_cuts(snapshot, knife, node)
    if not node.mig and not cuts.blanks:
        return whole, whole
    return whole, _state(node, [], resources, knife, cuts)


def _state(
    node: Node,
    occupants: list[tuple[Job, TaskAllocation]],
    resources: tuple[str, ...],
    knife: Cutter,
    cuts: Cuts,
) -> NodeState:
    healthy = node.healthy_gpus()
    mig = {entry.gpu for entry in node.mig}
    busy: set[int] = set()
    unknown: list[Job] = []
    use = [0] * (2 + len(resources))
    for job, task in occupants:
        for position, amount in enumerate(vector(job, resources)):
            use[position] += amount
        if task.gpus is not None:
            busy.update(task.gpus)
        elif job.request.gpus:
            unknown.append(job)
    counted = node.precision == "node" or bool(unknown)
    idle: dict[str, list[int]] = {model: [] for model in sorted(set(healthy.values()))}
    for index, model in healthy.items():
        if index not in busy and index not in mig:
            idle[model].append(index)
    counts = {model: len(indices) for model, indices in idle.items()}
    for job in sorted(unknown, key=lambda job: job.name):
        _take_unknown(counts, job)
    total = (node.cpu_milli, node.memory_mib, *(node.resources.get(name, 0) for name in resources))
    return NodeState(
        name=node.name,
        node=node,
        idle={
            model: tuple(range(counts[model])) if counted else tuple(indices)
            for model, indices in idle.items()
            if counts[model]
        },
        counted=counted,
        free=tuple(max(0, have - used) for have, used in zip(total, use, strict=True)),
        vacant=not occupants,
        cutter=knife,
        cuts=() if counted else cuts.cuts,
        cut_gpus=() if counted else cuts.gpus,
        blanks={} if counted else cuts.blanks,
    )


def node_state(
    node: Node,
    occupants: list[tuple[Job, TaskAllocation]],
    supply: Capacity,
    parts: Snapshot | None = None,
) -> NodeState:
    """A node as these occupants would leave it, whatever the snapshot says of it.

    `parts`: the snapshot whose policy tells what GPUs in parts may become; without it, slices and
    shares find nothing there.
    """
    knife = supply.cutter
    cuts = Cuts((), (), {}) if parts is None else cuts_of(parts, knife, node, occupants)
    return _state(node, occupants, supply.resources, knife, cuts)


def _take_unknown(counts: dict[str, int], job: Job) -> None:
    wanted = job.request.gpus
    allowed = [model for model in counts if not job.gpu_models or model in job.gpu_models]
    for model in sorted(allowed, key=lambda model: (-counts[model], model)):
        part = min(wanted, counts[model])
        counts[model] -= part
        wanted -= part


def running_model(job: Job, nodes: Mapping[str, Node]) -> str | None:
    """The GPU model a job runs on: of its first known index, else its node's or its only one."""
    if not uses_gpu(job.request):
        return None
    for task in job.allocation:
        installed = _installed(nodes[task.node])
        if task.gpus:
            return installed[task.gpus[0]]
        models = set(installed)
        if len(models) == 1:
            return models.pop()
    return job.gpu_models[0] if len(job.gpu_models) == 1 else None


def _installed(node: Node) -> list[str]:
    return [group.model for group in node.gpus for _ in range(group.count)]
