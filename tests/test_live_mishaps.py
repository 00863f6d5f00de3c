"""Moves and reservations where any call may fail, and the process may die: nothing is left over."""

from __future__ import annotations

import tempfile
from datetime import timedelta
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from live_fake import Fake, KilledError, Work, first_fit, loop
from test_live_loop import FAULTS, MEMORY, works

from trencadis.adapters.live.handback import hand_back
from trencadis.adapters.live.reserves import promises
from trencadis.adapters.live.store import Store
from trencadis.models import Plan, Snapshot, TaskAllocation
from trencadis.models.plan import Move, Reserve


class Planner:
    """Starts what fits, moves each of some jobs once, and keeps nodes for the first that waits."""

    def __init__(self, moving: set[str]) -> None:
        self.moving = set(moving)

    def __call__(self, snapshot: Snapshot) -> Plan:
        plan = first_fit(snapshot)
        begun = {start.job for start in plan.starts}
        waits = [j for j in snapshot.jobs if j.state == "pending" and j.name not in begun]
        reserves = tuple(
            Reserve(
                job=job.name,
                at=snapshot.now + timedelta(minutes=5),
                allocation=tuple(TaskAllocation(node=n.name) for n in snapshot.nodes[: job.tasks]),
            )
            for job in waits[:1]
        )
        return plan.model_copy(update={"reserves": reserves, "moves": tuple(self._moves(snapshot))})

    def _moves(self, snapshot: Snapshot) -> list[Move]:
        for job in snapshot.jobs:
            alone = job.state == "running" and job.preemptible and len(job.allocation) == 1
            if alone and job.name in self.moving:
                self.moving.discard(job.name)
                (here,) = job.allocation
                to = next(node.name for node in snapshot.nodes if node.name != here.node)
                return [Move(job=job.name, step=1, to=(TaskAllocation(node=to),))]
        return []


def rounds(fake: Fake, path: Path, planner: Planner, number: int) -> None:
    def fresh() -> object:
        running = loop(fake, path, start_timeout_seconds=60, retry_after_seconds=20)
        running.solve = planner
        return running

    running = fresh()
    for _ in range(number):
        try:
            running.round()  # type: ignore[attr-defined]
        except KilledError:
            running = fresh()
        fake.tick()


@settings(max_examples=100, deadline=None)
@given(works(), FAULTS, st.sets(st.sampled_from([f"j{n}" for n in range(8)])))
def test_nothing_is_lost_or_left_over(
    jobs: dict[str, Work], faults: list[str], moving: set[str]
) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        path = Path(directory) / "state"
        fake = Fake(jobs)
        fake.contested, fake.grace = frozenset({"n1"}), 10
        fake.faults = iter(faults)  # type: ignore[arg-type]
        rounds(fake, path, Planner(moving), len(faults) + 10)
        fake.faults = iter(())
        rounds(fake, path, Planner(set()), 100)
        for name, work in fake.jobs.items():
            assert work.state == "ended", (name, work)
            assert len(work.runs) == 1 + work.stopped, (name, work)
            assert all(asked == got for asked, got in work.runs), (name, work)
        assert fake.reserved == []
        store = Store(path)
        assert store.intents() == []
        assert store.terms() == {}
        assert promises(store) == {}
        store.close()


@settings(max_examples=50, deadline=None)
@given(works(), FAULTS, st.sets(st.sampled_from([f"j{n}" for n in range(8)])), st.integers(1, 9))
def test_a_hand_back_leaves_nothing_reserved(
    jobs: dict[str, Work], faults: list[str], moving: set[str], before: int
) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        path = Path(directory) / "state"
        fake = Fake(jobs)
        fake.contested, fake.grace = frozenset({"n1", "n2"}), 10
        fake.faults = iter(faults)  # type: ignore[arg-type]
        rounds(fake, path, Planner(moving), before)
        fake.faults = iter(())
        given_back = loop(fake, path).context
        for _ in range(60):
            hand_back(given_back, "uninstalled", control="uninstalled")
            fake.tick()
        assert fake.reserved == []
        assert all(work.state == "ended" for work in fake.jobs.values())
        assert all(len(work.runs) == 1 + work.stopped for work in fake.jobs.values())
        assert given_back.store.intents() == []
