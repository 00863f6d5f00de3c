"""A user's MIG tables in a file: they outrank the built-in ones, and faults come a line each."""

from __future__ import annotations

import json
from pathlib import Path

import build as b
import pytest
from command import Program

from trencadis.models import Request, load_mig_tables, load_plan
from trencadis.models.faults import InvalidInputError

HALVES = {
    "tables": {
        "odd-1": {
            "memory_slices": 2,
            "compute_slices": 2,
            "profiles": [
                {
                    "name": "1g.9gb", "compute_slices": 1, "memory_slices": 1, "starts": [0, 1],
                    "most": 2, "memory_mib": 9_216,
                }
            ],
        }
    }
}
TOML = """
[tables.odd-1]
memory_slices = 2
compute_slices = 2
[[tables.odd-1.profiles]]
name = "1g.9gb"
compute_slices = 1
memory_slices = 1
starts = [0, 1]
most = 2
memory_mib = 9216
"""


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Program:
    return Program(monkeypatch, tmp_path)


def test_json_and_toml_say_the_same() -> None:
    assert load_mig_tables(json.dumps(HALVES)) == load_mig_tables(TOML, toml=True)


def test_a_file_makes_an_unknown_gpu_usable(program: Program) -> None:
    wants = [b.job(name, request=Request(mig=("1g.9gb",))) for name in ("a", "b", "c")]
    snap = b.snapshot(b.node("n1", 1, "odd-1", mig=(0,)), wants)
    Path("snap.json").write_text(snap.model_dump_json(), encoding="utf-8")
    Path("tables.json").write_text(json.dumps(HALVES), encoding="utf-8")
    without = program("solve", "snap.json", "--json")
    assert load_plan(without.out).starts == ()
    done = program("solve", "snap.json", "--mig-tables", "tables.json", "-o", "plan.json")
    assert done.code == 0, done.err
    plan = load_plan(Path("plan.json").read_text(encoding="utf-8"))
    starts = sorted(task.mig[0].start for start in plan.starts for task in start.allocation)
    assert starts == [0, 1]
    # A plan belongs to the snapshot with the tables that it was made with.
    assert program("verify", "snap.json", "plan.json", "--mig-tables", "tables.json").code == 0
    assert program("verify", "snap.json", "plan.json").code == 3
    applied = program("apply", "snap.json", "plan.json", "--mig-tables", "tables.json")
    assert "1g.9gb@0, 1g.9gb@1" in program("show", "-", stdin=applied.out).out
    assert "·" in program("show", "snap.json", "--mig-tables", "tables.json").out
    program.patch.setenv("TRENCADIS_MIG_TABLES", "tables.json")
    assert program("verify", "snap.json", "plan.json").code == 0


def test_a_file_outranks_the_policy_and_leaves_other_models(program: Program) -> None:
    snap = b.snapshot(b.node("n1", 1, "odd-1", mig=(0,)))
    own = load_mig_tables(TOML.replace("odd-1", "odd-2"), toml=True)
    mig = snap.policy.mig.model_copy(update={"tables": own})
    snap = snap.model_copy(update={"policy": snap.policy.model_copy(update={"mig": mig})})
    Path("t.toml").write_text(TOML.replace("9gb", "8gb"), encoding="utf-8")
    done = program("apply", "-", "plan.json", "--mig-tables", "t.toml", stdin="")
    assert done.code == 65
    Path("snap.json").write_text(snap.model_dump_json(), encoding="utf-8")
    program("solve", "snap.json", "--mig-tables", "t.toml", "-o", "plan.json")
    applied = program("apply", "snap.json", "plan.json", "--mig-tables", "t.toml")
    tables = json.loads(applied.out)["policy"]["mig"]["tables"]
    assert set(tables) == {"odd-1", "odd-2"}
    assert tables["odd-1"]["profiles"][0]["name"] == "1g.8gb"
    assert tables["odd-2"]["profiles"][0]["name"] == "1g.9gb"


def test_every_fault_has_a_line_of_its_own() -> None:
    table = json.loads(json.dumps(HALVES))["tables"]["odd-1"]
    profile = table["profiles"][0]
    table["engines"] = {"jpeg": 1}
    table["profiles"] = [
        profile | {"starts": [0, 2]},
        profile | {"name": "2g", "compute_slices": 3, "starts": [0, 0]},
        profile | {"name": "1g+me", "engines": {"jpeg": 2}},
        profile | {"name": "1g.9gb"},
    ]
    with pytest.raises(InvalidInputError) as raised:
        load_mig_tables(json.dumps({"tables": {"odd-1": table}}))
    assert raised.value.lines() == [
        "$.tables['odd-1']: profiles given twice: 1g.9gb",
        "$.tables['odd-1']: profile 1g.9gb at start 2 reaches beyond the 2 memory slices",
        "$.tables['odd-1']: profile 2g has more than the 2 compute slices",
        "$.tables['odd-1']: profile 2g has a start twice",
        "$.tables['odd-1']: profile 1g+me takes 2 jpeg engines; the GPU has 1",
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("{}", "$.tables: required field is missing"),
        ('{"tables": {"x": {}}}', "$.tables.x.memory_slices: required field is missing"),
        ('{"table": {}}', "$.table: unknown field. Maybe tables?"),
        ("", "$: the input is empty"),
    ],
)
def test_a_bad_file_is_refused_with_its_name(program: Program, text: str, line: str) -> None:
    Path("snap.json").write_text(b.snapshot().model_dump_json(), encoding="utf-8")
    Path("bad.json").write_text(text, encoding="utf-8")
    done = program("show", "snap.json", "--mig-tables", "bad.json")
    assert done.code == 65
    assert "bad.json" in done.err
    assert line in done.err
    assert "Traceback" not in done.err
