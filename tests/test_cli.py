"""The commands: what goes to stdout, stderr and files, and the exit code for every outcome."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from build import (
    at,
    hold,
    job,
    node,
    nodes,
    plan_of,
    queue,
    running,
    snapshot,
    somewhere,
    stage,
    start,
)
from command import INSTANCES, Program
from fake_solver import FakeSolver

from trencadis.models import Plan, Policy, Snapshot, apply, load_plan, load_policy, load_snapshot
from trencadis.models.faults import NoPlanError
from trencadis.solver.verify.verdict import Verdict, Violation

SNAP = snapshot(
    node("n1", 8, nvswitch=True, fabric=("l1",)),
    queue("red", guarantee=4),
    job("a", gpus=4, queue="red", waited=600),
    job("b", gpus=8, queue="red"),
    running("r", at("n1", 0, 1)),
    levels=("leaf",),
)
TEXT = SNAP.model_dump_json()
PLAN = plan_of(
    SNAP,
    start("a", at("n1", 2, 3, 4, 5), waiting_saved=28_800),
    stages=(stage("tier:high", 5, 4, 9),),
)


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

    assert options() == (None, None, 2, False, 0)
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


# verify and apply


@pytest.fixture
def verdicts(monkeypatch: pytest.MonkeyPatch) -> list[Verdict]:
    """What the verifier will say: tests put a verdict in."""
    said: list[Verdict] = []
    monkeypatch.setattr("trencadis.solver.verify.verify", lambda _s, _p: said[0], raising=False)
    return said


def test_verify_says_that_a_plan_keeps_the_rules(files: Program, verdicts: list[Verdict]) -> None:
    verdicts.append(Verdict((), {"tier:high": 5}))
    done = files("verify", "snap.json", "plan.json")
    assert done.code == 0
    assert "The plan keeps every rule." in done.out
    assert done.err == ""
    done = files("verify", "snap.json", "plan.json", "--json")
    assert json.loads(done.out) == {"ok": True, "violations": [], "stages": {"tier:high": 5}}


def test_a_plan_that_breaks_a_rule_is_3(files: Program, verdicts: list[Verdict]) -> None:
    verdicts.append(Verdict((Violation("gang", "job a has 1 of 2 tasks"),)))
    done = files("verify", "snap.json", "-", stdin=PLAN.model_dump_json())
    assert done.code == 3
    assert "gang: job a has 1 of 2 tasks" in done.out
    done = files("verify", "snap.json", "plan.json", "--json")
    assert done.code == 3
    assert json.loads(done.out)["violations"] == [
        {"rule": "gang", "message": "job a has 1 of 2 tasks"}
    ]


def test_apply_prints_the_next_snapshot(files: Program) -> None:
    done = files("apply", "snap.json", "plan.json")
    assert done.code == 0
    following, _ = load_snapshot(done.out)
    assert following == apply(SNAP, PLAN)
    assert following.jobs[0].state == "running"
    assert '"schema_version": 1' in done.out


def test_apply_writes_the_next_snapshot(files: Program) -> None:
    done = files("apply", "snap.json", "plan.json", "-o", "next.json")
    assert (done.code, done.out, done.err) == (0, "", "")
    assert load_snapshot(Path("next.json").read_bytes())[0] == apply(SNAP, PLAN)
    done = files("apply", "snap.json", "plan.json", "-o", "next.json", "--json")
    assert done.out == Path("next.json").read_text()


def test_a_plan_for_another_snapshot_is_not_applied(files: Program) -> None:
    Path("plan.json").write_text(PLAN.model_copy(update={"snapshot": "0" * 64}).model_dump_json())
    done = files("apply", "snap.json", "plan.json", "-o", "next.json")
    assert done.code == 65
    assert "plan.json" in done.err
    assert "$: the plan was made for another snapshot" in done.err
    assert not Path("next.json").exists()


# show


def test_show_draws_the_cluster(program: Program) -> None:
    snap = snapshot(
        node("n1", 8, unhealthy=(7,), fabric=("l1",), cpu_milli=64_000, memory_mib=2**20),
        node("n2", 4, fabric=("l1",), cordoned=True, mig=(3,)),
        node("n3", 4, down=True, fabric=("l2",)),
        queue("red", guarantee=6),
        queue("blue", limit=2),
        job("waits", 4, queue="red"),
        running("r", at("n1", 0, 1), queue="red", cpu_milli=4_000),
        running("s", somewhere("n2"), gpus=2, queue="blue"),
        hold("waits", at("n1", 2, 3, 4, 5)),
        levels=("leaf",),
    )
    done = program("show", "-", stdin=snap.model_dump_json())
    assert done.code == 0
    assert "■■▣▣▣▣□×" in done.out
    assert "■■" in done.out
    assert "(by count)" in done.out
    assert "cordoned" in done.out
    assert "3 nodes (1 down)" in done.out
    assert "4 below its guarantee" in done.out
    assert "\x1b" not in done.out
    told = json.loads(program("show", "-", "--json", stdin=snap.model_dump_json()).out)
    assert told["gpus"]["held"] == 4
    assert told["gpus"]["broken"] == 1
    (n1,) = [entry for entry in told["nodes"] if entry["name"] == "n1"]
    assert n1["gpus"] == ["used"] * 2 + ["held"] * 4 + ["idle", "broken"]
    assert n1["free_cpu_milli"] == 60_000
    assert {queue["name"]: queue["used_milli"] for queue in told["queues"]} == {
        "red": 2_000,
        "blue": 2_000,
    }


@pytest.mark.parametrize("snap", [snapshot(), snapshot(job("p", 0)), snapshot(node("n", 0))])
def test_show_draws_next_to_nothing(program: Program, snap: Snapshot) -> None:
    done = program("show", "-", stdin=snap.model_dump_json())
    assert done.code == 0
    assert "No GPUs" in done.out


def test_show_folds_a_thousand_nodes(program: Program) -> None:
    machines = [
        node(f"n{i}", 8, fabric=(f"s{i // 100}", f"l{i // 10}"), down=i == 5) for i in range(1_000)
    ]
    tasks = [running(f"r{i}", at(f"n{i}", *range(i % 9))) for i in range(1_000) if i % 9 and i != 5]
    snap = snapshot(machines, tasks, levels=("spine", "leaf"))
    done = program("show", "-", stdin=snap.model_dump_json())
    assert done.code == 0
    assert len(done.out.splitlines()) < 80
    assert "1,000 nodes (1 down)" in done.out
    assert "8,000 GPUs" in done.out


def test_show_names_cannot_steer_the_terminal(program: Program) -> None:
    snap = snapshot(node("a[red]b", 1), node("\x9b31mx", 1), job("[bold]j"))
    done = program("show", "-", stdin=snap.model_dump_json())
    assert "a[red]b" in done.out
    assert "\x9b" not in done.out
    assert "?31mx" in done.out


# schema, init, generate, import


@pytest.mark.parametrize("kind", ["snapshot", "plan", "policy"])
def test_schema(program: Program, kind: str) -> None:
    done = program("schema", kind)
    assert done.code == 0
    assert json.loads(done.out)["title"] == kind.capitalize()
    assert program("schema", kind, "--json").out == done.out


def test_init_writes_files_that_work(program: Program, solver: FakeSolver) -> None:
    done = program("init", "--teams", "20")
    assert done.code == 0
    assert program.files() == {"trencadis-policy.toml", "trencadis.toml", "snapshot.json"}
    policy = Path("trencadis-policy.toml").read_text()
    assert load_policy(policy, toml=True) == Policy()
    for name in Policy.model_fields:
        if name != "schema_version":
            before, _, _ = policy.partition(f"\n{name} =")
            before = before if f"\n{name} =" in policy else policy.partition(f"[{name}]")[0]
            assert before.rstrip("\n[").rpartition("\n")[2].startswith("#"), name
    snap, warnings = load_snapshot(Path("snapshot.json").read_bytes())
    assert warnings == []
    assert [queue.name for queue in snap.queues] == [f"team-{n}" for n in range(1, 21)]
    assert program("solve", "snapshot.json").code == 0
    assert solver.calls[0][0].policy == Policy()


def test_init_overwrites_only_by_force(program: Program) -> None:
    Path("there").mkdir()
    Path("there/trencadis.toml").write_text("mine")
    done = program("init", "--teams", "2", "--dir", "there")
    assert done.code == 2
    assert "trencadis.toml in there would be overwritten" in done.err
    assert program.files() == {"there", "there/trencadis.toml"}
    done = program("init", "--teams", "2", "--dir", "there", "--force", "--json")
    assert done.code == 0
    assert len(json.loads(done.out)["written"]) == 3
    assert Path("there/trencadis.toml").read_text() != "mine"


def test_generate_is_a_function_of_its_options(program: Program) -> None:
    options = ("generate", "--nodes", "5", "--pending", "7", "--load", "0.5", "--queues", "3")
    first = program(*options, "--seed", "4")
    assert first.code == 0
    snap, _ = load_snapshot(first.out)
    assert len(snap.nodes) == 5
    assert sum(job.state == "pending" for job in snap.jobs) == 7
    assert program(*options, "--seed", "4").out == first.out
    assert program(*options, "--seed", "5").out != first.out
    assert program(*options, "--seed", "4", "-o", "g.json").out == ""
    assert Path("g.json").read_text() == first.out


NODES_CSV = "sn,cpu_milli,memory_mib,gpu,model\nnode-1,64000,262144,2,V100M16\n"
PODS_CSV = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"
    "deletion_time,scheduled_time\n"
    "pod-1,6000,1024,1,1000,,LS,Running,0,12537496,0\n"
    "pod-2,6000,1024,1,1000,,LS,Running,10,12537496,10\n"
)


def test_import_openb(program: Program) -> None:
    Path("nodes.csv").write_text(NODES_CSV)
    Path("pods.csv").write_text(PODS_CSV)
    done = program("import", "openb", "nodes.csv", "pods.csv", "--running", "1", "--pending", "1")
    assert done.code == 0, done.err
    snap, _ = load_snapshot(done.out)
    assert [job.state for job in snap.jobs] == ["running", "pending"]


@pytest.mark.parametrize("bad", ["missing", "directory", "empty", "binary", "header", "row"])
def test_import_openb_refuses_what_is_not_the_trace(program: Program, bad: str) -> None:
    Path("nodes.csv").write_text(NODES_CSV)
    pods = Path("pods.csv")
    match bad:
        case "directory":
            pods.mkdir()
        case "empty":
            pods.write_text("")
        case "binary":
            pods.write_bytes(b"\xff\x00\xfe")
        case "header":
            pods.write_text("a,b\n1,2\n")
        case "row":
            pods.write_text(PODS_CSV.replace("6000", "-6e99"))
    before = program.files()
    done = program("import", "openb", "nodes.csv", "pods.csv", "-o", "snap.json")
    assert done.code == 65
    assert "pods.csv" in done.err
    assert "Traceback" not in done.err
    assert program.files() == before


SLURM_NODES = {
    "nodes": [
        {
            "name": "n1",
            "state": ["IDLE"],
            "cpus": 64,
            "real_memory": 262_144,
            "gres": "gpu:h100:8",
            "gres_used": "gpu:h100:0",
            "partitions": ["main"],
        }
    ],
    "last_update": {"set": True, "infinite": False, "number": 1_767_614_400},
}


def test_import_slurm(program: Program) -> None:
    Path("jobs.json").write_text('{"jobs": []}')
    nodes = json.dumps(SLURM_NODES)
    done = program("import", "slurm", "--jobs", "jobs.json", "--nodes", "-", stdin=nodes)
    assert done.code == 0, done.err
    snap, _ = load_snapshot(done.out)
    assert [node.gpu_count for node in snap.nodes] == [8]


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{", b"\xff", b"null", b"[" * 10**5, b'{"jobs": 1}', b'{"jobs": [1]}']
)
def test_import_slurm_refuses_what_is_not_slurms(program: Program, text: bytes) -> None:
    Path("nodes.json").write_text(json.dumps(SLURM_NODES))
    Path("jobs.json").write_bytes(text)
    before = program.files()
    done = program("import", "slurm", "--jobs", "jobs.json", "--nodes", "nodes.json", "-o", "s")
    assert done.code == 65
    assert done.out == ""
    assert "jobs" in done.err
    assert "Traceback" not in done.err
    assert program.files() == before


def test_warnings_go_to_stderr(program: Program) -> None:
    snap = snapshot(node("n1", 8), job("a7", 9))
    done = program("show", "-", stdin=snap.model_dump_json())
    assert done.code == 0
    assert "stdin: 1 warning" in done.err
    assert "job a7 asks for 9 GPUs on one node; the largest node has 8." in done.err
    assert "largest node" not in done.out


def test_the_instances_can_be_shown(program: Program) -> None:
    paths = sorted(INSTANCES.glob("*.json"))
    assert paths
    for path in paths:
        done = program("show", path)
        assert done.code == 0, (path.name, done.err)


# With the real solver


@pytest.mark.parametrize("flags", [(), ("--deterministic",)])
def test_solve_verify_apply_and_solve_again(program: Program, flags: tuple[str, ...]) -> None:
    pytest.importorskip("trencadis.solver.round")
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
    pytest.importorskip("trencadis.solver.round")
    program("generate", "--nodes", "12", "--pending", "20", "--seed", "2", "-o", "g.json")
    outputs = {program("solve", "g.json", "--json", "--deterministic").out for _ in range(2)}
    assert len(outputs) == 1
    assert outputs != {""}
