"""The brute force against the rules of where jobs may run and what limits allow, by hand.

Mostly: which sets of jobs can start together. All jobs ask for one GPU where nothing is said.
"""

from __future__ import annotations

from typing import Any

import pytest
from oracle import feasible_plans, outcomes
from oracle.facts import Facts
from oracle.ground import Placed, ground_now
from oracle_cases import after, job, node, running, snap

from trencadis.models import (
    ArrayRef,
    Fabric,
    FabricLevel,
    GpuGroup,
    Hold,
    Job,
    Licence,
    Limits,
    Node,
    Qos,
    Queue,
    Quota,
    Segments,
    Snapshot,
    Taint,
    TaskAllocation,
    Toleration,
    Topology,
    Window,
)


def window(start: int, end: int) -> tuple[Window, ...]:
    """A maintenance window, seconds after the snapshot's instant."""
    return (Window(start=after(start), end=after(end)),)


def started(snapshot: Snapshot) -> set[str]:
    """The sets of jobs that can start, each as its one-letter names in order."""
    return {"".join(sorted(plan)) for plan in feasible_plans(snapshot)}


def nodes_of(snapshot: Snapshot, name: str = "a") -> set[str]:
    """Where the job can start: the node of each task, in order."""
    return {
        " ".join(sorted(task.node for task in plan[name]))
        for plan in feasible_plans(snapshot)
        if name in plan
    }


# §2


def test_only_eligible_jobs_start() -> None:
    jobs = [
        job("a", state="held"),
        job("b", not_before=after(1)),
        job("c", not_before=after(0)),
        job("d", after=("a",)),
        job("e", after=("gone",)),
        job("f", gpus=0, request={"mig": ("1g.5gb",)}),
    ]
    assert started(snap([node("n", 4)], jobs)) == {"", "c", "e", "ce"}


def test_groups_start_whole_and_a_held_member_stops_them() -> None:
    jobs = [job("a", group="g"), job("b", group="g"), job("c", group="h")]
    assert started(snap([node("n", 2)], jobs)) == {"", "ab", "c"}
    held = [*jobs, job("d", group="g", state="held")]
    assert started(snap([node("n", 2)], held)) == {"", "c"}
    # a member that runs is no part of what must start
    runs = [*jobs, running("r", ("n", (0,)), group="g")]
    assert started(snap([node("n", 3)], runs)) == {"", "ab", "c"}


def test_elastic_job_starts_with_its_minimum() -> None:
    plans = feasible_plans(snap([node("n", 4)], [job("a", tasks=3, min_tasks=2)]))
    assert {len(plan.get("a", ())) for plan in plans} == {0, 2}


def test_held_gpus_are_not_idle_and_their_job_does_not_take_part() -> None:
    hold = Hold(job="a", at=after(60), allocation=(TaskAllocation(node="n", gpus=(0,)),))
    jobs = [job("a"), job("b", tasks=2), job("c")]
    assert started(snap([node("n", 2)], jobs, holds=(hold,))) == {"", "c"}


# §3

TAINT = Taint(key="team", value="x")


@pytest.mark.parametrize(
    ("node_fields", "job_fields", "may"),
    [
        ({"down": True}, {}, False),
        ({"cordoned": True}, {}, False),
        ({"labels": {"zone": "east"}}, {"node_selector": {"zone": "west"}}, False),
        ({"labels": {"zone": "east"}}, {"node_selector": {"zone": "east"}}, True),
        ({}, {"excluded_nodes": ("n",)}, False),
        ({}, {"required_nodes": ("m",)}, False),
        ({"taints": (TAINT,)}, {}, False),
        ({"taints": (TAINT,)}, {"tolerations": (Toleration(key="team"),)}, True),
        ({"taints": (TAINT,)}, {"tolerations": (Toleration(value="x"),)}, True),
        ({"taints": (TAINT,)}, {"tolerations": (Toleration(effect="NoExecute"),)}, False),
        ({"taints": (Taint(key="k", effect="PreferNoSchedule"),)}, {}, True),
        ({"free_until": after(60)}, {}, False),
        ({"free_until": after(60)}, {"runtime_seconds": 61}, False),
        ({"free_until": after(60)}, {"runtime_seconds": 60}, True),
        ({"maintenance": window(60, 90)}, {}, False),
        ({"maintenance": window(60, 90)}, {"runtime_seconds": 61}, False),
        ({"maintenance": window(60, 90)}, {"runtime_seconds": 60}, True),
        ({"maintenance": window(0, 1)}, {"runtime_seconds": 60}, False),
        ({"maintenance": window(-60, 0)}, {}, True),
        ({"maintenance": window(-60, 0) + window(1, 2)}, {}, False),
        ({"health_score_milli": 499}, {"tasks": 3, "min_tasks": 2}, False),
        ({"health_score_milli": 500}, {"tasks": 2}, True),
        ({"health_score_milli": 0}, {"gpus": 2}, True),
        ({}, {"gpu_models": ("b",)}, False),
        ({}, {"max_tasks_per_node": 1, "tasks": 2}, False),
        ({}, {"nvlink_required": True, "gpus": 2}, False),
        ({}, {"nvlink_required": True, "tasks": 2}, True),
        ({"cpu_milli": 10}, {"request": {"cpu_milli": 6}, "tasks": 2}, False),
        ({"memory_mib": 12}, {"request": {"memory_mib": 6}, "tasks": 2}, True),
        ({"resources": {"nic": 1}}, {"request": {"resources": {"nic": 1}}}, True),
        ({}, {"request": {"resources": {"nic": 1}}}, False),
        ({}, {"tasks": 5}, False),
    ],
)
def test_where_a_task_may_run(
    node_fields: dict[str, Any], job_fields: dict[str, Any], may: bool
) -> None:
    snapshot = snap(
        [node("n", 4, **node_fields)], [job("a", **job_fields)], policy={"large_gang_gpus": 2}
    )
    assert started(snapshot) == ({"", "a"} if may else {""})


