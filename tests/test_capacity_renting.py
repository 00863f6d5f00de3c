"""Renting: against dynamic programming on one node and enumeration on several; terms by hand."""

from __future__ import annotations

from functools import cache
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from trencadis.whatif.capacity.renting import (
    HOURS,
    Levels,
    hours_busy,
    rent,
    wanted_by_month,
)
from trencadis.whatif.engine import Sample
from trencadis.whatif.prices import Contract, example_prices

PRICE = 1_000
MONTH = HOURS * PRICE


def always(nodes: int) -> Levels:
    return ((HOURS, nodes),) if nodes else ()


contracts = st.builds(
    Contract,
    name=st.sampled_from(["a"]),
    months=st.integers(1, 4),
    discount_milli=st.sampled_from([0, 100, 300, 500]),
    penalty_milli=st.sampled_from([None, 0, 250, 1_000]),
    prorated=st.booleans(),
)
offers = st.lists(contracts, max_size=2).map(
    lambda found: [c.model_copy(update={"name": f"c{i}"}) for i, c in enumerate(found)]
)


def by_layer(wanted: list[int], terms: list[Contract]) -> int:
    """The least cost of one node that is wanted for so many hours of each month, month by month."""
    months = len(wanted)

    @cache
    def rest(month: int) -> int:
        if month >= months:
            return 0
        best = wanted[month] * PRICE + rest(month + 1)
        for contract in terms:
            pays = MONTH * (1_000 - contract.discount_milli) // 1_000
            for kept in range(1, contract.months + 1):
                if month + kept > months:
                    break
                ends = kept == contract.months or (contract.prorated and month + kept == months)
                if ends:
                    cost = kept * pays
                elif month + kept == months and contract.penalty_milli is None:
                    cost = contract.months * pays
                elif contract.penalty_milli is None:
                    continue
                else:
                    left = contract.penalty_milli * (contract.months - kept) * pays
                    cost = kept * pays - (-left // 1_000)
                best = min(best, cost + rest(month + kept))
        return best

    return rest(0)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([0, 100, 400, HOURS]), min_size=1, max_size=6), offers)
def test_one_node_is_rented_as_by_dynamic_programming(
    wanted: list[int], terms: list[Contract]
) -> None:
    demand = [((hours, 1),) if hours else () for hours in wanted]
    found = rent("k", demand, PRICE, terms)
    assert found.cost_milli == found.bound_milli == by_layer(wanted, terms)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), offers)
def test_several_never_cost_more_than_layer_by_layer(
    wanted: list[int], terms: list[Contract]
) -> None:
    found = rent("k", [always(n) for n in wanted], PRICE, terms)
    layers = range(1, max(wanted) + 1)
    apart = sum(by_layer([HOURS if n >= layer else 0 for n in wanted], terms) for layer in layers)
    assert found.bound_milli == found.cost_milli <= apart <= found.on_demand_milli
    for month, nodes in enumerate(wanted):
        leased = sum(
            lease.nodes for lease in found.leases
            if lease.start <= month < lease.start + lease.months
        )
        assert leased * HOURS + found.hours[month] >= nodes * HOURS


def test_a_lease_serves_two_layers_in_turn() -> None:
    """Wanted 1, 2, 1: two leases of two months that overlap beat the best of each layer."""
    pair = Contract(name="pair", months=2, discount_milli=250, prorated=False)
    found = rent("k", [always(n) for n in (1, 2, 1)], PRICE, [pair])
    each = MONTH * 3 // 4
    assert found.cost_milli == 4 * each
    layers = by_layer([HOURS] * 3, [pair]) + by_layer([0, HOURS, 0], [pair])
    assert layers == 2 * each + 2 * MONTH
    # By enumeration: how many leases start in each month, the rest by the hour.
    best = min(
        2 * each * (first + second)
        + MONTH * (max(0, 1 - first) + max(0, 2 - first - second) + max(0, 1 - second))
        for first, second in product(range(3), repeat=2)
    )
    assert best == found.cost_milli


def test_three_months_then_years() -> None:
    """Months that are dear for a start, a year that must be kept: 27 months of a steady node."""
    terms = [
        Contract(name="quarter", months=3, discount_milli=100),
        Contract(name="year", months=12, discount_milli=400, prorated=False),
    ]
    found = rent("k", [always(1)] * 27, PRICE, terms)
    kept = sorted((lease.contract, lease.months) for lease in found.leases)
    assert kept == [("quarter", 3), ("year", 12), ("year", 12)]
    assert found.cost_milli == 3 * MONTH * 9 // 10 + 24 * MONTH * 6 // 10


def test_what_is_seldom_wanted_is_rented_by_the_hour() -> None:
    terms = [Contract(name="month", months=1, discount_milli=500)]
    demand = [((HOURS, 2), (300, 1))] * 3
    found = rent("k", demand, PRICE, terms)
    assert found.hours == (300, 300, 300)
    assert sum(lease.nodes * lease.months for lease in found.leases) == 6
    assert rent("k", demand, PRICE, []).cost_milli == found.on_demand_milli


def test_contracts_for_other_kinds_are_left_out() -> None:
    other = Contract(name="x", months=1, discount_milli=500, skus=("other",))
    assert rent("k", [always(1)], PRICE, [other]).leases == ()
    assert rent("other", [always(1)], PRICE, [other]).leases != ()


def test_demand_grows_by_the_month() -> None:
    grown = wanted_by_month([HOURS, HOURS, 100], 3, 500)
    assert [sum(nodes for _, nodes in levels) for levels in grown] == [3, 5, 7]
    assert grown[0] == ((HOURS, 2), (100, 1))
    assert grown[2] == ((HOURS, 4), (100, 3))
    assert wanted_by_month([HOURS] * 4, 24, 0) == (always(4),) * 24


def test_hours_are_those_in_which_the_nodes_before_are_not_enough() -> None:
    def sample(at: int, used: int, waits: int) -> Sample:
        return Sample(at, 0, waits, 0, 16_000 - used, 0, 16_000)

    rounds = [sample(0, 4_000, 0), sample(50, 8_000, 4_000), sample(100, 0, 0)]
    assert hours_busy(rounds, [8_000, 8_000]) == [HOURS, HOURS // 2]
    assert hours_busy([], [8_000]) == [HOURS]


def test_the_example_list_says_where_its_contracts_are_from() -> None:
    listed = example_prices()
    assert listed.contracts
    assert all(contract.source for contract in listed.contracts)
