"""Decides whether disruption budgets let pods go now: a suspended owner's controller never asks."""

from __future__ import annotations

import math
from collections.abc import Sequence

from trencadis.adapters.kubernetes.constraints import selects
from trencadis.adapters.kubernetes.fields import at, mapping, text, texts, whole
from trencadis.adapters.kubernetes.live import records
from trencadis.adapters.kubernetes.live.api import Api, Json, listing
from trencadis.adapters.kubernetes.live.lists import BUDGETS, JOBS, PODS, Lists


def objection(api: Api, lists: Lists, namespace: str, pods: Sequence[Json]) -> str | None:
    """Why these pods must not be stopped; None if they may.

    Budgets and pods are read anew. The status of a budget lags behind what was suspended a moment
    ago, so pods of suspended Jobs count as gone.
    """
    if BUDGETS not in lists.found:
        return None
    budgets = listing(api, lists.path(BUDGETS, namespace)).get("items", [])
    if not budgets:
        return None
    stopped = {
        records.uid(job)
        for job in listing(api, lists.path(JOBS, namespace)).get("items", [])
        if at(job, "spec", "suspend")
    }
    there = [
        pod
        for pod in listing(api, lists.path(PODS, namespace)).get("items", [])
        if records.ready(pod) and records.living(pod)
        and text(records.controller(pod).get("uid")) not in stopped
    ]  # fmt: skip
    leaving = {records.uid(pod) for pod in pods}
    for budget in budgets:
        covered = [pod for pod in there if _selects(budget, pod)]
        going = sum(records.uid(pod) in leaving for pod in covered)
        if not going:
            continue
        allowed = whole(at(budget, "status", "disruptionsAllowed"))
        stay = len(covered) - going
        if allowed is None or going > allowed or stay < _wanted(budget, len(covered)):
            name = records.name(budget)
            return f"PodDisruptionBudget {name} doesn't let {going} of its pods go"
    return None


def _selects(budget: Json, pod: Json) -> bool:
    labels = texts(at(pod, "metadata", "labels"))
    return selects(mapping(at(budget, "spec")).get("selector"), labels)


def _wanted(budget: Json, number: int) -> int:
    """Pods that must stay: what the controller worked out, else what the budget itself says."""
    told = whole(at(budget, "status", "desiredHealthy"))
    least = at(budget, "spec", "minAvailable")
    if isinstance(least, int):
        return max(least, told or 0)
    if told is not None:
        return told
    if isinstance(least, str) and least.endswith("%") and least[:-1].isdecimal():
        return math.ceil(int(least[:-1]) * number / 100)
    return number
