"""From placed jobs to a plan: starts with indices, reasons, metrics and the proof."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

from trencadis.models import Hold, Node, Plan, Start, TaskAllocation
from trencadis.models.plan import Made
from trencadis.models.preconditions import DELAYED_PRECONDITIONS, START_PRECONDITIONS
from trencadis.solver.bin_types import bin_fragmentation
from trencadis.solver.capacity import NodeState
from trencadis.solver.clock import Limits
from trencadis.solver.elastic.decide import Rest, with_growth
from trencadis.solver.explain.reasons import reasons
from trencadis.solver.explain.scene import Scene
from trencadis.solver.explain.spent import IN_A_ROUND, Spending
from trencadis.solver.layouts import reconfigures, sliced_task
from trencadis.solver.ledger import Ledger
from trencadis.solver.lp import LinearProgram
from trencadis.solver.metrics import metrics
from trencadis.solver.model.build import Model
from trencadis.solver.model.encode import decisions_of
from trencadis.solver.model.problem import Facts
from trencadis.solver.preempt.exchange import Relieved
from trencadis.solver.preempt.holds import due
from trencadis.solver.preempt.tally import Exchange
from trencadis.solver.preempt.timing import (
    changed_by,
    delay_of,
    losses,
    preempts,
    shrinks,
    waits_for,
)
from trencadis.solver.preempt.victims import Victim, may_preempt
from trencadis.solver.proof import overall, prove, stage_shifts
from trencadis.solver.room import room_of
from trencadis.solver.score import (
    Left,
    Placement,
    fragmentation,
    in_both,
    leftovers,
    running_spread,
    score,
)
from trencadis.solver.search import Solution
from trencadis.solver.seats import Rank, seats, with_gpus
from trencadis.solver.shapes import Need, Shape
from trencadis.solver.spread import spread_cost
from trencadis.solver.stages import FRAGMENTATION


@dataclass(frozen=True, slots=True)
class Round:
    """A finished search with everything placed."""

    model: Model
    ledger: Ledger
    solution: Solution
    shape_of: Mapping[str, Shape]
    relieved: Relieved | None = None
    """What preemption made of it; the ledger and facts to report, where present."""
    joint: Joint | None = None
    """Where jobs may be preempted: what bounds the round."""


@dataclass(frozen=True, slots=True)
class Joint:
    """The model in which jobs may stop as well as start."""

    model: Model
    relaxed: LinearProgram | None
    """Its relaxation, if that was solved."""


def make_plan(
    facts: Facts,
    outcome: Round,
    unreserved: Facts,
    limits: Limits,
    fingerprint: str,
    made: Made,
    warnings: tuple[str, ...],
) -> Plan:
    """The plan of a round. `unreserved`: its facts before reservations kept anyone away;
    `fingerprint`: the snapshot's."""
    snapshot = facts.snapshot
    nodes = {node.name: node for node in snapshot.nodes}
    relieved = outcome.relieved
    later, ledger = facts, outcome.ledger
    if relieved is not None:
        later, ledger = relieved.facts, relieved.ledger
    placements = seat_all(later, ledger, nodes)
    waiting = {} if relieved is None else waits_for(facts, relieved.exchange, placements)
    exchange = Exchange() if relieved is None else relieved.exchange
    gone = exchange.victims
    constants = running_spread(facts, nodes)
    before, after = leftovers(facts, {}), leftovers(later, placements)
    frag_before, frag_after = fragmentation(facts, before), fragmentation(later, after)
    changed = changed_by(facts, gone, waiting, constants, nodes)
    joint = outcome.joint
    model = outcome.model if joint is None else joint.model
    stages = prove(
        facts,
        model,
        outcome.solution if joint is None else Solution([], {}, joint.relaxed),
        decisions_of(model, ledger, gone),
        constants,
        nothing=score(facts, {}, constants, frag_before, {}),
        achieved=score(
            later,
            placements,
            changed,
            frag_after,
            {name: cost for name, rest in after.items() if (cost := rest.layout_cost())},
        ),
        lost=stage_shifts(facts, losses(facts, gone, nodes)),
        limits=limits,
        opened=joint is not None,
    )
    open_ = replace(later, admission=unreserved.admission, maker=unreserved.maker)
    room = room_of(
        [_state_after(state, after[state.name]) for state in later.capacity.states],
        open_.admission.column,
        facts.fabric,
    )
    # Needs are those of the admission that they were made for.
    shapes = outcome.shape_of if facts.admission is unreserved.admission else {}
    held = due(snapshot)
    starts = [_start(facts, placements[name], gone, waiting) for name in placements]
    starts += [_held_start(facts, hold) for hold in held]
    begun = {hold.job for hold in held}
    spending = None
    if may_preempt(snapshot):
        where = {start.job: start.allocation for start in starts}
        spending = Spending(open_, ledger, gone, where, IN_A_ROUND)
    present = facts.capacity.states
    reasons_given = reasons(Scene(open_, ledger, room, shapes, facts.kept, present, spending))
    plan = Plan(
        snapshot=fingerprint,
        now=snapshot.now,
        starts=tuple(sorted(starts, key=lambda start: start.job)),
        preempts=preempts(facts, exchange, waiting),
        resizes=shrinks(facts, exchange, waiting),
        reconfigures=reconfigures(later, placements, after, nodes),
        reserves=tuple(entry.record() for entry in facts.kept.planned()),
        pending=tuple(entry for entry in reasons_given if entry.job not in begun),
        metrics=metrics(facts, before, after, frag_before, frag_after, placements),
        proof=overall(stages),
        warnings=warnings,
        made=made,
    )
    if gone:
        # Further tasks need room while victims are still there as well.
        at_once = {name: p for name, p in placements.items() if name not in waiting}
        after = in_both(leftovers(facts, at_once), after)
    rest = Rest(facts, later, placements, after, waiting, exchange, nodes)
    return with_growth(plan, rest, limits)


