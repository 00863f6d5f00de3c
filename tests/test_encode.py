"""A plan as counts of the model: what it promises there is what the plan reached."""

from __future__ import annotations

import threading

import pytest

from trencadis.instances.generate import generate
from trencadis.models.order import in_order
from trencadis.solver.attempt import search_and_place
from trencadis.solver.clock import Clock, Limits
from trencadis.solver.model.encode import decisions_of
from trencadis.solver.model.problem import Thresholds, facts
from trencadis.solver.round import Options
from trencadis.solver.search import decision_columns
from trencadis.solver.timer import Timer


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("segments", [64, 2])
def test_encoded_starts_keep_all_rows_over_decisions(seed: int, segments: int) -> None:
    snapshot = in_order(generate(nodes=12, pending=40, seed=seed))
    read = facts(snapshot)
    options = Options(thresholds=Thresholds(segments=segments), deterministic=True)
    limits = Limits(Clock(5.0, True), 1, 0, 0.0, threading.Event())
    outcome = search_and_place(read, options.thresholds, limits, Timer())
    model, ledger = outcome.model, outcome.ledger
    counts = decisions_of(model, ledger)
    decision = decision_columns(model)
    program = model.program
    assert ledger.started
    for column, count in enumerate(counts):
        assert program.low[column] <= count <= program.high[column]
    for row in program.rows:
        if all(decision[column] for column in row.columns):
            terms = zip(row.columns, row.coefficients, strict=True)
            assert row.low <= sum(factor * counts[c] for c, factor in terms) <= row.high
    for index, cls in enumerate(model.problem.demand.classes):
        encoded = sum(counts[piece.column] for piece in model.columns.pieces[index])
        units = [unit for unit in cls.units if all(name in ledger.started for name in unit)]
        assert encoded == len(units)
    going = [counts[column] for column in model.columns.chosen.values()]
    assert sum(going) == len(ledger.started)
