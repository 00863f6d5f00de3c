"""What has become of the actions under way: begun, taken back, done, or to be tried again."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable
from datetime import timedelta

from trencadis.adapters.live.cluster import JobView, Reading, RefusedError
from trencadis.adapters.live.context import Context
from trencadis.adapters.live.reserves import tidy
from trencadis.adapters.live.store import Intent, stamp

BEGUN = ("running", "leaving", "ended")


def reconcile(context: Context, reading: Reading) -> None:
    """Settles what the reading answers. UnavailableError ends it; the next round goes on."""
    starts: defaultdict[str, list[Intent]] = defaultdict(list)
    for written in context.store.intents():
        intent = _by_this_clock(context, written)
        if intent.kind != "start":
            _stop(context, intent, reading.jobs.get(intent.job))
        elif intent.phase == "called-off":
            after_all(context, intent, reading.jobs.get(intent.job))
        elif intent.phase != "waits":
            starts[f"group {intent.group}" if intent.group else intent.job].append(intent)
    for members in starts.values():
        _starts(context, members, reading)
    _tidy(context, reading)
    tidy(context, reading)


def _by_this_clock(context: Context, intent: Intent) -> Intent:
    """Its deadline as far away as it was, where the clock was set back since it was written."""
    ahead = intent.at - context.clock()
    if ahead <= timedelta():
        return intent
    at, deadline = intent.at - ahead, intent.deadline - ahead
    return context.store.advance(intent, intent.phase, at=at, deadline=deadline)


def _starts(context: Context, members: list[Intent], reading: Reading) -> None:
    """Starts that belong together: all have begun, or all are taken back when time is up."""
    views = [(intent, reading.jobs.get(intent.job)) for intent in members]
    waiting = [(i, v) for i, v in views if v is not None and v.state not in BEGUN]
    if not waiting:
        for intent, view in views:
            _begun(context, intent, view)
        return
    trouble = _trouble(context, waiting, reading)
    if trouble is None:
        return
    for intent, view in views:
        if view is None or view.state == "ended":
            _begun(context, intent, view)
        elif view.state in BEGUN:
            _undo_begun(context, intent, view, trouble)
        else:
            withdraw(context, intent, view, trouble)


def _trouble(
    context: Context, waiting: list[tuple[Intent, JobView]], reading: Reading
) -> str | None:
    """Why these must not be waited for any longer."""
    up = {node.name for node in reading.snapshot.nodes if not (node.down or node.cordoned)}
    for intent, view in waiting:
        gone = [node for node in intent.nodes if node not in up]
        if gone:
            return f"node {gone[0]} takes no work any more"
        if view.rejected:
            return f"it would never start there ({view.reason})"
        if view.state == "waiting":
            return "it was not sent to the end, or kept back again"
        if context.clock() >= intent.deadline:
            return f"not started in time ({view.reason or 'no reason given'})"
    return None


def _begun(context: Context, intent: Intent, view: JobView | None) -> None:
    if view is None or not view.nodes:
        reason = "no longer there" if view is None else view.reason
        context.finish(intent, "gone", reason=reason)
        return
    # Of those it began on it may have left some again, where its tasks were done.
    right = set(view.nodes) <= set(intent.nodes)
    context.finish(
        intent,
        "started" if right else "started-elsewhere",
        logging.INFO if right else logging.WARNING,
        name=view.title,
        nodes=view.nodes,
        gpus=dict(view.gpus),
        planned=intent.nodes,
        begun=view.start,
    )


def begun(view: JobView | None) -> bool:
    """Whether a job that waited has been on its nodes."""
    return view is not None and view.state in BEGUN and bool(view.nodes)


def after_all(context: Context, intent: Intent, view: JobView | None) -> None:
    """What became of a start whose job was given back while it was on its way."""
    if view is None or not begun(view):
        reason = "no longer there" if view is None else view.reason or view.state
        context.finish(intent, "not-started", reason=reason)
    elif set(view.nodes) <= set(intent.nodes):
        _begun(context, intent, view)
    else:
        # On its user's own terms by then: where it runs was not ours to say.
        context.finish(intent, "started-by-scheduler", name=view.title, nodes=view.nodes)


def _undo_begun(context: Context, intent: Intent, view: JobView, trouble: str) -> None:
    """A member of a group runs that never came together."""
    if not view.stoppable or view.state != "running":
        context.finish(intent, "started-alone", logging.WARNING, name=view.title, reason=trouble)
        return
    try:
        context.cluster.stop(intent.job)
    except RefusedError as error:
        context.finish(intent, "started-alone", logging.WARNING, name=view.title, reason=str(error))
        return
    context.finish(intent, "rolled-back", logging.WARNING, name=view.title, reason=trouble)


def withdraw(context: Context, intent: Intent, view: JobView | None, trouble: str) -> None:
    """Takes a start back: the job waits again, kept back for us, and avoids these nodes a while."""
    terms = context.store.terms().get(intent.job, {})
    try:
        context.cluster.withdraw(intent.job, terms)
    except RefusedError as error:
        # It may have begun this very moment: the next reading tells.
        context.note("not-withdrawn", intent.job, logging.WARNING, reason=str(error))
        return
    context.store.forget_terms(intent.job)
    if view is None or view.state != "waiting" or view.rejected:
        until = context.clock() + timedelta(seconds=context.config.retry_after_seconds)
        # A group must be whole again before any of it is tried: its others have to leave first.
        context.store.refuse(intent.job, () if intent.group else intent.nodes, until)
    context.finish(
        intent,
        "rolled-back",
        logging.WARNING,
        name="" if view is None else view.title,
        reason=trouble,
        nodes=intent.nodes,
    )


def _stop(context: Context, intent: Intent, view: JobView | None) -> None:
    if view is None:
        context.finish(intent, "gone", reason="no longer there")
    elif view.state == "waiting" and intent.kind == "move":
        _goes_on(context, intent)
    elif view.state == "waiting":
        _preempted(context, intent, view)
    elif view.state == "running" and view.start != intent.begun:
        context.finish(intent, "restarted", logging.WARNING, name=view.title)
    elif view.state == "released":
        context.finish(intent, "requeued-by-others", logging.WARNING, name=view.title)
    elif view.state == "ended":
        if view.finished:
            context.finish(intent, "finished-in-grace", name=view.title)
        else:
            # It left on the signal; without this its work would be lost.
            _send_stop(context, intent, view)
    elif view.state == "running" and (intent.phase == "stopping" or _due(context, intent)):
        _send_stop(context, intent, view)


def _due(context: Context, intent: Intent) -> bool:
    """Whether its grace is over: by time, or because it said that it is ready."""
    return context.clock() >= intent.deadline or bool(
        context.store.rows(
            "SELECT 1 FROM events WHERE job = ? AND kind = 'acknowledged' AND at >= ?",
            intent.job,
            stamp(intent.at),
        )
    )


def _send_stop(context: Context, intent: Intent, view: JobView) -> None:
    intent = context.store.advance(intent, "stopping")
    try:
        context.cluster.stop(intent.job)
    except RefusedError as error:
        context.finish(intent, "stop-refused", logging.WARNING, name=view.title, reason=str(error))


def _goes_on(context: Context, intent: Intent) -> None:
    """Its run has ended; it starts where it is to go as soon as there is room."""
    start = timedelta(seconds=context.config.start_timeout_seconds)
    deadline = context.clock() + start
    context.store.advance(intent, "waits", kind="start", nodes=intent.targets, deadline=deadline)
    context.note("left", intent.job, to=intent.targets, gpus=intent.gpus)


def _preempted(context: Context, intent: Intent, view: JobView) -> None:
    context.finish(
        intent,
        "preempted",
        name=view.title,
        room_for=intent.room_for,
        gpus=intent.gpus,
        lost_gpu_seconds=intent.lost_gpu_seconds,
    )


def _tidy(context: Context, reading: Reading) -> None:
    """Jobs that wait get their old terms back, unless a start of theirs is under way.

    A job that was requeued by others (its node failed) would wait for the nodes that we named: it
    is kept back again.
    """
    busy = {intent.job for intent in context.store.intents()}
    for job, terms in context.store.terms().items():
        view = reading.jobs.get(job)
        if job in busy:
            continue
        if view is None or view.state == "ended":
            context.store.forget_terms(job)
        elif view.state in ("waiting", "released"):
            mend = context.cluster.restore if view.state == "waiting" else context.cluster.withdraw
            try:
                mend(job, terms)
            except RefusedError as error:
                context.note("not-restored", job, logging.WARNING, reason=str(error))
                continue
            if view.state == "released":
                context.note("taken-back", job, logging.WARNING, name=view.title)
            context.store.forget_terms(job)


def on_nodes(reading: Reading, jobs: Iterable[str]) -> list[str]:
    """Those of the jobs that still have their nodes."""
    return [job for job in jobs if job in reading.jobs and reading.jobs[job].state in BEGUN[:2]]
