"""A real Slurm with its accounting database: limits and tiers by QOS, preemption by QOS."""

from __future__ import annotations

import getpass
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm_lab import accounting as db
from slurm_lab import lab as slurm
from slurm_lab.accounting import Accounting, accounted
from slurm_lab.desk import Desk, assert_ran_once_where_planned, desk_on
from slurm_lab.lab import Lab

from trencadis.models import load_snapshot

WHY = slurm.missing() or db.missing()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(WHY is not None, reason=WHY or "")]
LIMITS = ("MaxTRESPU=gres/gpu=4", "GrpTRES=gres/gpu=6", "MaxJobsPU=3")
# A lab's user may use both; what no QOS is named for has `normal`.
ONE = ("-A", "alpha", "-N", "1", "-c", "2", "-t", "5")
TIERS = "tiers = { urgent = 'high' }\n"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lab, Accounting]]:
    with accounted(tmp_path_factory.mktemp("lab")) as (cluster, database):
        cluster.run("sacctmgr", "-i", "add", "qos", "small", *LIMITS)
        cluster.run("sacctmgr", "-i", "add", "qos", "urgent")
        cluster.run("sacctmgr", "-i", "modify", "user", "where", f"name={getpass.getuser()}",
                    "set", "qos=normal,small,urgent")  # fmt: skip
        yield cluster, database


def gpus_at_once(cluster: Lab, sizes: dict[str, int]) -> tuple[int, int]:
    """The most GPUs, and the most jobs, that these had at one moment, by their own word."""
    told = sorted((at, word, job) for word, job, at, _ in cluster.told() if job in sizes)
    gpus = jobs = most_gpus = most_jobs = 0
    for _, word, job in told:
        step = {"start": 1, "end": -1}.get(word, 0)
        gpus, jobs = gpus + step * sizes[job], jobs + step
        most_gpus, most_jobs = max(gpus, most_gpus), max(jobs, most_jobs)
    return most_gpus, most_jobs


def with_tiers(desk: Desk) -> Desk:
    desk.config.write_text(desk.config.read_text().replace("[slurm]\n", f"[slurm]\n{TIERS}"))
    return desk


def test_limits_of_a_qos(site: tuple[Lab, Accounting], tmp_path: Path) -> None:
    """Plans keep them, so Slurm, which enforces them too, refuses nothing."""
    cluster, _ = site
    with desk_on(cluster, tmp_path) as desk:
        sizes = {
            cluster.submit(2, *ONE, "-q", "small", f"--gres=gpu:h100:{gpus}"): gpus
            for gpus in (1, 1, 1, 1, 2, 2, 4)
        }
        free = [cluster.submit(2, *ONE, "--gres=gpu:h100:8")]
        snapshot, _ = load_snapshot(desk("snapshot"))
        (small,) = [qos for qos in snapshot.qos if qos.name == "small"]
        assert small.limit.quota.gpus == 6
        assert small.limit.quota_per_user.gpus == 4
        assert (small.limit.jobs, small.limit.jobs_per_user) == (None, 3)
        with desk.running("run", "--workers", "2"):
            desk.until_done([*sizes, *free])
        assert_ran_once_where_planned(desk, dict.fromkeys([*sizes, *free]))
        assert desk.events("refused") == desk.events("rolled-back") == []
        gpus, jobs = gpus_at_once(cluster, sizes)
        assert gpus == 4
        assert jobs <= 3


def test_a_limit_changed_between_rounds(site: tuple[Lab, Accounting], tmp_path: Path) -> None:
    """The loop needn't be begun again; and rounds go on where slurmdbd is away."""
    cluster, database = site
    with desk_on(cluster, tmp_path) as desk, desk.running("run", "--workers", "2"):
        wide = cluster.submit(1, *ONE, "-q", "small", "--gres=gpu:h100:5")
        other = cluster.submit(1, *ONE, "--gres=gpu:h100:1")
        desk.until_done([other])
        assert cluster.states()[wide] == "PENDING"
        cluster.run("sacctmgr", "-i", "modify", "qos", "small", "set", "MaxTRESPU=gres/gpu=5")
        try:
            desk.until_done([wide])
            database.stop()
            again = cluster.submit(1, *ONE, "--gres=gpu:h100:1")
            desk.until_done([again])
            assert any("limits of QOS aren't told" in line for line in desk.logged(1_000))
        finally:
            database.start(cluster)
            cluster.run("sacctmgr", "-i", "modify", "qos", "small", "set", "MaxTRESPU=gres/gpu=4")
    assert desk.events("rolled-back") == []


def test_the_tier_of_a_qos(site: tuple[Lab, Accounting], tmp_path: Path) -> None:
    cluster, _ = site
    with desk_on(cluster, tmp_path) as desk:
        with_tiers(desk)
        jobs = [cluster.submit(1, *ONE, "--gres=gpu:h100:8") for _ in range(4)]
        urgent = [cluster.submit(1, *ONE, "-q", "urgent", "--gres=gpu:h100:8") for _ in range(2)]
        with desk.running("run", "--workers", "2"):
            desk.until_done([*jobs, *urgent])
        first = [job for word, job, _, _ in cluster.told() if word == "start" and job in
                 {*jobs, *urgent}][:2]  # fmt: skip
        assert set(first) == set(urgent)


def test_enforce_is_refused_while_a_qos_preempts(tmp_path: Path) -> None:
    (tmp_path / "lab").mkdir()
    more = "PreemptType=preempt/qos\nPreemptMode=REQUEUE\n"
    with accounted(tmp_path / "lab", 1, more) as (cluster, _):
        cluster.run("sacctmgr", "-i", "add", "qos", "first", "Preempt=normal")
        desk = Desk(cluster, tmp_path)
        done = subprocess.run(
            desk.words("run", "--rounds", "1"),
            env=cluster.environment, cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 2
        assert "QOS first preempts others" in done.stderr
        cluster.run("sacctmgr", "-i", "modify", "qos", "first", "set", "Preempt=")
        desk("run", "--rounds", "1")
