"""Moves of a plan: stopped, and started elsewhere as soon as there is room, in order."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from live_fake import T0, Fake, Work, context, first_fit

from trencadis.adapters.live.audit import history
from trencadis.adapters.live.carry import carry_out, rehearse
from trencadis.adapters.live.config import Scope
from trencadis.adapters.live.context import Context
from trencadis.adapters.live.handback import hand_back
from trencadis.adapters.live.loop import Loop
from trencadis.adapters.live.overlay import budget_use, overlay
from trencadis.models import Plan, Snapshot, TaskAllocation
from trencadis.models.plan import Move

Wanted = Mapping[str, tuple[int, str]]


def running(node: str, gpus: int = 4, lasts: int = 99) -> Work:
    return Work(gpus, state="running", on=(node,), start=T0, left=lasts, lasts=5)


def plan_of(snapshot: Snapshot, wanted: Wanted) -> Plan:
    """Each job's step, and the node that it goes to."""
    moves = tuple(
        Move(job=job, step=step, to=(TaskAllocation(node=node),))
        for job, (step, node) in wanted.items()
    )
    return first_fit(snapshot).model_copy(update={"starts": (), "preempts": (), "moves": moves})


def applied(fake: Fake, path: Path, wanted: Wanted, **config: object) -> tuple[Context, Loop]:
    """A context in which a person applied these moves, and a loop that sees them through."""
    live = context(fake, path, **{"mode": "recommend", "start_timeout_seconds": 60, **config})
    fake.now += timedelta(seconds=30)
    reading = fake.read({})
    policy = reading.snapshot.policy
    brief = policy.preemption.model_copy(update={"grace_seconds": 20})
    snapshot = reading.snapshot.model_copy(
        update={"policy": policy.model_copy(update={"preemption": brief})}
    )
    carry_out(live, plan_of(snapshot, wanted), snapshot, reading, live.store.epoch())
    return live, Loop(live, lambda snap: plan_of(snap, {}))


def kinds(live: Context, job: str) -> list[str]:
    events = [e["event"] for e in history(live.store, job)]
    return [kind for kind in events if kind not in ("decided", "start-waits")]


def blocks(fake: Fake, path: Path, wanted: Wanted, **config: object) -> dict[str, str | None]:
    live = context(fake, path, **config)
    fake.now += timedelta(seconds=30)
    reading = fake.read({})
    steps = rehearse(live, plan_of(reading.snapshot, wanted), reading.snapshot, reading)
    return {step.job: step.blocked for step in steps}


def test_a_job_goes_on_where_the_plan_says(tmp_path: Path) -> None:
    fake = Fake({"a": running("n1")})
    live, loop = applied(fake, tmp_path / "state", {"a": (1, "n2")})
    assert fake.warned == ["a"]
    for _ in range(8):
        fake.tick()
        loop.round()
    work = fake.jobs["a"]
    assert (work.stopped, work.on) == (1, ("n2",))
    assert work.runs == [(("n2",), ("n2",))]
    assert kinds(live, "a") == ["move", "left", "start", "started"]
    assert live.store.intents() == []
    use = budget_use(live.store, fake.now)
    assert (use.moves_last_hour, use.preempted_jobs_last_day) == (1, 0)


def test_each_waits_for_those_before_it(tmp_path: Path) -> None:
    """b leaves n2 for n3, then a takes n2; n3 is free."""
    fake = Fake({"a": running("n1"), "b": running("n2")}, nodes=3)
    live, loop = applied(fake, tmp_path / "state", {"a": (2, "n2"), "b": (1, "n3")})
    for _ in range(9):
        fake.tick()
        loop.round()
        assert all(free >= 0 for free in fake.free().values())
    assert {name: work.on for name, work in fake.jobs.items()} == {"a": ("n2",), "b": ("n3",)}
    assert kinds(live, "a")[-1] == kinds(live, "b")[-1] == "started"


def test_nothing_else_starts_where_a_job_is_about_to_move(tmp_path: Path) -> None:
    fake = Fake({"a": running("n1"), "new": Work(4)})
    live, _ = applied(fake, tmp_path / "state", {"a": (1, "n2")})
    found = overlay(fake.read({}), live.store, fake.now)
    assert {node.name for node in found.nodes if node.cordoned} == {"n2"}


def test_where_there_is_no_room_after_all_the_job_waits(tmp_path: Path) -> None:
    fake = Fake({"a": running("n1")})
    live, loop = applied(fake, tmp_path / "state", {"a": (1, "n2")})
    fake.jobs["x"] = running("n2")
    for _ in range(6):
        fake.tick()
        loop.round()
    assert kinds(live, "a") == ["move", "left", "dissolved"]
    assert fake.jobs["a"].state == "waiting"
    assert fake.jobs["a"].required == ()


def test_a_hand_back_in_its_grace_calls_it_off(tmp_path: Path) -> None:
    fake = Fake({"a": running("n1")})
    live, _ = applied(fake, tmp_path / "state", {"a": (1, "n2")})
    hand_back(live, "paused", control="paused")
    assert kinds(live, "a") == ["move", "called-off"]
    assert fake.jobs["a"].state == "running"


def test_what_must_not_move(tmp_path: Path) -> None:
    jobs = {"a": running("n1", 2), "fixed": running("n1", 2), "b": running("n2"),
            "new": Work(1)}  # fmt: skip
    jobs["fixed"].stoppable = False
    fake = Fake(jobs, nodes=3)
    said = blocks(
        fake,
        tmp_path / "state",
        {"a": (2, "n1"), "b": (2, "n3"), "fixed": (1, "n3"), "new": (1, "n3"), "gone": (1, "n3")},
        scope=Scope(nodes=("n1", "n2")),
    )
    assert said == {
        "a": "it stays on its nodes, where the scheduler chooses the GPUs",
        "b": "node n3 is out of scope",
        "fixed": "the job can't be stopped: out of scope, or unable to start again",
        "new": "the job is waiting",
        "gone": "the job is no longer there",
    }
    said = blocks(fake, tmp_path / "state", {"fixed": (1, "n3"), "b": (2, "n1")})
    assert said["b"] == "fixed, which is to leave first, isn't moved"
