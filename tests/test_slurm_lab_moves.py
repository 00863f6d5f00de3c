"""A real Slurm: `trencadis defrag` on it, its plan applied, and the job that it let in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from slurm_lab.desk import desk_on, runs
from slurm_lab.lab import lab, missing

from trencadis.models import load_plan

WHY = missing()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(WHY is not None, reason=WHY or "")]
BASE = ("-A", "alpha", "-N", "1", "-c", "2", "-t", "30")
RULES = """
[policy.preemption]
grace_seconds = 1
min_runtime_seconds = 0
checkpoint_interval_seconds = 1
restart_seconds = 0
[policy.preemption.budget]
moves = 2
"""


def test_defrag_and_apply(tmp_path: Path) -> None:
    (tmp_path / "lab").mkdir()
    with (
        lab(tmp_path / "lab", 2) as cluster,
        desk_on(cluster, tmp_path, "recommend", RULES) as desk,
    ):
        halves = [
            cluster.submit(90, *BASE, "--gres=gpu:h100:4", "-w", node, held=False)
            for node in ("g1", "g2")
        ]
        cluster.wait(lambda: runs(cluster, halves).total() == 2, desk.tail)
        big = cluster.submit(1, *BASE, "--gres=gpu:h100:8")
        snapshot, plan = tmp_path / "snapshot.json", tmp_path / "moves.json"
        snapshot.write_text(desk("snapshot"))
        code = "from trencadis.cli import main; main()"
        words = [sys.executable, "-c", code, "defrag", str(snapshot), "-o", str(plan)]
        subprocess.run(words, check=True, capture_output=True)
        (move,) = load_plan(plan.read_text()).moves
        assert move.lets_in == (big,)
        (target,) = {task.node for task in move.to}
        assert "would send  move" in desk("apply", str(plan))
        with desk.running("run", "--workers", "2", "--plan-file", str(tmp_path / "next.json")):
            desk("apply", str(plan), "--yes")
            cluster.wait(lambda: desk.events("left"), desk.tail, 30)
            # Slurm lets a requeued job start after two minutes, and the start keeps to that.
            cluster.run("scontrol", "update", f"JobId={move.job}", "StartTime=now")
            cluster.wait(lambda: desk.events("started"), desk.tail, 30)
            ((job, detail),) = desk.events("started")
            assert (job, detail["nodes"]) == (move.job, [target])

            def lets_in() -> bool:
                found = load_plan((tmp_path / "next.json").read_text()).starts
                return [start.job for start in found] == [big]

            cluster.wait(lets_in, desk.tail, 30)
            (tmp_path / "kept.json").write_text((tmp_path / "next.json").read_text())
            desk("apply", str(tmp_path / "kept.json"), "--yes")
            desk.until_done([big, move.job], 60)
        assert runs(cluster, halves)[move.job] == 2
        assert set(runs(cluster, [*halves, big], "warned")) == {move.job}
