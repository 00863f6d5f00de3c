"""What only a process shows: Ctrl-C, closed pipes, terminals, imports, half-written files."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from build import at, job, node, plan_of, running, snapshot, start
from command import process

from trencadis.models import load_plan
from trencadis.views import io

SNAP = snapshot(node("n1"), job("p"), running("r", at("n1", 0)))
PLAN = plan_of(SNAP, start("p", at("n1", 1)))

posix = pytest.mark.skipif(sys.platform == "win32", reason="signals and terminals of POSIX")

# A solver that waits for Ctrl-C, then returns the plan that it finds in its second argument.
WAITING_SOLVER = """
import sys, threading
from dataclasses import dataclass
from types import ModuleType
from trencadis.models import load_plan

@dataclass
class Options:
    time_limit_s: object
    gap: object
    workers: int
    deterministic: bool
    seed: int

def solve(snapshot, options, stop):
    print("ready", file=sys.stderr, flush=True)
    stop.wait()
    if "stubborn" in sys.argv[0]:
        threading.Event().wait()
    return load_plan(open("plan.json").read())

module = ModuleType("trencadis.solver.round")
module.Options, module.solve = Options, solve
sys.modules["trencadis.solver.round"] = module
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "snap.json").write_text(SNAP.model_dump_json())
    (tmp_path / "plan.json").write_text(PLAN.model_dump_json())
    return tmp_path


def waiting(directory: Path, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    """A solve that has begun and waits for Ctrl-C."""
    words = [name, "solve", "snap.json", *arguments]
    child = process(f"{WAITING_SOLVER}\nsys.argv = {words!r}\nmain()", cwd=directory)
    assert child.stderr is not None
    assert child.stderr.readline() == b"ready\n"
    return child


@posix
def test_ctrl_c_prints_the_best_plan_so_far_and_ends_with_130(directory: Path) -> None:
    child = waiting(directory, "trencadis", "--json", "-o", "out.json")
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 130
    assert load_plan(out) == PLAN
    assert load_plan((directory / "out.json").read_bytes()) == PLAN
    assert b"stopping with the best plan so far" in err
    assert b"Traceback" not in err


@posix
def test_one_ctrl_c_that_arrives_twice_counts_once(directory: Path) -> None:
    child = waiting(directory, "trencadis", "--json")
    child.send_signal(signal.SIGINT)
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=60)
    assert child.returncode == 130
    assert load_plan(out) == PLAN


@posix
def test_a_second_ctrl_c_ends_at_once(directory: Path) -> None:
    child = waiting(directory, "stubborn", "-o", "out.json")
    assert child.stderr is not None
    child.send_signal(signal.SIGINT)
    assert b"Ctrl-C again" in child.stderr.readline()
    for _ in range(200):  # one press may arrive twice, so the next must come a little later
        child.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=0.3)
            break
    out, _ = child.communicate(timeout=60)
    assert child.returncode == 130
    assert out == b""
    assert not (directory / "out.json").exists()


def test_importing_the_command_line_imports_nothing_heavy() -> None:
    code = "import sys; print(*(m for m in sys.modules))"
    loaded = process(code).communicate(timeout=60)[0].decode().split()
    assert "trencadis.cli" in loaded
    roots = {name.partition(".")[0] for name in loaded}
    assert not roots & {"ortools", "numpy", "networkx", "pandas", "pydantic"}
    assert not {"trencadis.models", "trencadis.solver"} & set(loaded)


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nsys.argv = ['trencadis', '--help']\n"
        "try: main()\nexcept SystemExit as end: print(end.code)\nprint(*sys.modules)"
    )
    text = process(code).communicate(timeout=60)[0].decode()
    help_text, _, loaded = text.partition("\n0\n")
    assert "solve" in help_text
    assert "trencadis.cli" in loaded.split()
    roots = {name.partition(".")[0] for name in loaded.split()}
    assert not roots & {"ortools", "numpy", "networkx", "pydantic"}


