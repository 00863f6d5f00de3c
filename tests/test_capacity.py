"""Capacity search on a snapshot: equal to brute force on small cases, proven on large ones."""

from __future__ import annotations

from itertools import islice, product

import oracle
import pytest
from build import ago, job, node, queue, running, snapshot
from build import at as on
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from strategies import NODES, PLAIN, QUEUES, TOPOLOGY, snapshots

from trencadis.models import InvalidInputError, Snapshot
from trencadis.solver.round import Options
from trencadis.solver.verify import verify
from trencadis.whatif.capacity.offers import Offer, kept, price_of, rented, with_mix
from trencadis.whatif.capacity.snapshot import Found, Search, Status, cheapest
from trencadis.whatif.capacity.target import Target, targets
from trencadis.whatif.capacity.verdict import Verdict
from trencadis.whatif.prices import example_prices

OPTIONS = Options(time_limit_s=10, deterministic=True)
MOST = 2
PLANS = 800
"""Plans that brute force looks at for one mix."""
NOBODY_WAITS = targets(["pending==0"], trace=False)


def offers_like(snap: Snapshot, prices: tuple[int, int]) -> list[Offer]:
    """Up to two nodes like the first one, and up to two like the last one."""
    found = []
    for number, (like, price) in enumerate(
        zip((snap.nodes[0], snap.nodes[-1]), prices, strict=True)
    ):
        groups = tuple(group.model_copy(update={"unhealthy": ()}) for group in like.gpus)
        clean = {"mig": (), "down": False, "cordoned": False, "gpus": groups, "free_until": None}
        clean["maintenance"] = ()
        nodes = tuple(
            like.model_copy(update={**clean, "name": f"new{number}-{i}"}) for i in range(MOST)
        )
        found.append(Offer(f"kind{number}", price, MOST, lambda n, nodes=nodes: nodes[:n]))
    return found


def waits_at_best(snap: Snapshot) -> set[int]:
    """How many jobs wait in the best plans of a snapshot, by enumeration of all plans."""
    plans = list(islice(oracle.feasible_plans(snap), PLANS + 1))
    assume(len(plans) <= PLANS)
    eligible = len(oracle.Pricing(snap).facts.eligible)
    valued = [
        (tuple(oracle.stage_values(snap, plan).values()), eligible - len(plan)) for plan in plans
    ]
    best = min(values for values, _ in valued)
    return {waiting for values, waiting in valued if values == best}


def by_brute_force(snap: Snapshot, offers: list[Offer], most: int) -> int | None:
    """Price of the cheapest mix on which at most so many wait; each mix is looked at."""
    mixes = sorted(
        product(*(range(offer.most + 1) for offer in offers)),
        key=lambda mix: price_of(offers, mix),
    )
    for mix in mixes:
        waiting = waits_at_best(with_mix(snap, offers, mix))
        assume(len({count <= most for count in waiting}) == 1)  # else it depends on a tie
        if max(waiting) <= most:
            return price_of(offers, mix)
    return None


def without_preemption(snap: Snapshot) -> Snapshot:
    rules = snap.policy.preemption.model_copy(update={"mode": "none"})
    return snap.model_copy(
        update={"policy": snap.policy.model_copy(update={"preemption": rules, "elastic_milli": 0})}
    )


@pytest.mark.parametrize("features", [PLAIN, QUEUES, TOPOLOGY, NODES - {"mig"}])
@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
@given(data=st.data())
def test_the_cheapest_mix_is_that_of_brute_force(
    features: frozenset[str], data: st.DataObject
) -> None:
    snap = without_preemption(data.draw(snapshots(features)))
    prices = data.draw(st.sampled_from([(3, 5), (5, 3), (2, 2), (4, 1)]))
    most = data.draw(st.sampled_from([0, 0, 1]))
    offers = offers_like(snap, prices)
    try:
        expected = by_brute_force(snap, offers, most)
    except oracle.TooLarge:
        assume(False)
    target = Target("pending", "<=", float(most), f"pending<={most}")
    found = cheapest(Search(snap, tuple(offers), (target,), OPTIONS))
    if expected is None:
        assert found.status is Status.IMPOSSIBLE
        return
    assert found.status is Status.PROVEN
    assert found.best is not None
    assert found.best.price_milli == found.lower_milli == expected
    assert not verify(with_mix(snap, offers, found.best.mix), found.best.plan).violations


