"""Each contradiction in a snapshot is told with its path and its values; odd input only warns."""

from __future__ import annotations

import json
from typing import Any

import pytest
from build import NOW, ago, at, hold, job, node, nodes, queue, quota, running, snapshot, somewhere

from trencadis.models import (
    FabricLevel,
    InvalidInputError,
    Licence,
    MigGpu,
    MigInstance,
    Qos,
    Request,
    Segments,
    Share,
    Snapshot,
    load_plan,
    load_policy,
    load_snapshot,
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
    "fewer entries than the minimum": (
        snapshot(N1, running("r", at("n1", 0), tasks=3, min_tasks=2)),
        "$.jobs[0].allocation",
        "job r has 1 entries (one per task); it has 2 to 3 tasks",
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


NOW_TEXT = '"2026-01-05T12:00:00Z"'
BAD_TEXT: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", "$: the input is empty"),
    "blank": ("  \n", "$: the input is empty"),
    "truncated": ('{"now": ' + NOW_TEXT, "$: Invalid JSON: EOF"),
    "malformed": ("{now: 1}", "$: Invalid JSON: "),
    "trailing": ('{"now": ' + NOW_TEXT + "}}", "$: Invalid JSON: trailing"),
    "list": ("[]", "$: Input should be an object"),
    "null": ("null", "$: Input should be an object"),
    "not UTF-8": (b'{"now": "\xff"}', "$: not UTF-8 text: byte 0xff at position 9"),
    "UTF-16": ('{"now": 1}'.encode("utf-16"), "$: not UTF-8 text"),
    "deep": ("[" * 100_000, "$: Invalid JSON: recursion limit exceeded"),
    "deep objects": ('{"a":' * 100_000, "$: Invalid JSON: recursion limit exceeded"),
    "no now": ("{}", "$.now: required field is missing"),
    "NaN": (f'{{"now": {NOW_TEXT}, "budget_use": {{"moves_last_hour": NaN}}}}', "$.budget_use."),
    "infinite": ('{"now": 1e400}', "$.now: "),
    "local time": ('{"now": "2026-01-05T12:00:00"}', "$.now: Input should have timezone info"),
    "end of time": ('{"now": "9999-12-31T23:59:59-14:00"}', "$.now: in UTC this lies outside"),
    "digits": ('{"now": ' + "9" * 5_000 + "}", "$: Invalid JSON: number out of range"),
    "lone surrogate": ('{"now": "\\ud800"}', "$: Invalid JSON: "),
    "unknown field": (f'{{"now": {NOW_TEXT}, "node": []}}', "$.node: unknown field. Maybe nodes?"),
    "twice": (
        f'{{"now": {NOW_TEXT}, "now": {NOW_TEXT}}}',
        "$.now: the object has this field twice",
    ),
    "version": (
        f'{{"now": {NOW_TEXT}, "schema_version": 2}}',
        "$.schema_version: Input should be 1",
    ),
}


@pytest.mark.parametrize("case", BAD_TEXT)
def test_bad_text(case: str) -> None:
    text, start = BAD_TEXT[case]
    with pytest.raises(InvalidInputError) as caught:
        load_snapshot(text)
    lines = caught.value.lines()
    assert lines[0].startswith(start), lines
    assert len(lines) == 1
    assert all(len(line) < 300 for line in lines)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("-1", "greater than or equal to 0"),
        ("1.5", "a valid integer"),
        ("1e400", "a valid integer"),
        ("-Infinity", "a valid integer"),
        ("NaN", "a valid integer"),
        (str(10**30), "less than or equal to 1000000000"),
        ('"8"', "a valid integer"),
        ("true", "a valid integer"),
    ],
)
def test_bad_numbers(value: str, message: str) -> None:
    text = f'{{"now": {NOW_TEXT}, "nodes": [{{"name": "n1", "cpu_milli": {value}}}]}}'
    with pytest.raises(InvalidInputError) as caught:
        load_snapshot(text)
    (fault,) = caught.value.faults
    assert fault.path == "$.nodes[0].cpu_milli"
    assert message in fault.message


def test_a_field_given_twice_deep_inside_is_told_with_its_path() -> None:
    entries = '[{"name": "a"}, {"name": "b", "labels": {"x": "1", "x": "2"}}]'
    text = f'{{"now": {NOW_TEXT}, "nodes": {entries}}}'
    with pytest.raises(InvalidInputError) as caught:
        load_snapshot(text)
    assert [fault.path for fault in caught.value.faults] == ["$.nodes[1].labels.x"]


def test_keys_cannot_smuggle_control_characters_or_endless_lines_into_a_message() -> None:
    fields = {"now": "2026-01-05T12:00:00Z", "\x1b[31m": 1, "k" * 5_000: 1}
    with pytest.raises(InvalidInputError) as caught:
        load_snapshot(json.dumps(fields))
    assert len(caught.value.faults) == 2
    for line in caught.value.lines():
        assert line.isprintable()
        assert len(line) < 200


def test_a_byte_order_mark_is_no_fault() -> None:
    snap, warnings = load_snapshot(b"\xef\xbb\xbf" + f'{{"now": {NOW_TEXT}}}'.encode())
    assert snap == Snapshot(now=NOW)
    assert warnings == []


def test_another_policy_is_checked_against_the_jobs() -> None:
    text = snapshot(job("p", priority="high")).model_dump_json()
    load_snapshot(text)
    policy = load_policy('{"tiers": [{"name": "only"}], "default_tier": "only"}')
    with pytest.raises(InvalidInputError, match=r"\$\.jobs\[0\]\.priority.*tiers are only"):
        load_snapshot(text, policy)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("tiers = [", "$: Invalid TOML: "),
        ("horizon_seconds = 1\nhorizon_seconds = 2", "$: Invalid TOML: "),
        ("horizon_seconds = nan", "$.horizon_seconds: Input should be a valid integer"),
        ("horizont_seconds = 1", "$.horizont_seconds: unknown field. Maybe horizon_seconds?"),
        (
            '[[tiers]]\nname = "a"\n[[tiers]]\nname = "a"',
            "$: tier names must differ; given twice: a",
        ),
        ("x = " + "[" * 10_000, "$: Invalid TOML: "),
    ],
)
def test_bad_toml(text: str, start: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        load_policy(text, toml=True)
    assert caught.value.lines()[0].startswith(start)


def test_a_plan_with_a_gap_that_is_no_number_is_refused() -> None:
    with pytest.raises(InvalidInputError) as caught:
        load_plan('{"proof": {"stages": [], "gap": NaN, "status": "OPTIMAL"}}')
    assert "$.proof.gap" in {fault.path for fault in caught.value.faults}
