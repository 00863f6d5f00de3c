"""A real Slurm, and a loop that dies just before or after any of its own commands."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest
from slurm_lab.desk import assert_ran_once_where_planned, desk_on
from slurm_lab.lab import PLACES, lab, missing
from slurm_lab.workload import ended, mixed, submit

WHY = missing()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(WHY is not None, reason=WHY or "")]
SEED = int(os.environ.get("TRENCADIS_LAB_SEED", "1"))
"""Of the moments; another one for another night."""
KILLS = 8

# Of the commands that act, the n-th ends who called it: the loop.
SCONTROL = """\
#!/bin/sh
case "$1" in update|release|uhold|requeuehold) ;; *) exec {real} "$@" ;; esac
left=$(cat {place}/left)
echo $((left - 1)) > {place}/left
[ "$left" = 1 ] && [ "$(cat {place}/when)" = before ] && {{ kill -9 $PPID; exit 1; }}
{real} "$@"
done=$?
[ "$left" = 1 ] && kill -9 $PPID
exit $done
"""


def test_killed_around_any_command(tmp_path: Path) -> None:
    draw = random.Random(SEED)
    (tmp_path / "lab").mkdir()
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "scontrol"
    script.write_text(
        SCONTROL.format(real=shutil.which("scontrol", path=PLACES), place=tmp_path)
    )
    script.chmod(0o755)
    with lab(tmp_path / "lab") as cluster, desk_on(cluster, tmp_path) as desk:
        jobs = submit(cluster, mixed(seed=SEED, most=16))
        plain = desk.environment
        desk.environment = {**plain, "PATH": f"{tmp_path / 'bin'}:{plain['PATH']}"}
        moments = []
        for _ in range(KILLS):
            moment = draw.randint(1, 5), draw.choice(["before", "after"])
            (tmp_path / "left").write_text(str(moment[0]))
            (tmp_path / "when").write_text(moment[1])
            with desk.running("run", "--workers", "1") as process:
                cluster.wait(
                    lambda p=process: p.poll() is not None or ended(cluster, jobs), desk.tail, 60
                )
                if process.poll() is not None:
                    moments.append(moment)
        desk.environment = plain
        assert len(moments) >= KILLS / 2
        with desk.running("run", "--workers", "1"):
            desk.until_done(jobs)
        assert_ran_once_where_planned(desk, jobs)
