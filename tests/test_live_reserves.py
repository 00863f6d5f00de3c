"""What a plan keeps for later: promised to the next round; the native scheduler told if needed."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from live_fake import T0, Fake, Work, first_fit, loop

from trencadis.adapters.live.carry import rehearse
from trencadis.adapters.live.handback import hand_back
from trencadis.adapters.live.loop import Loop
from trencadis.adapters.live.overlay import overlay
from trencadis.adapters.live.reserves import promises
from trencadis.models import Plan, Policy, Snapshot, TaskAllocation
from trencadis.models.plan import Reserve


class Keeper:
    """Plans that keep the nodes for a job, and start nothing else."""

    def __init__(self, *nodes: str, at: datetime = T0 + timedelta(minutes=30)) -> None:
        self.nodes, self.at = nodes, at
        self.seen: list[Snapshot] = []

    def __call__(self, snapshot: Snapshot) -> Plan:
        self.seen.append(snapshot)
        plan = first_fit(snapshot)
        tasks = tuple(TaskAllocation(node=node) for node in self.nodes)
        kept = (Reserve(job="big", at=self.at, allocation=tasks),) if tasks else ()
        return plan.model_copy(update={"reserves": kept})


@pytest.fixture
def fake() -> Fake:
    """Its nodes are full for a while, and one big job waits for both of them."""
    made = Fake({"big": Work(4, nodes=2)})
    made.jobs |= {
        f"r{i}": Work(4, state="running", on=(f"n{i}",), start=T0, left=99) for i in (1, 2)
    }
    made.contested = frozenset({"n2"})
    return made


def kept(fake: Fake, tmp_path: Path, keeper: Keeper, **config: object) -> Loop:
    live = loop(fake, tmp_path / "state", **config)
    live.solve = keeper
    live.round()
    return live


def told(live: Loop, like: str = "%reserve%") -> list[str]:
    query = "SELECT kind FROM events WHERE kind LIKE ? ORDER BY id"
    return [kind for (kind,) in live.context.store.rows(query, like)]


@pytest.mark.parametrize(
    ("rule", "nodes", "sent"),
    [
        ("where_needed", ("n1", "n2"), True),
        ("where_needed", ("n1",), False),
        ("always", ("n1",), True),
        ("never", ("n1", "n2"), False),
    ],
)
def test_where_it_is_needed(
    fake: Fake, tmp_path: Path, rule: str, nodes: tuple[str, ...], sent: bool
) -> None:
    live = kept(fake, tmp_path, Keeper(*nodes), reserve_planned=rule)
    assert fake.reserved == (["trencadis-big"] if sent else [])
    assert promises(live.context.store)["big"].nodes == nodes
    reading = fake.read({})
    (step,) = rehearse(live.context, Keeper(*nodes)(reading.snapshot), reading.snapshot, reading)
    assert (step.kind, step.blocked, step.needless is None) == ("reserve", None, sent)


def test_it_is_made_once_and_moved_only_where_the_plan_moves_it(
    fake: Fake, tmp_path: Path
) -> None:
    keeper = Keeper("n1", "n2")
    live = kept(fake, tmp_path, keeper)
    for _ in range(5):
        keeper.at += timedelta(seconds=20)
        live.round()
    # Small steps add up: after sixty seconds it is made anew.
    assert told(live) == ["reserve", "reserve"]
    keeper.nodes = ("n2",)
    live.round()
    assert told(live) == ["reserve", "reserve", "reserve"]
    fake.contested = frozenset()
    live.round()
    assert fake.reserved == []
    fake.contested = frozenset({"n2"})
    live.round()
    keeper.nodes = ()
    live.round()
    assert fake.reserved == []
    assert promises(live.context.store) == {}


def test_the_job_starts_inside_and_it_ends_then(fake: Fake, tmp_path: Path) -> None:
    live = kept(fake, tmp_path, Keeper("n1", "n2"))
    for name in ("r1", "r2"):
        fake.jobs[name].state, fake.jobs[name].on = "ended", ()
    live.solve = Keeper()
    live.round()
    assert fake.inside == ["big"]
    assert fake.jobs["big"].required == ("n1", "n2")
    assert fake.reserved == ["trencadis-big"]
    fake.tick()
    live.round()
    assert fake.jobs["big"].state == "running"
    assert fake.reserved == []
    assert live.context.store.intents() == []


def test_a_start_that_is_taken_back_ends_it(fake: Fake, tmp_path: Path) -> None:
    live = kept(fake, tmp_path, Keeper("n1", "n2"))
    for name in ("r1", "r2"):
        fake.jobs[name].state, fake.jobs[name].on = "ended", ()
    fake.jobs["big"].never = True
    live.solve = Keeper()
    live.round()
    for _ in range(7):
        fake.tick()
        live.round()
    assert told(live, "rolled-back")
    assert fake.reserved == []


def test_it_ends_where_the_job_is_gone(tmp_path: Path) -> None:
    other = Fake({"big": Work(9)})
    other.contested = frozenset({"n1"})
    live = kept(other, tmp_path, Keeper("n1"))
    assert other.reserved == ["trencadis-big"]
    other.jobs["big"].state = "ended"
    live.context.config = live.context.config.model_copy(update={"mode": "recommend"})
    live.round()
    assert other.reserved == []


def test_a_hand_back_ends_it(fake: Fake, tmp_path: Path) -> None:
    live = kept(fake, tmp_path, Keeper("n1", "n2"))
    hand_back(live.context, "paused", control="paused")
    assert fake.reserved == []
    assert promises(live.context.store) == {}


def test_a_refusal_is_told_once_and_asked_again(fake: Fake, tmp_path: Path) -> None:
    fake.keeps_nothing = True
    live = kept(fake, tmp_path, Keeper("n1", "n2"))
    live.round()
    assert told(live) == ["reserve-skipped"]
    assert not promises(live.context.store)["big"].sent
    fake.keeps_nothing = False
    live.round()
    assert fake.reserved == ["trencadis-big"]


def test_one_that_was_lost_is_made_again(fake: Fake, tmp_path: Path) -> None:
    live = kept(fake, tmp_path, Keeper("n1", "n2"))
    fake.reserved.clear()
    live.round()
    assert fake.reserved == ["trencadis-big"]


def test_the_next_round_knows_the_promise(fake: Fake, tmp_path: Path) -> None:
    keeper = Keeper("n1", "n2")
    live = kept(fake, tmp_path, keeper)

    def holds(reservations: int) -> list[tuple[str, str, datetime]]:
        reading = fake.read({})
        policy = Policy(reservations=reservations)
        snapshot = reading.snapshot.model_copy(update={"policy": policy})
        seen = type(reading)(snapshot, reading.jobs)
        found = overlay(seen, live.context.store, fake.now).holds
        return [(hold.job, hold.kind, hold.at) for hold in found]

    assert holds(1) == [("big", "reservation", keeper.at)]
    assert holds(0) == []
    fake.jobs["big"].state = "released"
    assert holds(1) == []
    fake.jobs["big"].state, fake.jobs["big"].nodes = "waiting", 1
    assert holds(1) == []
