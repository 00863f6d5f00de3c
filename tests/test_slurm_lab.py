"""The live loop against a real Slurm: four nodes of eight pretend GPUs on loopback."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from build import plan_of, somewhere, start
from slurm_lab.desk import Desk, assert_ran_once_where_planned, desk_on, runs
from slurm_lab.lab import Lab, lab, missing
from slurm_lab.workload import Wish, ended, mixed, outcome, submit

from trencadis.adapters.live.store import Store
from trencadis.models import load_plan, load_snapshot
from trencadis.models.plan import Preempt

WHY = missing()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(WHY is not None, reason=WHY or "")]
AWAY_S = float(os.environ.get("TRENCADIS_LAB_AWAY_S", "60"))
"""How long the controller is away."""
SEED = int(os.environ.get("TRENCADIS_LAB_SEED", "3"))
"""Of the moments at which the loop is killed."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(tmp_path_factory.mktemp("lab")) as running:
        yield running


@pytest.fixture
def desk(cluster: Lab, tmp_path: Path) -> Iterator[Desk]:
    with desk_on(cluster, tmp_path) as desk:
        yield desk


def test_a_mixed_workload(desk: Desk) -> None:
    began = time.time()
    jobs = submit(desk.lab, mixed())
    assert len(jobs) == 40
    metrics = desk.directory / "metrics.prom"
    with desk.running("run", "--metrics-file", str(metrics), "--workers", "2"):
        desk.until_done(jobs, 120)
        last = f'trencadis_events_total{{kind="started"}} {len(jobs)}'
        desk.lab.wait(lambda: last in metrics.read_text(), metrics.read_text)
    print(outcome(desk.lab, jobs, began))
    assert_ran_once_where_planned(desk, jobs)
    assert desk.events("refused") == desk.events("rolled-back") == []
    store = Store(desk.state)
    plans = [load_plan(text) for (text,) in store.rows("SELECT plan FROM rounds")]
    store.close()
    for plan in plans:
        (guarantee,) = [stage for stage in plan.proof.stages if stage.name == "guarantee"]
        assert guarantee.objective == guarantee.bound
    told = desk("log", next(iter(jobs)))
    assert "decision: start" in told
    assert "started" in told


def test_killed_at_any_moment(desk: Desk) -> None:
    jobs = submit(desk.lab, mixed(seed=2, most=16))
    draw = random.Random(SEED)
    for _ in range(8):
        with desk.running("run", "--workers", "2") as process:
            # The program takes a second to load; then a round is hit anywhere.
            time.sleep(1.0 + 1.5 * draw.random())
            process.send_signal(signal.SIGKILL)
            process.wait()
    with desk.running("run", "--workers", "2"):
        desk.until_done(jobs)
    assert_ran_once_where_planned(desk, jobs)


def test_a_controller_that_is_away(desk: Desk) -> None:
    jobs = submit(desk.lab, mixed(seed=4, most=14))
    with desk.running("run", "--workers", "2"):
        desk.lab.wait(lambda: runs(desk.lab, jobs), "nothing starts", 30)
        # Four rounds of a second without a word are missed rounds, and to begin may take as long.
        with desk.running("watchdog", "--period", "1"):
            desk.lab.stop_controller()
            time.sleep(AWAY_S)
            desk.lab.start_controller()
            desk.until_done(jobs)
    assert_ran_once_where_planned(desk, jobs)
    assert desk.events("handed-over") == []


def test_the_watchdog_hands_over(desk: Desk) -> None:
    jobs = submit(desk.lab, mixed(seed=5, most=14))
    with desk.running("watchdog", "--period", "0.5"):
        with desk.running("run", "--workers", "2") as process:
            desk.lab.wait(lambda: runs(desk.lab, jobs), "nothing starts", 30)
            process.send_signal(signal.SIGKILL)
            process.wait()
        desk.until_done(jobs)
    assert runs(desk.lab, jobs) == Counter(dict.fromkeys(jobs, 1))
    assert desk.events("handed-over")
    # What Slurm started itself had no nodes named any more.
    given = {job for job, _ in desk.events("given-back")}
    assert given
    assert not {job for job, _ in desk.events("started")} & given


