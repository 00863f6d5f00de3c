"""Odd but usable input is warned about, with its path and values; sound input is not."""

from __future__ import annotations

import pytest
from build import ago, at, hold, job, node, nodes, queue, quota, running, snapshot, somewhere

from trencadis.models import (
    FabricLevel,
    Preemption,
    Request,
    Share,
    Snapshot,
    Spare,
)
from trencadis.models.check import check

N1 = node("n1", 8)
PENDING = job("p")


WARNINGS: dict[str, tuple[Snapshot, str, str]] = {
    "guarantees above capacity": (
        snapshot(nodes(2, 8), queue("a", guarantee=9), queue("b", guarantee=8)),
        "$.queues",
        "the guarantees add up to 17 GPUs; the healthy nodes that are up have 16 GPUs",
    ),
    "down nodes and broken GPUs don't count": (
        snapshot(
            node("n1", 8, down=True), node("n2", 8, unhealthy=(0, 1)), queue("a", guarantee=7)
        ),
        "$.queues",
        "add up to 7 GPUs; the healthy nodes that are up have 6 GPUs",
    ),
    "guarantees of a model above capacity": (
        snapshot(node("n1", {"A": 4, "B": 4}), queue("a", guarantee=quota(8, A=5))),
        "$.queues",
        "the guarantees add up to 5 A GPUs; the healthy nodes that are up have 4 A GPUs",
    ),
    "guarantees below a parent without one": (
        snapshot(N1, queue("lab"), queue("a", "lab", guarantee=5), queue("b", "lab", guarantee=5)),
        "$.queues",
        "the guarantees add up to 10 GPUs",
    ),
    "children above their parent": (
        snapshot(
            N1,
            queue("a", "lab", guarantee=3),
            queue("b", "lab", guarantee=3),
            queue("lab", guarantee=5),
        ),
        "$.queues[2].guarantee",
        "the queues below lab are guaranteed 6 GPUs; lab itself 5 GPUs",
    ),
    "running on a broken GPU": (
        snapshot(node("n1", 8, unhealthy=(3,)), running("r", at("n1", 2, 3))),
        "$.jobs[0].allocation[0].gpus",
        "job r is running on GPU 3 of node n1, which is unhealthy and counts as absent",
    ),
    "a mode of preemption that is not there yet": (
        snapshot(node("n1", 8), preemption=Preemption(mode="suspend")),
        "$.policy.preemption.mode",
        "jobs can't be suspended in place by this version: nobody is preempted, as with none. "
        "Maybe graceful, or immediate?",
    ),
    "spares for nobody": (
        snapshot(node("n1", 8), spares=(Spare(level="cluster", nodes=1),), repairs=False),
        "$.policy.spares",
        "without repairs no spares are kept",
    ),
    "a gang that lost tasks": (
        snapshot(node("n1", 8), running("r", at("n1", 0), tasks=3, min_tasks=2)),
        "$.jobs[0].allocation",
        "job r lost 1 of its 2 tasks",
    ),
    "running on a node that is down": (
        snapshot(node("n1", 8, down=True), running("r", at("n1", 3))),
        "$.jobs[0].allocation[0].node",
        "job r is running on node n1, which is down",
    ),
    "too many GPUs by count": (
        snapshot(N1, running("a", at("n1", 0, 1, 2)), running("b", somewhere("n1"), gpus=6)),
        "$.nodes[0]",
        "node n1 is over-allocated: 9 GPUs in use, it has 8",
    ),
    "too many CPUs": (
        snapshot(node("n1", cpu_milli=1_000), running("a", at("n1", 0), cpu_milli=1_500)),
        "$.nodes[0]",
        "node n1 is over-allocated: 1500 cpu_milli in use, it has 1000",
    ),
    "too much memory": (
        snapshot(node("n1", memory_mib=10), running("a", at("n1", 0), at("n1", 1), memory_mib=6)),
        "$.nodes[0]",
        "node n1 is over-allocated: 12 memory_mib in use, it has 10",
    ),
    "too many of a resource": (
        snapshot(N1, running("a", at("n1", 0), resources={"rdma": 2})),
        "$.nodes[0]",
        "node n1 is over-allocated: 2 rdma in use, it has 0",
    ),
    "more GPUs than any node has": (
        snapshot(nodes(3, 8), job("a7", 9), job("a8", 9)),
        "$.jobs[0].request.gpus",
        "job a7 asks for 9 GPUs on one node; the largest node has 8. Maybe split it into tasks. "
        "(1 more jobs ask alike)",
    ),
    "more GPUs of a model than any node has": (
        snapshot(node("n1", {"A": 4, "B": 8}), job("a7", 6, models=("A",))),
        "$.jobs[0].request.gpus",
        "job a7 asks for 6 A GPUs on one node; the largest node has 4.",
    ),
    "a model that no node has": (
        snapshot(N1, job("a7", models=("H-100",))),
        "$.jobs[0].request.gpus",
        "job a7 asks for 1 H-100 GPUs on one node; no node has any; there are H100. Maybe H100?",
    ),
    "a level of unknown kind": (
        snapshot(node("n1", fabric=("r1",)), levels=(FabricLevel(name="leaf", kind="token-ring"),)),
        "$.fabric.levels[0]",
        "level leaf is of kind token-ring, which policy.slowdown_milli doesn't price; it counts as "
        "other (50). Maybe set its kind to one of cluster,",
    ),
    "no place in the fabric": (
        snapshot(nodes(2, 8), node("n3", fabric=("l1",)), levels=("leaf",)),
        "$.nodes[0].fabric",
        "node n1 and 1 more with GPUs has no place in the fabric",
    ),
    "a required node that isn't there": (
        snapshot(N1, job("p", required_nodes=("n1", "n9"))),
        "$.jobs[0].required_nodes[1]",
        "job p requires node n9, which isn't there",
    ),
}


