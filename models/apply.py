"""apply(snapshot, plan): the next snapshot, as a pure function."""

from __future__ import annotations

from trencadis.models.cluster import MigGpu, Node
from trencadis.models.jobs import Job
from trencadis.models.plan import Plan, Reconfigure
from trencadis.models.snapshot import Snapshot


class PlanMismatchError(ValueError):
    """The plan was made for another snapshot, or names what this one does not have."""


def apply(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """The snapshot right after the plan's actions.

    Raises PlanMismatchError if the plan's fingerprint is not this snapshot's. Says nothing about
    whether the plan keeps the rules: `trencadis.solver.verify` does.
    """
    if plan.snapshot != snapshot.fingerprint():
        raise PlanMismatchError(
            "the plan was made for another snapshot: its fingerprint is "
            f"{plan.snapshot[:12]}, this snapshot's is {snapshot.fingerprint()[:12]}"
        )
    unsupported = plan.preempts or plan.resizes or plan.moves or plan.reserves
    if unsupported:
        raise PlanMismatchError("the plan has actions that this version does not carry out")
    starts = {start.job: start for start in plan.starts}
    jobs: list[Job] = []
    for job in snapshot.jobs:
        start = starts.pop(job.name, None)
        if start is None:
            jobs.append(job)
            continue
        jobs.append(
            job.model_copy(
                update={"state": "running", "start": start.at, "allocation": start.allocation}
            )
        )
    if starts:
        raise PlanMismatchError(f"the plan starts unknown jobs: {', '.join(sorted(starts)[:5])}")
    holds = tuple(hold for hold in snapshot.holds if hold.job not in {s.job for s in plan.starts})
    nodes = snapshot.nodes
    if plan.reconfigures:
        nodes = _with_layouts(nodes, plan.reconfigures)
    return snapshot.model_copy(update={"jobs": tuple(jobs), "holds": holds, "nodes": nodes})


def _with_layouts(nodes: tuple[Node, ...], changes: tuple[Reconfigure, ...]) -> tuple[Node, ...]:
    """The nodes with new MIG layouts."""
    wanted: dict[str, dict[int, Reconfigure]] = {}
    for change in changes:
        wanted.setdefault(change.node, {})[change.gpu] = change
    changed = []
    for node in nodes:
        here = wanted.pop(node.name, None)
        if here is None:
            changed.append(node)
            continue
        mig: list[MigGpu] = []
        for entry in node.mig:
            change_ = here.pop(entry.gpu, None)
            if change_ is None:
                mig.append(entry)
                continue
            if set(change_.before) != set(entry.instances) or change_.turn_on:
                raise PlanMismatchError(
                    f"the plan changes GPU {entry.gpu} of node {node.name} from another MIG layout"
                )
            mig.append(MigGpu(gpu=entry.gpu, instances=change_.after))
        for gpu, change_ in here.items():
            if not change_.turn_on:
                raise PlanMismatchError(f"GPU {gpu} of node {node.name} is not in MIG mode")
            mig.append(MigGpu(gpu=gpu, instances=change_.after))
        mig.sort(key=lambda entry: entry.gpu)
        changed.append(node.model_copy(update={"mig": tuple(mig)}))
    if wanted:
        raise PlanMismatchError(f"the plan changes unknown nodes: {', '.join(sorted(wanted)[:5])}")
    return tuple(changed)
