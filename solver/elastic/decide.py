"""The last decision of a round: further tasks for elastic jobs, entered into its plan."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from trencadis.models import Job, Metrics, Node, Plan, StageProof, Start, Status, TaskAllocation
from trencadis.models.plan import Resize
from trencadis.solver.capacity import running_model
from trencadis.solver.clock import Limits
from trencadis.solver.elastic.growth import Growth, grow
from trencadis.solver.elastic.jobs import Grower, elastic, grower, missing
from trencadis.solver.elastic.nodes import Nodes
from trencadis.solver.elastic.quotas import Quotas, Use
from trencadis.solver.model.problem import Facts
from trencadis.solver.preempt.tally import Exchange
from trencadis.solver.score import Left, Placement


@dataclass(frozen=True, slots=True)
class Rest:
    """What the round has decided so far."""

    read: Facts
    later: Facts
    """With the victims gone."""
    placements: Mapping[str, Placement]
    left: Mapping[str, Left]
    """What nodes have left, now and after the starts."""
    late: Collection[str]
    """Starts that wait for victims."""
    exchange: Exchange
    """Who stops or shrinks."""
    nodes: Mapping[str, Node]


def with_growth(plan: Plan, rest: Rest, limits: Limits) -> Plan:
    """The plan with further tasks, and their proof."""
    now = {job.name: tasks - job.minimum for job, tasks in _running(rest.read) if elastic(job)}
    nothing = missing(rest.read, now)
    if nothing is None:
        return plan
    growers = list(_growers(rest))
    found = Growth({}, 0, 0)
    if growers:
        quotas = Quotas(rest.later, growers, list(_in_use(rest)))
        found = grow(Nodes(rest.later, rest.left, growers), quotas, limits)
    shrunk, gone = rest.exchange.shrunk(), rest.exchange.stopped()
    kept = {n: has - len(shrunk.get(n, ())) for n, has in now.items() if n not in gone}
    before = missing(rest.read, kept)
    assert before is not None
    starts = tuple(_grown(start, found.tasks.get(start.job, ())) for start in plan.starts)
    begun = {start.job for start in plan.starts}
    resizes = tuple(
        Resize(job=name, at=plan.now, add=tasks)
        for name, tasks in sorted(found.tasks.items())
        if name not in begun
    )
    return plan.model_copy(
        update={
            "starts": starts,
            "resizes": (*plan.resizes, *resizes),
            "metrics": _metrics(plan, growers, found),
            "proof": plan.proof.model_copy(
                update={
                    "growth": _proof(before - found.value, before - found.bound, nothing, limits)
                }
            ),
        }
    )


def _running(read: Facts) -> Iterator[tuple[Job, int]]:
    for job in read.snapshot.jobs:
        if job.state == "running" and job.allocation:
            yield job, len(job.allocation)


def _growers(rest: Rest) -> Iterator[Grower]:
    disturbed = {victim.job.name for victim in rest.exchange.victims.values()}
    for job, _ in _running(rest.read):
        if job.name not in disturbed and elastic(job):
            found = grower(rest.read, job, job.allocation, running_model(job, rest.nodes))
            if found is not None and found.values:
                yield found
    for name, placement in rest.placements.items():
        if name not in rest.late and elastic(placement.job):
            found = grower(rest.read, placement.job, placement.tasks, placement.model)
            if found is not None:
                yield found


def _in_use(rest: Rest) -> Iterator[Use]:
    sizes = rest.read.values.rates.sizes
    shrunk, gone = rest.exchange.shrunk(), rest.exchange.stopped()
    for job in rest.read.snapshot.jobs:
        if job.on_nodes and job.name not in gone:
            lost = sum(part.units for part in shrunk.get(job.name, ()))
            yield job, sizes.job(job) - lost, running_model(job, rest.nodes)
    for placement in rest.placements.values():
        yield placement.job, sizes.job(placement.job), placement.model


def _grown(start: Start, tasks: tuple[TaskAllocation, ...]) -> Start:
    if not tasks:
        return start
    update = {"allocation": (*start.allocation, *tasks), "further": len(tasks)}
    return start.model_copy(update=update)


def _metrics(plan: Plan, growers: list[Grower], found: Growth) -> Metrics:
    """GPUs that further tasks use count as used."""
    gained = {entry.model: 0 for entry in growers if entry.model is not None and entry.gpus}
    for entry in growers:
        if entry.model in gained:
            gained[entry.model] += len(found.tasks.get(entry.job.name, ())) * entry.gpus
    by_model = {
        model: counts.model_copy(update={"used_after": counts.used_after + gained.get(model, 0)})
        for model, counts in plan.metrics.by_model.items()
    }
    used = plan.metrics.used_after + sum(gained.values())
    return plan.metrics.model_copy(update={"used_after": used, "by_model": by_model})


def _proof(objective: int, bound: int, nothing: int, limits: Limits) -> StageProof:
    # Who shrinks may leave more missing than before.
    room = max(nothing, objective) - bound
    gap = (objective - bound) / room if room else 0.0
    status = Status.FEASIBLE
    if objective == bound:
        status = Status.OPTIMAL
    elif limits.stop.is_set():
        status = Status.INTERRUPTED
    elif gap <= limits.gap:
        status = Status.GAP
    return StageProof(
        name="growth",
        unit="weighted GPU-s",
        objective=objective,
        bound=bound,
        do_nothing=nothing,
        gap=gap,
        status=status,
    )
