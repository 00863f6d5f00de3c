"""Whatever is sent to any route of the OpenAPI document: no 5xx but 503, and never a trace."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("fastapi", reason="the extra `service` is not installed")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it warns of its own libraries
    schemathesis = pytest.importorskip("schemathesis")

from kube_docs import listing
from kube_docs import node as kube_node
from kube_docs import pod as kube_pod
from served import Served, serving

from trencadis.adapters.service.config import Config, Limits

ALLOWED = {200, 400, 401, 403, 404, 405, 408, 413, 421, 422, 429, 503}
VOLCANO = (
    "predicate",
    "prioritize",
    "preemptable",
    "reclaimable",
    "queueOverused",
    "jobEnqueueable",
    "jobEnqueued",
    "jobReady",
    "allocateFunc",
    "deallocateFunc",
)


@pytest.fixture(scope="module")
def service() -> Iterator[Served]:
    # The time in which a worker begins counts as well.
    limits = Limits(solve_seconds=30, grace_seconds=30)
    config = Config(
        port=0,
        workers=1,
        threads=1,
        round_seconds=1,
        limits=limits,
        worker="trencadis.commands.service_worker",
        whatif=True,
    )
    with serving(config) as served:
        content = listing(kube_node("n1"), kube_node("n2"), kube_pod("p", 8), kube_pod("q", 64))
        served.until_planned(content, "kubernetes")
        yield served


@pytest.fixture(scope="module")
def document(service: Served) -> Any:
    return service.client.get("/openapi.json").json()


def test_the_document_lists_every_verb(document: Any) -> None:
    paths = document["paths"]
    for verb in ("filter", "prioritize", "preempt", "bind"):
        assert "post" in paths[f"/scheduler/{verb}"]
    for verb in (*VOLCANO, "onSessionOpen", "onSessionClose"):
        assert "post" in paths[f"/volcano/{verb}"]
    for part in ("solve", "snapshot", "explain", "whatif", "plan"):
        assert f"/v1/{part}" in paths
    for path in ("/metrics", "/healthz"):
        assert path in paths


def sound(response: httpx.Response) -> None:
    assert response.status_code in ALLOWED, (response.status_code, response.text[:300])
    assert "Traceback" not in response.text
    assert "internal error" not in response.text, response.text[:300]
    if "json" in response.headers.get("content-type", ""):
        response.json()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", ["scheduler", "volcano", "v1", "health"])
def test_schemathesis_finds_nothing(service: Served, document: Any, part: str) -> None:
    paths = {
        path: item
        for path, item in document["paths"].items()
        if path.startswith(f"/{part}") or (part == "health" and path.count("/") == 1)
    }
    assert paths
    schema = schemathesis.openapi.from_dict({**document, "paths": paths})
    for result in schema.get_all_operations():
        operation = result.ok()
        # Each solve costs a moment of a worker; the extenders cost none.
        examples = 15 if part == "v1" else 60

        @settings(
            max_examples=examples,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            database=None,
        )
        @given(case=operation.as_strategy())
        def every_case(case: Any) -> None:
            arguments = case.as_transport_kwargs(base_url=service.url)
            try:
                response = service.client.request(
                    arguments["method"],
                    arguments["url"],
                    params=arguments.get("params"),
                    headers={
                        key: value
                        for key, value in (arguments.get("headers") or {}).items()
                        if key.lower() not in ("user-agent", "host")
                    },
                    content=_content(arguments),
                )
            except (httpx.InvalidURL, httpx.LocalProtocolError, UnicodeEncodeError, ValueError):
                return  # what no client can send
            sound(response)

        every_case()


def _content(arguments: dict[str, Any]) -> Any:
    if "json" in arguments:
        return json.dumps(arguments["json"])
    data = arguments.get("data")
    return data if isinstance(data, str | bytes) else None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)
KEYS = ["Pod", "Nodes", "NodeNames", "items", "metadata", "name", "uid", "spec", "containers",
        "resources", "requests", "NodeNameToVictims", "NodeNameToMetaVictims", "Pods", "UID",
        "task", "node", "nodes", "job", "queue", "evictor", "evictees", "Name", "Namespace",
        "Resreq", "ScalarResources", "Node", "PodName", "PodNamespace"]  # fmt: skip
NAMED = st.recursive(
    JSON,
    lambda inner: (
        st.dictionaries(st.sampled_from(KEYS), inner, max_size=5) | st.lists(inner, max_size=3)
    ),
    max_leaves=12,
)


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    verb=st.sampled_from(
        [
            *(f"/scheduler/{v}" for v in ("filter", "prioritize", "preempt", "bind")),
            *(f"/volcano/{v}" for v in VOLCANO),
        ]
    ),
    content=st.dictionaries(st.sampled_from(KEYS), NAMED, max_size=6) | st.binary(max_size=40),
)
def test_any_value_under_known_keys_is_answered(service: Served, verb: str, content: Any) -> None:
    body = content if isinstance(content, bytes) else json.dumps(content)
    response = service.post(verb, body)
    sound(response)
    if verb.startswith("/volcano/"):
        assert response.status_code == 200


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(jobs=JSON, nodes=JSON, queues=JSON)
def test_a_broken_session_stops_nothing(
    service: Served, jobs: Any, nodes: Any, queues: Any
) -> None:
    session = {"Jobs": {"a": jobs}, "Nodes": {"n": nodes}, "Queues": {"q": queues}}
    sound(service.post("/volcano/onSessionOpen", session))
    sound(service.client.get("/readyz"))


def test_after_all_that_it_still_solves(service: Served) -> None:
    content = listing(kube_node("n1"), kube_pod("p", 8))
    service.until_planned(content, "kubernetes")
    answer = service.post("/scheduler/filter", {"Pod": kube_pod("p", 8), "NodeNames": ["n1", "n9"]})
    assert answer.json()["NodeNames"] == ["n1"]
