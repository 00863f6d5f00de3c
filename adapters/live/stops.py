"""How a run is asked to end: for a start that needs its room, or to go on elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from trencadis.adapters.live.cluster import JobView, RefusedError
from trencadis.adapters.live.context import Context
from trencadis.adapters.live.hooks import HookError, tell
from trencadis.adapters.live.store import Intent
from trencadis.models import Snapshot
from trencadis.models.plan import Move, Preempt


def preempt(context: Context, action: Preempt, view: JobView, epoch: int) -> None:
    """Begins a victim's grace."""
    now = context.clock()
    intent = Intent(
        action.job,
        "preempt",
        "announced",
        now,
        now + max(timedelta(), action.gpus_free_at - action.at),
        nodes=view.nodes,
        begun=view.start,
        room_for=action.makes_room_for,
        gpus=_gpus(view),
        lost_gpu_seconds=action.lost_gpu_seconds,
        round=context.round,
    )
    _announce(context, intent, view, epoch, room_for=intent.room_for)


def move(
    context: Context, action: Move, snapshot: Snapshot, after: Iterable[str], epoch: int,
    view: JobView,
) -> None:  # fmt: skip
    """Begins the grace of a job that is to go on elsewhere, once `after` have left.

    `snapshot`: what the plan was made for.
    """
    now = context.clock()
    told = {job.name: job.grace_seconds for job in snapshot.jobs}.get(action.job)
    grace = snapshot.policy.preemption.grace_seconds if told is None else told
    intent = Intent(
        action.job,
        "move",
        "announced",
        now,
        now + timedelta(seconds=grace),
        nodes=view.nodes,
        allocation=tuple(task.model_dump(mode="json") for task in action.to),
        waits_for=tuple(after),
        begun=view.start,
        room_for=action.lets_in,
        gpus=_gpus(view),
        lost_gpu_seconds=action.idle_gpu_seconds,
        round=context.round,
    )
    _announce(context, intent, view, epoch, room_for=intent.room_for, to=intent.targets)


def _gpus(view: JobView) -> int:
    return sum(len(indices or ()) for indices in view.gpus.values())


def _announce(context: Context, intent: Intent, view: JobView, epoch: int, **more: Any) -> None:
    """Tells the hook, sends the signal; the grace runs from now."""
    detail: dict[str, Any] = {
        "name": view.title,
        "nodes": view.nodes,
        **more,
        "grace_seconds": int((intent.deadline - intent.at).total_seconds()),
        "gpus": intent.gpus,
        "lost_gpu_seconds": intent.lost_gpu_seconds,
    }
    acknowledged = False
    try:
        content = {"event": intent.kind, "job": view.name, **detail}
        acknowledged = tell(context.config.hook, content)
    except HookError as error:
        context.note("hook-failed", intent.job, logging.WARNING, reason=str(error))
        if context.config.hook.required:
            return
    context.store.begin(intent, None, epoch)
    context.note(intent.kind, intent.job, **detail)
    if acknowledged:
        context.note("acknowledged", intent.job, name=view.title)
    try:
        context.cluster.warn(intent.job)
    except RefusedError as error:
        context.note("signal-refused", intent.job, logging.WARNING, reason=str(error))
