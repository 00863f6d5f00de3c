"""What explanations ask many times over is the same as what they ask once."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import SLICES, snapshots
from test_explain_properties import EXAMPLES, OPTIONS, starts_alone, unit_of

from trencadis.models import Snapshot
from trencadis.models.explanation import Reason
from trencadis.models.order import in_order
from trencadis.solver.capacity import NodeState
from trencadis.solver.explain.alone import Alone
from trencadis.solver.explain.case import Case
from trencadis.solver.explain.changes import at_time, with_remedy
from trencadis.solver.explain.explain import Explainer
from trencadis.solver.explain.menus import cheapest_first
from trencadis.solver.explain.remedies import case_of
from trencadis.solver.explain.wait import events, first_fit
from trencadis.solver.round import solve


def seen(states: list[NodeState]) -> list[tuple[object, ...]]:
    """All of nodes that decides what fits them."""
    return [
        (s.name, s.idle, s.counted, s.free, s.vacant, s.cuts, s.cut_gpus, s.blanks) for s in states
    ]


@settings(max_examples=EXAMPLES, deadline=None)
@given(snapshots())
def test_nodes_and_limits_at_later_instants(snapshot: Snapshot) -> None:
    snapshot = in_order(snapshot)
    alone = Alone(snapshot)
    for job in snapshot.jobs:
        if job.state != "pending" or job.group is not None:
            continue
        case = Case(snapshot, alone, job, (job.name,), frozenset(), behind=())
        for instant in events(snapshot):
            then = at_time(snapshot, instant)
            assert seen(case.later.states(instant)) == seen(alone.states(then, parts=case.parts))
            assert case.could_at(instant) == alone.could(then, job.name)


@settings(max_examples=EXAMPLES, deadline=None)
@given(snapshots(SLICES))
def test_alone_decides_what_a_solve_decides_for_parts(snapshot: Snapshot) -> None:
    alone = Alone(snapshot)
    for job in snapshot.jobs:
        if job.state == "pending":
            unit = unit_of(snapshot, job.name)
            assert alone.starts(snapshot, unit) == starts_alone(snapshot, unit)


@given(st.lists(st.integers(1, 9), min_size=0, max_size=6))
def test_all_sets_once_ascending_by_cost(prices: list[int]) -> None:
    costs = {f"j{i}": price for i, price in enumerate(prices)}
    order = sorted(costs, key=lambda name: (costs[name], name))
    found = list(cheapest_first(order, costs))
    assert [price for price, _ in found] == sorted(price for price, _ in found)
    every = {
        frozenset(names)
        for size in range(1, len(order) + 1)
        for names in combinations(order, size)
    }
    assert len(found) == len(every)
    assert {frozenset(names) for _, names in found} == every
    assert all(price == sum(costs[name] for name in names) for price, names in found)


@settings(max_examples=EXAMPLES, deadline=None)
@given(snapshots(), st.integers(1, 2))
def test_waits_that_respect_reservations_are_the_first(snapshot: Snapshot, number: int) -> None:
    policy = snapshot.policy.model_copy(update={"reservations": number})
    snapshot = in_order(snapshot.model_copy(update={"policy": policy}))
    plan = solve(snapshot, OPTIONS)
    explainer = Explainer(snapshot, plan)
    for entry in plan.pending:
        job = explainer.jobs[entry.job]
        case = case_of(explainer.scene, explainer.alone, job, Reason(entry.code))
        if not case.single or not case.models:
            continue
        instants = sorted({*events(case.snapshot, case), *case.later.turns()})
        first = next((instant for instant in instants if case.could_at(instant)), None)
        leaving = any(node.free_until or node.maintenance for node in snapshot.nodes)
        if not leaving and snapshot.policy.fragmentation != "weighted":
            assert first_fit(case, rules=True) == first
        answer = explainer.job(entry.job)
        assert answer.code == entry.code
        for remedy in answer.remedies:
            assert starts_alone(with_remedy(case.snapshot, job.name, remedy), [job.name])
