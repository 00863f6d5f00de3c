"""A token bound to a queue: no answer of any path tells of others' jobs, errors included."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from build import job, node, queue, snapshot

pytest.importorskip("fastapi", reason="the extra `service` is not installed")

from served import Served, serving

from trencadis.adapters.service.config import Config, read_tokens

EVERYONE, BOUND = "all-" + "x" * 20, "bound-" + "x" * 20
ADMIN, RED = ({"Authorization": f"Bearer {token}"} for token in (EVERYONE, BOUND))
THERE, NOT_THERE = "hidden-runs", "nobody-runs"


@pytest.fixture(scope="module")
def service() -> Iterator[Served]:
    """Of the blue queue a job that starts, one that waits for room, and one that never has any."""
    tokens = read_tokens(f"{EVERYONE}\n{BOUND} red\n", "tokens")
    jobs = [job("mine", gpus=2, queue="red"), job("late", gpus=2, queue="red")]
    jobs += [job(f"hidden-{name}", gpus=n, queue="blue") for name, n in
             (("runs", 2), ("waits", 2), ("huge", 8))]  # fmt: skip
    state = snapshot([node("n", 2), node("m", 2)], jobs, [queue("red"), queue("blue")])
    config = Config(
        port=0, workers=1, threads=1, tokens=tokens, whatif=True,
        worker="trencadis.commands.service_worker",
    )  # fmt: skip
    with serving(config) as served:
        content = state.model_dump_json()
        told = served.post("/v1/snapshot", content, headers=ADMIN, params={"wait": 30})
        assert told.json()["planned"], told.text
        yield served


def questions(name: str) -> list[dict[str, Any]]:
    """Whatever may be asked about a job."""
    pod = {"metadata": {"name": name, "namespace": "default", "uid": name}}
    volcano = {"UID": name, "Name": name, "Job": name}
    return [
        {},
        {"jobs": [name]},
        {"jobs": ["late", name], "remedies": True},
        {"jobs": ["late"], "remedies": True},
        {"scenarios": [{"add": [{"kind": "n"}]}]},
        {"scenarios": [{"jobs": [job(name, gpus=1, queue="red").model_dump(mode="json")]}]},
        {"scenarios": [{"name": name, "remove": [{"kind": name, "count": 1}]}]},
        {"Pod": pod, "NodeNames": ["n", "m"], "NodeNameToMetaVictims": {"n": {"Pods": [pod]}}},
        {"PodName": name, "PodNamespace": "default", "PodUID": name, "Node": "n"},
        {"task": volcano, "job": volcano, "evictees": [volcano], "node": {"Name": "n"}},
    ]


def test_no_path_tells_of_others(service: Served) -> None:
    """One of theirs is answered as one that there isn't, and no name comes that wasn't asked."""
    paths = service.client.get("/openapi.json", headers=ADMIN).json()["paths"]
    assert {"/v1/explain", "/v1/whatif", "/scheduler/filter", "/volcano/predicate"} <= set(paths)
    for path, verbs in paths.items():
        if "get" in verbs:
            assert "hidden" not in service.client.get(path, headers=RED).text
            continue
        for there, not_there in zip(questions(THERE), questions(NOT_THERE), strict=True):
            one = service.post(path, there, headers=RED)
            other = service.post(path, not_there, headers=RED)
            assert one.status_code == other.status_code, (path, there)
            assert "hidden" not in one.text.replace(THERE, ""), (path, there)
            if other.status_code != 200:
                assert one.text.replace(THERE, NOT_THERE) == other.text, (path, there)


def test_the_names_are_there_to_be_told(service: Served) -> None:
    for path in ("/v1/snapshot", "/v1/plan"):
        assert "hidden-runs" in service.client.get(path, headers=ADMIN).text
    assert "hidden-huge" in service.post("/v1/explain", {}, headers=ADMIN).text
