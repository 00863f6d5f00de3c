"""Why a job that asks for MIG slices or a share finds none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trencadis.models import Job, MigInstance
from trencadis.models.explanation import Reason
from trencadis.models.plan import Evidence
from trencadis.models.units import asks_for_mig
from trencadis.solver.explain.said import Said, gpus, some
from trencadis.solver.explain.scene import Scene
from trencadis.solver.pieces import MigCut
from trencadis.solver.repack import Repack, repack
from trencadis.solver.room import Room
from trencadis.solver.shapes import Alternative, Need
from trencadis.solver.slices import Cutter


def in_pieces(job: Job) -> bool:
    """Whether the job asks for parts of GPUs."""
    return job.request.share is not None or asks_for_mig(job.request)


def wanted(job: Job) -> str:
    """What one task asks for, in words."""
    request = job.request
    if request.share is not None:
        return f"a share of {request.share.gpu_milli} milli-GPU"
    if request.mig:
        return " and ".join(request.mig)
    parts = []
    if request.mig_memory_mib:
        parts.append(f"{request.mig_memory_mib:,} MiB")
    if request.mig_compute_milli:
        parts.append(f"{request.mig_compute_milli} thousandths of the compute")
    return f"a MIG instance of at least {' and '.join(parts)}"


def never_in_pieces(scene: Scene, job: Job) -> Said:
    """It would not fit the emptied cluster either."""
    supply = scene.facts.capacity
    models = [m for m in supply.gpus_by_model if not job.gpu_models or m in job.gpu_models]
    if job.request.share is not None:
        if any(state.blanks[m].slots for state in supply.empty_cut for m in state.blanks):
            return Said(
                Reason.CONSTRAINTS,
                f"asks for {wanted(job)}; no node that shares its GPUs meets all that it asks for",
            )
        if any(n.shareable and n.precision == "node" for n in scene.facts.snapshot.nodes):
            return Said(
                Reason.KIND_OF_GPU,
                f"asks for {wanted(job)}; where GPUs are shared the scheduler chooses them itself"
                " (precision node), and NVLink or MIG makes a difference there. Maybe leave the"
                " job to it.",
            )
        return Said(
            Reason.KIND_OF_GPU,
            f"asks for {wanted(job)}; no node shares its GPUs. Maybe set shareable on some.",
        )
    having = [m for m in models if supply.cutter.pieces(job.request, m) is not None]
    if not having:
        known = sorted(m for m in models if m in supply.cutter.tables)
        have = (
            f"of the models that it may use {', '.join(known)} can be cut, but have no such slices"
            if known
            else "no GPU model that it may use is known to have MIG. "
            "Maybe give policy.mig.tables, or memory_mib of the GPUs"
        )
        return Said(Reason.KIND_OF_GPU, f"asks for {wanted(job)}; {have}")
    return Said(
        Reason.CONSTRAINTS,
        f"asks for {wanted(job)}; on the empty cluster no GPU of {', '.join(having)} that is in "
        "MIG mode, or may be put in it, meets all that it asks for",
    )


def no_piece(scene: Scene, job: Job, ways: Sequence[Alternative]) -> Said:
    """No room now: too little is idle, or not at legal places, or CPU and memory are short."""
    knife = scene.facts.capacity.cutter
    evidence: Evidence = {"tasks": job.minimum, "asks": wanted(job)}
    needs = {alt.way.need.model: alt.way.need for alt in ways}
    idle, tasks = idle_in_parts(scene.before, needs, knife)
    unit = knife.sizes.unit
    first = next(iter(needs.values()))
    one = first.pieces[: len(first.pieces) // first.sets]
    each = sum(knife.piece_units(first.model or "", piece) for piece in one)
    evidence |= {"idle_milli_gpu": idle * 1_000 // unit, "slots": tasks}
    if idle < each * job.minimum:
        asks = f"asks for {wanted(job)}"
        if job.minimum > 1:
            asks += f" for each of {some(job.minimum, 'task')}"
        text = (
            f"only {gpus(idle * 1_000 // unit)} of those that it may use in parts are idle"
            if idle
            else "no part of a GPU that it may use is idle"
        )
        return Said(Reason.NOT_ENOUGH_FREE, f"{asks}; {text}", evidence)
    if tasks < job.minimum:
        room = f"there is room for {tasks} of its {some(job.minimum, 'task')}" if tasks else ""
        if job.request.share is not None:
            text = f"{gpus(idle * 1_000 // unit)} are idle, but in small parts: "
            text += room or f"no GPU has {wanted(job)} left"
            return Said(Reason.FRAGMENTED, text, evidence)
        return _no_legal_place(scene, job, needs, evidence, room)
    return Said(
        Reason.CPU_MEMORY,
        f"places for {wanted(job)} are idle, but CPU or memory beside them, or their distance, "
        f"leave no room for {some(job.minimum, 'task')}",
        evidence,
    )


def idle_in_parts(
    room: Room, needs: Mapping[str | None, Need], knife: Cutter
) -> tuple[int, int]:
    """Units of idle GPUs, and parts of them, that the needs may use; tasks that fit there, CPU and
    memory aside."""
    idle = tasks = 0
    for state, column, paths in room.groups:
        for model, need in needs.items():
            if not need.columns >> column & 1:
                continue
            whole, nodes = len(state.idle.get(model or "", ())), sum(paths.values())
            blank = state.blanks.get(model or "")
            one = need.pieces[: len(need.pieces) // need.sets]
            tasks += nodes * knife.most_on(state.cuts, blank, whole, model or "", one)
            units = sum(knife.idle_units(cut) for cut in state.cuts if cut.model == model)
            idle += nodes * (units + (whole * knife.sizes.unit if blank is not None else 0))
    return idle, tasks


def _no_legal_place(
    scene: Scene, job: Job, needs: Mapping[str | None, Need], evidence: Evidence, room: str
) -> Said:
    """Enough is idle, but slices may start at few places only, and others lie across them."""
    tables = scene.facts.capacity.cutter.tables
    starts: dict[str, tuple[int, ...]] = {}
    for model, need in needs.items():
        for piece in need.pieces:
            profile = tables[model or ""].profile(piece.profile)
            if profile is not None:
                starts.setdefault(piece.profile, profile.starts)
    idle = gpus(int(evidence["idle_milli_gpu"]))
    text = f"GPUs in MIG mode that it may use have {idle} idle in all, but not where "
    text += " and ".join(
        f"{name} may lie (from slice {', '.join(map(str, found[:-1]))} or {found[-1]})"
        if len(found) > 1
        else f"{name} may lie (from slice {found[0]} only)"
        for name, found in sorted(starts.items())
    )
    evidence["legal_starts"] = "; ".join(
        f"{name}: {', '.join(map(str, found))}" for name, found in sorted(starts.items())
    )
    text += f"; {room}" if room else ""
    found = _restarts(scene, job)
    if found is not None:
        best, node, gpu = found
        evidence |= {"restarts": best.restarts, "gpu": f"{node}/{gpu}"}
        text += f"; restarting {some(best.restarts, 'job')} on GPU {gpu} of {node} would make room"
    return Said(Reason.MIG_LAYOUT, text, evidence)


def _restarts(scene: Scene, job: Job) -> tuple[Repack, str, int] | None:
    """The GPU on which the fewest restarts make room for a job of one task, with its node."""
    supply = scene.facts.capacity
    nodes = {node.name: node for node in scene.snapshot.nodes}
    if job.minimum > 1 or not asks_for_mig(job.request):
        return None
    best: tuple[Repack, str, int] | None = None
    known: dict[MigCut, Repack | None] = {}
    for state in supply.states:
        for cut, gpu in zip(state.cuts, state.cut_gpus, strict=True):
            if not isinstance(cut, MigCut) or cut.fixed:
                continue
            allowed = not job.gpu_models or cut.model in job.gpu_models
            pieces = supply.cutter.pieces(job.request, cut.model) if allowed else None
            if pieces is None:
                continue
            if cut not in known:
                pinned = _pinned(scene, nodes[state.name].name, gpu)
                names = [piece.profile for piece in pieces]
                known[cut] = repack(supply.cutter.tables[cut.model], pinned, names)
            found = known[cut]
            if found is not None and (best is None or found.restarts < best[0].restarts):
                best = found, state.name, gpu
    return best


def _pinned(scene: Scene, node: str, gpu: int) -> list[MigInstance]:
    """Instances of a GPU that jobs have."""
    return [
        instance
        for job in scene.snapshot.jobs
        if job.on_nodes
        for task in job.allocation
        if task.node == node
        for index, instance in zip(task.gpus or (), task.mig, strict=False)
        if index == gpu
    ]