def test_preemption_by_a_plan(desk: Desk) -> None:
    lab = desk.lab
    options = ["-A", "alpha", "-N1", "-c", "2", "-t", "5"]
    victim = lab.submit(60, *options, "--gres=gpu:h100:8", "-w", "g1", held=False)
    stubborn = lab.submit(15, *options, "--gres=gpu:h100:8", "-w", "g2", "--no-requeue", held=False)
    lab.wait(lambda: len(lab.run("squeue", "-h", "-t", "R").splitlines()) == 2, "no start")
    urgent = lab.submit(2, *options, "--gres=gpu:h100:8")
    late = lab.submit(2, *options, "--gres=gpu:h100:8")
    snapshot, _ = load_snapshot(desk("snapshot"))
    names = {job.name: job for job in snapshot.jobs}
    assert names[victim].preemptible
    assert not names[stubborn].preemptible
    at, free = snapshot.now, snapshot.now + timedelta(seconds=2)
    preempts, starts = [], []
    for job, node, starter in ((victim, "g1", urgent), (stubborn, "g2", late)):
        preempts.append(Preempt(job=job, at=at, gpus_free_at=free, makes_room_for=(starter,)))
        starts.append(start(starter, somewhere(node), at=free, waits_for=(job,)))
    decided = plan_of(snapshot, *starts).model_copy(update={"preempts": tuple(preempts)})
    plan = desk.directory / "plan.json"
    plan.write_text(decided.model_dump_json())
    assert "would send" in desk("apply", str(plan), code=3)
    assert lab.states()[victim] == "RUNNING"
    told = json.loads(desk("apply", str(plan), "--yes", "--json", code=3))
    blocked = {(step["action"], step["job"]): step["blocked"] for step in told["steps"]}
    assert blocked["preempt", victim] is None
    assert blocked["start", urgent] is None
    assert "can't be stopped" in blocked["preempt", stubborn]
    assert blocked["start", late] == f"its victim {stubborn} isn't stopped"
    wish = Wish("alpha", 8, 1, 2, "low")
    with desk.running("run", "--workers", "2"):
        lab.wait(lambda: desk.events("preempted"), desk.tail)
        # Slurm lets a requeued job start after two minutes, and the plan keeps to that.
        lab.run("scontrol", "update", f"JobId={victim}", "StartTime=now")
        desk.until_done({victim: wish, urgent: wish, late: wish}, 60)
    assert runs(lab, {victim: wish}) == {victim: 2}, desk.tail()
    assert runs(lab, {victim: wish}, "warned")[victim] >= 1
    assert runs(lab, {victim: wish, urgent: wish, late: wish}, "end").total() == 3
    (where,) = [nodes for word, job, _, nodes in lab.told() if (word, job) == ("start", urgent)]
    assert where == "g1"
    assert [job for job, _ in desk.events("preempted")] == [victim]
    assert runs(lab, {stubborn: wish}, "warned") == {}


def test_pause_and_uninstall(desk: Desk) -> None:
    lab = desk.lab
    options = ["-A", "alpha", "-c", "2", "-t", "5", "--gres=gpu:h100:1"]
    mine = lab.submit(1, *options)
    inbox = lab.submit(1, *options, "-p", "inbox", held=False)
    kept = lab.submit(1, *options, "--comment=trencadis:off")
    assert json.loads(desk("pause", "--json"))["given_back"] == sorted([mine, inbox])
    wish = Wish("alpha", 1, 1, 1, "low")
    desk.until_done({mine: wish, inbox: wish})
    assert lab.states()[kept] == "PENDING"
    again = lab.submit(1, *options)
    desk("run", "--rounds", "1")
    desk.until_done({again: wish})
    desk("resume")
    last = lab.submit(1, *options, "-p", "inbox", held=False)
    desk("run", "--rounds", "2")
    desk.until_done({last: wish})
    desk.settle()
    assert [job for job, _ in desk.events("started")] == [last]
    desk("uninstall")
    desk("run", "--rounds", "5")
    assert lab.states()[kept] == "PENDING"


def test_enforce_is_refused_while_slurm_preempts(tmp_path: Path) -> None:
    (tmp_path / "lab").mkdir()
    with lab(tmp_path / "lab", 1, preempts=True) as other:
        desk = Desk(other, tmp_path)
        done = subprocess.run(
            desk.words("run", "--rounds", "1"),
            env=other.environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2
        assert "jobs of partition high preempt those of low" in done.stderr
        # Watching does no harm.
        job = other.submit(1, "--gres=gpu:h100:1", held=False)
        shadow = Desk(other, tmp_path, "shadow")
        shadow("run", "--rounds", "2")
        other.wait(lambda: ended(other, {job: Wish("", 1, 1, 1, "low")}), "the job doesn't end")
        assert shadow.events("start") == []
