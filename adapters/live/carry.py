"""How a plan is carried out: each action only if its preconditions still hold, written first."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

from trencadis.adapters.live import stops
from trencadis.adapters.live.cluster import PREFIX, JobView, Reading, RefusedError
from trencadis.adapters.live.context import Context
from trencadis.adapters.live.ground import Ground, may_move, may_start, may_stop
from trencadis.adapters.live.overlay import overlay
from trencadis.adapters.live.reconcile import on_nodes, withdraw
from trencadis.adapters.live.relayout import Change, avoid, change_layout, changes, waiting
from trencadis.adapters.live.reserves import LONGEST, forget, keep, needless, taken
from trencadis.adapters.live.store import Intent
from trencadis.models import Job, Plan, Snapshot, Start
from trencadis.models.plan import Move, Preempt, Reserve
from trencadis.models.preconditions import START_PRECONDITIONS


@dataclass(frozen=True, slots=True)
class Step:
    """One action of a plan, and why it is not sent, if so: it may not, or need not be."""

    kind: str
    job: str
    nodes: tuple[str, ...]
    blocked: str | None
    needless: str | None = None


def carry_out(
    context: Context, plan: Plan, decided_on: Snapshot, reading: Reading, epoch: int
) -> list[Step]:
    """Sends what may be sent. UnavailableError and FencedError end it in the middle, safely."""
    done: list[Step] = []
    before = {job.name: job for job in decided_on.jobs}
    refused = keep(context, plan, decided_on, reading, epoch)
    told, context.skipped = context.skipped, {}
    for step, action in _steps(context, plan, before, reading):
        if isinstance(action, Reserve) and step.job in refused:
            step = replace(step, blocked=refused[step.job])  # noqa: PLW2901
        done.append(step)
        if isinstance(action, Change):
            avoid(context, action)
        if step.blocked is not None:
            context.skipped[step.kind, step.job] = step.blocked
            if told.get((step.kind, step.job)) != step.blocked:
                kind = f"{step.kind}-skipped"
                context.note(kind, step.job, logging.WARNING, reason=step.blocked)
        elif isinstance(action, Preempt):
            stops.preempt(context, action, reading.jobs[step.job], epoch)
        elif isinstance(action, Move):
            after = _earlier(plan, action, reading)
            stops.move(context, action, decided_on, after, epoch, reading.jobs[step.job])
        elif isinstance(action, Start):
            _start(context, action, before, reading.jobs[step.job], epoch)
        elif isinstance(action, Change):
            context.store.check(epoch)
            change_layout(context, action)
    return done


def rehearse(context: Context, plan: Plan, decided_on: Snapshot, reading: Reading) -> list[Step]:
    """What `carry_out` would do now."""
    before = {job.name: job for job in decided_on.jobs}
    return [step for step, _ in _steps(context, plan, before, reading)]


def _steps(
    context: Context, plan: Plan, before: Mapping[str, Job], reading: Reading
) -> Iterator[tuple[Step, Preempt | Move | Start | Reserve | Change | None]]:
    scope = context.config.scope
    ground = Ground(overlay(reading, context.store, context.clock()), scope)
    intents = context.store.intents()
    busy = {intent.job for intent in intents}
    counted_on = {node for intent in intents for node in _counted_on(intent)}
    # In a plan of moves layouts change for slices that move, and none does here.
    rounds = plan.purpose == "round"
    changing = changes(context, plan, reading, before, counted_on) if rounds else {}
    later = waiting(plan, changing)
    stopped: set[str] = set()
    for preempt in sorted(plan.preempts, key=lambda action: action.job):
        view = reading.jobs.get(preempt.job)
        blocked = may_stop(preempt, before.get(preempt.job), view, scope, plan.now)
        if preempt.job in busy or preempt.job in stopped:
            blocked = "an action for it is under way"
        elif preempt.makes_room_for and later.keys() >= set(preempt.makes_room_for):
            blocked = "what it makes room for waits for a MIG layout"
        if blocked is None:
            stopped.add(preempt.job)
        yield Step("preempt", preempt.job, view.nodes if view else (), blocked), preempt
    for change in changing.values():
        yield (
            Step("reconfigure", change.name or change.node, (change.node,), change.blocked),
            change,
        )
    for move in sorted(plan.moves, key=lambda action: (action.step, action.job)):
        view = reading.jobs.get(move.job)
        blocked = may_move(move, before.get(move.job), view, scope, plan.now)
        missing = sorted(set(_earlier(plan, move, reading)) - stopped)
        if blocked is None and missing:
            blocked = f"{missing[0]}, which is to leave first, isn't moved"
        if move.job in busy or move.job in stopped:
            blocked = "an action for it is under way"
        if blocked is None:
            stopped.add(move.job)
        yield Step("move", move.job, _nodes(move), blocked), move
    busy_groups = {_group(before, start) for start in plan.starts if start.job in busy}
    begun: set[str] = set()
    for start in plan.starts:
        nodes = _nodes(start)
        victims = set(start.waits_for)
        if start.job in busy or start.job in begun:
            blocked = "an action for it is under way"
        elif start.job in later:
            blocked = later[start.job]
        elif victims:
            # Its victims are still there: whether all is free is asked again when they have left.
            missing = sorted(victims - stopped - busy)
            blocked = f"its victim {missing[0]} isn't stopped" if missing else None
        else:
            blocked = may_start(ground, start, reading)
        group = _group(before, start)
        if blocked is None and group is not None and group in busy_groups:
            blocked = "an action for a job of its group is under way"
        if blocked is None:
            begun.add(start.job)
        yield Step("start", start.job, nodes, blocked), start
    yield from _reserves(context, plan, reading)
    yield from _never_sent(plan)


def _reserves(context: Context, plan: Plan, reading: Reading) -> Iterator[tuple[Step, Reserve]]:
    for reserve in plan.reserves:
        why = needless(reserve, reading, context.config)
        yield Step("reserve", reserve.job, _nodes(reserve), None, why), reserve


def _never_sent(plan: Plan) -> Iterator[tuple[Step, None]]:
    """The rounds' own plans have none of these: `overlay` and the readings forbid them."""
    for resize in plan.resizes:
        yield Step("resize", resize.job, (), "jobs that run are not resized"), None
    for repair in plan.repairs:
        yield Step("repair", repair.job, (), "nothing adds tasks to a job that runs"), None


