"""The brute force against cases worked out by hand: one formula or rule each.

Where nothing else is said: U = 1000, H = 3600, τ = 14,400, weight 1, fl = 500, submitted now, one
queue that is entitled to all. A GPU that waits an hour then costs 3600, and an optimal plan has the
values (guarantee, guarantee_parents, tier, fragmentation).
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from oracle import (
    conditional_optimum,
    feasible_plans,
    is_work_conserving,
    lexicographic_optimum,
    outcomes,
    stage_names,
    stage_values,
)
from oracle.facts import Facts
from oracle.shares import entitlements, fill, shares
from oracle_cases import after, job, node, running, snap, tier_costs

from trencadis.models import (
    DemandEntry,
    MigGpu,
    MigInstance,
    NvLink,
    Queue,
    Quota,
    Request,
    TaskAllocation,
    Tier,
    Topology,
)

# waiting


def test_job_that_cannot_start_waits_with_the_share_of_what_its_queue_may_have() -> None:
    # K = 1 GPU, so e = 1000 of B = 2000: share = (1000·1000 + 500·1000) / 2000 = 750.
    # wait = 1000·14400·750·2000·3600 / (1000·14400·1000·1000) = 5400.
    # The idle GPU is of no use to tasks of 2 GPUs: F = 1·1000·1·3600 / (1·1000) = 3600.
    assert outcomes(snap([node("n", 1)], [job("j", gpus=2)])) == {(0, 0, 5400, 3600)}


def test_waiting_as_long_as_the_aging_time_doubles_the_cost() -> None:
    blocked = node("n", 1, cordoned=True)
    assert tier_costs(snap([blocked], [job("j", waited=14_400)])) == {7200}


def test_wait_is_rounded_up_and_at_least_one() -> None:
    blocked = node("n", 1, cordoned=True)
    # 14401/14400 of 1 GPU-second
    late = snap([blocked], [job("j", waited=1)], policy={"horizon_seconds": 1})
    assert tier_costs(late) == {2}
    # without GPUs, CPU and memory the size is 1 unit: 1/1000 GPU-second, up to 1
    tiny = snap([blocked], [job("j", gpus=0)], policy={"horizon_seconds": 1})
    assert tier_costs(tiny) == {1}


def test_size_is_the_largest_of_gpus_cpu_and_memory() -> None:
    blocked = node("n", 2, cordoned=True, cpu_milli=8_000, memory_mib=3_000)
    # CPU: 6000·1000·2 / 8000 = 1500; memory: ⌈1000·1000·2 / 3000⌉ = 667; GPUs: 1000
    snapshot = snap([blocked], [job("j", request={"cpu_milli": 6_000, "memory_mib": 1_000})])
    assert Facts(snapshot).size(snapshot.jobs[0]) == 1500
    assert tier_costs(snapshot) == {5400}


def test_weighted_mode_has_one_sum_with_the_weights_of_the_tiers() -> None:
    tiers = (Tier(name="t", weight=3), Tier(name="u", weight=2))
    jobs = [job("a", waited=14_400), job("b", priority="u")]
    blocked = node("n", 2, cordoned=True)
    weighted = {"tiers": tiers, "priority_mode": "weighted", "fragmentation": "off"}
    # 3·2·3600 + 2·1·3600
    snapshot = snap([blocked], jobs, policy=weighted)
    assert stage_names(snapshot) == ["guarantee", "guarantee_parents", "wait"]
    assert outcomes(snapshot) == {(0, 0, 28_800)}


def test_promotion_lifts_a_job_by_a_tier_each_time() -> None:
    tiers = (Tier(name="t"), Tier(name="u"), Tier(name="v"))
    blocked = node("n", 2, cordoned=True)
    policy = {"tiers": tiers, "promote_after_seconds": 7_200}
    jobs = [job("a", priority="v", waited=7_199), job("b", priority="v", waited=7_200)]
    # a: ⌈3600·21599/14400⌉ = ⌈5399.75⌉ in v; b: 3600·1.5 in u
    assert outcomes(snap([blocked], jobs, policy=policy)) == {(0, 0, 0, 5400, 5400, 0)}


# running


def test_distance_costs_the_slowdown_of_the_widest_level_and_the_missed_preference() -> None:
    nodes = [node("n1", 1, fabric=("s", "l1")), node("n2", 1, fabric=("s", "l2"))]
    # depth 1: max(spine 50, leaf 30): A = 500·2000·3600·50000 / 10^12 = 180
    near = snap(nodes, [job("j", tasks=2)], "spine leaf")
    assert min(tier_costs(near)) == 180
    # leaf is preferred (depth 2): 50 + 40
    wish = Topology(level="leaf")
    assert min(tier_costs(snap(nodes, [job("j", tasks=2, topology=wish)], "spine leaf"))) == 324
    # tasks that don't communicate lose the preference only
    alone = job("j", tasks=2, topology=wish, communicates=False)
    assert min(tier_costs(snap(nodes, [alone], "spine leaf"))) == 144


def test_sets_of_gpus_that_are_not_linked_cost_pcie() -> None:
    # A = 0; B = 500·2·1000·3600·1000·150 / 10^12 = 540
    assert min(tier_costs(snap([node("n", 2)], [job("j", gpus=2)]))) == 540
    # two tasks of one GPU on the node form no set, unless they communicate through the node:
    # through the network, at depth 0, they lose 100: 500·2000·3600·100000 / 10^12 = 360
    assert min(tier_costs(snap([node("n", 2)], [job("j", tasks=2)]))) == 360
    fast = {"slowdown_milli": {"pcie": 90, "cluster": 100}}
    assert min(tier_costs(snap([node("n", 2)], [job("j", tasks=2)], policy=fast))) == 324
    # a preference for the node is missed through the network: 140
    wish = job("j", tasks=2, topology=Topology(level="node"))
    assert min(tier_costs(snap([node("n", 2)], [wish]))) == 504
    assert min(tier_costs(snap([node("n", 2)], [job("j", tasks=2, communicates=False)]))) == 0
    switch = node("n", 2, nvlink=NvLink(kind="nvswitch"))
    assert min(tier_costs(snap([switch], [job("j", gpus=2)]))) == 0


def test_links_join_some_sets_only() -> None:
    pairs = NvLink(kind="links", links=((0, 2), (1, 3)))
    snapshot = snap([node("n", 4, nvlink=pairs)], [job("j", gpus=2, nvlink_required=True)])
    chosen = {plan["j"][0].gpus for plan in feasible_plans(snapshot) if plan}
    assert chosen == {(0, 2), (1, 3)}
    # waits (7200), or starts on linked GPUs (0); linked GPUs are left in both cases
    assert outcomes(snapshot) == {(0, 0, 7200, 0), (0, 0, 0, 0)}
    # not required: on (0, 1) it costs 540, and what is left is still of use to it
    free = snap([node("n", 4, nvlink=pairs)], [job("j", gpus=2)])
    assert tier_costs(free) == {7200, 0, 540}
    # of a counted node no indices are named, so none are linked
    counted = node("n", 4, nvlink=pairs, precision="node")
    assert tier_costs(snap([counted], [job("j", gpus=2, nvlink_required=True)])) == {7200}


def test_slower_model_costs_the_time_it_loses() -> None:
    nodes = [node("n1", 1, "a"), node("n2", 1, "h")]
    # v = 400 on a: A = 500·1000·3600·(10^6 − 400·1000) / 10^12 = 1080
    speeds = {"gpu_speed_milli": {"a": 1_000, "h": 2_500}}
    assert tier_costs(snap(nodes, [job("j")], policy=speeds)) == {3600, 1080, 0}
    # alone among the allowed it is the fastest
    assert tier_costs(snap(nodes, [job("j", gpu_models=("a",))], policy=speeds)) == {3600, 0}


def test_spread_counts_the_rest_of_the_run_only() -> None:
    where = ("n", (0, 1))
    ends = running("r", where, gpus=2, tasks=1, runtime_seconds=700, start=after(-100))
    # h = 600: B = 500·2·1000·600·1000·150 / 10^12 = 90
    assert tier_costs(snap([node("n", 2)], [ends])) == {90}
    over = running("r", where, gpus=2, tasks=1, runtime_seconds=700, start=after(-800))
    assert tier_costs(snap([node("n", 2)], [over])) == {0}
    # indices unknown: the set's size is known all the same
    unknown = running("r", ("n", None), gpus=2)
    assert tier_costs(snap([node("n", 2)], [unknown])) == {540}


# guarantees


def queue(name: str = "q", guarantee: int | None = None, **fields: Any) -> Queue:
    return Queue(name=name, guarantee=Quota(gpus=guarantee), **fields)


def test_target_is_the_largest_sum_of_jobs_within_the_guarantee() -> None:
    # of 2 + 2 GPUs at most 2 are within 3; with both waiting 2 GPUs are missing
    jobs = [job("a", gpus=2), job("b", gpus=2)]
    snapshot = snap([node("n", 4)], jobs, queues=(queue(guarantee=3),))
    assert {values[0] for values in outcomes(snapshot)} == {2000, 0}
    # jobs that no empty cluster can hold are no part of it
    small = snap([node("n", 1)], jobs, queues=(queue(guarantee=3),))
    assert {values[0] for values in outcomes(small)} == {0}


def test_guarantees_by_model_and_of_parents_add_up() -> None:
    by_model = Quota(gpus=1, by_model={"a": 1, "h": 1})
    queues = (Queue(name="q", parent="p", guarantee=by_model), queue("p", 1))
    snapshot = snap([node("n", 1)], [job("j")], queues=queues)
    # waiting: q misses 1 in all and 1 on a; on h nothing could run; p misses 1
    assert {values[:2] for values in outcomes(snapshot)} == {(2000, 1000), (0, 0)}


def test_guarantee_outranks_weight() -> None:
    queues = (queue("q"), queue("r", 1))
    jobs = [job("heavy", weight_milli=9_000), job("due", queue="r")]
    best = lexicographic_optimum(snap([node("n", 1)], jobs, queues=queues))
    # q: e = 0, so heavy has share 500: 9·0.5·3600
    assert best == {"guarantee": 0, "guarantee_parents": 0, "tier:t": 16_200, "fragmentation": 0}


# shares


def test_filling_raises_in_proportion_until_caps_are_met() -> None:
    third = Fraction(1, 3)
    assert fill(Fraction(10), [Fraction(1)] * 3, [Fraction(2), Fraction(9), Fraction(9)]) == [
        2,
        4,
        4,
    ]
    assert fill(Fraction(1), [Fraction(1), Fraction(2)], [Fraction(5)] * 2) == [third, 2 * third]
    assert fill(Fraction(9), [Fraction(0), Fraction(1)], [Fraction(5)] * 2) == [0, 5]


def test_past_usage_lowers_the_weight_of_a_queue() -> None:
    queues = (queue("q", past_usage_gpu_hours=10), queue("r"))
    jobs = [job("a", gpus=4), job("b", gpus=4, queue="r")]
    entitled = entitlements(Facts(snap([node("n", 4)], jobs, queues=queues)))
    # S = 1/2 each; V = 1 and 0: w' = 2·½/(3/2) = 2/3 and 2; 4000 is split 1 : 3
    assert entitled == {"q": 1000, "r": 3000}


def test_guarantees_come_before_weights_and_blocks_share_what_is_left() -> None:
    queues = (queue("q", 1), queue("r", weight=3))
    jobs = [job("a", waited=60), job("b", gpus=2), job("c", gpus=2), job("d", gpus=4, queue="r")]
    facts = Facts(snap([node("n", 4)], jobs, queues=queues))
    # base 1000 for q; of the rest 3000, w' = 2·weight: 1 : 3; q has 1750, r 2250
    assert entitlements(facts) == {"q": 1750, "r": 2250}
    # a: within; b, c: below = 750 of 4000: (750·1000 + 500·3250) / 4000 = 593.75
    # d: below = 2250 of 4000: (2250·1000 + 500·1750) / 4000 = 781.25
    assert shares(facts) == {"a": 1000, "b": 593, "c": 593, "d": 781}


# fragmentation


def test_fragmentation_weighs_kinds_of_tasks_by_number() -> None:
    # n has 3 idle GPUs, useless to tasks of 4 GPUs (1 of 4 tasks): ⌊1·1000·3·3600 / 4000⌋
    jobs = [running("a", ("n", (0,)), tasks=3, min_tasks=1), job("b", gpus=4)]
    # b: of the 4000 its queue uses 1000; share (3000·1000 + 1000·500)/4000 = 875
    assert outcomes(snap([node("n", 4)], jobs)) == {(0, 0, 14_400 * 875 // 1000, 2700)}


def test_profile_and_free_memory_decide_what_is_usable() -> None:
    profile = (
        DemandEntry(request=Request(gpus=1), weight=2),
        DemandEntry(request=Request(gpus=1, memory_mib=10), weight=1),
    )
    policy = {
        "demand_profile": profile,
        "fragmentation": "weighted",
        "fragmentation_weight_milli": 500,
    }
    # 2 GPUs without memory are lost to 1 of 3: F = 2400; half of it is added to the last tier
    assert outcomes(snap([node("n", 2)], [], policy=policy)) == {(0, 0, 1200)}


# bounds, and plans


def test_conditional_optimum_allows_what_was_achieved_before() -> None:
    tiers = (Tier(name="t"), Tier(name="u"))
    jobs = [job("a"), job("b", gpus=2, priority="u")]
    snapshot = snap([node("n", 2)], jobs, policy={"tiers": tiers, "fragmentation": "off"})
    # best: a starts, b waits with share (1000·1000 + 500·1000)/2000 = 750: 5400;
    # a worse plan lets a wait, so b may start at 540
    assert lexicographic_optimum(snapshot) == dict(
        zip(stage_names(snapshot), (0, 0, 0, 5400), strict=True)
    )
    bound = conditional_optimum(snapshot, {"guarantee": 0, "guarantee_parents": 0, "tier:t": 3600})
    assert bound == {"guarantee": 0, "guarantee_parents": 0, "tier:t": 0, "tier:u": 540}
    with pytest.raises(ValueError, match="no plan"):
        conditional_optimum(snapshot, {"guarantee": -1})


def test_work_conserving_means_that_nothing_can_be_added() -> None:
    snapshot = snap([node("n", 2)], [job("a"), job("b", gpus=2)])
    a = {"a": (TaskAllocation(node="n", gpus=(1,)),)}
    assert is_work_conserving(snapshot, a)
    assert not is_work_conserving(snapshot, {})
    # the block of a and b has 2000 of 3000: share ⌊(2000·1000 + 1000·500)/3000⌋ = 833;
    # ⌈7200·0.833⌉ = ⌈5997.6⌉; F: one idle GPU, useless to b, 1 of 2 tasks
    assert list(stage_values(snapshot, a).values()) == [0, 0, 5998, 1800]


def test_mig_makes_units_sevenths() -> None:
    layout = (MigGpu(gpu=0, instances=(MigInstance(profile="3g.20gb", start=0),)),)
    uses = TaskAllocation(node="n", gpus=(0,), mig=layout[0].instances)
    holder = running("m", gpus=0, tasks=1, request={"mig": ("3g.20gb",)})
    holder = holder.model_copy(update={"allocation": (uses,)})
    facts = Facts(snap([node("n", 2, mig=layout)], [holder, job("j"), job("k")]))
    assert [facts.units(job) for job in facts.snapshot.jobs] == [3000, 7000, 7000]
    # the GPU with MIG is no whole GPU: one of j and k starts
    assert max(len(plan) for plan in feasible_plans(facts.snapshot)) == 1
