"""How MIG layouts of a plan come to be: a node at a time, and its jobs in a later round.

A node that is changed takes no work meanwhile, for minutes. The plan's starts there are not kept
waiting: the round that finds the new layout decides anew who gets it.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from trencadis.adapters.live.cluster import Configuration, Layouts, Reading, RefusedError
from trencadis.adapters.live.context import Context
from trencadis.adapters.live.logs import decision
from trencadis.models import Job, Plan, Policy
from trencadis.models.plan import Reconfigure


@dataclass(frozen=True, slots=True)
class Change:
    """A node's new layout by its native name, or why there is none."""

    node: str
    name: str
    blocked: str | None = None
    elsewhere: tuple[str, ...] = ()
    """Jobs that had better look elsewhere: what they count on can't be had there."""


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
    context: Context,
    plan: Plan,
    reading: Reading,
    before: Mapping[str, Job],
    taken: Collection[str],
) -> dict[str, Change]:
    """What the plan changes, by node. `taken`: nodes that actions under way count on.

    A node stays as it is where slices that are being made elsewhere are enough for its jobs: rounds
    come quicker than layouts, and jobs that wait for one must not have another made each time.
    Where no configuration has room for all of a node's jobs, one is taken that has room for those
    of the highest tiers, and the others look elsewhere.
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
    policy = reading.snapshot.policy
    wishes = {node: _wishes(plan, before, policy, node) for node in by_node}
    found = {}
    # Those with most to place first: what they leave may be enough for the others.
    for node in sorted(by_node, key=lambda name: (-_total(wishes[name])[0].total(), name)):
        slices, gpus = _total(wishes[node])
        if node in taken:
            found[node] = Change(node, "", "an action under way counts on its layout")
        elif not context.config.scope.has_node(node):
            found[node] = Change(node, "", f"node {node} is out of scope")
        elif room.take(slices, gpus):
            found[node] = Change(node, "", "slices that are being made are enough for its jobs")
        else:
            found[node] = _chosen(layouts, node, by_node[node], wishes[node], room)
    return found


def _chosen(
    layouts: Layouts,
    node: str,
    entries: Sequence[Reconfigure],
    wishes: Sequence[_Wish],
    room: _Room,
) -> Change:
    """The change for all of a node's jobs, else for as many as can be, the first ones first."""
    made: Configuration | None = None
    kept: list[_Wish] = []
    why = ""
    for tried in (wishes, *((wish,) for wish in wishes)):
        more = [*kept, *tried]
        if any(wish.cut for wish in more):
            try:
                # Who fits what there is must not lose it to those who come after him.
                stay = tried is not wishes
                made = layouts.configuration(node, entries, *_total(more), stay=stay)
            except RefusedError as error:
                why = why or str(error)
                continue
        kept = more
        if len(kept) == len(wishes):
            break
    elsewhere = tuple(w.job for w in wishes if w not in kept)
    if made is None or not made.name:
        return Change(node, "", why or "no start of the plan counts on it", elsewhere)
    room.add(made)
    room.take(*_total(kept))
    return Change(node, made.name, elsewhere=elsewhere)


@dataclass(frozen=True, slots=True)
class _Wish:
    """Slices by profile and whole GPUs that a start of the plan takes of a node."""

    job: str
    slices: Counter[str]
    gpus: int
    cut: bool
    """Whether a GPU must be in MIG mode for it, or that be turned off."""


def _wishes(plan: Plan, before: Mapping[str, Job], policy: Policy, node: str) -> tuple[_Wish, ...]:
    """Those of a node, the highest tiers first."""
    ranks = {tier.name: rank for rank, tier in enumerate(policy.tiers)}
    off = {entry.gpu for entry in plan.reconfigures if entry.node == node and entry.turn_off}
    found = []
    for start in plan.starts:
        job = before.get(start.job)
        tasks = [task for task in start.allocation if task.node == node]
        slices = Counter(instance.profile for task in tasks for instance in task.mig)
        gpus = len(tasks) * job.request.gpus if job is not None else 0
        if slices or gpus:
            tier = ranks.get((job and job.priority) or policy.default_tier, len(ranks))
            cut = bool(slices) or any(off.intersection(task.gpus or ()) for task in tasks)
            found.append((tier, start.job, _Wish(start.job, slices, gpus, cut)))
    return tuple(wish for _, _, wish in sorted(found, key=lambda entry: entry[:2]))


def _total(wishes: Iterable[_Wish]) -> tuple[Counter[str], int]:
    slices: Counter[str] = Counter()
    gpus = 0
    for wish in wishes:
        slices.update(wish.slices)
        gpus += wish.gpus
    return slices, gpus


def waiting(plan: Plan, changing: Mapping[str, Change]) -> dict[str, str]:
    """Starts that count on a layout that isn't there, or on a node that is to be changed; why."""
    cut = {(entry.node, entry.gpu) for entry in plan.reconfigures}
    found = {}
    for start in plan.starts:
        nodes = {
            task.node
            for task in start.allocation
            if task.node in changing
            and (
                changing[task.node].blocked is None
                or task.gpus is None
                or any((task.node, gpu) in cut for gpu in task.gpus)
            )
        }
        never = sorted(node for node in nodes if start.job in changing[node].elsewhere)
        if never:
            found[start.job] = f"node {never[0]} gets no MIG layout with room for it"
        elif nodes:
            found[start.job] = (
                f"node {min(nodes)} is to get another MIG layout first: plan again then"
            )
    return found


def avoid(context: Context, change: Change) -> None:
    """Jobs that counted on a layout which can't be had look elsewhere for a while."""
    until = context.clock() + timedelta(seconds=context.config.retry_after_seconds)
    for job in change.elsewhere:
        context.store.refuse(job, (change.node,), until)


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
