"""/v1/whatif over real sockets: the same answer as the command, faults with their paths."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from build import job, node, queue, snapshot
from command import INSTANCES, Program

pytest.importorskip("fastapi", reason="the extra `service` is not installed")

from served import Served, serving

from trencadis.adapters.service.config import Config, read_tokens

EXAMPLE = json.loads((INSTANCES / "four_h100.json").read_text())
WORKER = "trencadis.commands.service_worker"
MORE = {"name": "more", "add": [{"kind": "h100-8", "count": 2}]}
FIXED = {"deterministic": True, "time_limit": 5}


@pytest.fixture(scope="module")
def service() -> Iterator[Served]:
    with serving(Config(port=0, workers=1, threads=1, worker=WORKER, whatif=True)) as served:
        yield served


def faults(served: Served, question: Any, status: int = 422) -> list[dict[str, str]]:
    told = served.post("/v1/whatif", question)
    assert told.status_code == status, told.text
    assert told.headers["content-type"] == "application/problem+json"
    found: list[dict[str, str]] = told.json()["faults"]
    return found


def test_it_says_what_the_command_says(
    service: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    question = {"snapshot": EXAMPLE, "scenarios": [MORE], "fabric": "roce"}
    told = service.post("/v1/whatif", question, params=FIXED)
    assert told.status_code == 200, told.text
    program = Program(monkeypatch, tmp_path)
    Path("more.json").write_text(json.dumps(MORE))
    words = ("--scenario", "more.json", "--fabric", "roce", "--deterministic", "--json")
    done = program("whatif", str(INSTANCES / "four_h100.json"), *words, "--time-limit", "5")
    assert told.json() == json.loads(done.out)
    before, after = told.json()["sides"]
    assert after["gpus"] == before["gpus"] + 16


def test_faults_name_their_scenario(service: Served) -> None:
    lost = {"remove": ["nowhere"]}
    found = faults(service, {"snapshot": EXAMPLE, "scenarios": [MORE, lost]})
    assert found[0]["path"] == "$.scenarios[1].remove[0]"
    bad = {"snapshot": {**EXAMPLE, "nodes": 3}, "scenarios": [MORE]}
    assert faults(service, bad)[0]["path"] == "$.snapshot.nodes"
    many = {"add": [{"kind": "h100-8", "count": 99_999}]}
    assert "at most" in faults(service, {"snapshot": EXAMPLE, "scenarios": [many, many]})[0][
        "message"
    ]
    for question, path in (
        ({"snapshot": EXAMPLE}, "$.scenarios"),
        ({"snapshot": EXAMPLE, "scenarios": []}, "$.scenarios"),
        ({"snapshot": EXAMPLE, "scenarios": [{"name": 3}]}, "$.scenarios[0].name"),
        ({"snapshot": EXAMPLE, "scenarios": [MORE], "fabric": "x"}, "$.fabric"),
        ({"snapshot": EXAMPLE, "scenarios": [MORE], "jobs": []}, "$.jobs"),
        ([], "$"),
        ("{", "$"),
        ('{"scenarios": [], "scenarios": []}', "$.scenarios"),
    ):
        assert faults(service, question)[0]["path"] == path


def test_the_pushed_state_is_asked_about_and_hides_what_a_token_may_not_see() -> None:
    everyone, bound = "all-" + "x" * 20, "bound-" + "x" * 20
    tokens = read_tokens(f"{everyone}\n{bound} red\n", "tokens")
    state = snapshot(
        [node("n", 2)],
        [job("mine", gpus=2, queue="red"), job("secret", gpus=2, queue="blue")],
        [queue("red"), queue("blue")],
    ).model_dump_json()
    config = Config(port=0, workers=1, threads=1, tokens=tokens, worker=WORKER, whatif=True)
    question = {"scenarios": [{"add": [{"kind": "n"}]}]}
    admin, red = ({"Authorization": f"Bearer {token}"} for token in (everyone, bound))
    with serving(config) as served:
        early = served.post("/v1/whatif", question, headers=admin)
        assert (early.status_code, "push" in early.text) == (422, True)
        served.post("/v1/snapshot", state, headers=admin, params={"wait": 30})
        whole = served.post("/v1/whatif", question, headers=admin)
        assert [side["starts"] for side in whole.json()["sides"]] == [1, 2]
        assert "secret" in whole.text
        seen = served.post("/v1/whatif", question, headers=red)
        assert [side["starts"] for side in seen.json()["sides"]] == [1, 2]
        assert "secret" not in seen.text
        assert served.post("/v1/whatif", question).status_code == 401


def test_without_such_workers_there_is_no_such_path() -> None:
    with serving(Config(port=0, workers=1, threads=1)) as served:
        assert served.post("/v1/whatif", {"scenarios": [MORE]}).status_code == 404


def test_the_command_reads_its_prices_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = Program(monkeypatch, tmp_path)
    Path("prices.json").write_text('{"as_of": 3}')
    done = program("serve", "--prices", "prices.json")
    assert (done.code, "prices.json" in done.err) == (65, True)
