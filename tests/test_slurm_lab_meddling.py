"""A real Slurm on which others act as well: users, administrators, a second loop, a full disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm_lab.desk import Desk, assert_ran_once_where_planned, desk_on, runs
from slurm_lab.lab import Lab, lab, missing
from slurm_lab.workload import mixed, submit

from trencadis.models import load_snapshot

WHY = missing()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(WHY is not None, reason=WHY or "")]
ONE = ("-A", "alpha", "-N", "1", "-c", "2", "-t", "5", "--gres=gpu:h100:1")
NODE = ("-A", "alpha", "-N", "1", "-c", "2", "-t", "5", "--gres=gpu:h100:8")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(tmp_path_factory.mktemp("lab")) as running:
        yield running


def test_what_changed_since_the_plan_is_not_sent(cluster: Lab, tmp_path: Path) -> None:
    """A plan is applied later: a job was cancelled, one let go, one put on hold again, a node
    drained. All else of the plan is sent."""
    with desk_on(cluster, tmp_path, "recommend") as desk:
        cancelled, let_go, kept, drained = (
            cluster.submit(1, *NODE, "-w", node) for node in ("g1", "g2", "g3", "g4")
        )
        plan = tmp_path / "plan.json"
        desk("run", "--rounds", "1", "--plan-file", str(plan))
        cluster.run("scancel", cancelled)
        cluster.run("scontrol", "release", let_go)
        cluster.run("scontrol", "hold", kept)
        cluster.run("scontrol", "update", "NodeName=g4", "State=DRAIN", "Reason=test")
        try:
            told = json.loads(desk("apply", str(plan), "--yes", "--json", code=3))
            blocked = {step["job"]: step["blocked"] for step in told["steps"]}
            assert "ended" in blocked[cancelled] or "no longer there" in blocked[cancelled]
            assert blocked[let_go]
            assert "g4" in blocked[drained]
            # Held is how it was handed over.
            assert blocked[kept] is None
            desk.until_done([let_go, kept])
        finally:
            cluster.run("scontrol", "update", "NodeName=g4", "State=RESUME")
        assert runs(cluster, [cancelled, let_go, kept, drained]) == {let_go: 1, kept: 1}
        assert cluster.states()[drained] == "PENDING"


def test_a_node_that_is_drained_under_a_start(cluster: Lab, tmp_path: Path) -> None:
    """Its gang goes elsewhere, once; what its user named comes back first."""
    with desk_on(cluster, tmp_path) as desk:
        block = cluster.submit(4, *NODE, "-w", "g1", held=False)
        cluster.wait(lambda: runs(cluster, [block]), desk.tail)
        gang = cluster.submit(1, *NODE[:2], "-N", "3", *NODE[4:])
        with desk.running("run", "--workers", "2"):
            cluster.wait(lambda: desk.events("start"), desk.tail)
            cluster.run("scontrol", "update", "NodeName=g2", "State=DRAIN", "Reason=test")
            try:
                desk.until_done([block, gang], 60)
            finally:
                cluster.run("scontrol", "update", "NodeName=g2", "State=RESUME")
        assert runs(cluster, [gang], "end") == {gang: 1}
        assert desk.events("started-elsewhere") == []


def test_odd_names(cluster: Lab, tmp_path: Path) -> None:
    """Line ends, quotes, other alphabets, and names that pose as another job's record."""
    with desk_on(cluster, tmp_path) as desk:
        first = cluster.submit(1, *NODE[:2], "-N", "2", *NODE[4:])
        names = [f"x\nJobId={first} JobName=y Switches=1@02:00:00", f"JobId={first} Switches=1",
                 "é☃ 任务", "a\"b'c\\d;$(e)", "-n", "\x1b[31mred", "x" * 300]  # fmt: skip
        odd = [cluster.submit(1, *ONE, f"--job-name={name}", "--comment=a\nb") for name in names]
        snapshot, _ = load_snapshot(desk("snapshot"))
        assert {job.name: job.topology for job in snapshot.jobs}[first] is None
        with desk.running("run", "--workers", "2"):
            desk.until_done([first, *odd])
        assert_ran_once_where_planned(desk, dict.fromkeys([first, *odd]))
        lines = [json.loads(line) for line in desk.logged(1_000)]
        titles = {line.get("name") for line in lines if line["event"] == "start"}
        assert set(names[2:4]) <= titles
        assert "\x1b" not in desk("log", odd[5])


