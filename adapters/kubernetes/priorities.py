"""Decides which tier a priority is: PriorityClasses become tiers, in the order of their values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from trencadis.adapters.kubernetes.fields import name, whole
from trencadis.adapters.kubernetes.objects import Object
from trencadis.adapters.slurm.report import Report
from trencadis.models.policy import Policy, Tier

MAX_TIERS = 32


@dataclass(slots=True)
class Priorities:
    """PriorityClasses and Kueue's WorkloadPriorityClasses by name."""

    values: dict[str, int] = field(default_factory=dict)
    default: int = 0

    def value(self, named: str, value: int | None) -> int:
        """The priority of a pod with this class and this value, either of which may be absent."""
        if value is not None:
            return value
        return self.values.get(named, self.default)


def read_priorities(classes: list[Object], workload_classes: list[Object]) -> Priorities:
    """The classes' values; the default is that of the class marked so."""
    found = Priorities()
    for entry in [*workload_classes, *classes]:
        value = whole(entry.record.get("value"))
        if value is None:
            continue
        found.values[entry.name] = value
        if entry.record.get("globalDefault") is True:
            found.default = value
    return found


@dataclass(frozen=True, slots=True)
class Tiers:
    """The tier of each priority value, and the policy that has these tiers."""

    of: dict[int, str | None]
    policy: Policy


def make_tiers(
    used: Iterable[int], priorities: Priorities, policy: Policy | None, report: Report
) -> Tiers:
    """A tier for each value in use, named after its class.

    With a policy of the user's the tiers are its own: a class of the same name is in that tier, any
    other value in the default tier. Where nobody has a priority the policy stays as it is.
    """
    values = sorted(set(used), reverse=True)
    names: dict[int, str] = {}
    for known, value in sorted(priorities.values.items()):
        names.setdefault(value, name(known, f"priority-{value}"))
    if policy is not None:
        tiers = {tier.name for tier in policy.tiers}
        return Tiers({v: names.get(v) if names.get(v) in tiers else None for v in values}, policy)
    if values in ([], [0]):
        return Tiers(dict.fromkeys(values, None), Policy())
    levels = sorted({*values, priorities.default}, reverse=True)
    kept = levels[: MAX_TIERS - 1] + levels[-1:] if len(levels) > MAX_TIERS else levels
    if len(levels) > MAX_TIERS:
        report.warn("policy.tiers", f"more than {MAX_TIERS} priorities: the lowest share a tier")
    tier_of = {v: names.get(v, f"priority-{v}") for v in kept}
    lowest = tier_of[kept[-1]]
    made = Policy(
        tiers=tuple(
            Tier(name=tier_of[value], weight=min(10_000, 4 ** min(6, len(kept) - 1 - rank)))
            for rank, value in enumerate(kept)
        ),
        default_tier=tier_of.get(priorities.default, lowest),
    )
    return Tiers({v: tier_of.get(v, lowest) for v in values}, made)