def found_for(snap: Snapshot, kinds: list[str], *texts: str, most: int = 50) -> Found:
    offers, _ = rented(snap, kinds, example_prices(), None, most)
    return cheapest(Search(snap, tuple(offers), targets(texts, trace=False), OPTIONS))


def test_two_kinds_are_mixed_where_that_is_cheapest() -> None:
    """Two jobs of eight GPUs fit an a100-8 each; one that only runs on H100 needs an h100-8."""
    snap = snapshot(
        node("n", 1, "a100"),
        *(job(name, 8) for name in "ab"),
        job("c", 8, models=("h100",)),
    )
    found = found_for(snap, ["a100-8", "h100-8"], "pending==0")
    assert found.status is Status.PROVEN
    assert found.best is not None
    assert found.best.mix == (2, 1)
    assert found.lower_milli == found.excluded_milli == 2 * 15_920 + 25_920


def test_nothing_is_bought_where_nothing_waits() -> None:
    found = found_for(snapshot(node("n", 8), job("a", 8)), ["h100-8"], "pending==0")
    assert found.best is not None
    assert (found.best.mix, found.status) == ((0,), Status.PROVEN)


def test_what_a_limit_forbids_no_node_helps() -> None:
    limited = queue("q", limit=4)
    snap = snapshot(node("n", 8), job("a", 8, queue="q"), job("b", 8), limited)
    found = found_for(snap, ["h100-8"], "pending==0")
    assert (found.status, found.best) == (Status.IMPOSSIBLE, None)
    assert "limit" in found.why
    assert found_for(snap, ["h100-8"], "pending<=1").status is Status.PROVEN
    assert found_for(snap, ["h100-8"], "pending_gpus<=8").best is not None


def test_jobs_that_take_no_part_in_the_round_are_not_waited_for() -> None:
    snap = snapshot(node("n", 8), job("a", 8), job("b", 8, after=("a",)))
    found = found_for(snap, ["h100-8"], "pending==0")
    assert found.best is not None
    assert found.best.mix == (0,)


def test_a_victim_waits_too() -> None:
    """Preempting would start the job of the higher tier, and leave another waiting."""
    snap = snapshot(
        node("n", 8),
        running("low", on("n", *range(8)), priority="low", start=ago(7_200)),
        job("high", 8, priority="high"),
        preemption={"mode": "immediate"},
    )
    found = found_for(snap, ["h100-8"], "pending==0")
    assert found.best is not None
    assert (found.best.mix, found.status) == ((1,), Status.PROVEN)


def test_fragmentation_is_searched_from_nothing_up() -> None:
    """Four GPUs are idle where a task of eight is the expected one: a whole node more helps."""
    snap = snapshot(node("n", 8), running("r", on("n", 0, 1, 2, 3)), job("a", 8, after=("r",)))
    found = found_for(snap, ["h100-8"], "fragmentation<0.3")
    assert found.best is not None
    assert found.best.values["fragmentation"] < 0.3
    assert [attempt.verdict for attempt in found.attempts[:-1]] == [Verdict.REFUTED] * (
        len(found.attempts) - 1
    )
    assert found.status is Status.PROVEN


def test_too_few_nodes_may_be_had() -> None:
    snap = snapshot(node("n", 1), *(job(f"j{i}", 8) for i in range(4)))
    assert found_for(snap, ["h100-8"], "pending==0", most=3).status is Status.IMPOSSIBLE
    assert found_for(snap, ["h100-8"], "pending==0", most=4).status is Status.PROVEN


