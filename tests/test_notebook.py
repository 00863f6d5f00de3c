"""What objects show in a notebook, and the frames they become."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from build import at, job, node, running, snapshot
from replay_world import cluster, entry, trace

import trencadis
from trencadis.models import PlanMismatchError
from trencadis.models.html import MAX_ROWS, table
from trencadis.solver.round import Options, solve
from trencadis.whatif.frames import rows, to_pandas, to_polars
from trencadis.whatif.replay import Replayed, replay

HOSTILE = "<script>alert(1)</script>"
SNAP = snapshot(
    node("n", 4),
    running("r", at("n", 0)),
    job(HOSTILE, gpus=2, waited=60),
    job("large", gpus=4),
)
PLAN = solve(SNAP, Options(time_limit_s=2, deterministic=True))


def texts(html: str) -> list[str]:
    found: list[str] = []

    class Reader(HTMLParser):
        def handle_data(self, data: str) -> None:
            found.append(data)

    Reader().feed(html)
    return found


@pytest.fixture(scope="module")
def replayed() -> dict[str, Replayed]:
    jobs = trace(*(entry(f"j{i}", 10 * i, 50 + i, 1 + i % 3) for i in range(12)))
    return {name: replay(jobs, cluster(1, 4), name) for name in ("fifo", "backfill")}


def test_records_show_themselves(replayed: dict[str, Replayed]) -> None:
    for shown in (SNAP._repr_html_(), PLAN._repr_html_()):
        assert "<script" not in shown
    assert HOSTILE in texts(PLAN._repr_html_())
    assert "large" in texts(PLAN._repr_html_())
    assert PLAN.pending[0].sentence in texts(PLAN._repr_html_())
    assert "1 nodes, 4 GPUs, 3 jobs" in SNAP._repr_html_()
    done = replayed["fifo"]
    assert f"{done.measures.utilization:.1%}" in texts(done._repr_html_())


def test_long_tables_are_cut() -> None:
    html = table("t", ("a",), [(str(i),) for i in range(MAX_ROWS + 7)])
    assert html.count("<tr>") == MAX_ROWS + 1
    assert "7 more" in html
    assert table("t", ("a",), []) == ""


def test_show_draws_what_it_is_given() -> None:
    assert trencadis.show(SNAP).title.startswith("Cluster at")
    assert trencadis.show(SNAP, PLAN).title.startswith("Plan for")
    with pytest.raises(PlanMismatchError):
        trencadis.show(snapshot(node("other")), PLAN)


def test_waits_of_a_replay_are_those_measured(replayed: dict[str, Replayed]) -> None:
    for done in replayed.values():
        assert len(done.waits) == done.measures.wait.count
        assert sum(done.waits) / len(done.waits) == pytest.approx(done.measures.wait.mean)
        assert done.waits[-1] == done.measures.wait.largest


def test_rows_have_every_job_once() -> None:
    decided = rows(PLAN)
    assert {(row["job"], row["decision"]) for row in decided} == {
        (HOSTILE, "start"), ("large", "wait"),
    }  # fmt: skip
    assert len({tuple(row) for row in decided}) == 1
    assert [row["job"] for row in rows(SNAP)] == [job.name for job in SNAP.jobs]
    assert sum(row["gpus"] for row in rows(SNAP)) == 7


def test_frames_have_the_rows(replayed: dict[str, Replayed]) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("polars")
    for thing in (PLAN, SNAP, replayed["fifo"], replayed):
        expected = rows(thing)
        pandas, polars = to_pandas(thing), to_polars(thing)
        assert list(pandas.columns) == polars.columns == list(expected[0])
        assert len(pandas) == polars.height == len(expected)
        first = next(iter(expected[0]))
        assert list(pandas[first]) == polars[first].to_list() == [row[first] for row in expected]
    assert to_polars(replayed)["policy"].to_list() == ["fifo", "backfill"]
