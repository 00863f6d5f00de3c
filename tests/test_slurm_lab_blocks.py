"""A real Slurm whose fabric is blocks of two nodes: topology/block, from 23.11 on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm_lab.desk import assert_ran_once_where_planned, desk_on
from slurm_lab.lab import Lab, lab, missing, version

from trencadis.models import load_snapshot

WHY = missing() or (None if version() >= (23, 11) else "this Slurm knows no blocks")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(WHY is not None, reason=WHY or "")]
NODE = ("-A", "alpha", "-c", "2", "-t", "5", "--gres=gpu:h100:8")
BLOCKS = ({"g1", "g2"}, {"g3", "g4"})


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(tmp_path_factory.mktemp("lab"), blocks=True) as running:
        yield running


def test_jobs_stay_in_their_blocks(cluster: Lab, tmp_path: Path) -> None:
    """Slurm never starts a job of two nodes across blocks: no plan asks for that."""
    with desk_on(cluster, tmp_path) as desk:
        # One node of each block is taken, so that only nodes of two blocks are idle.
        first = [cluster.submit(6, *NODE, "-N", "1", "-w", node) for node in ("g1", "g4")]
        pairs = [cluster.submit(1, *NODE, "-N", "2") for _ in range(3)]
        wide = cluster.submit(1, *NODE, "-N", "4")
        segments = cluster.submit(1, *NODE, "-N", "4", "--segment=2")
        jobs = [*first, *pairs, wide, segments]
        snapshot, _ = load_snapshot(desk("snapshot"))
        assert [level.name for level in snapshot.fabric.levels] == ["block"]
        read = {job.name: job for job in snapshot.jobs}
        assert {read[job].topology.level for job in pairs if read[job].topology} == {"block"}
        assert read[segments].segments is not None
        assert read[segments].segments.tasks == 2
        with desk.running("run", "--workers", "2"):
            desk.until_done(jobs)
        assert_ran_once_where_planned(desk, dict.fromkeys(jobs))
        assert desk.events("rolled-back") == desk.events("refused") == []
        planned = {job: set(detail["planned"]) for job, detail in desk.events("started")}
        assert all(planned[job] in BLOCKS for job in pairs)


def test_segments_that_no_listing_tells_of(cluster: Lab, tmp_path: Path) -> None:
    """Slurm starts none of these on nodes that are required: all others are excluded instead.

    24.11 doesn't tell that the job might be in two blocks, so it waits for one.
    """
    with desk_on(cluster, tmp_path) as desk:
        first = [cluster.submit(4, *NODE, "-N", "1", "-w", node) for node in ("g1", "g4")]
        loose = cluster.submit(1, *NODE, "-N", "2", "--segment=1")
        with desk.running("run", "--workers", "2"):
            desk.until_done([*first, loose])
        assert_ran_once_where_planned(desk, dict.fromkeys([*first, loose]))
        assert desk.events("rolled-back") == []


def test_what_slurm_would_never_start_is_a_refusal(cluster: Lab, tmp_path: Path) -> None:
    """Read as a tree, the blocks are no bounds: what Slurm makes of it steers the next round."""
    with desk_on(cluster, tmp_path) as desk:
        flat = tmp_path / "topology.conf"
        flat.write_text("SwitchName=s Nodes=g[1-4]\n")
        text = desk.config.read_text().replace("after_seconds = 2", "after_seconds = 60")
        desk.config.write_text(text.replace("[slurm]", f"[slurm]\ntopology_file = '{flat}'"))
        first = [cluster.submit(9, *NODE, "-N", "1", "-w", node) for node in ("g1", "g4")]
        pair = cluster.submit(1, *NODE, "-N", "2")
        with desk.running("run", "--workers", "2"):
            cluster.wait(lambda: desk.events("rolled-back"), desk.tail)
            (job, detail), *_ = desk.events("rolled-back")
            assert job == pair
            assert "BadConstraints" in detail["reason"]
            desk.until_done(first)
        assert len(desk.events("rolled-back")) == 1
        assert cluster.states()[pair] == "PENDING"
