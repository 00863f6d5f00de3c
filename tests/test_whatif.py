"""What-if scenarios: what changes, what does not, and what the comparison says of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from build import job, node, snapshot
from command import Program

from trencadis.models import InvalidInputError, Snapshot, load_plan, load_snapshot
from trencadis.solver.round import Options
from trencadis.solver.verify import verify
from trencadis.whatif.compare import difference, figures, sides
from trencadis.whatif.prices import example_prices
from trencadis.whatif.scenario import Addition, Scenario, changed, load_scenario

INSTANCES = Path(__file__).resolve().parent.parent / "instances"
OPTIONS = Options(time_limit_s=5, deterministic=True)


def read(name: str) -> Snapshot:
    return load_snapshot((INSTANCES / f"{name}.json").read_text())[0]


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Program:
    return Program(monkeypatch, tmp_path)


@pytest.mark.parametrize("name", ["team_node", "four_h100", "groups", "nvlink_pairs"])
def test_more_nodes_never_leave_guarantees_shorter(name: str) -> None:
    snap = read(name)
    more = Scenario(name="more", add=(Addition(kind=snap.nodes[0].name, count=2),))
    baseline, other = sides(snap, [more], example_prices(), OPTIONS)
    assert len(other.snapshot.nodes) == len(snap.nodes) + 2
    before, after = (side.plan.proof.stages[0] for side in (baseline, other))
    assert after.objective <= before.objective
    for side in (baseline, other):
        assert not verify(side.snapshot, side.plan).violations


def test_a_removed_node_sends_its_jobs_back_and_a_drained_one_keeps_them() -> None:
    snap = read("four_h100")
    running = next(job for job in snap.jobs if job.state == "running")
    node = running.allocation[0].node
    gone = changed(snap, Scenario(remove=(node,)), example_prices())
    after = {job.name: job for job in gone.jobs}
    assert node not in {entry.name for entry in gone.nodes}
    assert running.name not in after or after[running.name].state == "pending"
    drained = changed(snap, Scenario(drain=(node,)), example_prices())
    assert {job.name: job.state for job in drained.jobs}[running.name] == "running"
    (kept,) = [entry for entry in drained.nodes if entry.name == node]
    assert kept.cordoned


def test_the_snapshot_itself_stays_as_it_was() -> None:
    snap = read("team_node")
    before = snap.fingerprint()
    add = (Addition(kind="h100-8", count=3),)
    changed(snap, Scenario(add=add, drain=(snap.nodes[0].name,)), example_prices())
    assert snap.fingerprint() == before


def test_the_difference_names_who_gets_a_place() -> None:
    snap = snapshot(node("n1"), job("a", 8), job("b", 8))
    more = Scenario(name="more", add=(Addition(kind="n1"),))
    baseline, other = sides(snap, [more], example_prices(), OPTIONS)
    told = difference(baseline, other)
    assert len(told.starts) == 1
    assert told.waits == told.lost == ()
    counts = [figures(side, example_prices()) for side in (baseline, other)]
    assert [entry.starts for entry in counts] == [1, 2]
    assert [entry.waits for entry in counts] == [1, 0]
    assert [entry.used_gpus for entry in counts] == [8, 16]


def test_every_fault_of_a_scenario_is_told() -> None:
    snap = read("team_node")
    text = json.dumps(
        {
            "remove": ["nope"],
            "add": [{"kind": "what"}],
            "guarantee": {"nobody": 1},
            "jobs": [{"name": "x", "queue": "none", "tasks": 1, "request": {"gpus": 1}}],
        }
    )
    scenario = load_scenario(text, snap, toml=False, name="s")
    with pytest.raises(InvalidInputError) as caught:
        changed(snap, scenario, example_prices())
    paths = [fault.path for fault in caught.value.faults]
    assert sorted(paths) == [
        "$.add[0].kind",
        "$.guarantee.nobody",
        "$.jobs[0].queue",
        "$.remove[0]",
    ]


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"add": 1}', '{"unknown": 1}', '{"remove": ["a"], "remove": []}']
)
def test_scenario_files_that_say_nothing_clear(text: str) -> None:
    with pytest.raises(InvalidInputError):
        load_scenario(text, read("team_node"), toml=False, name="s")


def test_the_command_compares_and_keeps(program: Program) -> None:
    source = str(INSTANCES / "four_h100.json")
    Path("fewer.toml").write_text(f'drain = ["{read("four_h100").nodes[0].name}"]\n')
    words = ("--scenario", "fewer.toml", "--keep", "kept", "--json")
    told = program("whatif", source, "--add", "2xh100-8", *words)
    assert told.code == 0, told.err
    record = json.loads(told.out)
    assert [side["name"] for side in record["sides"]] == ["baseline", "fewer", "changed"]
    assert [side["gpus"] for side in record["sides"]][::2] == [32, 48]
    plans = sorted(Path("kept").glob("*.plan.json"))
    assert len(plans) == 3
    for file in plans:
        plan = load_plan(file.read_text())
        snap, _ = load_snapshot(Path(str(file).replace(".plan.", ".snapshot.")).read_text())
        assert not verify(snap, plan).violations
    shown = program("whatif", source, "--add", "2xh100-8")
    assert "jobs that wait" in shown.out
    assert "USD an hour" in shown.out


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--add", "h100-8"),
        ("--set-guarantee", "team=x"),
        ("--set-guarantee", "=4"),
        ("--add", "1xh100-8", "--fabric", "none"),
    ],
)
def test_usage_that_asks_for_nothing_is_refused(program: Program, words: tuple[str, ...]) -> None:
    told = program("whatif", str(INSTANCES / "team_node.json"), *words)
    assert told.code == 2
