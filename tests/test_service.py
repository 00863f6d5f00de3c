"""The service over real sockets: solving, the pushed state, and what keeps it up."""

from __future__ import annotations

import json
import os
import shutil
import signal
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from build import job, node, queue, snapshot
from command import INSTANCES, Program
from kube_docs import listing
from kube_docs import node as kube_node
from kube_docs import pod as kube_pod

pytest.importorskip("fastapi", reason="the extra `service` is not installed")

from served import Served, serving

from trencadis.adapters.service.config import Config, Limits, Tokens, read_tokens
from trencadis.models import InvalidInputError, Plan, Snapshot
from trencadis.solver.verify import verify

EXAMPLE = (INSTANCES / "team_node.json").read_text()
CONFIG = Config(port=0, workers=2, threads=1, round_seconds=5)


@pytest.fixture(scope="module")
def service() -> Iterator[Served]:
    with serving(CONFIG) as served:
        yield served


def push(served: Served, content: str, **params: Any) -> httpx.Response:
    return served.post("/v1/snapshot", content, params={"wait": 30, **params})


def problem(response: httpx.Response, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    found: dict[str, Any] = response.json()
    assert found["status"] == status
    return found


def test_health_before_any_state() -> None:
    with serving(CONFIG) as served:
        assert served.client.get("/healthz").json() == {"status": "ok"}
        problem(served.client.get("/readyz"), 503)
        problem(served.client.get("/v1/plan"), 503)
        asked = {"Pod": {"metadata": {"name": "p"}}, "NodeNames": ["a", "b"]}
        # Nothing is known: the scheduler decides alone.
        assert served.post("/scheduler/filter", asked).json()["NodeNames"] == ["a", "b"]


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
def test_head_answers_as_get_without_a_body(path: str) -> None:
    with serving(CONFIG) as served:
        for _ in range(2):
            head, get = served.client.head(path), served.client.get(path)
            assert head.status_code == get.status_code
            assert head.headers["content-type"] == get.headers["content-type"]
            assert get.content
            assert head.content == b""
            served.until_planned(EXAMPLE, "snapshot")
            served.until_ready()


def test_a_plan_for_a_snapshot(service: Served) -> None:
    response = service.post("/v1/solve", EXAMPLE, params={"time_limit": 5})
    assert response.status_code == 200
    plan = Plan.model_validate_json(response.content)
    assert verify(Snapshot.model_validate_json(EXAMPLE), plan).violations == ()
    assert plan.starts


def test_deterministic_plans_are_equal(service: Served) -> None:
    params = {"deterministic": True, "time_limit": 5}
    first, second = (service.post("/v1/solve", EXAMPLE, params=params).content for _ in range(2))
    assert first == second


def test_faults_are_listed_with_their_paths(service: Served) -> None:
    bad = json.loads(EXAMPLE)
    bad["jobs"][0]["tasks"] = 0
    found = problem(service.post("/v1/solve", bad), 422)
    assert found["faults"][0]["path"] == "$.jobs[0].tasks"
    problem(service.post("/v1/solve", "{"), 422)
    problem(service.post("/v1/solve", b"\xff"), 422)
    problem(service.post("/v1/solve", EXAMPLE, params={"time_limit": "x"}), 422)
    problem(service.client.get("/nowhere"), 404)
    problem(service.client.get("/v1/solve"), 405)


def test_the_pushed_state_its_plan_and_its_reasons(service: Served) -> None:
    told = push(service, EXAMPLE).json()
    assert told["planned"] is True
    assert told["jobs"] == len(json.loads(EXAMPLE)["jobs"])
    assert service.client.get("/readyz").status_code == 200
    kept = Snapshot.model_validate_json(service.client.get("/v1/snapshot").content)
    plan = Plan.model_validate_json(service.client.get("/v1/plan").content)
    assert plan.snapshot == kept.fingerprint() == told["fingerprint"]
    waiting = plan.pending[0].job
    report = service.post("/v1/explain", {"jobs": [waiting]}).json()
    assert waiting in json.dumps(report)
    everyone = service.post("/v1/explain", {})
    assert everyone.status_code == 200
    unknown = problem(service.post("/v1/explain", {"jobs": ["nobody"]}), 422)
    assert "nobody" in unknown["faults"][0]["message"]
    problem(service.post("/v1/explain", {"job": 3}), 422)


def test_a_state_of_kubernetes(service: Served) -> None:
    content = listing(kube_node("n1"), kube_node("n2"), kube_pod("p", 8), kube_pod("q", 8))
    told = push(service, content, format="kubernetes").json()
    assert (told["nodes"], told["jobs"], told["planned"]) == (2, 2, True)
    plan = Plan.model_validate_json(service.client.get("/v1/plan").content)
    assert {start.job for start in plan.starts} == {"ml/p", "ml/q"}
    problem(push(service, "{}", format="kubernetes"), 422)
    problem(push(service, EXAMPLE, format="other"), 422)


def test_metrics_tell_of_rounds_and_requests(service: Served) -> None:
    push(service, EXAMPLE)
    text = service.client.get("/metrics").text
    assert 'trencadis_http_requests_total{route="/v1/snapshot",status="200"}' in text
    assert "trencadis_plan_fresh 1.0" in text
    assert "trencadis_gpus 8.0" in text


# What keeps it up


def test_a_killed_worker_costs_one_answer_and_no_more(service: Served) -> None:
    before = service.workers()
    statuses: list[int] = []

    def long_solve() -> None:
        big = snapshot(
            [node(f"n{i}", 8) for i in range(60)],
            [job(f"j{i}", gpus=1 + i % 5) for i in range(900)],
        )
        response = service.post("/v1/solve", big.model_dump_json(), params={"time_limit": 60})
        statuses.append(response.status_code)

    thread = threading.Thread(target=long_solve)
    thread.start()
    busy = service.app.state.pool
    while not busy.busy:
        assert thread.is_alive()
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    thread.join()
    assert statuses in ([503], [200])
    assert service.post("/v1/solve", EXAMPLE, params={"time_limit": 5}).status_code == 200
    assert service.client.get("/healthz").status_code == 200


def test_a_solve_that_takes_too_long_is_killed_and_overload_is_told() -> None:
    limits = Limits(solve_seconds=30, grace_seconds=-29.99, waiting=0)
    config = Config(port=0, workers=1, threads=1, limits=limits)
    many = snapshot(
        [node(f"n{i}", 8) for i in range(40)], [job(f"j{i}", gpus=1 + i % 7) for i in range(400)]
    ).model_dump_json()
    with serving(config) as served:
        answers: list[httpx.Response] = []

        def ask() -> None:
            answers.append(served.post("/v1/solve", many, params={"time_limit": 20}))

        threads = [threading.Thread(target=ask) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        codes = sorted(response.status_code for response in answers)
        assert set(codes) == {429, 503}
        for response in answers:
            assert int(response.headers["retry-after"]) > 0
            problem(response, response.status_code)
        assert served.app.state.pool.killed >= 1
        assert served.client.get("/healthz").status_code == 200


LATE = """
import time
from trencadis.adapters.service.worker import main

time.sleep(6)
main()
"""


def test_loading_libraries_is_no_part_of_a_solve(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Limits far below the start of a worker: the first plan comes, and that after a kill too."""
    (tmp_path / "late_worker.py").write_text(LATE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    limits = Limits(solve_seconds=3, grace_seconds=1.5)
    config = Config(
        port=0, workers=1, threads=1, round_seconds=1, limits=limits, worker="late_worker"
    )
    with serving(config) as served:
        assert push(served, EXAMPLE).json()["planned"]
        (pid,) = served.workers()
        os.kill(pid, signal.SIGKILL)
        assert push(served, EXAMPLE).json()["planned"]
        assert served.workers() != [pid]
        assert served.app.state.pool.killed == 1


def test_bodies_are_bounded_in_size_and_depth() -> None:
    limits = Limits(body_bytes=100_000, small_body_bytes=2_000, depth=10)
    with serving(Config(port=0, workers=1, limits=limits)) as served:
        problem(served.post("/v1/solve", b" " * 100_001), 413)

        def endless() -> Iterator[bytes]:
            for _ in range(50):
                yield b" " * 4_000

        assert served.client.post("/v1/solve", content=endless()).status_code == 413
        assert "Error" in served.post("/scheduler/filter", b" " * 2_001).json()
        deep = '{"Pod": {"metadata": {}, "x": ' + "[" * 20 + "]" * 20 + '}, "NodeNames": []}'
        told = served.post("/scheduler/filter", deep)
        assert (told.status_code, "deep" in told.json()["Error"]) == (200, True)
        told = served.post("/scheduler/filter", "[" * 1_500 + "]" * 400)
        assert told.json()["Error"]


def test_slow_bodies_are_given_up() -> None:
    with serving(Config(port=0, workers=1, limits=Limits(read_seconds=0.05))) as served:
        gate = threading.Event()

        def slow() -> Iterator[bytes]:
            yield b"{"
            gate.wait(5)
            yield b"}"

        response = served.client.post("/v1/solve", content=slow(), timeout=10)
        gate.set()
        problem(response, 408)


def test_names_of_other_hosts_are_refused(service: Served) -> None:
    problem(service.client.get("/v1/plan", headers={"Host": "evil.example:80"}), 421)
    assert service.client.get("/metrics", headers={"Host": "localhost:9"}).status_code == 200
    assert service.client.get("/metrics", headers={"Host": "[::1]:9"}).status_code == 200


# Who may ask

ALL, BOUND = "all-" + "x" * 20, "bound-" + "x" * 20


def test_tokens_and_queues() -> None:
    tokens = read_tokens(f"{ALL}  # for admins\n\n{BOUND} red\n", "tokens")
    state = snapshot(
        [node("n", 2)],
        [job("mine", gpus=2, queue="red"), job("secret", gpus=2, queue="blue")],
        [queue("red"), queue("blue")],
    ).model_dump_json()
    with serving(Config(port=0, workers=1, threads=1, tokens=tokens)) as served:
        admin = {"Authorization": f"Bearer {ALL}"}
        red = {"Authorization": f"Bearer {BOUND}"}
        assert served.client.get("/healthz").status_code == 200
        problem(served.client.get("/v1/plan"), 401)
        problem(served.client.get("/v1/plan", headers={"Authorization": "Bearer nope"}), 401)
        assert served.post("/scheduler/filter", {}).status_code == 401
        problem(served.client.get("/metrics", headers=red), 403)
        problem(served.post("/v1/snapshot", state, headers=red), 403)
        pushed = served.post("/v1/snapshot", state, headers=admin, params={"wait": 30})
        assert pushed.json()["planned"]
        for path in ("/v1/snapshot", "/v1/plan"):
            assert "secret" in served.client.get(path, headers=admin).text
            shown = served.client.get(path, headers=red).text
            assert "mine" in shown
            assert "secret" not in shown
        report = served.post("/v1/explain", {}, headers=red)
        assert report.status_code == 200
        assert "secret" not in report.text
        problem(served.post("/v1/explain", {"jobs": ["secret"]}, headers=red), 422)


def test_beyond_loopback_a_token_or_a_certificate_is_required() -> None:
    with pytest.raises(InvalidInputError, match="--tokens"):
        Config(host="0.0.0.0").check()
    Config(host="0.0.0.0", tokens=Tokens({"x" * 20: None})).check()
    Config(host="::1").check()
    with pytest.raises(InvalidInputError, match="together"):
        Config(certificate=Path("c")).check()
    for text, words in (("short", "16"), ("a b c", "at most one"), ("", "no token")):
        with pytest.raises(InvalidInputError, match=words):
            read_tokens(text, "tokens")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_tls_lets_in_who_has_a_certificate(tmp_path: Path) -> None:
    """A client without one isn't answered; one with it asks as the schedulers do, or by token."""
    for name in ("service", "scheduler"):
        subject = ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
        files = ["-keyout", f"{name}.key", "-out", f"{name}.pem"]
        words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
        subprocess.run([*words, *subject, *files], cwd=tmp_path, check=True, capture_output=True)
    config = Config(
        port=0, workers=1, threads=1, tokens=read_tokens(f"{ALL}\n", "tokens"),
        certificate=tmp_path / "service.pem", key=tmp_path / "service.key",
        client_ca=tmp_path / "scheduler.pem",
    )  # fmt: skip
    with serving(config) as served:
        url = served.url.replace("http:", "https:")
        stranger = ssl.create_default_context(cafile=tmp_path / "service.pem")
        with (
            httpx.Client(base_url=url, verify=stranger, trust_env=False) as client,
            pytest.raises(httpx.TransportError),
        ):
            client.get("/healthz")
        known = ssl.create_default_context(cafile=tmp_path / "service.pem")
        known.load_cert_chain(tmp_path / "scheduler.pem", tmp_path / "scheduler.key")
        with httpx.Client(base_url=url, verify=known, trust_env=False) as client:
            assert client.get("/healthz").status_code == 200
            asked = {"Pod": {"metadata": {"name": "p"}}, "NodeNames": []}
            assert client.post("/scheduler/filter", json=asked).status_code == 200
            problem(client.get("/v1/plan"), 401)
            admin = {"Authorization": f"Bearer {ALL}"}
            assert client.get("/v1/plan", headers=admin).status_code not in (401, 403)


def test_the_command_refuses_what_is_unsafe(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = Program(monkeypatch, tmp_path)
    done = program("serve", "--host", "0.0.0.0")
    assert (done.code, "--tokens" in done.err) == (65, True)
    assert program("serve", "--tokens", "nowhere").code == 65
