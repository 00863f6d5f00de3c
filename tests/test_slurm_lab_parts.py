"""A real Slurm whose GPUs are shared, or cut into MIG devices: which ones jobs get is read back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm_lab.desk import Desk, assert_ran_once_where_planned, desk_on, runs
from slurm_lab.lab import Lab, lab, missing

from trencadis.models import load_snapshot

WHY = missing()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(WHY is not None, reason=WHY or "")]
GRES = {"g1": "gpu:h100:4,shard:16", "g2": "gpu:1g.10gb:3,gpu:3g.40gb:1"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(tmp_path_factory.mktemp("lab"), 2, gres=GRES) as running:
        yield running


def submitted(lab: Lab, seconds: int, *gres: str, held: bool = True) -> dict[str, str]:
    """A job for each; what it asks for, by job."""
    base = ("-p", "low", "-A", "alpha", "-t", "1")
    return {lab.submit(seconds, *base, f"--gres={what}", held=held): what for what in gres}


def devices(desk: Desk) -> dict[str, list[int]]:
    """What Slurm gave to each job, on its one node; it forgets as soon as a job has ended."""
    known = {job: list(detail["gpus"].values()) for job, detail in desk.events("started")}
    return {job: given[0] for job, given in known.items() if given}


def test_shards_beside_whole_gpus(cluster: Lab, tmp_path: Path) -> None:
    """Four GPUs of four shards each, asked for twice over: all run once, and at no time has a GPU
    more than it is."""
    with desk_on(cluster, tmp_path) as desk:
        wanted = ["gpu:h100:2", *["shard:3", "shard:2", "shard:1"] * 3, "gpu:h100:1", "shard:4"]
        jobs = submitted(cluster, 4, *wanted)
        too_large = submitted(cluster, 1, "shard:5")
        with desk.running("run", "--workers", "2"):
            desk.until_done(jobs, 90)
        assert_ran_once_where_planned(desk, jobs)
        assert desk.events("refused") == desk.events("rolled-back") == []
        assert not runs(cluster, too_large)
        given = devices(desk)
        assert given
        for job, gpus in given.items():
            assert len(gpus) == (1 if jobs[job].startswith("shard") else int(jobs[job][-1]))
        parts = {job: int(what[-1]) if "shard" in what else 4 for job, what in jobs.items()}
        told = sorted((at, word == "start", job) for word, job, at, _ in cluster.told())
        used = dict.fromkeys(range(4), 0)
        for _, begins, job in told:
            for gpu in given.get(job, ()):
                used[gpu] += parts[job] if begins else -parts[job]
            assert max(used.values()) <= 4


def test_shards_in_use_are_read_back(cluster: Lab, tmp_path: Path) -> None:
    """Slurm says on which GPU they are; the next plan reckons with that one."""
    with desk_on(cluster, tmp_path) as desk:
        running = submitted(cluster, 60, "shard:2", "shard:3", "gpu:h100:2", held=False)
        cluster.wait(lambda: runs(cluster, running).total() == 3, desk.tail)
        fit = submitted(cluster, 1, "shard:1", "shard:2")
        snapshot, _ = load_snapshot(desk("snapshot"))
        read = {job.name: job for job in snapshot.jobs}
        where = [gpu for job in running for gpu in read[job].allocation[0].gpus or ()]
        assert sorted(where) == [0, 1, 2, 3]
        shares = [read[job].allocation[0].share for job in running]
        assert [share and share.gpu_milli for share in shares] == [500, 750, None]
        with desk.running("run", "--workers", "2"):
            desk.until_done(fit)
        (two,) = [job for job, what in fit.items() if what == "shard:2"]
        assert devices(desk)[two] == list(read[next(iter(running))].allocation[0].gpus or ())


def test_mig_devices_as_types_of_gpu(cluster: Lab, tmp_path: Path) -> None:
    """Each kind is a resource of its node; a job that asks for just a GPU means a whole one."""
    with desk_on(cluster, tmp_path) as desk:
        wanted = [*["gpu:1g.10gb:1"] * 4, "gpu:1g.10gb:2", *["gpu:3g.40gb:1"] * 2]
        jobs = submitted(cluster, 3, *wanted)
        snapshot, _ = load_snapshot(desk("snapshot"))
        (node,) = [node for node in snapshot.nodes if node.name == "g2"]
        assert node.resources == {"gres/gpu:1g.10gb": 3, "gres/gpu:3g.40gb": 1}
        with desk.running("run", "--workers", "2"):
            desk.until_done(jobs)
        assert_ran_once_where_planned(desk, jobs)
        ends = {job: at for word, job, at, _ in cluster.told() if word == "end"}
        first, second = sorted(ends[job] for job, what in jobs.items() if "3g" in what)
        assert second - first >= 3
        given = devices(desk)
        assert given
        for job, gpus in given.items():
            assert set(gpus) <= ({3} if "3g" in jobs[job] else {0, 1, 2})