def test_a_first_guess_that_is_too_small_is_mended() -> None:
    """Many tasks that only fit one to a node, where GPUs suggest an eighth of the nodes."""
    snap = snapshot(node("n", 1), job("a", 1, tasks=60, max_tasks_per_node=1))
    found = found_for(snap, ["h100-8"], "pending==0", most=100)
    assert found.best is not None
    assert (found.best.mix, found.status) == ((59,), Status.PROVEN)


def test_the_least_cluster_that_serves_the_load() -> None:
    """Three nodes with a job of two GPUs each: one node of eight is enough for all three."""
    snap = snapshot(
        [node(f"n{i}", 8) for i in range(3)],
        *(running(f"r{i}", on(f"n{i}", 0, 1)) for i in range(3)),
    )
    base, offers, priced = kept(snap, example_prices(), None)
    assert (sum(offer.most for offer in offers), priced) == (3, True)
    found = cheapest(Search(base, tuple(offers), NOBODY_WAITS, OPTIONS))
    assert found.best is not None
    assert (sum(found.best.mix), found.status) == (1, Status.PROVEN)


def test_what_may_not_be_requeued_keeps_its_node() -> None:
    snap = snapshot(
        [node(f"n{i}", 8) for i in range(3)],
        running("stays", on("n2", 0), requeueable=False),
        running("moves", on("n0", *range(8))),
    )
    base, offers, _ = kept(snap, example_prices(), None)
    assert [entry.name for entry in base.nodes] == ["n2"]
    found = cheapest(Search(base, tuple(offers), NOBODY_WAITS, OPTIONS))
    assert found.best is not None
    assert sum(found.best.mix) == 1


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("pending=0", "no target"),
        ("waiting==0", "no measure"),
        ("pending==3", "<="),
        ("pending<0", "below 0"),
        ("pending<10%", "no part"),
        ("fragmentation<1h", "no time"),
        ("p95_wait<1h", "no measure"),
    ],
)
def test_targets_that_say_nothing_clear(text: str, word: str) -> None:
    with pytest.raises(InvalidInputError, match=word):
        targets([text], trace=False)


def test_limits_of_targets() -> None:
    pending, below, part, wait = targets(
        ["pending==0", "pending<3", "fragmentation<15%"], trace=False
    ) + targets(["p95_wait<=1.5h"], trace=True)
    assert (pending.most, below.most, part.limit, wait.limit) == (0, 2, 0.15, 5_400.0)
    assert below.met(2.9)
    assert not below.met(3.0)
    assert wait.met(5_400.0)


def test_kinds_without_a_price_cost_one_each_unless_another_has_one() -> None:
    snap = snapshot(node("n", 8))
    offers, priced = rented(snap, ["v100-8", "v100-4"], example_prices(), None, 9)
    assert ([offer.price_milli for offer in offers], priced) == ([1_000, 1_000], False)
    with pytest.raises(InvalidInputError, match="no price"):
        rented(snap, ["v100-8", "h100-8"], example_prices(), None, 9)
    with pytest.raises(InvalidInputError, match="no kind"):
        rented(snap, ["nonsense"], example_prices(), None, 9)
    with_roce, _ = rented(snap, ["h100-8"], example_prices(), "roce", 9)
    assert with_roce[0].price_milli == 25_920 + 1_200


@pytest.mark.parametrize(("most", "bought"), [(1, 0), (0, 1)])
def test_guarantees_that_keep_back_more_than_there_is_refute_no_mix(most: int, bought: int) -> None:
    """One GPU for two jobs of a queue that is owed two, and lends none: with it, one may start."""
    owner = queue("q", guarantee=2, lending=0)
    snap = without_preemption(
        snapshot(node("n", 1), owner, job("a", queue="q"), job("b", queue="q"))
    )
    target = Target("pending", "<=", float(most), f"pending<={most}")
    found = cheapest(Search(snap, tuple(offers_like(snap, (3, 5))), (target,), OPTIONS))
    assert found.status is Status.PROVEN
    assert found.best is not None
    assert sum(found.best.mix) == bought
