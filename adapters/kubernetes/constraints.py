"""Decides where a pod may run: selectors, affinities, tolerations; what can't be said blocks it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trencadis.adapters.kubernetes.context import Context
from trencadis.adapters.kubernetes.fields import Json, at, listed, name, text, texts, whole
from trencadis.adapters.kubernetes.nodes import EFFECTS, HOSTNAME, KubeNode
from trencadis.models.jobs import Toleration


@dataclass(slots=True)
class Place:
    """Where a job's tasks may run."""

    selector: dict[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    max_tasks_per_node: int | None = None
    blocked: list[str] = field(default_factory=list)
    """Why it can't start as the schema has no words for what it asks."""


def read_place(spec: Json, labels: Mapping[str, str], context: Context) -> Place:
    """The constraints of one pod."""
    place = Place()
    place.selector |= context.select(texts(spec.get("nodeSelector")))
    terms = at(
        spec,
        "affinity",
        "nodeAffinity",
        "requiredDuringSchedulingIgnoredDuringExecution",
        "nodeSelectorTerms",
    )
    if isinstance(terms, list):
        place.selector |= any_of(listed(terms), context)
    place.tolerations = tolerations(listed(spec.get("tolerations")))
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    apart = listed(at(spec, "affinity", "podAntiAffinity", required))
    for term in apart:
        if term.get("topologyKey") == HOSTNAME and _selects(at(term, "labelSelector"), labels):
            place.max_tasks_per_node = 1
        else:
            place.blocked.append("pod anti-affinity to other pods isn't carried over")
    if listed(at(spec, "affinity", "podAffinity", required)):
        place.blocked.append("pod affinity isn't carried over")
    for constraint in listed(spec.get("topologySpreadConstraints")):
        if constraint.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule":
            place.blocked.append("topology spread constraints aren't carried over")
    return place


def any_of(terms: list[Json], context: Context) -> dict[str, str]:
    """A selector for the nodes that one of the terms matches, by a label named after the terms."""
    canonical = json.dumps(terms, sort_keys=True, default=str)
    digest = hashlib.sha256(canonical.encode()).hexdigest()[:12]
    return context.mark(f"affinity/{digest}", lambda node: any(_term(term, node) for term in terms))


def _term(term: Json, node: KubeNode) -> bool:
    expressions, fields = listed(term.get("matchExpressions")), listed(term.get("matchFields"))
    if not expressions and not fields:
        return False  # an empty term matches nothing
    own = {"metadata.name": node.name}
    return all(_matches(e, node.labels) for e in expressions) and all(
        _matches(f, own) for f in fields
    )


def _matches(expression: Json, labels: Mapping[str, str]) -> bool:
    operator, value = expression.get("operator"), labels.get(text(expression.get("key")))
    wanted = expression.get("values")
    values = [str(entry) for entry in wanted] if isinstance(wanted, list) else []
    match operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            number, bound = whole(value), whole(values[0] if values else None)
            if number is None or bound is None:
                return False
            return number > bound if operator == "Gt" else number < bound
        case _:
            return False


def _selects(selector: Any, labels: Mapping[str, str]) -> bool:
    """Whether a label selector selects a pod with these labels."""
    wanted = texts(at(selector, "matchLabels"))
    expressions = listed(at(selector, "matchExpressions"))
    if not wanted and not expressions:
        return False
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        _matches(expression, labels) for expression in expressions
    )


def selects(selector: Any, labels: Mapping[str, str]) -> bool:
    """Whether a label selector, where an empty one selects all, selects a pod."""
    empty = not at(selector, "matchLabels") and not at(selector, "matchExpressions")
    return selector is not None and (empty or _selects(selector, labels))


def tolerations(found: Iterable[Json]) -> tuple[Toleration, ...]:
    """Tolerations; those that end after a time, as every pod gets them, don't let it start."""
    read: dict[str, Toleration] = {}
    for entry in found:
        operator = entry.get("operator") or "Equal"
        key, effect = name(entry.get("key"), ""), entry.get("effect") or None
        if operator not in ("Equal", "Exists") or (effect is not None and effect not in EFFECTS):
            continue
        if not key and operator != "Exists":
            continue
        toleration = Toleration.model_validate(
            {
                "key": key or None,
                "value": None if operator == "Exists" else text(entry.get("value")),
                "effect": effect,
            }
        )
        if key not in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
            read[repr(toleration)] = toleration
    return tuple(read[key] for key in sorted(read))
