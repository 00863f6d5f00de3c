"""What kube-scheduler and Volcano are answered, over real sockets."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from build import NOW, job, node, plan_of, running, snapshot, somewhere
from kube_docs import Doc, listing
from kube_docs import node as kube_node
from kube_docs import pod as kube_pod

pytest.importorskip("fastapi", reason="the extra `service` is not installed")

from fastapi import FastAPI, Request
from served import Served, serving

from trencadis.adapters.service.config import Config
from trencadis.adapters.service.index import Word, make_index
from trencadis.adapters.service.sessions import documents_of
from trencadis.models.plan import Preempt

DATA = os.environ.get("TRENCADIS_TEST_DATA") or Path(__file__).parents[2] / "shared" / "data"
FORMATS = Path(DATA) / "formats"
there = pytest.mark.skipif(not FORMATS.is_dir(), reason="the samples are not beside the repository")

CONFIG = Config(port=0, workers=1, threads=1, round_seconds=5)


def member(name: str, group: str, gpus: int = 8) -> Doc:
    return kube_pod(name, gpus, metadata={"annotations": {"scheduling.k8s.io/group-name": group}})


GROUP = {
    "apiVersion": "scheduling.volcano.sh/v1beta1",
    "kind": "PodGroup",
    "metadata": {"name": "g", "namespace": "ml"},
    "spec": {"minMember": 2, "queue": "q"},
}
STATE = listing(
    *(kube_node(f"n{i}") for i in range(1, 4)),
    GROUP,
    member("w0", "g"),
    member("w1", "g"),
    kube_pod("big", 64),
    kube_pod("low", 8, on="n3"),
)
NAMES = ["n1", "n2", "n3"]


@pytest.fixture(scope="module")
def service() -> Iterator[Served]:
    with serving(CONFIG) as served:
        told = served.post("/v1/snapshot", STATE, params={"format": "kubernetes", "wait": 30})
        assert told.json()["planned"], told.text
        yield served


def ask(served: Served, verb: str, pod: Doc, **more: Any) -> Any:
    response = served.post(f"/scheduler/{verb}", {"Pod": pod, "NodeNames": NAMES, **more})
    assert response.status_code == 200, response.text
    return response.json()


def test_each_pod_of_a_gang_gets_its_own_node(service: Served) -> None:
    kept = [ask(service, "filter", member(f"w{i}", "g")) for i in range(2)]
    nodes = [answer["NodeNames"] for answer in kept]
    assert sorted(nodes) == [["n1"], ["n2"]]
    for answer in kept:
        assert answer["FailedNodes"] == {}
        assert answer["Nodes"] is None
        assert answer["Error"] == ""
    (row,) = ask(service, "prioritize", member("w0", "g"))
    assert [row["Host"]] == nodes[0]
    assert row["Score"] == 10
    assert ask(service, "prioritize", kube_pod("big", 64)) == []


def test_a_pod_that_waits_is_told_why(service: Served) -> None:
    answer = ask(service, "filter", kube_pod("big", 64))
    assert answer["NodeNames"] == []
    assert set(answer["FailedNodes"]) == set(NAMES)
    assert "64 GPUs" in answer["FailedNodes"]["n1"]


def test_pods_that_the_plan_does_not_know(service: Served) -> None:
    assert ask(service, "filter", kube_pod("new", 1))["NodeNames"] == []
    assert ask(service, "filter", kube_pod("web", 0))["NodeNames"] == NAMES


def test_a_pod_is_known_by_its_uid_or_by_its_name(service: Served) -> None:
    pod = member("w0", "g")
    expected = ask(service, "filter", pod)["NodeNames"]
    renamed = {"metadata": {"uid": "uid-w0", "name": "x"}, "spec": pod["spec"]}
    nameless = {"metadata": {"namespace": "ml", "name": "w0"}, "spec": pod["spec"]}
    assert ask(service, "filter", renamed)["NodeNames"] == expected
    assert ask(service, "filter", nameless)["NodeNames"] == expected


def test_any_case_of_keys_and_whole_nodes(service: Served) -> None:
    nodes = {
        "metadata": {},
        "items": [{"metadata": {"name": n}, "status": {"x": 1}} for n in NAMES],
    }
    for key in ("Nodes", "nodes"):
        response = service.post("/scheduler/filter", {"pod": member("w0", "g"), key: nodes})
        answer = response.json()
        assert answer["NodeNames"] is None
        (item,) = answer["Nodes"]["items"]
        assert item["status"] == {"x": 1}


def test_faults_have_the_shape_that_go_reads(service: Served) -> None:
    for content in (
        "{",
        "[]",
        "null",
        '{"Pod": 3}',
        '{"Pod": {}}',
        '{"Pod": {}, "NodeNames": [1]}',
    ):
        response = service.post("/scheduler/filter", content)
        assert response.status_code == 200
        assert response.json()["Error"]
        assert response.json()["NodeNames"] is None
        for verb in ("prioritize", "preempt"):
            response = service.post(f"/scheduler/{verb}", content)
            assert response.status_code in (200, 400)
    response = service.post("/scheduler/bind", "{}")
    assert (response.status_code, bool(response.json()["Error"])) == (200, True)


def test_preemption_that_is_not_planned_is_refused(service: Served) -> None:
    offered = {"n3": {"Pods": [{"UID": "uid-low"}], "NumPDBViolations": 0}}
    answer = ask(service, "preempt", kube_pod("big", 64), NodeNameToMetaVictims=offered)
    assert answer == {"NodeNameToMetaVictims": {}}
    # For pods that are none of our business the scheduler's own choice stands.
    for key, victims in (
        ("NodeNameToMetaVictims", offered),
        ("NodeNameToVictims", {"n3": {"Pods": [kube_pod("low", 8)], "NumPDBViolations": 0}}),
    ):
        answer = ask(service, "preempt", kube_pod("web", 0), **{key: victims})
        assert answer == {"NodeNameToMetaVictims": offered}


def test_planned_victims_are_told_by_uid_and_name() -> None:
    snap = snapshot([node("a", 8)], [running("old", somewhere("a"), gpus=8), job("new", gpus=8)])
    plan = plan_of(snap).model_copy(
        update={
            "preempts": (Preempt(job="old", at=NOW, gpus_free_at=NOW, makes_room_for=("new",)),)
        }
    )
    pods = {"old": [("u1", "ml/old-0", "a")], "new": [("u2", "ml/new-0", "")]}
    index = make_index(plan, NOW, pods, {"old": 1, "new": 1}, ["old"])
    assert index.victims == {"new": {"u1", "ml/old-0"}}
    assert index.pod("u1", "").node == "a"
    assert index.pod("", "ml/new-0").word is Word.WAIT
    assert index.pod("?", "?").word is Word.UNKNOWN


def test_a_stale_plan_answers_nobody() -> None:
    config = Config(port=0, workers=1, threads=1, round_seconds=5, stale_seconds=0.0)
    with serving(config) as served:
        served.post("/v1/snapshot", STATE, params={"format": "kubernetes", "wait": 30})
        assert ask(served, "filter", member("w0", "g"))["NodeNames"] == NAMES
        assert served.client.get("/readyz").status_code == 503


# bind


def api_server(posted: list[tuple[str, Any]], woken: list[tuple[str, Any]]) -> FastAPI:
    app = FastAPI()

    @app.post("/api/v1/namespaces/{namespace}/pods/{name}/binding")
    async def binding(namespace: str, name: str, request: Request) -> Any:
        posted.append((f"{namespace}/{name}", await request.json()))
        if name == "w1":
            from fastapi.responses import JSONResponse  # noqa: PLC0415

            return JSONResponse({"message": "pod w1 is already assigned"}, 409)
        return {"status": "Success"}

    @app.patch("/api/v1/nodes/{name}")
    async def annotate(name: str, patch: dict[str, Any]) -> dict[str, str]:
        woken.append((name, patch))
        return {"status": "Success"}

    return app


def test_bind_posts_what_the_plan_says() -> None:
    import uvicorn  # noqa: PLC0415

    posted: list[tuple[str, Any]] = []
    woken: list[tuple[str, Any]] = []
    app = api_server(posted, woken)
    fake = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, ws="none"))
    thread = threading.Thread(target=fake.run)
    thread.start()
    try:
        while not fake.started:
            time.sleep(0.01)
        port = fake.servers[0].sockets[0].getsockname()[1]
        config = Config(port=0, workers=1, threads=1, kube_api=f"http://127.0.0.1:{port}")
        with serving(config) as served:
            served.post("/v1/snapshot", STATE, params={"format": "kubernetes", "wait": 30})

            def bind(name: str, to: str) -> str:
                content = {
                    "PodName": name,
                    "PodNamespace": "ml",
                    "PodUID": f"uid-{name}",
                    "Node": to,
                }
                return str(served.post("/scheduler/bind", content).json()["Error"])

            (node_0,) = ask(served, "filter", member("w0", "g"))["NodeNames"]
            (node_1,) = ask(served, "filter", member("w1", "g"))["NodeNames"]
            assert bind("w0", node_0) == ""
            assert "already assigned" in bind("w1", node_1)
            assert node_0 in bind("w0", "n3")
            assert "64 GPUs" in bind("big", "n1")
            assert "names of Kubernetes" in bind("../x", "n1")
    finally:
        fake.should_exit = True
        thread.join()
    assert [key for key, _ in posted] == ["ml/w0", "ml/w1"]
    assert posted[0][1]["target"]["name"] == node_0
    assert posted[0][1]["metadata"]["uid"] == "uid-w0"
    # kube-scheduler doesn't ask again by itself: each plan with starts wakes it.
    assert woken[0][0] in {node_0, node_1}
    assert woken[0][1]["metadata"]["annotations"].keys() == {"trencadis.io/plan"}


def test_without_an_api_server_bind_refuses(service: Served) -> None:
    content = {"PodName": "web", "PodNamespace": "ml", "PodUID": "", "Node": "n1"}
    assert "--kube-api" in service.post("/scheduler/bind", content).json()["Error"]


# Volcano


def task(name: str, job_name: str, gpus: int = 8, on: str = "", status: int = 1) -> Doc:
    return {
        "UID": f"uid-{name}",
        "Job": f"ml/{job_name}",
        "Name": name,
        "Namespace": "ml",
        "Resreq": {
            "MilliCPU": 1000,
            "Memory": 2**30,
            "ScalarResources": {"nvidia.com/gpu": gpus * 1000},
        },
        "NodeName": on,
        "Status": status,
        "Preemptable": True,
        "Pod": {
            "metadata": {
                "name": name,
                "namespace": "ml",
                "creationTimestamp": "2026-03-01T11:00:00Z",
            }
        },
    }


def session() -> Doc:
    def node_info(name: str) -> Doc:
        size = {
            "MilliCPU": 96000,
            "Memory": 1e12,
            "ScalarResources": {"nvidia.com/gpu": 8000},
            "MaxTaskNum": 110,
        }
        return {
            "Name": name,
            "Node": {"metadata": {"name": name}},
            "Allocatable": size,
            "Capacity": size,
        }

    def job_info(name: str, minimum: int, *tasks: Doc) -> Doc:
        names = {"UID": f"ml/{name}", "Name": name, "Namespace": "ml", "Queue": "q1"}
        inside = {"MinAvailable": minimum, "Tasks": {entry["UID"]: entry for entry in tasks}}
        return names | inside

    jobs = [
        job_info("g", 2, task("w0", "g"), task("w1", "g")),
        job_info("big", 1, task("b0", "big", 64)),
        job_info("old", 1, task("o0", "old", 8, "n3", 32)),
    ]
    return {
        "Jobs": {entry["UID"]: entry for entry in jobs},
        "Nodes": {name: node_info(name) for name in NAMES},
        "Queues": {"q1": {"UID": "q1", "Name": "q1", "Weight": 3, "Queue": {}}},
        "NamespaceInfo": {},
    }


@pytest.fixture(scope="module")
def volcano() -> Iterator[Served]:
    with serving(CONFIG) as served:
        assert served.post("/volcano/onSessionOpen", session()).status_code == 200
        served.until_ready()
        yield served


def verb(served: Served, name: str, content: Any) -> Any:
    response = served.post(f"/volcano/{name}", content)
    assert response.status_code == 200, response.text
    return response.json()


def test_a_session_is_a_state(volcano: Served) -> None:
    state = volcano.client.get("/v1/snapshot").json()
    assert {entry["name"]: entry["gpus"][0]["count"] for entry in state["nodes"]} == dict.fromkeys(
        NAMES, 8
    )
    jobs = {entry["name"]: entry for entry in state["jobs"]}
    assert (jobs["ml/g"]["tasks"], jobs["ml/old"]["state"]) == (2, "running")
    assert {entry["name"]: entry["weight"] for entry in state["queues"]} == {"q1": 3}


def test_the_same_session_again_costs_no_round(volcano: Served) -> None:
    def count(name: str) -> float:
        found = re.findall(rf"^{name} (\S+)$", volcano.client.get("/metrics").text, re.MULTILINE)
        return sum(float(number) for number in found)

    state = volcano.app.state.service
    before, states = count("trencadis_round_seconds_count"), count("trencadis_states_total")
    number = state.planned.state.number
    # The half minute may end in between; then there is one more round, not three.
    for step in range(1, 4):
        volcano.post("/volcano/onSessionOpen", session())
        ends = time.monotonic() + 30
        while state.planned.state.number < number + step and time.monotonic() < ends:
            time.sleep(0.01)
    assert count("trencadis_states_total") == states + 3
    assert count("trencadis_round_seconds_count") <= before + 1


def test_volcano_places_as_planned(volcano: Served) -> None:
    nodes = [{"Name": name} for name in NAMES]
    chosen = []
    for name in ("w0", "w1"):
        scores = verb(volcano, "prioritize", {"task": task(name, "g"), "nodes": nodes})["nodeScore"]
        fits = [
            entry["Name"]
            for entry in nodes
            if verb(volcano, "predicate", {"task": task(name, "g"), "node": entry})["status"] == ""
        ]
        assert fits == [max(scores, key=scores.__getitem__)]
        chosen += fits
    assert sorted(chosen) == ["n1", "n2"]
    refused = verb(volcano, "predicate", {"task": task("b0", "big", 64), "node": nodes[0]})
    assert (refused["code"], "64 GPUs" in refused["status"]) == (2, True)


def test_volcano_jobs(volcano: Served) -> None:
    def about(name: str) -> Doc:
        return {"job": {"UID": f"ml/{name}", "Name": name, "Namespace": "ml"}}

    assert verb(volcano, "jobReady", about("g")) == {"status": True}
    assert verb(volcano, "jobReady", about("big")) == {"status": False}
    enqueueable = {
        n: verb(volcano, "jobEnqueueable", about(n))["status"] for n in ("g", "big", "new")
    }
    assert enqueueable == {"g": 1, "big": -1, "new": 0}
    assert verb(volcano, "queueOverused", {"queue": {"Name": "q1"}}) == {"overused": False}
    assert verb(volcano, "allocateFunc", {"task": task("w0", "g")}) == {"errorMessage": ""}
    assert verb(volcano, "onSessionClose", {}) == {}


def test_volcano_evicts_only_as_planned(volcano: Served) -> None:
    asked = {"evictor": task("b0", "big", 64), "evictees": [task("o0", "old", 8, "n3", 32)]}
    for name in ("preemptable", "reclaimable"):
        assert verb(volcano, name, asked) == {"status": -1, "victims": []}


def test_malformed_requests_get_volcanos_own_shape(volcano: Served) -> None:
    assert verb(volcano, "predicate", "{")["code"] == 1
    assert verb(volcano, "prioritize", "[]")["errorMessage"]
    assert verb(volcano, "preemptable", "3")["status"] == 0
    assert verb(volcano, "jobReady", "{}") == {"status": True}
    assert volcano.post("/volcano/onSessionOpen", "[]").status_code == 400


@there
def test_the_published_requests_and_their_answers(service: Served, volcano: Served) -> None:
    for name in ("filter", "prioritize", "preempt", "bind"):
        content = (FORMATS / "extender" / f"{name}.request.json").read_bytes()
        told = (FORMATS / "extender" / f"{name}.response.json").read_text()
        answer = service.post(f"/scheduler/{name}", content)
        assert answer.status_code == 200
        expected = json.loads(told)
        assert type(answer.json()) is type(expected)
        if isinstance(expected, dict):
            assert answer.json().keys() == expected.keys()
    for name in ("predicate", "prioritize", "preemptable"):
        content = (FORMATS / "volcano" / f"extender.{name}.request.json").read_bytes()
        told = (FORMATS / "volcano" / f"extender.{name}.response.json").read_text()
        answer = volcano.post(f"/volcano/{name}", content)
        assert answer.status_code == 200
        assert answer.json().keys() == json.loads(told).keys()
    opened = (FORMATS / "volcano" / "extender.onSessionOpen.request.json").read_bytes()
    kinds = [item["kind"] for item in json.loads(documents_of(opened))["items"]]
    assert kinds == ["Node", "Queue", "PodGroup", "Pod"]


def test_errors_are_never_traces(service: Served) -> None:
    response = httpx.get(f"{service.url}/scheduler/filter", trust_env=False)
    assert response.status_code == 405
