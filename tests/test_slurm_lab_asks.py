"""A real Slurm: what jobs may ask for, the modes without enforcing, slurmrestd, preemption."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from datetime import datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise
from pathlib import Path

import pytest
from slurm_lab.desk import Desk, assert_ran_once_where_planned, desk_on, runs
from slurm_lab.lab import PLACES, Lab, lab, missing

from trencadis.adapters.live.store import Store
from trencadis.adapters.slurm.hostlist import expand
from trencadis.models import load_plan, load_snapshot

WHY = missing()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(WHY is not None, reason=WHY or "")]
ONE = ("-A", "alpha", "-c", "2", "-t", "5", "--gres=gpu:h100:1")
NODE = ("-A", "alpha", "-N", "1", "-c", "2", "-t", "60", "--gres=gpu:h100:8")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(tmp_path_factory.mktemp("lab")) as running:
        yield running


def spans(lab: Lab, jobs: list[str]) -> dict[str, tuple[float, float]]:
    """When each began and ended."""
    told = {(word, job): at for word, job, at, _ in lab.told()}
    return {job: (told["start", job], told["end", job]) for job in jobs}


def where(lab: Lab, job: str) -> set[str]:
    """The nodes of its last start."""
    return set([expand(n) for word, j, _, n in lab.told() if (word, j) == ("start", job)][-1])


def test_what_jobs_ask_for(cluster: Lab, tmp_path: Path) -> None:
    """Dependencies, licences, switches, named nodes and whole nodes, as Slurm means them."""
    with desk_on(cluster, tmp_path) as desk:
        first = cluster.submit(2, *ONE)
        second = cluster.submit(1, *ONE, f"--dependency=afterok:{first}")
        licensed = [cluster.submit(2, *ONE, "-L", "meter:1") for _ in range(3)]
        near = cluster.submit(1, *NODE[:2], "-N", "2", *NODE[4:], "--switches=1@2:00:00")
        named = cluster.submit(1, *ONE, "-w", "g3")
        alone = cluster.submit(1, *ONE, "--exclusive")
        jobs = [first, second, *licensed, near, named, alone]
        snapshot, _ = load_snapshot(desk("snapshot"))
        read = {job.name: job for job in snapshot.jobs}
        assert read[second].after == (first,)
        assert read[near].topology is not None
        assert read[alone].exclusive
        with desk.running("run", "--workers", "2"):
            desk.until_done(jobs, 60)
        assert_ran_once_where_planned(desk, dict.fromkeys(jobs))
        ran = spans(cluster, jobs)
        assert ran[first][1] <= ran[second][0]
        in_turn = sorted(ran[job] for job in licensed)
        assert all(one[1] <= two[0] for one, two in pairwise(in_turn))
        assert where(cluster, near) in ({"g1", "g2"}, {"g3", "g4"})
        assert where(cluster, named) == {"g3"}
        place = where(cluster, alone)
        others = [job for job in jobs if job != alone and where(cluster, job) & place]
        begin, end = ran[alone]
        assert all(ran[job][1] <= begin or ran[job][0] >= end for job in others)
        assert desk.events("refused") == desk.events("rolled-back") == []


def test_an_array(cluster: Lab, tmp_path: Path) -> None:
    """Each task is started by itself, and never more at once than its owner allows."""
    with desk_on(cluster, tmp_path) as desk:
        number = cluster.submit(2, *ONE, "--array=1-5%2")
        names = [f"{number}_{task}" for task in range(1, 6)]
        snapshot, _ = load_snapshot(desk("snapshot"))
        assert {job.name for job in snapshot.jobs} == set(names)
        with desk.running("run", "--workers", "2"):
            desk.until_done(names)
        assert_ran_once_where_planned(desk, dict.fromkeys(names))
        ran = spans(cluster, names)
        for begin, _ in ran.values():
            assert sum(first <= begin < last for first, last in ran.values()) <= 2


def test_recommend(cluster: Lab, tmp_path: Path) -> None:
    """Nothing starts until a person applies the plan; the loop then settles what became of it."""
    with desk_on(cluster, tmp_path, "recommend") as desk:
        jobs = [cluster.submit(1, *ONE), cluster.submit(1, *NODE)]
        plan = tmp_path / "plan.json"
        with desk.running("run", "--workers", "2", "--plan-file", str(plan)):
            cluster.wait(plan.exists, desk.tail)
            recommended = plan.read_text()
            assert {start.job for start in load_plan(recommended).starts} == set(jobs)
            kept = tmp_path / "kept.json"
            kept.write_text(recommended)
            assert desk("apply", str(kept)).count("would send  start") == 2
            assert {cluster.states()[job] for job in jobs} == {"PENDING"}
            assert desk("apply", str(kept), "--yes").count("sent  start") == 2
            desk.until_done(jobs, 60)
            cluster.wait(lambda: len(desk.events("started")) == 2, desk.tail)
        assert runs(cluster, jobs) == dict.fromkeys(jobs, 1)
        store = Store(desk.state)
        assert {mode for (mode,) in store.rows("SELECT mode FROM rounds")} == {"recommend"}
        store.close()
        planned = {s.job: {t.node for t in s.allocation} for s in load_plan(recommended).starts}
        assert {job: where(cluster, job) for job in jobs} == planned


def test_shadow_beside_slurm(cluster: Lab, tmp_path: Path) -> None:
    """Slurm starts its jobs itself; each round tells, as a line of JSON, what would have been."""
    with desk_on(cluster, tmp_path, "shadow") as desk:
        with desk.running("run", "--workers", "2"):
            # What has begun before its first round is no job of the shadow's.
            cluster.wait(lambda: shadows(desk), desk.tail, 60)
            jobs = [cluster.submit(3, *NODE, held=False) for _ in range(6)]
            desk.until_done(jobs, 60)
            desk.lab.wait(lambda: shadows(desk)[-1:] and shadows(desk)[-1]["jobs"] >= 1, desk.tail)
        assert runs(cluster, jobs) == dict.fromkeys(jobs, 1)
        assert desk.events("start") == desk.events("started") == []
        last = shadows(desk)[-1]
        # Six jobs of a node each on four nodes: two wait for about three seconds in any world.
        assert last["native_started"] >= last["jobs"] - 1
        assert last["native_gpu_hours"] > 0
        assert last.keys() >= {
            "native_mean_wait_s", "shadow_mean_wait_s", "native_waiting_gpu_hours",
            "shadow_waiting_gpu_hours", "shadow_gpu_hours",
        }  # fmt: skip


def shadows(desk: Desk) -> list[dict[str, float]]:
    """The comparisons that were logged."""
    lines = [json.loads(line) for line in desk.logged(10_000)]
    return [line for line in lines if line["event"] == "shadow"]


@pytest.mark.skipif(
    shutil.which("slurmrestd", path=PLACES) is None, reason="slurmrestd isn't installed"
)
def test_slurmrestd(cluster: Lab, tmp_path: Path) -> None:
    """What it tells is what the commands tell; rounds that read from it run jobs to their end."""
    with desk_on(cluster, tmp_path) as desk, cluster.rest() as url:
        running = cluster.submit(30, *ONE, held=False)
        jobs = [cluster.submit(1, *NODE), cluster.submit(1, *ONE, f"--dependency=after:{running}")]
        cluster.wait(lambda: runs(cluster, [running]), "no start")
        (tmp_path / "rest").mkdir()
        rest = Desk(cluster, tmp_path / "rest")
        rest.config.write_text(desk.config.read_text().replace(
            "[slurm]", f'[slurm]\nslurmrestd = "{url}"'))  # fmt: skip
        by_command, by_rest = (load_snapshot(d("snapshot"))[0] for d in (desk, rest))
        assert by_rest.model_copy(update={"now": by_command.now}) == by_command
        assert {job.name for job in by_rest.jobs} == {running, *jobs}
        with rest.running("run", "--workers", "2"):
            rest.until_done(jobs, 60)
        assert_ran_once_where_planned(rest, dict.fromkeys(jobs))


def test_rounds_preempt(cluster: Lab, tmp_path: Path) -> None:
    """The plan itself stops one job for an urgent one; its owner's word ends the grace early."""
    told: list[dict[str, object]] = []

    class Owner(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"ack": true}')

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Owner)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    hook = f'[live.hook]\nwebhook = "http://127.0.0.1:{server.server_port}/"\n'
    rules = "[policy.preemption]\ngrace_seconds = 300\nmin_runtime_seconds = 0\n"
    rules += "checkpoint_interval_seconds = 1\nrestart_seconds = 0\n"
    rules += "[policy.preemption.budget]\ngpus_per_hour_milli = 1000\n"
    try:
        with desk_on(cluster, tmp_path, more=hook + rules) as desk:
            low = [cluster.submit(90, *NODE, "-p", "low") for _ in cluster.names]
            with desk.running("run", "--workers", "2"):
                cluster.wait(lambda: len(desk.events("started")) == 4, desk.tail)
                # Who is stopped before he has said that he runs would be counted once.
                cluster.wait(lambda: runs(cluster, low).total() == len(low), desk.tail)
                urgent = cluster.submit(1, *NODE, "-p", "high")
                cluster.wait(lambda: desk.events("preempted"), desk.tail)
                desk.until_done([urgent], 60)
                (victim, detail), = desk.events("preempted")
                assert victim in low
                assert detail["room_for"] == [urgent]
                # Slurm lets a requeued job start after two minutes, and the plan keeps to that.
                cluster.run("scontrol", "update", f"JobId={victim}", "StartTime=now")
                desk.until_done([victim], 60)
        (message,) = told
        assert (message["event"], message["job"]) == ("preempt", victim)
        assert [job for job, _ in desk.events("acknowledged")] == [victim]
        assert runs(cluster, [*low, urgent]) == {**dict.fromkeys([*low, urgent], 1), victim: 2}
        store = Store(desk.state)
        at = dict(store.rows("SELECT kind, at FROM events WHERE job = ?", victim))
        store.close()
        took = datetime.fromisoformat(at["preempted"]) - datetime.fromisoformat(at["preempt"])
        assert took.total_seconds() < 60
        assert where(cluster, urgent) in [
            set(expand(n)) for w, j, _, n in cluster.told() if (w, j) == ("start", victim)
        ]
        history = desk("log", victim)
        assert "preempted" in history
        assert f"room_for: {urgent}" in history
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
