"""Slurm's side of what a plan keeps: where it has to be told, and by which commands."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from slurm_docs import NOW, SHAPES, document, job, node, running

from trencadis.adapters.live.cluster import RefusedError
from trencadis.adapters.slurm.live import SlurmCluster, load_config
from trencadis.adapters.slurm.live.reservations import Reservations

AT = datetime.fromtimestamp(NOW, UTC)
LATER = "now+3600"
PARTITION = "PartitionName={} Nodes={} PriorityTier=1 State={} MaxTime=UNLIMITED\n"


class Slurm:
    """Knows reservations, as `scontrol` of 22.05 treats them."""

    def __init__(self, **reservations: tuple[int, str]) -> None:
        self.there = dict(reservations)
        self.in_use: set[str] = set()
        self.asked: list[str] = []

    def __call__(self, *words: str) -> str:
        line = " ".join(words).replace("scontrol ", "")
        if "show" in words:
            return "\n".join(
                f"ReservationName={name} StartTime={start} EndTime={start + 600} Nodes={nodes}"
                f" Flags=IGNORE_JOBS Licenses=(null)"
                for name, (start, nodes) in self.there.items()
            )
        self.asked.append(line)
        name = line.split("ReservationName=")[1].split(" ")[0]
        if line.startswith("update JobId"):
            self.in_use.clear()
        elif line.startswith("update") and "StartTime" in line and self.there[name][0] <= NOW:
            raise RefusedError("Reservation already started")
        elif line.startswith("delete"):
            if name in self.in_use:
                raise RefusedError("Requested reservation is in use")
            del self.there[name]
        return ""


def test_one_that_has_not_begun_is_moved() -> None:
    slurm = Slurm(**{"trencadis-1": (NOW + 99, "g1")})
    ours = Reservations(slurm, lambda: AT)
    ours.keep("trencadis-1", "ada", ["g1", "g2"], AT + timedelta(hours=1), AT + timedelta(hours=2))
    assert slurm.asked == [
        f"update ReservationName=trencadis-1 Nodes=g1,g2 StartTime={LATER} Duration=60"
    ]


def test_one_that_has_begun_is_made_anew() -> None:
    slurm = Slurm(**{"trencadis-1": (NOW - 9, "g1")})
    ours = Reservations(slurm, lambda: AT)
    ours.keep("trencadis-1", "ada", ["g2"], AT + timedelta(hours=1), AT + timedelta(hours=2))
    assert [line.split(" ")[0] for line in slurm.asked] == ["update", "delete", "create"]


def test_a_job_starts_inside_on_just_its_nodes() -> None:
    slurm = Slurm(**{"trencadis-1": (NOW + 99, "g[1-2]"), "trencadis-2": (NOW - 9, "g3")})
    ours = Reservations(slurm, lambda: AT)
    assert ours.open("trencadis-1", ["g2"])
    assert ours.open("trencadis-2", ["g3"])
    assert not ours.open("trencadis-3", ["g3"])
    assert slurm.asked == ["update ReservationName=trencadis-1 StartTime=now Nodes=g2"]


def test_one_in_use_is_left_by_its_job_first() -> None:
    slurm = Slurm(**{"trencadis-1": (NOW - 9, "g1")})
    slurm.in_use = {"trencadis-1"}
    ours = Reservations(slurm, lambda: AT)
    ours.end("trencadis-1")
    ours.end("trencadis-1")
    assert slurm.asked == [
        "delete ReservationName=trencadis-1",
        "update JobId=1 ReservationName=",
        "delete ReservationName=trencadis-1",
    ]


@pytest.mark.parametrize("shape", SHAPES)
def test_where_slurm_has_to_be_told(shape: str) -> None:
    jobs: list[object] = []
    answers: dict[str, str] = {}

    def run(*words: str) -> str:
        return answers.get(" ".join(words), "")

    def contested(remembered: dict[str, dict[str, str]] | None = None) -> set[str]:
        nodes = [node(shape, f"g{i}", partitions="low") for i in range(1, 5)]
        answers.update({
            "squeue --json --states=all": document(shape, "jobs", *jobs),
            "sinfo --json": document(shape, "nodes", *nodes),
            "scontrol -o show partitions": PARTITION.format("low", "g[1-2]", "UP")
            + PARTITION.format("inbox", "g[1-4]", "DOWN") + PARTITION.format("his", "g4", "UP"),
        })  # fmt: skip
        config = load_config("[live]\nmode = 'enforce'\nscope = {partitions = ['low']}")
        cluster = SlurmCluster(config, run, lambda: AT)  # type: ignore[arg-type]
        return set(cluster.read(remembered or {}).contested)

    assert contested() == {"g4"}
    jobs.append(running(shape, 1, {"g1": "gpu:h100:1(IDX:0)"}, partition="low"))
    jobs.append(job(shape, 2, partition="low", priority=0, state_reason="JobHeldUser"))
    assert contested() == {"g4"}
    jobs.append(job(shape, 3, partition="low"))
    assert contested() == {"g1", "g2", "g4"}
    # Let go by us a moment ago.
    assert contested({"3": {"ReqNodeList": ""}}) == {"g4"}


@pytest.mark.parametrize("shape", SHAPES)
def test_whose_reservation_a_job_is_in(shape: str) -> None:
    def held(number: int, name: str) -> dict[str, object]:
        fields = {"priority": 0, "state_reason": "JobHeldUser", "resv_name": name}
        return job(shape, number, partition="low", **fields)

    answers = {
        "squeue --json --states=all": document(
            shape, "jobs", held(1, "trencadis-1"), held(2, "maint")
        ),
        "sinfo --json": document(shape, "nodes", node(shape, "g1", partitions="low")),
        "scontrol -o show partitions": PARTITION.format("low", "g1", "UP"),
    }
    cluster = SlurmCluster(load_config(""), lambda *words: answers.get(" ".join(words), ""),
                           lambda: AT)  # type: ignore[arg-type]  # fmt: skip
    found = {entry.name: entry for entry in cluster.read({}).snapshot.jobs}
    assert not found["1"].tolerations
    assert not found["1"].node_selector.keys() & {"reservation/trencadis-1"}
    with pytest.raises(RefusedError, match="reservation maint"):
        cluster.reserve("trencadis-2", "2", ["g1"], AT, AT)