def cost_of(facts: Facts, relieved: Relieved) -> tuple[list[int], list[int]]:
    """What a round costs by stage, fragmentation aside, and the part of it that victims lose."""
    nodes = {node.name: node for node in facts.snapshot.nodes}
    placements = seat_all(relieved.facts, relieved.ledger, nodes)
    waiting = waits_for(facts, relieved.exchange, placements)
    constants = running_spread(facts, nodes)
    changed = changed_by(facts, relieved.exchange.victims, waiting, constants, nodes)
    stages = score(relieved.facts, placements, changed, {}, {})
    shift = stage_shifts(facts, constants)
    lost = stage_shifts(facts, losses(facts, relieved.exchange.victims, nodes))
    names = [name for name in stages if name != FRAGMENTATION]
    cost = [stages[name] - shift.get(name, 0) for name in names]
    return cost, [lost.get(name, 0) for name in names]


def seat_all(facts: Facts, ledger: Ledger, nodes: Mapping[str, Node]) -> dict[str, Placement]:
    """Gives every started task its GPU indices."""
    tasks: defaultdict[str, list[TaskAllocation]] = defaultdict(list)
    eligible = facts.values.eligible
    for name, node in ledger.nodes.items():
        if not node.taken:
            continue
        taken = sorted(
            (entry for entry in node.taken if not entry[1].pieces),
            key=lambda entry: (-entry[1].gpus, entry[0]),
        )
        opened = node.desk.opened_needs(len(node.free))
        rank = _ranker(facts, node.state, node.taken)
        state = with_gpus(node.state, node.desk.closed_gpus(node.state.cut_gpus))
        seated = seats(state, [*(need for _, need in taken), *opened], rank)
        for (job, _), sets in zip(taken, seated.sets, strict=False):
            tasks[job].extend(TaskAllocation(node=name, gpus=gpus) for gpus in sets)
        fresh = [gpu for sets in seated.sets[len(taken) :] for gpus in sets for gpu in gpus or ()]
        for job, pieces in node.desk.tasks(node.state.cut_gpus, fresh):
            tasks[job].append(sliced_task(name, eligible[job], pieces))
    placements: dict[str, Placement] = {}
    for name, (model, _) in ledger.started.items():
        where = tuple(sorted(tasks[name], key=_task_order))
        placements[name] = Placement(
            job=eligible[name],
            model=model,
            tasks=where,
            spread=spread_cost(facts, eligible[name], where, model, nodes),
            depth=facts.fabric.common_depth(
                (*(task.node for task in where), *eligible[name].rest_on)
            ),
        )
    return placements


def _task_order(task: TaskAllocation) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    return task.node, task.gpus or (), tuple(instance.start for instance in task.mig)


def _ranker(facts: Facts, state: NodeState, taken: list[tuple[str, Need]]) -> Rank:
    """Ranks leftovers of a node with explicit NVLink by their fragmentation."""
    free = tuple(have - sum(need.need[d] for _, need in taken) for d, have in enumerate(state.free))

    def rank(masks: dict[str, int]) -> int:
        left = {m: tuple(i for i in state.idle[m] if mask >> i & 1) for m, mask in masks.items()}
        return bin_fragmentation(facts.profile, state, left, free)

    return rank


def _start(
    facts: Facts,
    placement: Placement,
    gone: Mapping[str, Victim],
    waiting: Mapping[str, tuple[str, ...]],
) -> Start:
    fabric = facts.fabric
    where = [task.node for task in placement.tasks]
    name = placement.job.name
    victims = waiting.get(name, ())
    delay = delay_of(victims, gone)
    return Start(
        job=name,
        at=facts.snapshot.now + timedelta(seconds=delay),
        allocation=placement.tasks,
        level=fabric.names[placement.depth],
        domain=fabric.domain_name(where, placement.depth),
        waiting_saved=facts.values.worth[name].wait,
        spread_cost=placement.spread,
        waits_for=victims,
        preconditions=DELAYED_PRECONDITIONS if victims else START_PRECONDITIONS,
    )


def _held_start(facts: Facts, hold: Hold) -> Start:
    fabric = facts.fabric
    (job,) = (job for job in facts.snapshot.jobs if job.name == hold.job)
    where = [*(task.node for task in hold.allocation), *job.rest_on]
    depth = fabric.common_depth(where)
    return Start(
        job=hold.job,
        at=facts.snapshot.now,
        allocation=hold.allocation,
        level=fabric.names[depth],
        domain=fabric.domain_name(where, depth),
    )


def _state_after(state: NodeState, left: Left) -> NodeState:
    return NodeState(
        name=state.name,
        node=state.node,
        idle={} if left.exclusive else {m: gpus for m, gpus in left.idle.items() if gpus},
        counted=state.counted,
        free=tuple(0 for _ in left.free) if left.exclusive else left.free,
        vacant=state.vacant and left.free == state.free and left.idle == state.idle,
        cutter=state.cutter,
        cuts=() if left.exclusive else tuple(sorted(left.cuts.values())),
        blanks=state.blanks,
    )
