"""Why a job that starts, or runs, is where it is: why there, why now, whom it displaced."""

from __future__ import annotations

from trencadis.models import Job, Plan, Snapshot, Start
from trencadis.models.explanation import Explanation, Reason
from trencadis.models.plan import Evidence
from trencadis.solver.capacity import capacity
from trencadis.solver.explain.changes import end_of
from trencadis.solver.explain.reasons import Reasons, waiting
from trencadis.solver.explain.said import names, some, when
from trencadis.solver.explain.scene import Scene
from trencadis.solver.room import room_of

SHOWN = 20
"""Displaced jobs that the evidence names."""


def explain_placed(reasons: Reasons, plan: Plan, following: Snapshot, job: Job) -> Explanation:
    """The explanation of a job that does not wait."""
    start = next((start for start in plan.starts if start.job == job.name), None)
    if start is not None:
        return _starts(reasons, following, job, start)
    sentence = {
        "running": f"runs on {names(sorted({task.node for task in job.allocation}))}",
        "draining": "is leaving its nodes",
        "held": "is held: somebody has to release it",
    }[job.state]
    evidence: Evidence = {"tasks": len(job.allocation)}
    end = end_of(job) if job.on_nodes else None
    if job.start is not None and job.on_nodes:
        sentence += f" since {when(job.start)}"
    if end is not None:
        sentence += f"; by its estimate until {when(end)}"
        evidence["until"] = end.isoformat()
    code = "runs" if job.on_nodes else "held"
    for repair in plan.repairs:
        if repair.job == job.name:
            nodes = names(sorted({task.node for task in repair.add}))
            sentence += f"; gets {some(len(repair.add), 'task')} back, on {nodes}"
            evidence["repaired"] = len(repair.add)
    for entry in plan.pending:
        if entry.job == job.name:
            sentence += f"; {entry.sentence}"
            code, evidence = entry.code, {**entry.evidence, **evidence}
    return Explanation.model_validate(
        {
            "job": job.name,
            "queue": job.queue,
            "state": job.state,
            "code": code,
            "sentence": sentence,
            "evidence": evidence,
            "proof": "rules",
        }
    )


def _starts(reasons: Reasons, following: Snapshot, job: Job, start: Start) -> Explanation:
    scene = reasons.scene
    worth = scene.facts.values.worth[job.name]
    fabric = scene.facts.fabric
    nearest = _nearest(scene, job)
    gained = displaced(reasons, following, job.name)
    tier = scene.snapshot.policy.tiers[worth.tier].name
    sentence = (
        f"starts on {names(sorted({task.node for task in start.allocation}))}: it ends "
        f"{start.waiting_saved:,} weighted GPU-s of waiting in tier {tier}"
    )
    if len(start.allocation) > 1:
        near = fabric.names.index(start.level)
        sentence += f", all in one {start.level} ({start.domain or 'the whole cluster'})"
        if near < nearest:
            sentence += f"; alone it would fit one {fabric.names[nearest]}"
        else:
            sentence += ", as near to each other as it can be"
    if start.spread_cost:
        sentence += f"; distance and speed cost {start.spread_cost:,}"
    short = {t.queue: t.missing for t in scene.facts.targets if not t.model}
    owed = [name for name in scene.facts.values.tree.chain(job.queue) if name in short]
    if owed:
        sentence += f"; queue {owed[0]} is short of its guarantee"
    if gained:
        sentence += f"; without it {names(gained)} would fit"
    return Explanation(
        job=job.name,
        queue=job.queue,
        state="started",
        code="starts",
        sentence=sentence,
        evidence={
            "waiting_saved": start.waiting_saved,
            "spread_cost": start.spread_cost,
            "tier": tier,
            "level": start.level,
            "domain": start.domain,
            "nearest_level": fabric.names[nearest],
            "nodes": len({task.node for task in start.allocation}),
            "gpus": len(start.allocation) * job.request.gpus,
            "displaced": len(gained),
            "displaced_jobs": ", ".join(gained[:SHOWN]),
            "waits_for": ", ".join(start.waits_for),
        },
        proof="plan",
        assumptions=(
            f"its place is the plan's, which starts {some(len(scene.ledger.started), 'job')}",
        ),
    )


def _nearest(scene: Scene, job: Job) -> int:
    """The finest depth at which the job alone would fit the present state."""
    return max(
        (
            alternative.way.depth
            for alternative in scene.shape(job).alternatives
            if scene.before.takes(job, alternative.way)
        ),
        default=0,
    )


def displaced(reasons: Reasons, following: Snapshot, name: str) -> list[str]:
    """Waiting jobs that fit now and would still fit if this one did not start."""
    scene = reasons.scene
    left = following.model_copy(
        update={"jobs": tuple(job for job in following.jobs if job.name != name)}
    )
    room = room_of(capacity(left).states, scene.facts.admission.column, scene.facts.fabric)
    known: dict[object, bool] = {}
    found = []
    for job in waiting(scene):
        if reasons.of(job).code is not Reason.OUTRANKED:
            continue
        key = reasons.key(job)
        if key not in known:
            known[key] = scene.takes(room, job, reasons.ways(job))
        if known[key]:
            found.append(job.name)
    return found