def _earlier(plan: Plan, move: Move, reading: Reading) -> list[str]:
    """The jobs of earlier steps that are now where this one is to go."""
    to = set(_nodes(move))
    return sorted(
        other.job
        for other in plan.moves
        if other.step < move.step
        and other.job in reading.jobs
        and to.intersection(reading.jobs[other.job].nodes)
    )


def _nodes(action: Start | Reserve | Move) -> tuple[str, ...]:
    tasks = action.to if isinstance(action, Move) else action.allocation
    return tuple(sorted({task.node for task in tasks}))


def _counted_on(intent: Intent) -> set[str]:
    """Nodes that what is under way has, or is to have."""
    return {*intent.nodes, *(task.node for task in intent.tasks)}


def _group(before: Mapping[str, Job], start: Start) -> str | None:
    job = before.get(start.job)
    return None if job is None else job.group


def _start(
    context: Context, start: Start, before: Mapping[str, Job], view: JobView, epoch: int
) -> None:
    now = context.clock()
    nodes = _nodes(start)
    intent = Intent(
        start.job,
        "start",
        "waits" if start.waits_for else "sending",
        now,
        now + timedelta(seconds=context.config.start_timeout_seconds),
        nodes=nodes,
        allocation=tuple(task.model_dump(mode="json") for task in start.allocation),
        group=_group(before, start),
        waits_for=start.waits_for,
        round=context.round,
        reserved=taken(context, start.job)
        or (bool(start.waits_for) and context.config.reserve_delayed),
    )
    context.store.begin(intent, None if start.waits_for else view.terms, epoch)
    forget(context, start.job)
    if start.waits_for:
        context.note(
            "start-waits", start.job, name=view.title, waits_for=start.waits_for, nodes=nodes
        )
        if intent.reserved:
            _reserve(context, start.job, nodes)
        return
    _send(context, intent, view)


def send_due(context: Context, reading: Reading, epoch: int) -> None:
    """Sends the starts whose victims have left, and gives up those that can't come any more."""
    intents = context.store.intents()
    due = [intent for intent in intents if intent.phase == "waits"]
    if not due:
        return
    stopping = {intent.job for intent in intents if intent.kind != "start"}
    held = overlay(reading, context.store, context.clock())
    for intent in due:
        view = reading.jobs.get(intent.job)
        victims = stopping.intersection(intent.waits_for)
        if not intent.moved:  # who makes room for a move may be running elsewhere by now
            victims |= set(on_nodes(reading, intent.waits_for))
        if view is None or view.state != "waiting":
            _give_up(context, intent, "the job no longer waits")
        elif victims - stopping and not victims & stopping:
            _give_up(context, intent, f"{min(victims)} was not stopped after all")
        elif not victims and not _too_early(held, intent.job):
            # Its own hold is what it is about to take.
            ours = tuple(hold for hold in held.holds if hold.job != intent.job)
            free = held.model_copy(update={"holds": ours})
            ground = Ground(free, context.config.scope)
            blocked = ground.start(intent.job, intent.tasks, view, START_PRECONDITIONS)
            if blocked is not None:
                _give_up(context, intent, blocked)
                continue
            deadline = context.clock() + timedelta(seconds=context.config.start_timeout_seconds)
            intent = context.store.advance(  # noqa: PLW2901
                intent, "sending", terms=view.terms, epoch=epoch, deadline=deadline
            )
            _send(context, intent, view)


def _too_early(snapshot: Snapshot, job: str) -> bool:
    """Whether the native scheduler lets it start only later: Slurm delays a requeued job."""
    record = next((entry for entry in snapshot.jobs if entry.name == job), None)
    later = None if record is None else record.not_before
    return later is not None and later > snapshot.now


def _give_up(context: Context, intent: Intent, reason: str) -> None:
    context.finish(intent, "dissolved", logging.WARNING, reason=reason)


def _send(context: Context, intent: Intent, view: JobView) -> None:
    try:
        context.cluster.start(intent.job, intent.tasks, view, reserved=intent.reserved)
    except RefusedError as error:
        context.note("refused", intent.job, logging.WARNING, name=view.title, reason=str(error))
        until = context.clock() + timedelta(seconds=context.config.retry_after_seconds)
        context.store.refuse(intent.job, intent.nodes, until)
        withdraw(context, intent, view, f"refused: {error}")
        return
    context.store.advance(intent, "sent")
    context.note("start", intent.job, name=view.title, nodes=intent.nodes)


def _reserve(context: Context, job: str, nodes: tuple[str, ...]) -> None:
    now = context.clock()
    try:
        context.cluster.reserve(PREFIX + job, job, nodes, now, now + LONGEST)
    except RefusedError as error:
        context.note("reserve-refused", job, logging.WARNING, reason=str(error))
