"""How MIG layouts of a plan come to be: a node at a time, and its jobs in a later round.

A node that is changed takes no work meanwhile, for minutes. The plan's starts there are not kept
waiting: the round that finds the new layout decides anew who gets it.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from trencadis.adapters.live.cluster import RefusedError
from trencadis.adapters.live.context import Context
from trencadis.adapters.live.logs import decision
from trencadis.models import Job, Plan
from trencadis.models.plan import Reconfigure


@dataclass(frozen=True, slots=True)
class Change:
    """A node's new layout by its native name, or why there is none."""

    node: str
    name: str
    blocked: str | None = None


def changes(
    context: Context, plan: Plan, before: Mapping[str, Job], taken: Collection[str]
) -> dict[str, Change]:
    """What the plan changes, by node. `taken`: nodes that actions under way count on."""
    by_node: defaultdict[str, list[Reconfigure]] = defaultdict(list)
    for entry in plan.reconfigures:
        by_node[entry.node].append(entry)
    return {
        node: _change(context, plan, before, node, entries, taken)
        for node, entries in sorted(by_node.items())
    }


def _change(
    context: Context,
    plan: Plan,
    before: Mapping[str, Job],
    node: str,
    entries: list[Reconfigure],
    taken: Collection[str],
) -> Change:
    layouts = context.cluster.layouts
    if layouts is None:
        return Change(node, "", "MIG layouts aren't ours to change here")
    if node in taken:
        return Change(node, "", "an action under way counts on its layout")
    if not context.config.scope.has_node(node):
        return Change(node, "", f"node {node} is out of scope")
    slices: Counter[str] = Counter()
    gpus = 0
    for start in plan.starts:
        job = before.get(start.job)
        for task in start.allocation:
            if task.node == node:
                slices.update(instance.profile for instance in task.mig)
                gpus += job.request.gpus if job is not None else 0
    try:
        return Change(node, layouts.configuration(node, entries, slices, gpus))
    except RefusedError as error:
        return Change(node, "", str(error))


def avoid(context: Context, plan: Plan, change: Change) -> None:
    """Jobs that counted on a layout which can't be had look elsewhere for a while."""
    until = context.clock() + timedelta(seconds=context.config.retry_after_seconds)
    for start in plan.starts:
        if any(task.node == change.node and task.mig for task in start.allocation):
            context.store.refuse(start.job, (change.node,), until)


def change_layout(context: Context, change: Change) -> None:
    """Has a node changed."""
    assert context.cluster.layouts is not None
    detail: dict[str, Any] = {"node": change.node, "configuration": change.name}
    try:
        context.cluster.layouts.change(change.node, change.name)
    except RefusedError as error:
        context.note("reconfigure-refused", "", logging.WARNING, **detail, reason=str(error))
        return
    context.note("reconfigure", "", **detail)


def settle_layouts(context: Context) -> list[str]:
    """Frees the nodes whose change is over; returns those where it is under way."""
    if context.cluster.layouts is None:
        return []
    going = []
    for found in context.cluster.layouts.settle():
        detail: dict[str, Any] = {"node": found.node, "configuration": found.configuration}
        if found.kind == "reconfiguring":
            going.append(found.node)
            decision(context.log, found.kind, **detail, reason=found.reason)
        elif found.kind == "reconfigured":
            context.note(found.kind, "", **detail)
        else:
            context.note(found.kind, "", logging.WARNING, **detail, reason=found.reason)
    return going