@pytest.mark.parametrize("zone", ["Asia/Kathmandu", "America/St_Johns"])
def test_another_time_zone(cluster: Lab, tmp_path: Path, zone: str) -> None:
    """The loop's is not the controller's; nor does a job wait that may begin at once."""
    with desk_on(cluster, tmp_path) as desk:
        desk.environment = {**desk.environment, "TZ": zone}
        jobs = [cluster.submit(1, *ONE) for _ in range(3)]
        later = cluster.submit(1, *ONE, "--begin=now+1hour")
        with desk.running("run", "--workers", "2"):
            desk.until_done(jobs)
        assert_ran_once_where_planned(desk, dict.fromkeys(jobs))
        assert cluster.states()[later] == "PENDING"


def test_two_loops_that_know_nothing_of_each_other(cluster: Lab, tmp_path: Path) -> None:
    """Each with a state of its own, which nobody should do: still no job runs twice or is lost."""
    with desk_on(cluster, tmp_path) as desk:
        (tmp_path / "other").mkdir()
        other = Desk(cluster, tmp_path / "other")
        jobs = submit(cluster, mixed(seed=8, most=16))
        with desk.running("run", "--workers", "1"), other.running("run", "--workers", "1"):
            desk.until_done(jobs, 120)
        assert runs(cluster, jobs) == Counter(dict.fromkeys(jobs, 1))
        assert runs(cluster, jobs, "end") == Counter(dict.fromkeys(jobs, 1))


def test_a_configuration_that_is_broken_meanwhile(cluster: Lab, tmp_path: Path) -> None:
    """A loop goes on with what it has read; one that begins tells the faults, each in a line."""
    with desk_on(cluster, tmp_path) as desk:
        good = desk.config.read_text()
        with desk.running("run", "--workers", "2"):
            first = cluster.submit(1, *ONE)
            desk.until_done([first])
            desk.config.write_text(good + "\n[policy]\nhorizon_seconds = 'x'\nlending = 1\n")
            second = cluster.submit(1, *ONE)
            desk.until_done([second])
        done = subprocess.run(
            desk.words("run", "--rounds", "1"),
            env=desk.environment, cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 65
        assert "$.policy.horizon_seconds" in done.stderr
        assert "$.policy.lending" in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.skipif(os.getuid() != 0, reason="only root may mount a disk that is full")
def test_a_full_disk(cluster: Lab, tmp_path: Path) -> None:
    """Nothing begins that isn't written first; with room again, all runs on."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody mount")
    ballast = disk / "ballast"
    try:
        with desk_on(cluster, tmp_path) as desk:
            desk.state = disk / "state.sqlite"
            first = cluster.submit(1, *ONE)
            with desk.running("run", "--workers", "2"):
                desk.until_done([first])
                with pytest.raises(OSError, match="space"):
                    fill(ballast)
                jobs = [cluster.submit(1, *ONE) for _ in range(3)]
                cluster.wait(lambda: '"no-store"' in "".join(desk.logged(9)), desk.tail)
                ballast.unlink()
                desk.until_done(jobs)
            assert_ran_once_where_planned(desk, dict.fromkeys([first, *jobs]))
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=False, capture_output=True)


def fill(path: Path) -> None:
    """Writes until there is no room any more."""
    with path.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4_096)


def test_the_watchdog_where_nothing_can_be_written(cluster: Lab, tmp_path: Path) -> None:
    """The loop is gone, and every write fails: the jobs go back to Slurm all the same."""
    with desk_on(cluster, tmp_path) as desk:
        desk("run", "--rounds", "1")
        first = cluster.submit(1, *ONE)
        with desk.running("watchdog", "--period", "0.5"):
            desk.until_done([first])
            words = [sys.executable, "-c", HOLDS.format(path=str(desk.state))]
            with subprocess.Popen(words, stdout=subprocess.PIPE) as holder:
                assert holder.stdout is not None
                assert holder.stdout.readline()
                jobs = [cluster.submit(1, *ONE) for _ in range(3)]
                try:
                    desk.until_done(jobs, 90)
                finally:
                    holder.kill()
        assert runs(cluster, [first, *jobs]) == Counter(dict.fromkeys([first, *jobs], 1))
        assert any('"no-store"' in line for line in desk.logged(50))


# Keeps the write lock of the file: no other process can write meanwhile.
HOLDS = """
import sqlite3, time
db = sqlite3.connect({path!r}, isolation_level=None)
db.execute("BEGIN IMMEDIATE")
print("held", flush=True)
time.sleep(200)
"""