def test_tasks_share_one_model() -> None:
    mixed = Node(name="n", gpus=(GpuGroup(model="a", count=1), GpuGroup(model="b", count=1)))
    assert started(snap([mixed], [job("a", tasks=2), job("b"), job("c")])) == {"", "b", "c", "bc"}


def test_counted_node_loses_gpus_of_the_model_with_most() -> None:
    mixed = Node(name="n", gpus=(GpuGroup(model="a", count=1), GpuGroup(model="b", count=3)))
    facts = Facts(snap([mixed], [running("r", ("n", None), gpus=2), running("s", ("n", (1,)))]))
    (state,) = ground_now(facts)
    assert state.counted
    # s has a b; of one a and two b the task of unknown indices takes both b
    assert [(model, len(chips)) for model, chips in state.idle] == [("a", 1)]


def test_exclusive_job_is_alone_on_its_nodes() -> None:
    nodes = [node("n", 2), node("m", 1)]
    lone = job("a", exclusive=True)
    assert nodes_of(snap(nodes, [lone, running("r", ("n", (0,)))])) == {"m"}
    # either a on n and b on m, or the other way round, but not both on n
    placed = {(p["a"][0].node, p["b"][0].node) for p in plans_with(snap(nodes, [lone, job("b")]))}
    assert placed == {("n", "m"), ("m", "n")}
    # where an exclusive job runs nothing starts, and idle GPUs are no fragments
    taken = snap(nodes[:1], [running("r", ("n", (0,)), exclusive=True), job("b", gpus=4)])
    assert {values[-1] for values in outcomes(taken)} == {0}


def plans_with(snapshot: Snapshot, number: int = 2) -> list[dict[str, Placed]]:
    return [plan for plan in feasible_plans(snapshot) if len(plan) == number]


def test_required_level_holds_until_it_is_relaxed() -> None:
    nodes = [
        node("k", 1, fabric=("l1",)),
        node("m", 1, fabric=("l1",)),
        node("n", 2, fabric=("l2",)),
    ]

    def places(**fields: Any) -> set[str]:
        return nodes_of(snap(nodes, [job("a", tasks=2, **fields)], "leaf"))

    # k and m are alike: k stands for m
    anywhere = {"k m", "k n", "n n"}
    need = Topology(level="leaf", mode="required", relax_after_seconds=60)
    assert places() == anywhere
    assert places(topology=need, waited=59) == {"k m", "n n"}
    assert places(topology=need, waited=60) == anywhere
    assert places(topology=Topology(level="node", mode="required")) == {"n n"}


def test_no_gang_crosses_a_boundary() -> None:
    nodes = [node("m", 1, fabric=("s1",)), node("n", 1, fabric=("s2",))]
    fabric = Fabric(levels=(FabricLevel(name="site", boundary=True),))
    jobs = [job("a", tasks=2), job("b")]
    assert started(snap(nodes, jobs, fabric=fabric)) == {"", "b"}


def test_segments_lie_in_one_domain_each() -> None:
    nodes = [
        node("k", 1, fabric=("l1",)),
        node("m", 3, fabric=("l1",)),
        node("n", 3, fabric=("l2",)),
    ]
    pairs = job("a", tasks=4, segments=Segments(tasks=2, level="leaf"))
    assert nodes_of(snap(nodes, [pairs], "leaf")) == {"k m m m", "k m n n", "m m n n"}


