"""What the round on a mix shows: the measures of the targets, and whether it settles them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from trencadis.models import Plan, Snapshot
from trencadis.solver.model.problem import facts
from trencadis.whatif.capacity.offers import Mix
from trencadis.whatif.capacity.relaxed import asks_milli
from trencadis.whatif.capacity.target import Target

NAMED = 3
"""Jobs named where a mix fails."""


class Verdict(StrEnum):
    """What a round on a mix showed."""

    MET = "met"
    REFUTED = "refuted"
    """The plan is proven best, and misses a target."""
    OPEN = "open"
    """The plan misses a target, and a better one is not excluded."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A mix, and the round solved on it."""

    mix: Mix
    price_milli: int
    verdict: Verdict
    values: dict[str, float]
    """By measure of the targets."""
    why: str
    """Which target it misses, or what is in its way; empty if it meets all."""
    plan: Plan = field(repr=False)


@dataclass(frozen=True, slots=True)
class Load:
    """The jobs of a round."""

    eligible: frozenset[str]
    """Those that wait and take part in it."""
    milli: Mapping[str, int]
    """By job: GPUs that it needs to start."""


def load_of(base: Snapshot) -> Load:
    """The jobs of a snapshot, whatever nodes it has."""
    milli = {job.name: asks_milli(job) for job in base.jobs}
    return Load(frozenset(facts(base).values.eligible), milli)


def measured(plan: Plan, targets: Sequence[Target], load: Load) -> dict[str, float]:
    """The measures of the targets after a plan. Jobs that take no part in the round don't count."""
    waiting = [entry.job for entry in plan.pending if entry.job in load.eligible]
    waiting += [entry.job for entry in plan.preempts]
    shortfall = next((s.objective for s in plan.proof.stages if s.name == "guarantee"), 0)
    values = {
        "pending": float(len(waiting)),
        "pending_gpus": sum(load.milli[name] for name in waiting) / 1_000,
        "fragmentation": plan.metrics.fragmentation_after_milli / 1_000,
        "shortfall": shortfall / 1_000,
    }
    return {target.measure: values[target.measure] for target in targets}


def missed_by(
    plan: Plan, missed: Sequence[Target], values: dict[str, float], load: Load
) -> str:
    parts = []
    for target in missed:
        if target.measure in ("pending", "pending_gpus"):
            waiting = [entry for entry in plan.pending if entry.job in load.eligible]
            codes = Counter(entry.code for entry in waiting)
            codes["preempted"] += len(plan.preempts)
            told = ", ".join(f"{count} {code}" for code, count in codes.most_common() if count)
            names = "; ".join(entry.sentence for entry in waiting[:NAMED])
            number = len(waiting) + len(plan.preempts)
            parts.append(f"{number} wait ({told}): {names}".rstrip(": "))
        else:
            parts.append(f"{target.measure} is {values[target.measure]:g}")
    return "; ".join(parts)


def is_best(plan: Plan) -> bool:
    """Whether no plan is better in any stage."""
    stages = plan.proof.stages
    whole = plan.proof.bound_scope == "full"
    return whole and all(stage.objective == stage.bound for stage in stages)
