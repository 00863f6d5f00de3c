"""Whether a remedy also holds beside all that waits: a whole round is solved with it."""

from __future__ import annotations

from trencadis.models.explanation import Remedy
from trencadis.solver.explain.case import Case
from trencadis.solver.explain.changes import with_remedy
from trencadis.solver.round import Options, solve

MOST_NODES = 64
MOST_WAITING = 100
"""Larger rounds are not solved for each remedy: `in_round` stays open."""
OPTIONS = Options(time_limit_s=1.0, workers=1, deterministic=True)
SHOWN = 5


def in_round(case: Case, remedy: Remedy) -> Remedy:
    """The remedy with what the next round would make of it."""
    waiting = sum(1 for job in case.snapshot.jobs if job.state == "pending")
    if len(case.snapshot.nodes) > MOST_NODES or waiting > MOST_WAITING:
        return remedy
    started = {
        start.job
        for start in solve(with_remedy(case.snapshot, case.job.name, remedy), OPTIONS).starts
    }
    if started.issuperset(case.unit):
        return remedy.model_copy(update={"in_round": True})
    return remedy.model_copy(
        update={"in_round": False, "instead": tuple(sorted(started - set(case.unit))[:SHOWN])}
    )
