"""The commands: what goes to stdout, stderr and files, and the exit code for every outcome."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from build import (
    at,
    job,
    nodes,
    plan_of,
    snapshot,
    start,
)
from command import INSTANCES, Program
from fake_solver import PLAN, SNAP, TEXT, FakeSolver

from trencadis.models import Plan, Policy, Snapshot, load_plan
from trencadis.models.faults import NoPlanError


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Program:
    return Program(monkeypatch, tmp_path)


@pytest.fixture
def solver(monkeypatch: pytest.MonkeyPatch) -> FakeSolver:
    fake = FakeSolver(monkeypatch)
    fake.answer = lambda snap: PLAN if snap == SNAP else plan_of(snap)
    return fake


@pytest.fixture
def files(program: Program) -> Program:
    """A program in a directory with a snapshot and its plan."""
    Path("snap.json").write_text(TEXT)
    Path("plan.json").write_text(PLAN.model_dump_json())
    return program


# solve


def test_solve_prints_a_table(files: Program, solver: FakeSolver) -> None:
    done = files("solve", "snap.json")
    assert done.code == 0
    assert done.err == ""
    assert "1 job to start, 1 waiting" in done.out
    assert "n1:2-5" in done.out
    assert "28,800" in done.out
    assert "tier:high" in done.out
    assert "20.00 %" in done.out
    assert "\x1b" not in done.out
    assert len(solver.calls) == 1


def test_solve_json_is_the_plan_and_nothing_else(files: Program, solver: FakeSolver) -> None:
    done = files("solve", "snap.json", "--json")
    assert done.code == 0
    assert load_plan(done.out) == PLAN
    assert solver.calls[0][0] == SNAP


def test_solve_reads_stdin_and_writes_stdout(program: Program, solver: FakeSolver) -> None:
    done = program("solve", "-", "-o", "-", stdin=TEXT)
    assert done.code == 0
    assert load_plan(done.out) == PLAN
    assert "1 job to start" in done.err
    assert solver.calls
    assert program.files() == set()


@pytest.mark.usefixtures("solver")
def test_solve_writes_the_plan_and_still_prints_the_table(files: Program) -> None:
    done = files("solve", "snap.json", "-o", "new.json")
    assert done.code == 0
    assert load_plan(Path("new.json").read_bytes()) == PLAN
    assert "Starts" in done.out
    assert files.files() == {"snap.json", "plan.json", "new.json"}


def test_many_rows_are_folded(program: Program, solver: FakeSolver) -> None:
    snap = snapshot(nodes(50, 1), [job(f"j{i:02}") for i in range(100)])
    solver.answer = lambda it: plan_of(
        it, *(start(f"j{i:02}", at(f"n{i + 1}", 0)) for i in range(50))
    )
    done = program("solve", "-", stdin=snap.model_dump_json())
    assert "... and 20 more (use --json)" in done.out
    assert "j29" in done.out
    assert "j30" not in done.out
    assert len(done.out.splitlines()) < 100


def test_options_come_from_flag_then_environment_then_file_then_default(
    files: Program, solver: FakeSolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def options(*flags: str) -> tuple[object, ...]:
        done = files("solve", "snap.json", *flags)
        assert done.code == 0, done.err
        made = solver.options
        return made.time_limit_s, made.gap, made.workers, made.deterministic, made.seed

    assert options() == (None, None, 8, False, 0)
    Path("trencadis.toml").write_text(
        "[solve]\ntime_limit = 7\ngap = 0.5\nworkers = 3\ndeterministic = true\nseed = 9\n"
    )
    assert options() == (7.0, 0.5, 3, True, 9)
    monkeypatch.setenv("TRENCADIS_TIME_LIMIT", "8.5")
    monkeypatch.setenv("TRENCADIS_WORKERS", "4")
    monkeypatch.setenv("TRENCADIS_DETERMINISTIC", "0")
    assert options() == (8.5, 0.5, 4, False, 9)
    flags = ("--time-limit", "9", "--workers", "5", "--deterministic", "--gap", "0", "--seed", "1")
    assert options(*flags) == (9.0, 0.0, 5, True, 1)


@pytest.mark.parametrize("suffix", ["toml", "json"])
def test_another_policy(files: Program, solver: FakeSolver, suffix: str) -> None:
    content = {"toml": "horizon_seconds = 77", "json": '{"horizon_seconds": 77}'}[suffix]
    Path(f"policy.{suffix}").write_text(content)
    assert files("solve", "snap.json", "--policy", f"policy.{suffix}").code == 0
    assert solver.calls[0][0].policy == Policy(horizon_seconds=77)


def test_policy_from_the_options_file(files: Program, solver: FakeSolver) -> None:
    Path("p.toml").write_text("horizon_seconds = 77")
    Path("trencadis.toml").write_text('[solve]\npolicy = "p.toml"\n')
    assert files("solve", "snap.json").code == 0
    assert solver.calls[0][0].policy.horizon_seconds == 77


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[solve]\ntime_limit = -1", "$.solve.time_limit: seconds, above 0 (got -1)"),
        ("[solve]\ntime_limit = inf", "$.solve.time_limit: seconds, above 0 (got inf)"),
        ("[solve]\ngap = 2", "$.solve.gap: a fraction, 0 to 1 (got 2)"),
        ("[solve]\ngap = nan", "$.solve.gap: a fraction, 0 to 1 (got nan)"),
        ("[solve]\nworkers = 0", "$.solve.workers: a whole number, 1 to 1024 (got 0)"),
        ("[solve]\nseed = true", "$.solve.seed: a whole number"),
        ('[solve]\ndeterministic = "yes"', "$.solve.deterministic: true or false (got 'yes')"),
        ("[solve]\npolicy = 1", "$.solve.policy: a file name"),
        ("[solve]\nworker = 1", "$.solve.worker: unknown option"),
        ("[sovle]\nworkers = 1", "$.sovle: unknown table"),
        ("solve = 1", "$.solve: not a table"),
        ("[solve", "$: Invalid TOML"),
    ],
)
def test_bad_options_file(files: Program, solver: FakeSolver, content: str, message: str) -> None:
    Path("trencadis.toml").write_text(content)
    done = files("solve", "snap.json")
    assert done.code == 65
    assert message in done.err
    assert "trencadis.toml" in done.err
    assert not solver.calls


# Exit codes


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("fly",),
        ("solve",),
        ("solve", "snap.json", "--fast"),
        ("solve", "snap.json", "--time-limit", "nan"),
        ("solve", "snap.json", "--time-limit", "inf"),
        ("solve", "snap.json", "--time-limit", "0"),
        ("solve", "snap.json", "--gap", "-0.1"),
        ("solve", "snap.json", "--gap", "nan"),
        ("solve", "snap.json", "--workers", "0"),
        ("solve", "snap.json", "-o", "no/such/directory/plan.json"),
        ("solve", "snap.json", "-o", "."),
        ("verify", "snap.json"),
        ("verify", "-", "-"),
        ("schema", "dream"),
        ("init",),
        ("init", "--teams", "0"),
        ("generate", "--load", "2"),
        ("generate", "--gang-fraction", "nan"),
        ("import",),
        ("import", "dreams"),
        ("import", "slurm", "--jobs", "-", "--nodes", "-"),
    ],
)
def test_wrong_usage_is_2(files: Program, solver: FakeSolver, arguments: tuple[str, ...]) -> None:
    before = files.files()
    done = files(*arguments, stdin="{}")
    assert done.code == 2
    assert done.out == ""
    assert done.err
    assert "Traceback" not in done.err
    assert not solver.calls
    assert files.files() == before


def test_no_plan_is_4(files: Program, solver: FakeSolver) -> None:
    def fail(_: Snapshot) -> Plan:
        raise NoPlanError("the running jobs break a limit")

    solver.answer = fail
    done = files("solve", "snap.json", "-o", "new.json")
    assert done.code == 4
    assert done.out == ""
    assert done.err == ("trencadis: no plan keeps the hard rules: the running jobs break a limit\n")
    assert not Path("new.json").exists()


def test_internal_error_is_70_with_a_file_that_reproduces_it(
    files: Program, solver: FakeSolver
) -> None:
    def fail(_: Snapshot) -> Plan:
        raise RuntimeError("the sky\nfell\x1b[2J")

    solver.answer = fail
    done = files("solve", "snap.json", "-o", "new.json")
    assert done.code == 70
    assert done.out == ""
    assert "internal error: RuntimeError: the sky?fell?[2J" in done.err
    assert "Traceback" not in done.err
    (name,) = files.files() - {"snap.json", "plan.json"}
    assert name in done.err
    written = json.loads(Path(name).read_text())
    assert written["input"] == {"snap.json": TEXT}
    assert written["arguments"] == ["solve", "snap.json", "-o", "new.json"]
    assert "the sky" in written["error"]


def test_internal_error_where_the_directory_is_read_only(
    files: Program, solver: FakeSolver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(_: Snapshot) -> Plan:
        monkeypatch.setattr(Path, "cwd", lambda: tmp_path / "gone")
        raise RuntimeError("no")

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(elsewhere))
    solver.answer = fail
    done = files("solve", "snap.json")
    assert done.code == 70
    (written,) = elsewhere.iterdir()
    assert str(written) in done.err


def test_interrupted_before_the_solver_starts_is_130(
    files: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: Path) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "read_bytes", interrupt)
    done = files("show", "snap.json")
    assert done.code == 130
    assert "Traceback" not in done.err


# With the real solver


@pytest.mark.parametrize("flags", [(), ("--deterministic",)])
def test_solve_verify_apply_and_solve_again(program: Program, flags: tuple[str, ...]) -> None:
    source = INSTANCES / "team_node.json"
    done = program("solve", source, "-o", "plan.json", *flags)
    assert done.code == 0, done.err
    assert "OPTIMAL" in done.out
    assert program("verify", source, "plan.json").code == 0
    assert program("apply", source, "plan.json", "-o", "next.json").code == 0
    again = program("solve", "next.json", "--json", *flags)
    assert again.code == 0, again.err
    assert load_plan(again.out).starts == ()
    spoilt = load_plan(Path("plan.json").read_bytes())
    Path("spoilt.json").write_text(
        spoilt.model_copy(update={"starts": spoilt.starts[1:]}).model_dump_json()
    )
    done = program("verify", source, "spoilt.json")
    assert done.code == 3
    assert "The plan breaks the rules" in done.out


def test_deterministic_output_is_the_same_to_the_byte(program: Program) -> None:
    program("generate", "--nodes", "12", "--pending", "20", "--seed", "2", "-o", "g.json")
    outputs = {program("solve", "g.json", "--json", "--deterministic").out for _ in range(2)}
    assert len(outputs) == 1
    assert outputs != {""}
