"""How all jobs go back to the native scheduler: pause, uninstall, and when the loop is gone."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Mapping

from trencadis.adapters.live.cluster import PREFIX, JobView, Reading, RefusedError, Terms
from trencadis.adapters.live.context import Context
from trencadis.adapters.live.logs import decision
from trencadis.adapters.live.reconcile import after_all, begun
from trencadis.adapters.live.relayout import settle_layouts
from trencadis.adapters.live.reserves import KEY


def hand_back(context: Context, why: str, **state: str) -> tuple[list[str], list[str]]:
    """Gives back what waits. Returns the jobs given back; and jobs that still have to leave,
    with nodes whose MIG layout is still being changed.

    First it fences: a loop that is in the middle of a round sends nothing more. What it sets of the
    state, it sets with that. Safe to do again.
    """
    store, cluster = context.store, context.cluster
    store.fence(**{KEY: "{}"}, **state)
    reading = cluster.read(store.terms())
    terms = store.terms()
    leaving: list[str] = []
    for intent in store.intents():
        view = reading.jobs.get(intent.job)
        gone = view is None or view.state in ("waiting", "ended")
        stopping = intent.phase == "stopping" or (view is not None and view.state == "leaving")
        if intent.kind != "start" and stopping and not gone:
            # It can't be called back: the job waits again soon, and is given back then.
            leaving.append(intent.job)
        elif intent.kind == "preempt" and view is not None and view.state == "waiting":
            context.finish(
                intent, "preempted", gpus=intent.gpus, lost_gpu_seconds=intent.lost_gpu_seconds
            )
        elif intent.kind == "start" and (begun(view) or intent.phase == "called-off"):
            after_all(context, intent, view)
        elif intent.kind == "start" and view is not None and view.state == "released":
            # On its way: it may begin this very moment, which only a later look can tell.
            store.advance(intent, "called-off")
            context.note("called-off", intent.job, reason=why)
        else:
            context.finish(intent, "called-off", reason=why)
    given: list[str] = []
    for job, view in _to_give(reading, terms):
        try:
            cluster.give_back(job, terms.get(job, view.terms))
        except RefusedError as error:
            context.note("not-given-back", job, logging.WARNING, reason=str(error))
            continue
        store.forget_terms(job)
        given.append(job)
        context.note("given-back", job, name=view.title, reason=why)
    for name in cluster.reservations():
        context.unreserve(name.removeprefix(PREFIX))
    # A node whose layout is being changed can't take work yet, whoever decides about it.
    leaving.extend(settle_layouts(context))
    return given, leaving


def hand_back_unwritten(context: Context, why: str) -> list[str]:
    """Gives back what waits where the store can't be written (a full disk, a file that broke).

    Nothing is fenced: a loop that can't write sends nothing. The log lines are the only record.
    """
    cluster = context.cluster
    try:
        terms = context.store.terms()
    except sqlite3.Error:
        terms = {}
    given = []
    for job, view in _to_give(cluster.read(terms), terms):
        try:
            cluster.give_back(job, terms.get(job, view.terms))
        except RefusedError as error:
            reason = str(error)
            decision(context.log, "not-given-back", job, level=logging.WARNING, reason=reason)
            continue
        given.append(job)
        decision(context.log, "given-back", job, name=view.title, reason=why)
    for name in cluster.reservations():
        try:
            cluster.unreserve(name)
        except RefusedError as error:
            reason = str(error)
            decision(context.log, "unreserve-refused", name, level=logging.WARNING, reason=reason)
    return given


def _to_give(reading: Reading, terms: Mapping[str, Terms]) -> list[tuple[str, JobView]]:
    """What waits for us, and what was let go on terms that a start has changed."""
    return [
        (job, view)
        for job, view in sorted(reading.jobs.items())
        if (view.state == "waiting" and view.managed) or (view.state == "released" and job in terms)
    ]
