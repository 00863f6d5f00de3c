"""`trencadis capacity` from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import INSTANCES, Program

SOURCE = str(INSTANCES / "four_h100.json")
FIXED = ("--deterministic", "--time-limit", "5")


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Program:
    return Program(monkeypatch, tmp_path)


def test_the_answer_and_its_proof(program: Program) -> None:
    words = ("--sku", "h100-8", "--sku", "a100-8", *FIXED)
    told = program("capacity", SOURCE, *words, "--json")
    assert told.code == 0, told.err
    record = json.loads(told.out)
    assert record["status"] == "proven"
    assert record["best"]["mix"] == {"h100-8": 2, "a100-8": 1}
    assert record["best"]["price_per_hour"] == record["lower_bound_per_hour"] == 67.76
    assert len(record["best"]["nodes"]) == 3
    shown = program("capacity", SOURCE, *words)
    assert "2xh100-8 + 1xa100-8: 67.76 USD an hour" in shown.out
    assert "every cheaper mix is refuted" in shown.out
    assert program("capacity", SOURCE, *words, "--json").out == told.out


def test_what_can_not_be_met_is_exit_code_4(program: Program) -> None:
    told = program("capacity", SOURCE, "--sku", "h100-8", "--max-nodes", "1", *FIXED)
    assert told.code == 4
    assert "impossible" in told.out


def test_downsizing_asks_for_what_is_served_now(program: Program) -> None:
    told = program("capacity", str(INSTANCES / "team_node.json"), "--shrink", *FIXED, "--json")
    record = json.loads(told.out)
    assert (told.code, record["status"], len(record["best"]["nodes"])) == (0, "proven", 1)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ((), 2),
        (("--sku", "h100-8", "--shrink"), 2),
        (("--sku", "h100-8", "--fabric", "none"), 2),
        (("--sku", "nonsense"), 65),
        (("--sku", "h100-8", "--target", "pending=0"), 65),
        (("--sku", "h100-8", "--target", "p95_wait<1h"), 65),
    ],
)
def test_what_it_refuses(program: Program, words: tuple[str, ...], code: int) -> None:
    told = program("capacity", SOURCE, *words)
    assert told.code == code
    assert "Traceback" not in told.err


def test_renting_what_was_found(program: Program) -> None:
    words = ("--sku", "h100-8", *FIXED, "--months", "12")
    told = program("capacity", SOURCE, *words, "--json")
    renting = json.loads(told.out)["renting"]
    assert renting["cost"] == renting["lower_bound"] < renting["on_demand"]
    assert renting["kinds"][0]["leases"][0]["contract"] == "year"
    shown = program("capacity", SOURCE, *words, "--growth-percent", "5")
    assert "the least" in shown.out
    assert program("capacity", SOURCE, "--sku", "h100-8", "--growth-percent", "5").code == 2
    assert program("capacity", SOURCE, "--sku", "v100-8", "--months", "5").code == 2
