"""Who has the room that a job would need: those that start now, and those of lower tiers."""

from __future__ import annotations

from trencadis.models import Job
from trencadis.models.plan import Evidence
from trencadis.solver.cuts import parts_matter
from trencadis.solver.explain.case import Case
from trencadis.solver.explain.loss import may_be_stopped
from trencadis.solver.explain.place import Place
from trencadis.solver.explain.said import Said, names, some
from trencadis.solver.explain.scene import Scene
from trencadis.solver.explain.stop import Stopper


def competitors(scene: Scene, place: Place, job: Job, said: Said) -> Said:
    """The same reason with names: the least waiting saved that would have to yield to the job.

    `place`: of the snapshot after the plan's actions.
    """
    worth = scene.facts.values.worth
    started = {name: worth[name].wait for name in scene.ledger.started}
    parts = parts_matter(place.snapshot, job.request)
    found = Stopper(place.snapshot, place, parts=parts).cheapest(
        job, scene.shape(job).models(), started
    )
    if found is None:
        return said
    own, tiers = worth[job.name], scene.snapshot.policy.tiers
    higher = [name for name in found.names if worth[name].tier < own.tier]
    short = {target.queue for target in scene.facts.targets if target.leaf}
    jobs = scene.facts.values.eligible
    owed = sorted({jobs[name].queue for name in found.names if jobs[name].queue in short})
    starts = "starts" if len(found.names) == 1 else "start"
    they = "it saves" if len(found.names) == 1 else "they save"
    text = f"it fits now, but {names(found.names)} {starts} in its place: "
    if higher:
        text += f"{names(higher)} in tier {tiers[worth[higher[0]].tier].name}, it in tier "
        text += tiers[own.tier].name
    elif owed and job.queue not in owed:
        text += f"queue {names(owed)} is short of its guarantee"
    elif found.cost >= own.wait:
        text += f"{they} {found.cost:,} weighted GPU-s of waiting, it would save {own.wait:,}"
    else:
        text += (
            f"{they} {found.cost:,} weighted GPU-s of waiting, it would save {own.wait:,}, "
            "but the plan as a whole saves more without it"
        )
    evidence: Evidence = {
        **said.evidence,
        "in_its_place": ", ".join(found.names),
        "they_save": found.cost,
        "saves": own.wait,
        "tier": tiers[own.tier].name,
    }
    return Said(said.code, text, evidence)


def freeable(case: Case, said: Said) -> Said:
    """The same reason with what stopping lower tiers could free, where that isn't enough."""
    lower = [
        job.name
        for job in case.base.jobs
        if job.state == "running"
        and job.name not in case.starting
        and may_be_stopped(case.base, job, case.job)
    ]
    if not lower or not case.job.request.gpus:
        return said
    stopper = Stopper(case.base, case.place)
    if stopper.fits(case.job, lower, case.models):
        return said
    most = stopper.most_on_a_node(case.job, lower)
    text = (
        f"{said.sentence}; were all preemptible jobs of lower tiers stopped, a node would have "
        f"at most {some(most, 'GPU')} for it"
    )
    return Said(said.code, text, {**said.evidence, "freeable_on_a_node": most})
