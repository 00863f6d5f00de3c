"""All that the rules look at, worked out once from snapshot and plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from trencadis.models import Job, Plan, TaskAllocation
from trencadis.solver.verify.fits import Shape
from trencadis.solver.verify.forecast import Forecast, ranks, runtimes
from trencadis.solver.verify.kept import Kept, kept_of
from trencadis.solver.verify.ledger import Ledger, Row
from trencadis.solver.verify.lending import Lending
from trencadis.solver.verify.order import Order
from trencadis.solver.verify.preempted import changes, losses, without
from trencadis.solver.verify.situation import Placed, Situation
from trencadis.solver.verify.situation import Row as QueueRow
from trencadis.solver.verify.stages import Stages, place_starts, states_after
from trencadis.solver.verify.supply import NodeState
from trencadis.solver.verify.targets import in_use


@dataclass(frozen=True, slots=True)
class Facts:
    """A snapshot and a plan for it whose form is sound."""

    base: Situation
    """The snapshot as it is."""
    situation: Situation
    """The same without the jobs that the plan stops, and the tasks that elastic ones give up."""
    before: Mapping[QueueRow, int]
    """Quota units in use by each subtree now."""
    starts: tuple[Placed, ...]
    started: frozenset[str]
    by_node: Mapping[str, tuple[tuple[Placed, TaskAllocation], ...]]
    """Tasks that start on each node."""
    states: Mapping[str, NodeState]
    """Nodes after the starts."""
    stages: Stages
    ledger: Ledger
    used: Mapping[Row, int]
    """What is in use under each limit after the starts."""
    lending: Lending
    in_use: Mapping[QueueRow, int]
    """Quota units in use by each subtree after the starts."""
    order: Order
    blocked: Mapping[str, str]
    """Jobs that their strict queue holds back -> the job before them."""
    objective: Mapping[str, int]
    do_nothing: Mapping[str, int]
    lost: Mapping[str, int]
    """What victims lose, by stage."""
    kept: Kept

    def shape(self, job: Job) -> Shape:
        """What decides where the job fits, with what is reserved for others out of bounds."""
        shape = self.stages.targets.shapes.of_job(job)
        barred = self.kept.bars(job)
        if not barred:
            return shape
        return shape._replace(wish=shape.wish._replace(barred=barred))


def gather(
    base: Situation,
    plan: Plan,
    stages: Stages,
    do_nothing: Mapping[str, int],
    whole: Plan | None = None,
) -> Facts:
    """The facts of this plan; `stages` and `do_nothing`: of the snapshot as it is. `whole`: the
    plan with further tasks, where it has any."""
    removed = {resize.job: resize.remove for resize in plan.resizes if resize.remove}
    situation = without(base, (stop.job for stop in plan.preempts), removed)
    starts = place_starts(situation, plan.starts)
    started = frozenset(entry.job.name for entry in starts)
    states = states_after(situation, starts)
    ledger = Ledger(situation)
    used = dict(ledger.before)
    for entry in starts:
        for row, amount in ledger.charges_of(entry):
            used[row] = used.get(row, 0) + amount
    order = Order(situation, stages.targets)
    changed = changes(base, stages.costs, plan)
    kept = _kept(base, whole or plan, stages)
    situation = replace(situation, reserved=kept.nodes)
    return Facts(
        base=base,
        situation=situation,
        before=in_use(base),
        starts=starts,
        started=started,
        by_node=tasks_by_node(starts),
        states=states,
        stages=stages,
        ledger=ledger,
        used=used,
        lending=Lending(situation),
        in_use=in_use(situation, starts),
        order=order,
        blocked=order.blocked(started),
        objective=stages.values(starts, states, situation, changed),
        do_nothing=do_nothing,
        lost=stages.of_tiers(losses(base, stages.costs, plan)),
        kept=kept,
    )


def _kept(base: Situation, plan: Plan, stages: Stages) -> Kept:
    if not plan.reserves and len(base.snapshot.delayed) == len(base.snapshot.holds):
        return kept_of(Forecast(base, {}, {}, plan))
    order = ranks(base, stages.targets.rows, in_use(base))
    return kept_of(Forecast(base, runtimes(base), order, plan))


def tasks_by_node(
    starts: Iterable[Placed],
) -> dict[str, tuple[tuple[Placed, TaskAllocation], ...]]:
    """The tasks that start on each node, with their jobs."""
    found: dict[str, list[tuple[Placed, TaskAllocation]]] = {}
    for entry in starts:
        for task in entry.tasks:
            found.setdefault(task.node, []).append((entry, task))
    return {name: tuple(tasks) for name, tasks in found.items()}
