"""Each contradiction in a snapshot is told with its path and its values; odd input only warns."""

from __future__ import annotations

from typing import Any

import pytest
from build import NOW, at, hold, job, node, queue, running, snapshot

from trencadis.models import (
    InvalidInputError,
    Licence,
    MigGpu,
    MigInstance,
    Qos,
    Request,
    Segments,
    Share,
    Snapshot,
)
from trencadis.models.check import check
from trencadis.models.faults import MAX_LISTED, Fault

N1 = node("n1", 8)
PENDING = job("p")


def faults(snap: Snapshot) -> list[Fault]:
    with pytest.raises(InvalidInputError) as caught:
        check(snap)
    return list(caught.value.faults)


def two_groups(first: tuple[int, ...], second: tuple[int, ...]) -> dict[str, Any]:
    """Fields of a node with GPUs 0-1 of one model and 2-3 of another."""
    groups = [
        {"model": "A", "count": 2, "unhealthy": first},
        {"model": "B", "count": 2, "unhealthy": second},
    ]
    return {"name": "n1", "gpus": groups}


FAULTS: dict[str, tuple[Snapshot, str, str]] = {
    "node twice": (
        snapshot(node("n1"), node("n2"), node("n1")),
        "$.nodes[2].name",
        "there are two nodes named n1: entries 0 and 2",
    ),
    "queue twice": (
        snapshot(queue("q"), queue("q")),
        "$.queues[1].name",
        "there are two queues named q: entries 0 and 1",
    ),
    "job twice": (snapshot(job("a"), job("a")), "$.jobs[1].name", "there are two jobs named a"),
    "qos twice": (snapshot(Qos(name="x"), Qos(name="x")), "$.qos[1].name", "two QOSs named x"),
    "licence twice": (
        snapshot(Licence(name="x", total=1), Licence(name="x", total=2)),
        "$.licences[1].name",
        "there are two licences named x",
    ),
    "level twice": (
        snapshot(levels=("leaf", "leaf")),
        "$.fabric.levels[1].name",
        "there are two levels named leaf",
    ),
    "level called node": (
        snapshot(levels=("node",)),
        "$.fabric.levels[0].name",
        "no level may be named node",
    ),
    "path too long": (
        snapshot(node("n1", fabric=("s", "l")), levels=("leaf",)),
        "$.nodes[0].fabric",
        "node n1 gives 2 domains (s/l); the fabric has 1 levels (leaf)",
    ),
    "path without levels": (
        snapshot(node("n1", fabric=("l",))),
        "$.nodes[0].fabric",
        "Maybe fabric.levels is missing",
    ),
    "unhealthy index not there": (
        Snapshot(now=NOW, nodes=[two_groups((), (4,))]),
        "$.nodes[0].gpus[1].unhealthy[0]",
        "GPU 4 of node n1 isn't in this group (B), whose indices are 2 to 3",
    ),
    "unhealthy index in the wrong group": (
        Snapshot(now=NOW, nodes=[two_groups((2,), ())]),
        "$.nodes[0].gpus[0].unhealthy[0]",
        "whose indices are 0 to 1. Maybe list it in its own group",
    ),
    "unhealthy twice": (
        Snapshot(now=NOW, nodes=[two_groups((1, 1), ())]),
        "$.nodes[0].gpus[0].unhealthy[1]",
        "GPU 1 of node n1 is listed twice",
    ),
    "link to a GPU not there": (
        snapshot(node("n1", 4, links=((0, 1), (2, 4)))),
        "$.nodes[0].nvlink.links[1]",
        "node n1 has no GPU 4: it has GPUs 0 to 3",
    ),
    "link to itself": (
        snapshot(node("n1", 4, links=((1, 1),))),
        "$.nodes[0].nvlink.links[0]",
        "GPU 1 of node n1 is linked to itself",
    ),
    "mig on a GPU not there": (
        snapshot(node("n1", 1, mig=(1,))),
        "$.nodes[0].mig[0].gpu",
        "node n1 has no GPU 1: it has GPU 0 only",
    ),
    "mig twice": (snapshot(node("n1", 2, mig=(1, 1))), "$.nodes[0].mig[1].gpu", "listed twice"),
    "mig instances at one start": (
        snapshot(
            node("n1", 1, mig=(MigGpu(gpu=0, instances=(MigInstance(profile="1g", start=2),) * 2),))
        ),
        "$.nodes[0].mig[0].instances",
        "start at the same slice",
    ),
    "mig instances that overlap": (
        snapshot(
            node(
                "n1",
                1,
                model="A100-SXM4-40GB",
                mig=(
                    MigGpu(
                        gpu=0,
                        instances=(
                            MigInstance(profile="3g.20gb", start=0),
                            MigInstance(profile="2g.10gb", start=2),
                        ),
                    ),
                ),
            )
        ),
        "$.nodes[0].mig",
        "3g.20gb at 0 and 2g.10gb at 2 of GPU 0 of node n1 overlap",
    ),
    "parent not there": (
        snapshot(queue("q", "lab")),
        "$.queues[0].parent",
        "queue q names lab as its parent, which isn't a queue",
    ),
    "queue cycle": (
        snapshot(queue("z", "a"), queue("a", "b"), queue("b", "c"), queue("c", "a")),
        "$.queues[1].parent",
        "the parents of queue a form a cycle: a -> b -> c -> a",
    ),
    "queue its own parent": (
        snapshot(queue("a", "a")),
        "$.queues[0].parent",
        "the parents of queue a form a cycle: a -> a",
    ),
    "queue not there": (
        Snapshot(now=NOW, queues=(queue("blue"),), jobs=(job("p", queue="bleu"),)),
        "$.jobs[0].queue",
        "job p is in queue bleu, which isn't there. Maybe blue?",
    ),
    "queue not a leaf": (
        snapshot(queue("lab"), queue("red", "lab"), job("p", queue="lab")),
        "$.jobs[0].queue",
        "job p is in queue lab, which has queues below it; jobs belong to leaves. Maybe red?",
    ),
    "qos not there": (
        snapshot(Qos(name="long"), job("p", qos="lang")),
        "$.jobs[0].qos",
        "job p names QOS lang, which isn't there. Maybe long?",
    ),
    "tier not there": (
        snapshot(job("p", priority="urgent")),
        "$.jobs[0].priority",
        "job p has priority urgent; the policy's tiers are high, normal, low",
    ),
    "licence not there": (
        snapshot(job("p", licences={"cad": 1})),
        "$.jobs[0].licences",
        "job p needs licence cad, which isn't there",
    ),
    "topology level not there": (
        snapshot(job("p", tasks=2, required="rack"), levels=("spine", "leaf")),
        "$.jobs[0].topology.level",
        "job p names level rack; the levels are spine, leaf, node",
    ),
    "segments level not there": (
        snapshot(job("p", tasks=2, segments=Segments(tasks=2, level="rack"))),
        "$.jobs[0].segments.level",
        "job p names level rack; the levels are node",
    ),
    "segments don't divide tasks": (
        snapshot(job("p", tasks=5, segments=Segments(tasks=2, level="node"))),
        "$.jobs[0].segments.tasks",
        "job p has segments of 2 tasks, which don't divide its tasks, 5",
    ),
    "segments don't divide min_tasks": (
        snapshot(job("p", tasks=6, min_tasks=3, segments=Segments(tasks=2, level="node"))),
        "$.jobs[0].segments.tasks",
        "which don't divide its min_tasks, 3",
    ),
    "min_tasks above tasks": (
        snapshot(job("p", tasks=2, min_tasks=3)),
        "$.jobs[0].min_tasks",
        "job p has min_tasks 3, more than its tasks, 2",
    ),
    "min_replicas above tasks": (
        snapshot(job("p", tasks=2, min_replicas=3)),
        "$.jobs[0].min_replicas",
        "job p has min_replicas 3, more than its tasks, 2",
    ),
    "waits for itself": (snapshot(job("p", after=("p",))), "$.jobs[0].after", "p waits for itself"),
    "wait for each other": (
        snapshot(job("p", after=("q",)), job("q", after=("s",)), job("s", after=("p",))),
        "$.jobs[0].after",
        "jobs wait for each other: p -> q -> s -> p",
    ),
    "allocation on a node not there": (
        snapshot(N1, running("r", at("n2", 0))),
        "$.jobs[0].allocation[0].node",
        "job r is on node n2, which isn't there",
    ),
    "allocation on a GPU not there": (
        snapshot(N1, running("r", at("n1", 7), at("n1", 8))),
        "$.jobs[0].allocation[1].gpus",
        "job r is on GPU 8 of node n1: it has GPUs 0 to 7",
    ),
    "allocation on a node without GPUs": (
        snapshot(node("cpu", 0), running("r", at("cpu", 0))),
        "$.jobs[0].allocation[0].gpus",
        "job r is on GPU 0 of node cpu: it has no GPUs",
    ),
    "two jobs on a GPU": (
        snapshot(N1, running("a", at("n1", 0, 1)), running("b", at("n1", 1, 2))),
        "$.jobs[1].allocation[0].gpus",
        "job a and job b both have GPU 1 of node n1",
    ),
    "running and draining on a GPU": (
        snapshot(N1, running("a", at("n1", 0)), running("b", at("n1", 0), state="draining")),
        "$.jobs[1].allocation[0].gpus",
        "job a and job b both have GPU 0 of node n1",
    ),
    "whole and shared on a GPU": (
        snapshot(
            N1,
            running("a", at("n1", 0), request=Request(share=Share(gpu_milli=500))),
            running("b", at("n1", 0)),
        ),
        "$.jobs[1].allocation[0].gpus",
        "job a and job b both have GPU 0 of node n1",
    ),
    "a GPU twice in a job": (
        snapshot(N1, running("a", at("n1", 0), at("n1", 0))),
        "$.jobs[0].allocation[1].gpus",
        "job a has GPU 0 of node n1 twice",
    ),
    "a GPU twice in a task": (
        snapshot(N1, running("a", at("n1", 0, 0))),
        "$.jobs[0].allocation[0].gpus",
        "job a has GPU 0 of node n1 twice",
    ),
    "delayed start on a running job": (
        snapshot(N1, running("a", at("n1", 0)), PENDING, hold("p", at("n1", 0))),
        "$.holds[0].allocation[0].gpus",
        "job a and the hold for job p both have GPU 0 of node n1",
    ),
    "holds of two jobs": (
        snapshot(N1, job("p"), job("o"), hold("p", at("n1", 0)), hold("o", at("n1", 0))),
        "$.holds[1].allocation[0].gpus",
        "the hold for job p and the hold for job o both have GPU 0 of node n1",
    ),
    "hold on what its own job runs on": (
        snapshot(N1, running("a", at("n1", 0)), hold("a", at("n1", 0), kind="reservation")),
        "$.holds[0].allocation[0].gpus",
        "job a and the hold for job a both have GPU 0 of node n1",
    ),
    "hold for no job": (
        snapshot(N1, hold("p", at("n1", 0))),
        "$.holds[0].job",
        "the hold is for job p, which isn't there",
    ),
    "hold of nothing": (
        snapshot(N1, PENDING, hold("p")),
        "$.holds[0].allocation",
        "the hold for job p holds nothing",
    ),
    "hold on a node not there": (
        snapshot(N1, PENDING, hold("p", at("n2", 0))),
        "$.holds[0].allocation[0].node",
        "the hold for job p is on node n2, which isn't there",
    ),
    "running without allocation": (
        snapshot(N1, job("r", state="running", start=NOW)),
        "$.jobs[0].allocation",
        "job r is running, yet has no allocation",
    ),
    "pending with allocation": (
        snapshot(N1, job("p", allocation=(at("n1", 0),))),
        "$.jobs[0].allocation",
        "job p is pending, yet has an allocation of 1 entries",
    ),
    "running without start": (
        snapshot(N1, running("r", at("n1", 0), start=None)),
        "$.jobs[0].start",
        "job r is running, yet has no start",
    ),
    "more entries than tasks": (
        snapshot(N1, running("r", at("n1", 0), at("n1", 1), tasks=1)),
        "$.jobs[0].allocation",
        "job r has 2 entries (one per task); it has 1 tasks",
    ),
    "wrong number of GPUs": (
        snapshot(N1, running("r", at("n1", 0, 1), gpus=4)),
        "$.jobs[0].allocation[0].gpus",
        "job r lists 2 GPUs; each task asks for 4",
    ),
    "GPUs for a task without": (
        snapshot(N1, running("r", at("n1", 0), gpus=0)),
        "$.jobs[0].allocation[0].gpus",
        "job r lists 1 GPUs; each task asks for 0",
    ),
}


@pytest.mark.parametrize("case", FAULTS)
def test_fault(case: str) -> None:
    snap, path, message = FAULTS[case]
    found = faults(snap)
    assert len(found) == 1, [str(fault) for fault in found]
    assert found[0].path == path
    assert message in found[0].message
    assert "\n" not in str(found[0])


def test_all_faults_at_once_with_a_count_of_the_rest() -> None:
    snap = snapshot(jobs_in_nowhere := [job(f"j{i}", priority="urgent") for i in range(25)])
    with pytest.raises(InvalidInputError) as caught:
        check(snap)
    assert len(caught.value.faults) == len(jobs_in_nowhere)
    lines = caught.value.lines()
    assert len(lines) == MAX_LISTED + 1
    assert lines[-1] == "... and 5 more faults"