@pytest.mark.parametrize("case", WARNINGS)
def test_warning(case: str) -> None:
    snap, path, message = WARNINGS[case]
    found = check(snap)
    assert len(found) == 1, [str(fault) for fault in found]
    assert found[0].path == path
    assert message in found[0].message


FINE = {
    "empty cluster": snapshot(),
    "no jobs": snapshot(N1),
    "no nodes": snapshot(job("p", gpus=0)),
    "waits for an absent job": snapshot(N1, job("p", after=("gone",))),
    "two shares on a GPU": snapshot(
        N1,
        running("a", at("n1", 0), request=Request(share=Share(gpu_milli=500))),
        running("b", at("n1", 0), request=Request(share=Share(gpu_milli=500))),
    ),
    "hold of a pending job": snapshot(N1, PENDING, hold("p", at("n1", 0))),
    "two holds of a pending job": snapshot(
        N1, PENDING, hold("p", at("n1", 0)), hold("p", at("n1", 0), kind="reservation")
    ),
    "hold on what drains": snapshot(
        N1, running("a", at("n1", 0), state="draining"), PENDING, hold("p", at("n1", 0))
    ),
    "reservation on what runs": snapshot(
        N1, running("a", at("n1", 0)), PENDING, hold("p", at("n1", 0), kind="reservation")
    ),
    "exactly full": snapshot(N1, running("a", at("n1", *range(8))), queue("q", guarantee=8)),
    "elastic job at its minimum": snapshot(N1, running("a", at("n1", 0), tasks=4, min_tasks=1)),
    "node as a level": snapshot(N1, job("p", tasks=2, required="node")),
    "short path": snapshot(node("n1", fabric=("s",)), levels=("spine", "leaf")),
    "same name in two branches": snapshot(
        node("n1", fabric=("a", "x")), node("n2", fabric=("x", "x")), levels=("spine", "leaf")
    ),
    "running before it was submitted": snapshot(N1, running("a", at("n1", 0), submit=ago(-60))),
}


@pytest.mark.parametrize("case", FINE)
def test_fine(case: str) -> None:
    assert check(FINE[case]) == []
