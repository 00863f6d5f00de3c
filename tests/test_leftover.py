"""The value of what is left: never below what fits, and equal to it where CPU is plentiful."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trencadis.solver.leftover import Leftover, Wanted
from trencadis.solver.leftover_prices import IdleClass, PriceProgram, pool
from trencadis.solver.multi_fit import MultiFit

ANY: frozenset[str] = frozenset()
RATES = np.concatenate([[0.0], np.geomspace(0.01, 10, 200)])


def kind(
    gpus: int, milli: int, cpu: int = 0, count: float = 10.0, models: frozenset[str] = ANY
) -> Wanted:
    return Wanted(gpus, milli, cpu, models, count, float(gpus * milli))


def most(wanted: list[Wanted], prices: list[float], cpu: int, gpus: tuple[int, ...]) -> float:
    """The knapsack's value, by trying each task in each place."""
    best = 0.0
    for task, price in zip(wanted, prices, strict=True):
        if task.cpu > cpu:
            continue
        if task.gpus == 1:
            places = {
                tuple(sorted((*gpus[:i], idle - task.milli, *gpus[i + 1 :])))
                for i, idle in enumerate(gpus)
                if idle >= task.milli
            }
        else:
            whole = [i for i, idle in enumerate(gpus) if idle == 1_000][: task.gpus]
            left = tuple(0 if i in whole else idle for i, idle in enumerate(gpus))
            places = {left} if len(whole) == task.gpus else set()
        for left in places:
            best = max(best, price + most(wanted, prices, cpu - task.cpu, left))
    return best


TASKS = st.lists(
    st.tuples(
        st.sampled_from([(1, 300), (1, 500), (1, 700), (1, 1_000), (2, 1_000)]),
        st.sampled_from([1_000, 2_000, 5_000]),
        st.integers(0, 900),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=80, deadline=None)
@given(
    TASKS,
    st.sampled_from([0, 2_000, 7_000, 100_000]),
    st.tuples(*[st.sampled_from([0, 300, 400, 800, 1_000])] * 3),
)
def test_value_is_never_below_what_fits(
    tasks: list[tuple[tuple[int, int], int, int]], cpu: int, gpus: tuple[int, ...]
) -> None:
    wanted = [kind(*size, cpu=need) for size, need, _ in tasks]
    prices = [float(price) for *_, price in tasks]
    left = Leftover(wanted, np.array(prices), ("T4",), 3, RATES)
    value = left.of(np.array([0]), np.array([cpu]), np.array([gpus]))[0]
    exact = most(wanted, prices, cpu, gpus)
    assert value >= exact - 1e-6
    if cpu == 100_000:
        assert value == pytest.approx(exact)
    if cpu == 0:
        # The highest rate tried leaves a little where the least task's CPU is cheap.
        assert value == pytest.approx(0, abs=1e-6)


def test_cpu_counts_where_it_is_scarce() -> None:
    """Four GPUs with CPU for two tasks are worth two tasks."""
    left = Leftover([kind(1, 1_000, 10_000)], np.array([900.0]), ("T4",), 4, RATES)
    gpu = np.array([[1_000] * 4])
    values = [left.of(np.array([0]), np.array([cpu]), gpu)[0] for cpu in (10_000, 20_000, 80_000)]
    # The grid of rates has a point within 2 % of the one that is exact here.
    assert values == pytest.approx([900, 1_800, 3_600], rel=0.04)


def test_models_have_values_of_their_own() -> None:
    wanted = [kind(1, 1_000, models=frozenset({"T4"})), kind(1, 500)]
    left = Leftover(wanted, np.array([1_000.0, 200.0]), ("G2", "T4"), 1, RATES)
    values = left.of(np.array([0, 1]), np.array([0, 0]), np.array([[1_000], [1_000]]))
    assert values.tolist() == [400.0, 1_000.0]


def test_tasks_without_gpus_set_a_floor_to_the_rate_of_cpu() -> None:
    wanted = [Wanted(0, 0, 1_000, ANY, 5.0, 50.0), kind(1, 500, 1_000)]
    left = Leftover(wanted, np.array([50.0, 500.0]), ("T4",), 1, RATES)
    # Two shares, and CPU for eight tasks more.
    value = left.of(np.array([0]), np.array([10_000]), np.array([[1_000]]))[0]
    assert value == pytest.approx(1_000 + 8 * 50)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([160, 320, 470, 650, 810, 1_000]), st.integers(1, 3)),
        min_size=1,
        max_size=4,
        unique_by=lambda pair: pair[0],
    ),
    st.integers(1, 3),
)
def test_the_program_allows_what_integers_allow(demand: list[tuple[int, int]], gpus: int) -> None:
    wanted = [kind(1, milli, count=float(count)) for milli, count in demand]
    entry = IdleClass("T4", 1_000, ((1_000, gpus),), gpus)
    value, prices = PriceProgram(wanted, [entry]).solve(rounds=None)
    best = 0
    sizes = [milli for milli, count in demand for _ in range(count)]
    for places in product(range(gpus + 1), repeat=len(sizes)) if len(sizes) <= 6 else []:
        load = [0] * (gpus + 1)
        for size, place in zip(sizes, places, strict=True):
            load[place] += size
        if max(load[:gpus]) <= 1_000:
            best = max(best, sum(load[:gpus]))
    assert value >= best - 1e-3
    assert value <= 1_000 * gpus + 1e-3
    assert (prices <= [task.worth + 1e-6 for task in wanted]).all()
    # Duality: what the demand earns beyond its price, and what the space is worth at these prices.
    left = Leftover(wanted, prices, ("T4",), gpus, RATES)
    space = left.of(np.array([0]), np.array([0]), np.array([[1_000] * gpus]))[0]
    earned = sum(
        (task.worth - price) * task.count for task, price in zip(wanted, prices, strict=True)
    )
    assert earned + space == pytest.approx(value, abs=0.1)


