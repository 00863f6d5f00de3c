"""A real Slurm: queues by partition, a scope of nodes, and who is never stopped."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm_lab.desk import desk_on, runs
from slurm_lab.lab import PLACES, Lab, lab, missing

from trencadis.models import load_snapshot

WHY = missing()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(WHY is not None, reason=WHY or "")]
NODE = ("-A", "alpha", "-N", "1", "-c", "2", "-t", "60", "--gres=gpu:h100:8")
RULES = """
[policy.preemption]
grace_seconds = 300
min_runtime_seconds = 0
checkpoint_interval_seconds = 1
restart_seconds = 0
[policy.preemption.budget]
gpus_per_hour_milli = 1000
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(tmp_path_factory.mktemp("lab"), 3) as running:
        yield running


def test_queues_by_partition_and_a_scope_of_nodes(cluster: Lab, tmp_path: Path) -> None:
    """Only the scope's nodes are used, though others are idle; partitions are the queues."""
    with desk_on(cluster, tmp_path, more='[live.scope]\nnodes = ["g2"]\n') as desk:
        text = desk.config.read_text().replace("[slurm]", '[slurm]\nqueue_by = "partition"')
        for account, partition in (("alpha", "low"), ("beta", "high")):
            text = text.replace(f'name = "{account}"', f'name = "{partition}"')
        desk.config.write_text(text)
        low = [cluster.submit(1, *NODE, "-p", "low") for _ in range(2)]
        high = cluster.submit(1, *NODE, "-p", "high")
        snapshot, _ = load_snapshot(desk("snapshot"))
        assert {job.name: job.queue for job in snapshot.jobs} == {
            **dict.fromkeys(low, "low"), high: "high"
        }
        assert {q.name: q.guarantee and q.guarantee.gpus for q in snapshot.queues} == {
            "low": 16, "high": 16
        }
        with desk.running("run", "--workers", "2"):
            desk.until_done([*low, high], 60)
        mine = {*low, high}
        assert {nodes for _, job, _, nodes in cluster.told() if job in mine} == {"g2"}
        assert runs(cluster, mine) == dict.fromkeys(mine, 1)


def test_who_could_not_start_again_is_never_stopped(cluster: Lab, tmp_path: Path) -> None:
    """An interactive job and one without requeue keep their nodes; the third one's owner is told by
    a command, whose answer ends the grace."""
    told = tmp_path / "told"
    script = tmp_path / "tell"
    script.write_text(f"#!/bin/sh\ncat >> {told}\necho '{{\"ack\": true}}'\n")
    script.chmod(0o755)
    hook = f'[live.hook]\ncommand = ["{script}"]\n'
    with desk_on(cluster, tmp_path, more=hook + RULES) as desk:
        salloc = [str(shutil.which("salloc", path=PLACES)), "-J", "interactive", "-KTERM"]
        interactive = subprocess.Popen(
            [*salloc, "-p", "low", *NODE, "-w", "g1", "sleep", "200"],
            env=cluster.environment,
            stderr=subprocess.DEVNULL,
        )
        try:
            kept = cluster.submit(200, "-p", "low", *NODE, "-w", "g2", "--no-requeue", held=False)
            victim = cluster.submit(200, "-p", "low", *NODE, "-w", "g3", held=False)
            cluster.wait(lambda: list(cluster.states().values()).count("RUNNING") == 3, desk.tail)
            urgent = [cluster.submit(200, "-p", "high", *NODE) for _ in range(2)]
            with desk.running("run", "--workers", "2"):
                cluster.wait(lambda: desk.events("started"), desk.tail, 60)
                # The other one is looked at in a round that can't do anything for it.
                rounds = desk.rounds()
                cluster.wait(lambda: desk.rounds() > rounds + 1, desk.tail)
            assert [job for job, _ in desk.events("preempted")] == [victim]
            assert json.loads(told.read_text())["job"] == victim
            assert [job for job, _ in desk.events("acknowledged")] == [victim]
            ((started, detail),) = desk.events("started")
            assert started in urgent
            assert detail["nodes"] == ["g3"]
            states = cluster.states()
            assert states[kept] == "RUNNING"
            assert interactive.poll() is None
        finally:
            cluster.run("scancel", "-n", "interactive", check=False)
            interactive.wait(30)


def test_a_gang_that_is_not_started_in_time_is_taken_back(cluster: Lab, tmp_path: Path) -> None:
    """Its partition starts nothing any more when it is let go: it is held as before, on its user's
    own terms, and started in the end."""
    with desk_on(cluster, tmp_path, "recommend") as desk:
        text = desk.config.read_text().replace("timeout_seconds = 20", "timeout_seconds = 2")
        desk.config.write_text(text)
        two = ("-p", "low", "-A", "alpha", "-N", "2", *NODE[4:])
        gang = cluster.submit(1, *two)
        plan = tmp_path / "plan.json"
        desk("run", "--rounds", "1", "--plan-file", str(plan))
        cluster.run("scontrol", "update", "PartitionName=low", "State=DOWN")
        try:
            desk("apply", str(plan), "--yes")
            assert "ReqNodeList=g" in cluster.run("scontrol", "show", "job", gang)
            with desk.running("run", "--workers", "2"):
                cluster.wait(lambda: desk.events("rolled-back"), desk.tail)
            told = cluster.run("scontrol", "show", "job", gang)
            assert "ReqNodeList=(null)" in told
            assert "Reason=JobHeldUser" in told
        finally:
            cluster.run("scontrol", "update", "PartitionName=low", "State=UP")
        desk.config.write_text(text.replace('"recommend"', '"enforce"'))
        with desk.running("run", "--workers", "2"):
            desk.until_done([gang])
        assert runs(cluster, [gang]) == {gang: 1}