@posix
@pytest.mark.parametrize("arguments", [["show", "snap.json"], ["schema", "snapshot"]])
def test_a_reader_that_has_seen_enough_is_no_error(directory: Path, arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    code = f"import sys\nsys.argv = {['trencadis', *arguments]!r}\nmain()"
    child = process(code, cwd=directory, stdout=writer)
    os.close(writer)
    err = child.communicate(timeout=60)[1]
    assert child.returncode == 0
    assert err == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("arguments", [["show", "snap.json"], ["schema", "plan", "--json"]])
def test_a_full_disk_behind_stdout_is_told(directory: Path, arguments: list[str]) -> None:
    code = f"import sys\nsys.argv = {['trencadis', *arguments]!r}\nmain()"
    with Path("/dev/full").open("wb") as full:
        child = process(code, cwd=directory, stdout=full)
        err = child.communicate(timeout=60)[1]
    assert child.returncode == 2
    assert err.startswith(b"trencadis: can't write to stdout: ")
    assert b"Traceback" not in err


@posix
@pytest.mark.parametrize(
    ("environment", "coloured"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
)
def test_colour_only_on_a_terminal_that_wants_it(
    directory: Path, environment: dict[str, str], coloured: bool
) -> None:
    text = on_terminal(directory, ["show", "snap.json"], environment)
    assert "1 node" in text
    assert ("\x1b[" in text) == coloured


@posix
def test_no_colour_without_a_terminal_even_if_forced(directory: Path) -> None:
    code = "import sys\nsys.argv = ['trencadis', 'show', 'snap.json']\nmain()"
    environment = {**os.environ, "FORCE_COLOR": "1", "TERM": "xterm-256color"}
    out, _ = process(code, cwd=directory, env=environment).communicate(timeout=60)
    assert b"1 node" in out
    assert b"\x1b" not in out


@posix
def test_an_encoding_without_squares_still_works(directory: Path) -> None:
    code = "import sys\nsys.argv = ['trencadis', 'show', 'snap.json']\nmain()"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    out, err = process(code, cwd=directory, env=environment).communicate(timeout=60)
    assert err == b""
    assert b"#......." in out


def on_terminal(directory: Path, arguments: list[str], environment: dict[str, str]) -> str:
    """What the command writes on a terminal."""
    import pty  # noqa: PLC0415

    ours, theirs = pty.openpty()
    env: dict[str, Any] = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "CI")}
    env |= {"TERM": "xterm-256color", **environment}
    code = f"import sys\nsys.argv = {['trencadis', *arguments]!r}\nmain()"
    child = process(code, cwd=directory, env=env, stdout=theirs)
    os.close(theirs)
    chunks = []
    with contextlib.suppress(OSError):  # Linux: the terminal is gone when its last user is
        while chunk := os.read(ours, 65_536):
            chunks.append(chunk)
    os.close(ours)
    child.communicate(timeout=60)
    assert child.returncode == 0
    return b"".join(chunks).decode()


# Output files


def test_a_file_is_replaced_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "out.json"
    target.write_text("before")
    target.chmod(0o640)
    io.write(str(target), "after")
    assert target.read_text() == "after"
    assert target.stat().st_mode & 0o777 == 0o640

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(io.OutputError, match=r"can't write .*out\.json: No space left"):
        io.write(str(target), "half")
    assert target.read_text() == "after"
    assert list(tmp_path.iterdir()) == [target]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    target.write_text("before")
    link.symlink_to(target)
    io.write(str(link), "after")
    assert link.is_symlink()
    assert target.read_text() == "after"


@pytest.mark.skipif(not Path("/dev/null").exists(), reason="no devices here")
def test_a_device_is_written_to_not_replaced() -> None:
    io.writable("/dev/null")
    io.write("/dev/null", "text")
    assert not Path("/dev/null").is_file()


def test_new_files_have_the_usual_permissions(tmp_path: Path) -> None:
    usual, ours = tmp_path / "usual", tmp_path / "ours"
    usual.write_text("")
    io.write(str(ours), "")
    assert ours.stat().st_mode == usual.stat().st_mode