def test_a_scarce_filler_makes_its_space_worth_little() -> None:
    """Nine 810s and one 160: the holes beside the others are worth nothing."""
    wanted = [kind(1, 810, count=9.0), kind(1, 160, count=1.0)]
    entry = IdleClass("T4", 1_000, ((1_000, 8),), 1)
    _, prices = PriceProgram(wanted, [entry]).solve(rounds=None)
    assert prices == pytest.approx([810, 0])


def test_pools_add_up() -> None:
    model = np.array([0, 0, 1, 0])
    cpu = np.array([8_100, 9_900, 8_000, 5_000])
    gpu = np.array([[1_000, 0], [1_000, 0], [1_000, 500], [0, 0]])
    classes = pool(("G2", "T4"), model, cpu, gpu)
    assert sum(entry.cpu for entry in classes) == cpu.sum()
    assert {(e.model, e.gpus, e.widest) for e in classes} == {
        ("G2", ((1_000, 2),), 1),
        ("G2", (), 0),
        ("T4", ((500, 1), (1_000, 1)), 1),
    }


def test_multi_fit_counts_what_cpu_can_feed() -> None:
    """Ten CPUs feed one task of eight, not four: three of four GPUs are out of reach."""
    measure = MultiFit([kind(1, 1_000, 8_000, count=1.0)], ("T4",))
    gpu = np.array([[1_000] * 4])
    for cpu, lost in ((10_000, 3_000), (32_000, 0), (7_999, 4_000)):
        assert measure.of(np.array([0]), np.array([cpu]), gpu).tolist() == [lost]


def test_multi_fit_weighs_kinds_and_shares() -> None:
    wanted = [kind(1, 400, count=1.0), kind(2, 1_000, count=1.0), Wanted(0, 0, 1, ANY, 2.0, 0.0)]
    measure = MultiFit(wanted, ("T4",))
    # Idle 2,500: shares use 2 + 2 + 1 times 400, the pair 2,000, pods without GPUs nothing.
    used = 0.25 * 2_000 + 0.25 * 2_000
    value = measure.of(np.array([0]), np.array([9_000]), np.array([[1_000, 1_000, 500]]))[0]
    assert value == pytest.approx(2_500 - used)
