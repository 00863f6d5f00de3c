"""How MIG layouts of a plan come to be: a node at a time, and its jobs in a later round.

A node that is changed takes no work meanwhile, for minutes. The plan's starts there are not kept
waiting: the round that finds the new layout decides anew who gets it.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from trencadis.adapters.live.cluster import Configuration, RefusedError
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
    elsewhere: bool = False
    """Whether its jobs had better look elsewhere: what they count on can't be had."""


@dataclass(slots=True)
class _Room:
    """Slices and GPUs that are being made, and that nobody of the plan counts on yet."""

    slices: Counter[str] = field(default_factory=Counter)
    gpus: int = 0

    def add(self, made: Configuration) -> None:
        self.slices.update(made.slices)
        self.gpus += made.gpus

    def take(self, slices: Counter[str], gpus: int) -> bool:
        """Whether it has all of them; then they are taken."""
        if gpus > self.gpus or any(self.slices[name] < n for name, n in slices.items()):
            return False
        self.slices -= slices
        self.gpus -= gpus
        return True


def changes(
    context: Context, plan: Plan, before: Mapping[str, Job], taken: Collection[str]
) -> dict[str, Change]:
    """What the plan changes, by node. `taken`: nodes that actions under way count on.

    A node stays as it is where slices that are being made elsewhere are enough for its jobs: rounds
    come quicker than layouts, and jobs that wait for one must not have another made each time.
    """
    by_node: defaultdict[str, list[Reconfigure]] = defaultdict(list)
    for entry in plan.reconfigures:
        by_node[entry.node].append(entry)
    if not by_node:
        return {}
    layouts = context.cluster.layouts
    if layouts is None:
        why = "MIG layouts aren't ours to change here"
        return {node: Change(node, "", why) for node in sorted(by_node)}
    room = _Room()
    for made in layouts.coming():
        room.add(made)
    needs = {node: _needs(plan, before, node) for node in by_node}
    found = {}
    # Those with most to place first: what they leave may be enough for the others.
    for node in sorted(by_node, key=lambda name: (-sum(needs[name][0].values()), name)):
        slices, gpus = needs[node]
        if node in taken:
            found[node] = Change(node, "", "an action under way counts on its layout")
        elif not context.config.scope.has_node(node):
            found[node] = Change(node, "", f"node {node} is out of scope")
        elif room.take(slices, gpus):
            found[node] = Change(node, "", "slices that are being made are enough for its jobs")
        else:
            try:
                made = layouts.configuration(node, by_node[node], slices, gpus)
            except RefusedError as error:
                found[node] = Change(node, "", str(error), elsewhere=True)
                continue
            room.add(made)
            room.take(slices, gpus)
            found[node] = Change(node, made.name)
    return found


def _needs(plan: Plan, before: Mapping[str, Job], node: str) -> tuple[Counter[str], int]:
    """Slices by profile and whole GPUs that the plan's starts take of a node."""
    slices: Counter[str] = Counter()
    gpus = 0
    for start in plan.starts:
        job = before.get(start.job)
        for task in start.allocation:
            if task.node == node:
                slices.update(instance.profile for instance in task.mig)
                gpus += job.request.gpus if job is not None else 0
    return slices, gpus


def avoid(context: Context, plan: Plan, change: Change) -> None:
    """Jobs that counted on a layout which can't be had look elsewhere for a while."""
    if not change.elsewhere:
        return
    until = context.clock() + timedelta(seconds=context.config.retry_after_seconds)
    off = {c.gpu for c in plan.reconfigures if c.node == change.node and c.turn_off}
    for start in plan.starts:
        if any(
            task.node == change.node and (task.mig or off.intersection(task.gpus or ()))
            for task in start.allocation
        ):
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
