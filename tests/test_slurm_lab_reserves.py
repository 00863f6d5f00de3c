"""A real Slurm: nodes that a plan keeps for later, beside jobs that Slurm starts by itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm_lab.desk import Desk, desk_on
from slurm_lab.lab import Lab, lab, missing

from trencadis.adapters.live.reserves import promises
from trencadis.adapters.live.store import Store

WHY = missing()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(WHY is not None, reason=WHY or "")]
NODE = ("-A", "alpha", "-N", "1", "-c", "2", "--gres=gpu:h100:8")
RULES = "[live.scope]\npartitions = ['low']\n[policy]\nreservations = 1\n"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(tmp_path_factory.mktemp("lab")) as running:
        yield running


def reserved(lab: Lab) -> str:
    return lab.run("scontrol", "-o", "show", "reservations")


def waiting_for_two_nodes(lab: Lab, desk: Desk) -> tuple[str, list[str]]:
    """A job of ours that can't start yet, and others that Slurm would start before it."""
    theirs = [lab.submit(60, *NODE, "-p", "high", "-t", "9", "-w", n, held=False)
              for n in ("g3", "g4")]  # fmt: skip
    lab.wait(lambda: lab.run("squeue", "-h", "-t", "R").count("\n") == 2, desk.tail)
    for seconds, node in ((15, "g1"), (22, "g2")):
        lab.submit(seconds, *NODE, "-p", "low", "-t", "1", "-w", node)
    lab.wait(lambda: len(desk.events("started")) == 2, desk.tail)
    big = lab.submit(1, *NODE, "-N", "2", "-p", "low", "-t", "1")
    desk.lab.wait(lambda: any(job == big for job, _ in promised(desk)), desk.tail)
    for _ in range(2):
        theirs.append(lab.submit(2, *NODE, "-p", "high", "-t", "9", held=False))
    return big, theirs[2:]


def wait_until_reserved(lab: Lab, desk: Desk, job: str) -> None:
    """What is promised is written first."""
    lab.wait(lambda: f"ReservationName=trencadis-{job} " in reserved(lab), desk.tail)


def promised(desk: Desk) -> list[tuple[str, object]]:
    """Jobs that plans keep nodes for, sent or not."""
    store = Store(desk.state)
    found = promises(store)
    store.close()
    return list(found.items())


def starts(lab: Lab) -> dict[str, float]:
    return {job: at for word, job, at, _ in lab.told() if word == "start"}


def test_others_do_not_take_what_a_plan_keeps(cluster: Lab, tmp_path: Path) -> None:
    with desk_on(cluster, tmp_path, more=RULES) as desk, desk.running("run", "--workers", "2"):
        big, theirs = waiting_for_two_nodes(cluster, desk)
        wait_until_reserved(cluster, desk, big)
        assert [job for job, _ in desk.events("reserve")] == [big]
        desk.until_done([big, *theirs], 60)
        began = starts(cluster)
        assert all(began[big] < began[job] for job in theirs), desk.tail()
        assert "trencadis" not in reserved(cluster)
        (began_on,) = [d["nodes"] for job, d in desk.events("started") if job == big]
        assert began_on == ["g1", "g2"]


def test_without_it_they_would(cluster: Lab, tmp_path: Path) -> None:
    rules = f"reserve_planned = 'never'\n{RULES}"
    with desk_on(cluster, tmp_path, more=rules) as desk, desk.running("run", "--workers", "2"):
        big, theirs = waiting_for_two_nodes(cluster, desk)
        assert "trencadis" not in reserved(cluster)
        desk.until_done([big, *theirs], 60)
        began = starts(cluster)
        assert began[big] > min(began[job] for job in theirs)


def test_pause_and_uninstall_remove_it(cluster: Lab, tmp_path: Path) -> None:
    with desk_on(cluster, tmp_path, more=RULES) as desk:
        with desk.running("run", "--workers", "2"):
            big, _ = waiting_for_two_nodes(cluster, desk)
            wait_until_reserved(cluster, desk, big)
            desk("pause")
            assert "trencadis" not in reserved(cluster)
        cluster.run("scontrol", "create", "reservation", "ReservationName=trencadis-x",
                    "Users=root", "Nodes=g4", "StartTime=now+600", "Duration=5",
                    "Flags=IGNORE_JOBS")  # fmt: skip
        desk("uninstall")
        assert "trencadis" not in reserved(cluster)
