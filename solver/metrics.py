"""The cluster in numbers, before and after a round."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from trencadis.models import Metrics, Missing
from trencadis.models.plan import ModelCounts
from trencadis.solver.model.problem import Facts
from trencadis.solver.score import Left, Placement


def metrics(
    facts: Facts,
    before: Mapping[str, Left],
    after: Mapping[str, Left],
    frag_before: Mapping[str, int],
    frag_after: Mapping[str, int],
    placements: Mapping[str, Placement],
) -> Metrics:
    """The cluster in numbers, before and after; `frag_*`: F by whatever it is added up over."""
    horizon = facts.values.rates.horizon
    unit = facts.values.rates.unit
    idle = [
        sum(_idle_units(facts, rest) for rest in left.values() if not rest.exclusive)
        for left in (before, after)
    ]
    elsewhere = facts.capacity.idle_elsewhere
    total = sum(facts.capacity.gpus_by_model.values())
    rates = [
        1_000 * unit * sum(frag.values()) // (horizon * units) if units else 0
        for frag, units in zip((frag_before, frag_after), idle, strict=True)
    ]
    whole = [
        sum(len(gpus) for rest in left.values() for gpus in rest.idle.values())
        for left in (before, after)
    ]
    gained = whole[0] - whole[1]
    waiting = [job for job in facts.snapshot.jobs if job.state == "pending"]
    used_before = total - whole[0] - elsewhere
    return Metrics(
        gpus=total,
        used_before=used_before,
        used_after=used_before + gained,
        fragmentation_before_milli=rates[0],
        fragmentation_after_milli=rates[1],
        pending_before=sum(1 for job in waiting if not isinstance(job, Missing)),
        started=sum(1 for name in placements if not isinstance(placements[name].job, Missing)),
        broken_before=sum(1 for job in waiting if isinstance(job, Missing)),
        repaired=sum(1 for name in placements if isinstance(placements[name].job, Missing)),
        by_model=_by_model(facts, before, after),
    )


def _idle_units(facts: Facts, rest: Left) -> int:
    whole = sum(len(gpus) for gpus in rest.idle.values()) * facts.values.rates.unit
    return whole + sum(facts.capacity.cutter.idle_units(cut) for cut in rest.cuts.values())


def _by_model(
    facts: Facts, before: Mapping[str, Left], after: Mapping[str, Left]
) -> dict[str, ModelCounts]:
    idle: defaultdict[str, int] = defaultdict(int)
    gained: defaultdict[str, int] = defaultdict(int)
    for name, rest in before.items():
        for model, gpus in rest.idle.items():
            idle[model] += len(gpus)
            gained[model] += len(gpus) - len(after[name].idle.get(model, ()))
    return {
        model: ModelCounts(
            gpus=count,
            used_before=count - idle[model],
            used_after=count - idle[model] + gained[model],
        )
        for model, count in facts.capacity.gpus_by_model.items()
    }
