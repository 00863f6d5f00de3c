"""Which GPUs of a node are in the second stage, and what its whole idle GPUs may be made into."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trencadis.models import Job, MigInstance, Node, Request, Snapshot, TaskAllocation
from trencadis.models.units import asks_for_mig, sizes, takes_part
from trencadis.solver.pieces import SHARE, UNLIMITED, Blank, Cut, ShareCut
from trencadis.solver.slices import Cutter

Occupants = Sequence[tuple[Job, TaskAllocation]]


@dataclass(frozen=True, slots=True)
class Cuts:
    """The second stage of a node."""

    cuts: tuple[Cut, ...]
    gpus: tuple[int, ...]
    blanks: Mapping[str, Blank]


def layout_fixed(snapshot: Snapshot, node: Node) -> bool:
    """Whether the MIG layouts of a node must stay as they are."""
    return (node.mig_reconfigure or snapshot.policy.mig.reconfigure) == "forbid"


def may_change_mode(snapshot: Snapshot, node: Node) -> bool:
    """Whether MIG may be turned on and off for idle GPUs of a node, resets aside."""
    mode = snapshot.policy.mig.mode
    allowed = mode == "free" or (mode == "per_node" and node.mig_mode_changes)
    return allowed and node.precision == "mig" and not layout_fixed(snapshot, node)


def parts_matter(snapshot: Snapshot, request: Request) -> bool:
    """Whether what a task finds depends on GPUs in parts: it asks for some, or for whole GPUs that
    GPUs in MIG mode may be turned into."""
    if takes_part(request):
        return True
    return request.gpus > 0 and any(
        node.mig and may_change_mode(snapshot, node) for node in snapshot.nodes
    )


def cuts_of(snapshot: Snapshot, knife: Cutter, node: Node, occupants: Occupants) -> Cuts:
    """The second stage as it is now."""
    if node.precision == "node":
        return Cuts((), (), {})
    found: list[tuple[Cut, int]] = []
    found.extend(_mig(snapshot, knife, node, occupants))
    found.extend((knife.plain_share(cut), gpu) for cut, gpu in _shared(node, occupants))
    found.sort()
    vague = any(job.request.share is not None and not task.gpus for job, task in occupants)
    return Cuts(
        cuts=tuple(cut for cut, _ in found),
        gpus=tuple(gpu for _, gpu in found),
        blanks=_blanks(snapshot, knife, node, vacant=not occupants, shares=not vague),
    )


def empty_cuts(snapshot: Snapshot, knife: Cutter, node: Node) -> Cuts:
    """The second stage as if nothing ran."""
    return cuts_of(snapshot, knife, node, ())


def _mig(
    snapshot: Snapshot, knife: Cutter, node: Node, occupants: Occupants
) -> list[tuple[Cut, int]]:
    if not node.mig or node.precision != "mig":
        return []
    healthy = node.healthy_gpus()
    pinned: defaultdict[int, list[MigInstance]] = defaultdict(list)
    closed: set[int] = set()
    for job, task in occupants:
        if not asks_for_mig(job.request):
            closed.update(task.gpus or ())
        elif not task.mig or task.gpus is None or len(task.gpus) != len(task.mig):
            # Which instances it has nobody says, so none of the node's is known to be idle.
            return []
        else:
            for gpu, instance in zip(task.gpus, task.mig, strict=True):
                pinned[gpu].append(instance)
    fixed = layout_fixed(snapshot, node)
    # GPUs that listed links join are not alike, and are reset together.
    off = may_change_mode(snapshot, node) and node.nvlink.kind != "links"
    found: list[tuple[Cut, int]] = []
    for entry in node.mig:
        model = healthy.get(entry.gpu)
        if entry.gpu in closed or model is None or model not in knife.tables:
            continue
        idle = [instance for instance in entry.instances if instance not in pinned[entry.gpu]]
        may_close = off and (not occupants or knife.tables[model].mode_change == "live")
        cut = knife.mig_cut(
            model, pinned[entry.gpu], idle, fixed=fixed, may_close=may_close
        )
        if cut is not None:
            found.append((cut, entry.gpu))
    return found


def _shared(node: Node, occupants: Occupants) -> list[tuple[ShareCut, int]]:
    healthy = node.healthy_gpus()
    mig = {entry.gpu for entry in node.mig}
    use: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
    closed: set[int] = set()
    for job, task in occupants:
        share = job.request.share
        for gpu in task.gpus or ():
            if share is None:
                closed.add(gpu)
            else:
                use[gpu][0] += share.gpu_milli
                use[gpu][1] += share.memory_mib
                use[gpu][2] += 1
    found: list[tuple[ShareCut, int]] = []
    for gpu, (milli, memory, number) in use.items():
        if gpu in closed or gpu in mig or gpu not in healthy:
            continue
        total = gpu_memory(node, healthy[gpu])
        cut = ShareCut(
            SHARE,
            healthy[gpu],
            max(0, 1_000 - milli),
            UNLIMITED if total == UNLIMITED else max(0, total - memory),
            max(0, node.max_jobs_per_gpu - number) if node.shareable else 0,
        )
        found.append((cut, gpu))
    return found


def gpu_memory(node: Node, model: str) -> int:
    """MiB of one GPU of the model on the node; UNLIMITED where unknown. Groups may differ: the
    least counts."""
    return min(group.memory_mib for group in node.gpus if group.model == model) or UNLIMITED


def _blanks(
    snapshot: Snapshot, knife: Cutter, node: Node, *, vacant: bool, shares: bool
) -> dict[str, Blank]:
    turn_on = may_change_mode(snapshot, node)
    slots = node.max_jobs_per_gpu if node.shareable and shares else 0
    blanks: dict[str, Blank] = {}
    for model in sorted({group.model for group in node.gpus}):
        table = knife.tables.get(model)
        mig = turn_on and table is not None and (vacant or table.mode_change == "live")
        if mig or slots:
            blanks[model] = Blank(model, mig, gpu_memory(node, model), slots)
    return blanks


def cutter(snapshot: Snapshot) -> Cutter:
    """The cutter of a snapshot."""
    read = sizes(snapshot)
    mig = snapshot.policy.mig
    requests = [job.request for job in snapshot.jobs]
    requests += [entry.request for entry in snapshot.policy.demand_profile]
    shares = {request.share for request in requests if request.share is not None}
    return Cutter(
        read.tables,
        read,
        mig.reconfigure_seconds,
        mig.mode_seconds,
        tuple(sorted(shares, key=lambda share: (share.gpu_milli, share.memory_mib))),
    )
