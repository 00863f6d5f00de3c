"""A store that can't be written, and a clock that is set: nothing is lost, done twice or kept."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from command import Program
from hypothesis import given, settings
from hypothesis import strategies as st
from live_fake import Fake, Work, context, loop
from test_live_loop import MEMORY, works

from trencadis.adapters.live.store import Store
from trencadis.adapters.live.watchdog import Watchdog


class Filling(Store):
    """A store whose disk is full at some of its writes: before anything of them is there."""

    def __init__(self, path: Path, full: Iterator[bool]) -> None:
        self.full: Iterator[bool] = iter(())
        super().__init__(path)
        self.full = full

    @contextmanager
    def _write(self) -> Iterator[None]:
        with super()._write():
            yield
            if next(self.full, False):
                raise sqlite3.OperationalError("database or disk is full")


@settings(max_examples=100, deadline=None)
@given(
    works(),
    st.lists(st.booleans(), max_size=60),
    st.dictionaries(st.sampled_from("01234567"), st.sampled_from("01234567")),
)
def test_every_job_runs_once_whichever_write_fails(
    jobs: dict[str, Work], full: list[bool], pairs: dict[str, str]
) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        path = Path(directory) / "state"
        fake = Fake(jobs)
        running = loop(fake, path, pairs)
        running.context.store.close()
        running.context.store = Filling(path, iter(full))
        for _ in range(len(full) + 150):
            running.round()
            fake.tick()
        for name, work in fake.jobs.items():
            assert work.state == "ended", (name, work)
            assert len(work.runs) == 1 + work.stopped, (name, work)
            assert all(asked == got for asked, got in work.runs), (name, work)
        assert running.context.store.intents() == []


def fill(store: Store) -> None:
    """Lets the file grow no further, as a disk without room does."""
    (pages,) = store.rows("PRAGMA page_count")
    store.rows(f"PRAGMA max_page_count = {pages[0]}")
    with pytest.raises(sqlite3.OperationalError, match="full"):
        store.put(x="x" * 100_000)


def test_nothing_is_sent_while_the_disk_is_full(tmp_path: Path) -> None:
    fake = Fake({f"j{i}": Work(1, lasts=1) for i in range(8)})
    live = loop(fake, tmp_path / "state")
    fill(live.context.store)
    wells = []
    for _ in range(40):
        wells.append(live.round())
        begun = {name for name, work in fake.jobs.items() if work.state != "waiting"}
        told = {job for (job,) in live.context.store.rows("SELECT job FROM intents")}
        assert begun <= told | {name for name, work in fake.jobs.items() if work.runs}
    assert not wells[-1]
    live.context.store.rows("PRAGMA max_page_count = 1000000")
    for _ in range(20):
        live.round()
        fake.tick()
    assert all(work.state == "ended" and len(work.runs) == 1 for work in fake.jobs.values())


@pytest.mark.parametrize("readable", [True, False])
def test_the_watchdog_gives_back_without_the_store(tmp_path: Path, readable: bool) -> None:
    """Full, or broken: the cluster is nobody's hostage."""
    fake = Fake({"a": Work(4), "b": Work(4), "c": Work(4)})
    dying = loop(fake, tmp_path / "state", interval_seconds=10, missed_rounds=3)
    dying.context.store.put(mode="enforce", interval="10")
    dying.round()
    live = context(fake, tmp_path / "state", interval_seconds=10, missed_rounds=3)
    dog = Watchdog(live, monotonic=fake.seconds)
    assert dog.check() == []
    if readable:
        fill(live.store)
        live.store.rows("PRAGMA query_only = 1")
    else:
        live.store.close()
    fake.now += timedelta(seconds=29)
    assert dog.check() == []
    fake.now += timedelta(seconds=1)
    given = dog.check()
    # What was let go on our terms is known by the store alone: it starts where we said.
    assert given == (["a", "b", "c"] if readable else ["c"])
    for _ in range(9):
        fake.tick()
        dog.check()
    assert all(work.state == "ended" and len(work.runs) == 1 for work in fake.jobs.values())


@pytest.mark.parametrize("hours", [-24, -1, 1, 24])
def test_a_clock_that_is_set_hands_nothing_over(tmp_path: Path, hours: int) -> None:
    """Nor does it keep a watchdog from it."""
    fake = Fake({"a": Work(9), "b": Work(9)}, nodes=1)
    live = loop(fake, tmp_path / "state", interval_seconds=10, missed_rounds=3)
    live.context.store.put(mode="enforce", interval="10")
    dog = Watchdog(live.context, monotonic=fake.seconds)
    for step in range(6):
        live.round()
        assert dog.check() == []
        fake.now += timedelta(seconds=10)
        if step == 3:
            fake.skew = timedelta(hours=hours)
    assert dog.check() == []
    fake.now += timedelta(seconds=20)
    assert dog.check() == ["a", "b"]


@pytest.mark.parametrize("hours", [-24, -1, 1])
def test_a_start_is_taken_back_in_time_though_the_clock_was_set(tmp_path: Path, hours: int) -> None:
    fake = Fake({"a": Work(1, never=True)})
    live = loop(fake, tmp_path / "state", start_timeout_seconds=60)
    live.round()
    assert fake.jobs["a"].state == "released"
    fake.skew = timedelta(hours=hours)
    for _ in range(7):
        fake.tick()
        live.round()
    store = live.context.store
    assert store.rows("SELECT COUNT(*) FROM events WHERE kind = 'rolled-back'")[0][0] >= 1


@pytest.mark.parametrize(
    ("words", "code"),
    [(("slurm", "pause"), 2), (("slurm", "run", "--rounds", "1"), 2), (("log", "1"), 65)],
)
def test_a_file_that_is_no_log_is_a_line(
    words: tuple[str, ...], code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "state.sqlite"
    path.write_bytes(b"not a database " * 500)
    done = Program(monkeypatch, tmp_path)(*words, "--state", str(path))
    assert done.code == code
    assert "file is not a database" in done.err
    assert "internal error" not in done.err
