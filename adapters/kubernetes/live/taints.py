"""Decides how whole nodes are kept for one job: by a taint, and its name in an annotation."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trencadis.adapters.kubernetes.fields import at, listed
from trencadis.adapters.kubernetes.live import records
from trencadis.adapters.kubernetes.live.api import Api, Json
from trencadis.adapters.kubernetes.live.lists import NODES, Lists
from trencadis.adapters.live.cluster import RefusedError

RESERVED = "trencadis.io/reserved"


def without_ours(node: Json) -> Json:
    """The node as others see to it: what we keep, the plan keeps already."""
    taints = listed(at(node, "spec", "taints"))
    if not any(taint.get("key") == RESERVED for taint in taints):
        return node
    kept = [taint for taint in taints if taint.get("key") != RESERVED]
    return {**node, "spec": {**node["spec"], "taints": kept}}


def reserved(nodes: Iterable[Json]) -> dict[str, list[Json]]:
    """Nodes by the name of the reservation that keeps them."""
    found: dict[str, list[Json]] = {}
    for node in nodes:
        name = records.annotation(node, RESERVED)
        if name:
            found.setdefault(name, []).append(node)
    return found


def reserve(api: Api, lists: Lists, name: str, nodes: Sequence[str]) -> None:
    """Taints the nodes: pods that are there stay, no other comes."""
    value = hashlib.sha256(name.encode()).hexdigest()[:16]
    for wanted in nodes:
        node = api.get(lists.path(NODES, name=wanted))
        held_by = records.annotation(node, RESERVED)
        if held_by == name:
            continue
        if held_by:
            raise RefusedError(f"node {wanted} is kept for {held_by.removeprefix('trencadis-')}")
        taint = {"key": RESERVED, "value": value, "effect": "NoSchedule"}
        _patch(api, lists, node, name, [*listed(at(node, "spec", "taints")), taint])


def release(api: Api, lists: Lists, nodes: Iterable[Json]) -> None:
    """Takes the taints away again."""
    for node in nodes:
        _patch(api, lists, node, None, listed(at(without_ours(node), "spec", "taints")))


def _patch(
    api: Api, lists: Lists, node: Json, name: str | None, taints: Sequence[Mapping[str, Any]]
) -> None:
    # Taints are one list: without the version a patch could undo somebody else's.
    meta = {"resourceVersion": records.version(node), "annotations": {RESERVED: name}}
    body = {"metadata": meta, "spec": {"taints": taints}}
    api.patch(lists.path(NODES, name=records.name(node)), body)