# §4


def limited(jobs: list[Job], limit: Limits) -> set[str]:
    """What can start in a queue with this limit on 4 idle GPUs, and in a QOS with it."""
    in_queue = snap([node("n", 9)], jobs, queues=(Queue(name="q", limit=limit),))
    named = [entry.model_copy(update={"qos": "s"}) for entry in jobs]
    in_qos = snap([node("n", 9)], named, qos=(Qos(name="s", limit=limit),))
    assert started(in_queue) == started(in_qos)
    return started(in_queue)


def test_limits_in_all_by_model_and_per_user() -> None:
    jobs = [job("a", gpus=2, user="u"), job("b", user="u"), job("c", gpus=0, user="v")]
    assert limited(jobs, Limits(quota=Quota(gpus=2))) == {"", "a", "b", "c", "ac", "bc"}
    assert limited(jobs, Limits(quota=Quota(by_model={"a": 1}))) == {"", "b", "c", "bc"}
    assert limited(jobs, Limits(jobs=1)) == {"", "a", "b", "c"}
    assert limited(jobs, Limits(jobs_per_user=1)) == {"", "a", "b", "c", "ac", "bc"}
    # what runs counts, and may be above the limit already
    over = [running("r", ("n", (0, 1)), gpus=2), job("a"), job("c", gpus=0)]
    assert limited(over, Limits(quota=Quota(gpus=1))) == {"", "c"}
    assert limited(over, Limits(quota_per_user=Quota(gpus=3), jobs=2)) == {"", "a", "c"}


def test_limit_of_a_parent_counts_its_whole_subtree() -> None:
    top = Queue(name="p", limit=Limits(quota=Quota(gpus=1)))
    queues = (top, Queue(name="q", parent="p"), Queue(name="r", parent="p"), Queue(name="s"))
    jobs = [job("a"), job("b", queue="r"), job("c", queue="s")]
    assert started(snap([node("n", 3)], jobs, queues=queues)) == {"", "a", "b", "c", "ac", "bc"}


def test_arrays_and_licences() -> None:
    jobs = [job("a", array=ArrayRef(name="x", throttle=2)), job("b", licences={"l": 2}), job("c")]
    jobs.append(running("r", ("n", (0,)), array=ArrayRef(name="x", throttle=1), licences={"l": 1}))
    pool = (Licence(name="l", total=3, used_elsewhere=1),)
    # the smallest throttle named is 1, and r has it; of 2 licences r has 1
    assert started(snap([node("n", 4)], jobs, licences=pool)) == {"", "c"}


def test_lending_keeps_what_is_not_lent() -> None:
    # q keeps 2 of its guarantee of 3 whoever asks: of 4 GPUs others may use 2
    keeps = Queue(name="q", guarantee=Quota(gpus=3), lending_limit=Quota(gpus=1))
    queues = (keeps, Queue(name="r"))
    jobs = [job("a", queue="r"), job("b", queue="r", gpus=2), job("c", gpus=2)]
    every = started(snap([node("n", 4)], jobs, queues=queues))
    assert every == {"", "a", "b", "c", "ac", "bc"}
    # by model: q keeps one a
    model = Quota(by_model={"a": 1})
    keeps = Queue(name="q", guarantee=model, lending_limit=Quota(by_model={"a": 0}))
    queues = (keeps, Queue(name="r"))
    assert started(snap([node("n", 2)], jobs, queues=queues)) == {"", "a", "c"}


def test_strict_fifo_within_a_pool() -> None:
    first = [job("a", gpus=2, waited=60), job("b"), job("c", gpus=0), job("d", gpu_models=("x",))]
    nodes = [node("n", 2), node("m", 1, "x")]
    fifo = (Queue(name="q", order="strict_fifo"),)
    assert started(snap(nodes, first, queues=fifo)) == {"", "a", "c", "ac", *ADDED}
    # a job that could not even run on the empty cluster holds nobody up
    huge = [job("a", gpus=3, waited=60), job("b")]
    assert started(snap(nodes, huge, queues=fifo)) == {"", "b"}
    # on models of their own the order is theirs
    own = [job("a", gpus=2, waited=60, gpu_models=("a",)), job("d", gpu_models=("x",))]
    assert started(snap(nodes, own, queues=fifo)) == {"", "a", "d", "ad"}


ADDED = {"ab", "ad", "abc", "acd"}
"""b and d come after a, and there is one GPU for the two of them."""
