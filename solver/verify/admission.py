"""Which nodes a job may use at all: labels, taints, maintenance, health, names (problem.md, 3)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from trencadis.models import Job, Missing, Node, Policy, Taint, Toleration
from trencadis.models.base import seconds
from trencadis.models.spares import EFFECT

FOREVER = 1 << 62
"""Stands for the end of a job of unknown runtime, and of a node that stays."""

Mark = tuple[str, str, str]
"""A taint that keeps jobs away: key, value, effect."""

Pass = tuple[str | None, str | None, str | None]
"""A toleration: key, value, effect; None matches any."""


class Wish(NamedTuple):
    """All of a job that decides where it may run; equal ones may run on the same nodes."""

    selector: tuple[tuple[str, str], ...]
    passes: tuple[Pass, ...]
    ends: int
    """When it ends if it starts now; FOREVER where unknown."""
    large: bool
    """A gang so large that it keeps off nodes in poor health."""
    required: tuple[str, ...]
    excluded: tuple[str, ...]
    barred: tuple[str, ...] = ()
    """Jobs on whose reserved nodes it may not be."""


def end_of(job: Job, now: int) -> int:
    """When the job ends if it starts now; FOREVER where unknown."""
    return FOREVER if job.runtime_seconds is None else now + job.runtime_seconds


def wish_of(job: Job, ends: int, policy: Policy) -> Wish:
    """What the job asks of nodes."""
    tasks = job.gang_tasks if isinstance(job, Missing) else job.minimum
    return Wish(
        tuple(sorted(job.node_selector.items())) if job.node_selector else (),
        tuple(_pass(entry) for entry in job.tolerations) if job.tolerations else (),
        ends,
        tasks >= 2 and tasks * job.request.gpus >= policy.large_gang_gpus,
        job.required_nodes,
        job.excluded_nodes,
    )


def refusal(wish: Wish, node: Node, policy: Policy, now: int) -> str | None:
    """Why the job may not use the node if it starts now; None if it may."""
    if node.down:
        return "is down"
    if node.cordoned:
        return "is cordoned"
    for key, value in wish.selector:
        if node.labels.get(key) != value:
            return f"lacks the label {key}={value}"
    if node.name in wish.excluded:
        return "is excluded by the job"
    if wish.required and node.name not in wish.required:
        return "is not one of the job's required nodes"
    if node.taints:
        for mark in marks_of(node.taints):
            if not tolerated(mark, wish.passes):
                return f"has the taint {mark[0]}={mark[1]}:{mark[2]}"
    if wish.ends > leaves_at(node, now):
        return "leaves before the job ends"
    if wish.large and poor(node, policy):
        return "is in poor health for so large a gang"
    return None


def marks_of(taints: Iterable[Taint]) -> tuple[Mark, ...]:
    """The taints that keep jobs away."""
    return tuple(
        (taint.key, taint.value, taint.effect)
        for taint in taints
        if taint.effect != "PreferNoSchedule"
    )


@lru_cache(maxsize=65_536)
def tolerated(mark: Mark, passes: tuple[Pass, ...]) -> bool:
    """Whether one of the tolerations matches the taint in key, value and effect."""
    if mark[2] == EFFECT:  # a spare
        return any(entry[2] == EFFECT for entry in passes)
    return any(
        all(want is None or want == has for want, has in zip(entry, mark, strict=True))
        for entry in passes
    )


def leaves_at(node: Node, now: int) -> int:
    """When the node next leaves, for good or for maintenance; -1 while it is away; FOREVER if it
    stays, which even jobs of unknown runtime meet."""
    leaves = FOREVER if node.free_until is None else seconds(node.free_until)
    for window in node.maintenance:
        start, end = seconds(window.start), seconds(window.end)
        if start <= now < end:
            return -1
        if now < start:
            leaves = min(leaves, start)
    return leaves


def poor(node: Node, policy: Policy) -> bool:
    """Whether the node takes no large gang."""
    return node.health_score_milli < policy.poor_health_milli


def _pass(entry: Toleration) -> Pass:
    return entry.key, entry.value, entry.effect
