"""Living with a native scheduler: nothing is lost or done twice, whatever fails and whenever."""

from __future__ import annotations

import os
import tempfile
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from live_fake import T0, Fake, Fault, KilledError, Work, context, first_fit, loop

from trencadis.adapters.live.audit import history
from trencadis.adapters.live.config import Scope
from trencadis.adapters.live.handback import hand_back
from trencadis.adapters.live.store import FencedError, Intent, Store
from trencadis.adapters.live.watchdog import Watchdog

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Where syncing costs nothing: these tests kill no machine."""
FAULTS: st.SearchStrategy[list[Fault]] = st.lists(
    st.sampled_from(["ok", "ok", "ok", "lost", "unclear", "refused", "killed", "killed-after"]),
    max_size=40,
)
WORK = st.builds(
    Work,
    gpus=st.integers(1, 4),
    nodes=st.sampled_from([1, 1, 1, 2]),
    lasts=st.integers(1, 4),
    stoppable=st.booleans(),
)


@st.composite
def works(draw: st.DrawFn) -> dict[str, Work]:
    made = draw(st.lists(WORK, min_size=1, max_size=8))
    return {f"j{number}": work for number, work in enumerate(made)}


def rounds(fake: Fake, path: Path, number: int, preempt: dict[str, str]) -> None:
    """Rounds; one that is killed is followed by one of a new process."""
    running = loop(fake, path, preempt)
    for _ in range(number):
        if all(work.state == "ended" for work in fake.jobs.values()):
            break
        try:
            running.round()
        except KilledError:
            running = loop(fake, path, preempt)
        fake.tick()


@settings(max_examples=100, deadline=None)
@given(works(), FAULTS, st.dictionaries(st.sampled_from("01234567"), st.sampled_from("01234567")))
def test_every_job_runs_to_its_end_once(
    jobs: dict[str, Work], faults: list[Fault], pairs: dict[str, str]
) -> None:
    preempt = {f"j{key}": f"j{value}" for key, value in pairs.items() if key != value}
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        path = Path(directory) / "state"
        fake = Fake(jobs)
        fake.faults = iter(faults)
        rounds(fake, path, len(faults) + 10, preempt)
        fake.faults = iter(())
        rounds(fake, path, 80, {})
        loop(fake, path).round()  # settles what was not told yet
        for name, work in fake.jobs.items():
            assert work.state == "ended", (name, work)
            # One run to the end, and one more for each time that it was stopped.
            assert len(work.runs) == 1 + work.stopped, (name, work)
            assert all(asked == got for asked, got in work.runs), (name, work)
            assert work.stoppable or not work.stopped
        store = Store(path)
        assert store.intents() == []
        assert store.terms() == {}
        started = store.rows("SELECT job FROM events WHERE kind = 'started-elsewhere'")
        assert started == []


@settings(max_examples=60, deadline=None)
@given(works(), FAULTS, st.integers(0, 12))
def test_after_the_watchdog_the_native_scheduler_finishes(
    jobs: dict[str, Work], faults: list[Fault], before: int
) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        path = Path(directory) / "state"
        fake = Fake(jobs)
        fake.faults = iter(faults)
        rounds(fake, path, before, {})
        fake.faults = iter(())
        dead = context(fake, path, missed_rounds=3, interval_seconds=10)
        dead.store.put(mode="enforce", interval="10")
        dog = Watchdog(dead, monotonic=fake.seconds)
        for _ in range(60):
            fake.tick()
            dog.check()
            if all(work.state == "ended" for work in fake.jobs.values()):
                break
        assert all(work.state == "ended" for work in fake.jobs.values())
        assert all(len(work.runs) == 1 + work.stopped for work in fake.jobs.values())


def test_the_watchdog_waits_for_its_rounds(tmp_path: Path) -> None:
    fake = Fake({"a": Work(4), "b": Work(4), "c": Work(4)})
    live = loop(fake, tmp_path / "state", interval_seconds=10, missed_rounds=3)
    live.context.store.put(mode="enforce", interval="10")
    dog = Watchdog(live.context, monotonic=fake.seconds)
    for _ in range(5):
        live.round()
        assert dog.check() == []
        fake.now += timedelta(seconds=10)
    fake.now += timedelta(seconds=10)
    assert dog.check() == []
    fake.now += timedelta(seconds=10)
    # a and b were started on what was free; c still waits, and a and b have not begun.
    assert dog.check() == ["a", "b", "c"]
    assert {work.required for work in fake.jobs.values()} == {()}


def test_the_watchdog_does_nothing_in_shadow(tmp_path: Path) -> None:
    fake = Fake({"a": Work(1)})
    live = context(fake, tmp_path / "state", mode="shadow")
    live.store.put(mode="shadow", interval="1")
    dog = Watchdog(live, monotonic=fake.seconds)
    dog.check()
    fake.now += timedelta(hours=1)
    assert dog.check() == []


def test_what_is_given_back_fences_a_round_under_way(tmp_path: Path) -> None:
    fake = Fake({"a": Work(1), "b": Work(1)})
    live = loop(fake, tmp_path / "state")
    other = context(fake, tmp_path / "state")

    def solve_slowly(snapshot: object) -> object:
        hand_back(other, "paused", control="paused")
        return first_fit(snapshot)  # type: ignore[arg-type]

    live.solve = solve_slowly  # type: ignore[assignment]
    live.round()
    assert other.store.intents() == []
    assert {work.state for work in fake.jobs.values()} == {"released"}
    assert not live.context.store.rows("SELECT 1 FROM events WHERE kind = 'start'")
    assert {work.required for work in fake.jobs.values()} == {()}


@pytest.mark.parametrize(
    ("begins_on", "kind"), [((), "not-started"), (("n1",), "started"), (("n2",), "elsewhere")]
)
def test_a_start_called_off_on_its_way_is_still_told(
    tmp_path: Path, begins_on: tuple[str, ...], kind: str
) -> None:
    """It was sent, and began as planned in spite of the hand-back, or after it, or not at all."""
    fake = Fake({"a": Work(4, never=True)})
    live = loop(fake, tmp_path / "state")
    live.round()
    assert fake.jobs["a"].state == "released"
    hand_back(live.context, "paused", control="paused")
    assert [intent.phase for intent in live.context.store.intents()] == ["called-off"]
    if begins_on:
        fake.jobs["a"].required = begins_on
        fake.jobs["a"].never = False
    fake.tick()
    live.context.store.fence(control="active")
    live.round()
    kind = "started-by-scheduler" if kind == "elsewhere" else kind
    store = live.context.store
    told = [k for (k,) in store.rows("SELECT kind FROM events WHERE job = 'a' ORDER BY id")]
    assert told == ["start", "called-off", "given-back", kind]
    assert store.intents() == []


def test_what_is_called_off_is_settled_by_the_next_hand_back(tmp_path: Path) -> None:
    fake = Fake({"a": Work(4)})
    live = loop(fake, tmp_path / "state")
    live.round()
    hand_back(live.context, "3 rounds were missed")
    fake.tick()
    hand_back(live.context, "4 rounds were missed")
    assert live.context.store.intents() == []
    assert live.context.store.rows("SELECT kind FROM events ORDER BY id DESC LIMIT 1") == [
        ("started",)
    ]


def test_to_begin_is_no_missed_round(tmp_path: Path) -> None:
    """Neither where no loop ever ran before, nor after a long break; but only once in a while."""
    fake = Fake({"a": Work(9)}, nodes=1)
    live = loop(fake, tmp_path / "state", interval_seconds=10, missed_rounds=3)
    dog = Watchdog(live.context, monotonic=fake.seconds)
    assert dog.check() == []
    stop = threading.Event()
    stop.set()
    for _ in range(2):
        fake.now += timedelta(hours=1)
        live.run(stop)
        fake.now += timedelta(seconds=29)
        assert dog.check() == []
        # A loop that dies before its first round has ended, and is begun anew, is no sign of life.
        live.run(stop)
        fake.now += timedelta(seconds=1)
        assert dog.check() == ["a"]
        fake.jobs["a"].state = "waiting"
        live.run(stop)
        fake.now += timedelta(seconds=29)
        assert dog.check() == []
        live.round()


def test_what_is_not_sent_is_told_once(tmp_path: Path) -> None:
    fake = Fake({"a": Work(1)})
    live = loop(fake, tmp_path / "state", scope=Scope(nodes=("n2",)))

    def told() -> list[str]:
        query = "SELECT json_extract(detail, '$.reason') FROM events WHERE kind = 'start-skipped'"
        return [reason for (reason,) in live.context.store.rows(query)]

    for _ in range(3):
        live.round()
    assert told() == ["node n1 is out of scope"]
    live.solve = lambda snapshot: first_fit(snapshot).model_copy(update={"starts": ()})
    live.round()
    live.solve = first_fit
    live.round()
    assert told() == ["node n1 is out of scope"] * 2


def test_begin_is_fenced(tmp_path: Path) -> None:
    store = Store(tmp_path / "state")
    store.fence()
    with pytest.raises(FencedError):
        store.begin(Intent("a", "start", "sending", T0, T0), None, 0)
    assert store.intents() == []


def test_a_group_that_does_not_come_together_is_taken_back(tmp_path: Path) -> None:
    jobs = {"a": Work(2, group="g", lasts=99), "b": Work(2, group="g", never=True)}
    fake = Fake(jobs)
    live = loop(fake, tmp_path / "state", retry_after_seconds=1_000)
    live.round()
    fake.tick(61)
    assert [fake.jobs[name].state for name in "ab"] == ["running", "released"]
    live.round()
    assert [fake.jobs[name].state for name in "ab"] == ["leaving", "waiting"]
    fake.tick()
    assert fake.jobs["a"].state == "waiting"
    live.round()
    assert fake.jobs["a"].required == fake.jobs["b"].required == ()
    kinds = [kind for (kind,) in live.context.store.rows("SELECT kind FROM events")]
    assert kinds.count("rolled-back") == 2


def test_a_refusal_is_part_of_the_next_round(tmp_path: Path) -> None:
    fake = Fake({"a": Work(1)})
    live = loop(fake, tmp_path / "state")
    fake.faults = iter(["ok", "ok", "ok", "refused"])
    live.round()
    assert fake.jobs["a"].state == "waiting"
    assert fake.jobs["a"].required == ()
    live.round()
    assert fake.jobs["a"].required == ("n2",)


def test_what_never_starts_on_some_nodes_is_offered_others(tmp_path: Path) -> None:
    """Slurm takes such a start without a word, and holds the job: a refusal all the same."""
    fake = Fake({"a": Work(1, wrong=("n1", "n2"))}, nodes=3)
    live = loop(fake, tmp_path / "state", retry_after_seconds=300)
    for _ in range(9):
        live.round()
        fake.tick()
    (run,) = fake.jobs["a"].runs
    assert run == (("n3",), ("n3",))
    rows = live.context.store.rows("SELECT COUNT(*) FROM events WHERE kind = 'rolled-back'")
    assert rows == [(2,)]


def test_a_node_that_goes_down_before_the_start_takes_it_back(tmp_path: Path) -> None:
    fake = Fake({"a": Work(4)})
    live = loop(fake, tmp_path / "state")
    live.round()
    assert fake.jobs["a"].required == ("n1",)
    fake.down.add("n1")
    fake.tick()
    live.round()
    fake.tick()
    assert fake.jobs["a"].runs == [(("n2",), ("n2",))]


def test_preconditions_are_asked_again_before_sending(tmp_path: Path) -> None:
    fake = Fake({"a": Work(4), "b": Work(4)}, nodes=1)
    live = loop(fake, tmp_path / "state")

    def others_come_first(snapshot: object) -> object:
        fake.jobs["x"] = Work(4, state="running", on=("n1",), start=fake.now, left=9)
        return first_fit(snapshot)  # type: ignore[arg-type]

    live.solve = others_come_first  # type: ignore[assignment]
    live.round()
    assert {fake.jobs[name].state for name in "ab"} == {"waiting"}
    (detail,) = live.context.store.rows("SELECT detail FROM events WHERE kind = 'start-skipped'")
    assert "too few idle GPUs" in detail[0]


def test_what_is_out_of_scope_is_left_alone(tmp_path: Path) -> None:
    fake = Fake({"a": Work(1)})
    live = loop(fake, tmp_path / "state", scope=Scope(nodes=("n2",)))
    live.round()
    assert fake.jobs["a"].state == "waiting"
    (detail,) = live.context.store.rows("SELECT detail FROM events WHERE kind = 'start-skipped'")
    assert "out of scope" in detail[0]


def test_a_start_whose_place_others_took_is_given_up(tmp_path: Path) -> None:
    fake = Fake({"v": Work(4, lasts=99), "u": Work(4, lasts=1)}, nodes=1)
    live = loop(fake, tmp_path / "state", {"u": "v"})
    live.round()
    fake.tick()
    for _ in range(3):
        live.round()
        fake.tick()
    assert fake.jobs["v"].state == "leaving" or not fake.jobs["v"].on
    fake.jobs["x"] = Work(4, state="running", on=("n1",), start=fake.now, left=2)
    for _ in range(9):
        assert live.round()
        fake.tick()
    assert live.context.store.rows("SELECT 1 FROM events WHERE job = 'u' AND kind = 'dissolved'")
    assert fake.jobs["u"].runs == [(("n1",), ("n1",))]


def test_a_victim_has_its_grace(tmp_path: Path) -> None:
    fake = Fake({"v": Work(4, lasts=99), "u": Work(4, lasts=1)}, nodes=1)
    live = loop(fake, tmp_path / "state", {"u": "v"})
    live.round()
    fake.tick()
    live.round()
    assert fake.warned == ["v"]
    assert fake.jobs["v"].state == "running"
    fake.tick()
    live.round()
    assert fake.jobs["v"].state == "running"
    fake.tick()
    live.round()
    assert fake.jobs["v"].state == "leaving"
    fake.tick()
    live.round()
    fake.tick()
    assert fake.jobs["u"].runs == [(("n1",), ("n1",))]
    told = history(live.context.store, "v")
    said = [entry["event"] for entry in told if entry["event"] != "decided"]
    assert said == ["start", "started", "preempt", "preempted"]
    assert [e["decision"] for e in told if e["event"] == "decided"] == ["start", "preempt"]


def test_an_acknowledgement_ends_the_grace(tmp_path: Path) -> None:
    fake = Fake({"v": Work(4, lasts=99), "u": Work(4)}, nodes=1)
    live = loop(fake, tmp_path / "state", {"u": "v"})
    live.round()
    fake.tick()
    live.round()
    live.context.note("acknowledged", "v")
    live.round()
    assert fake.jobs["v"].state == "leaving"


def test_the_record_can_only_grow(tmp_path: Path) -> None:
    live = loop(Fake({"a": Work(1)}), tmp_path / "state")
    live.round()
    store = live.context.store
    for table in ("events", "rounds"):
        for change in (f"DELETE FROM {table}", f"UPDATE {table} SET at = ''"):
            with pytest.raises(Exception, match="append-only"):
                store.rows(change)
    assert store.rows("SELECT COUNT(*) FROM rounds") == [(1,)]
