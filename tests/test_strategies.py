"""The strategies give valid snapshots, and both ways to enumerate these agree."""

from __future__ import annotations

from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracle import (
    feasible_plans,
    is_work_conserving,
    lexicographic_optimum,
    outcomes,
    stage_values,
)
from strategies import (
    renamed,
    shuffled,
    snapshots_all,
    snapshots_nodes,
    snapshots_plain,
    snapshots_queues,
    snapshots_slices,
    snapshots_topology,
)

from trencadis.models import Snapshot
from trencadis.models.check import check

QUICK = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)


@QUICK
@given(
    st.one_of(
        snapshots_plain(),
        snapshots_queues(),
        snapshots_topology(),
        snapshots_nodes(),
        snapshots_slices(),
        snapshots_all(),
    ),
    st.integers(0, 99),
)
def test_strategies_give_valid_snapshots_that_can_be_enumerated(
    snapshot: Snapshot, seed: int
) -> None:
    assert Snapshot.model_validate_json(snapshot.model_dump_json()) == snapshot
    check(snapshot)
    found = outcomes(snapshot)
    best = min(found)
    assert tuple(lexicographic_optimum(snapshot).values()) == best
    assert outcomes(shuffled(snapshot, Random(seed))) == found
    assert outcomes(renamed(snapshot, seed)) == found
    seen = set()
    for number, plan in enumerate(feasible_plans(snapshot)):
        if number == 200:
            return
        values = tuple(stage_values(snapshot, plan).values())
        seen.add(values)
        if values == best:
            assert is_work_conserving(snapshot, plan)
    assert seen == found
