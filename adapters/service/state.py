"""Decides which state and plan the service answers from, and keeps the plan up with the state."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from trencadis.adapters.service.config import Config
from trencadis.adapters.service.index import Index, Said, Word, make_index
from trencadis.adapters.service.metrics import Metrics
from trencadis.adapters.service.pool import Done, Pool, WorkerError
from trencadis.models import Plan, load_plan

ASIDE = Said(Word.ASIDE)
SAME_INSTANT_SECONDS = 30
"""States read within the same half minute count as of one instant: if nothing else has changed, the
plan stands, and a session that comes every second costs no solve."""

log = logging.getLogger("trencadis.service")


class RejectedError(Exception):
    """A worker says that the input is no good; its faults, or why there is no plan."""

    def __init__(self, done: Done) -> None:
        self.status = str(done.header.get("status"))
        self.faults: list[tuple[str, str]] = [
            (str(path), str(message)) for path, message in done.header.get("faults", [])
        ]
        self.detail = str(done.header.get("detail", "")) or "; ".join(
            f"{path}: {message}" for path, message in self.faults
        )
        super().__init__(self.detail)


def sound(done: Done) -> Done:
    """The answer, if the task was done. Raises RejectedError."""
    if done.header.get("status") != "done":
        raise RejectedError(done)
    return done


@dataclass(frozen=True, slots=True)
class Pushed:
    """A state as it was read."""

    number: int
    received: float
    """Monotonic seconds."""
    header: dict[str, object]
    snapshot: bytes


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan with the state that it is for."""

    state: Pushed
    text: bytes
    index: Index
    node: str = ""
    """One on which something is to start; empty where nothing is."""


class State:
    """What is known, in one event loop."""

    def __init__(
        self,
        config: Config,
        pool: Pool,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
        wake: Callable[[str, str], Awaitable[str]] | None = None,
    ) -> None:
        """`wake`: tells the scheduler by a node, and a word on what, that there is news for it."""
        self._config, self._pool, self._metrics = config, pool, metrics
        self._clock, self._wall, self._wake = clock, wall, wake
        self.pushed: Pushed | None = None
        self.planned: Planned | None = None
        self.trouble = ""
        """Why the last round has no plan; empty where it has one."""
        self._feed: tuple[str, bytes] | None = None
        self._news = asyncio.Event()
        self._done = asyncio.Condition()
        self._numbers = 0
        self._loop: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Starts the rounds."""
        self._loop = asyncio.create_task(self._rounds())

    async def stop(self) -> None:
        """Ends them."""
        if self._loop is not None:
            self._loop.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._loop

    async def push(self, form: str, body: bytes) -> Pushed:
        """Takes over a state; the next round is for it. Raises RejectedError, WorkerError."""
        seconds = self._config.limits.solve_seconds
        done = sound(await self._pool.run(self._reading(form), body, seconds))
        return self._take(done)

    def feed(self, form: str, body: bytes) -> None:
        """Notes a state that comes by itself, every second or so; only the latest one is read."""
        self._feed = form, body
        self._news.set()

    async def wait_for(self, number: int, seconds: float) -> Planned | None:
        """The plan for this state or a later one; None if it isn't there in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds), self._done:
                await self._done.wait_for(lambda: self._is_past(number))
        return self.planned if self.planned and self.planned.state.number >= number else None

    def _is_past(self, number: int) -> bool:
        planned = self.planned.state.number if self.planned is not None else 0
        return planned >= number or bool(self.trouble)

    @property
    def fresh(self) -> bool:
        """Whether there is a plan that schedulers may be answered from."""
        return self.planned is not None and self.age() <= self._config.stale_seconds

    def age(self) -> float:
        """Seconds since the state of the plan was received; infinite where there is no plan."""
        if self.planned is None:
            return float("inf")
        return self._clock() - self.planned.state.received

    def pod(self, uid: str, name: str) -> Said:
        """The plan's word on a pod."""
        if not self.fresh or self.planned is None:
            return ASIDE
        return self.planned.index.pod(uid, name)

    def job(self, name: str) -> Said:
        """The plan's word on a job."""
        if not self.fresh or self.planned is None:
            return ASIDE
        return self.planned.index.job(name)

    def victims(self, job: str) -> frozenset[str]:
        """UIDs and names of the pods that the plan stops for a job."""
        if not self.fresh or self.planned is None:
            return frozenset()
        return self.planned.index.victims.get(job, frozenset())

    def _reading(self, form: str) -> dict[str, object]:
        """The task of reading a state. Kubernetes' objects don't tell the time: ours counts."""
        now = self._wall()
        now = now.replace(microsecond=0, second=now.second - now.second % SAME_INSTANT_SECONDS)
        return {
            "task": "read",
            "format": form,
            "gates": list(self._config.gates),
            "now": now.isoformat(),
        }

    def _take(self, done: Done) -> Pushed:
        self._numbers += 1
        self.pushed = Pushed(self._numbers, self._clock(), done.header, done.body)
        self.trouble = ""
        self._metrics.state_received(done.header)
        self._news.set()
        return self.pushed

    async def _rounds(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                if self._feed is not None:
                    (form, body), self._feed = self._feed, None
                    seconds = self._config.limits.solve_seconds
                    done = await self._pool.run(self._reading(form), body, seconds, patient=True)
                    self._take(sound(done))
                await self._round()
                self.trouble = ""
            except (WorkerError, RejectedError) as error:
                self.trouble = str(error) or type(error).__name__
                self._metrics.round_failed()
            async with self._done:
                self._done.notify_all()
            await self._tell()

    async def _tell(self) -> None:
        """Tells the scheduler that there are starts that are still to come."""
        planned = self.planned
        if self._wake is None or planned is None or not planned.node:
            return
        word = f"{planned.index.fingerprint[:12]}-{self._numbers}"
        fault = await self._wake(planned.node, word)
        if fault:
            log.warning("the scheduler can't be woken: %s", fault)

    async def _round(self) -> None:
        state = self.pushed
        if state is None or (self.planned is not None and self.planned.state is state):
            return
        if self.planned is not None and (
            self.planned.state.header.get("fingerprint") == state.header.get("fingerprint")
        ):
            # The same state again: its plan stands, and is fresh again.
            self.planned = replace(self.planned, state=state)
            _forget(state)
            return
        config = self._config
        started = self._clock()
        header = {"task": "solve", "time_limit": config.round_seconds, "threads": config.threads}
        seconds = config.round_seconds * 1.5 + config.limits.grace_seconds
        done = sound(await self._pool.run(header, state.snapshot, seconds, patient=True))
        plan = load_plan(done.body)
        nodes = [task.node for start in plan.starts for task in start.allocation]
        self.planned = Planned(state, done.body, _index(plan, state), min(nodes, default=""))
        self._metrics.round_done(plan, self._clock() - started)


def _index(plan: Plan, state: Pushed) -> Index:
    header = state.header
    rows = header.get("pods")
    gangs = header.get("gangs")
    running = header.get("running")
    made = make_index(
        plan,
        datetime.fromisoformat(str(header.get("now"))),
        {
            job: [(uid, name, node) for uid, name, node in members]
            for job, members in (rows.items() if isinstance(rows, dict) else ())
        },
        gangs if isinstance(gangs, dict) else {},
        running if isinstance(running, list) else (),
    )
    _forget(state)
    return made


def _forget(state: Pushed) -> None:
    """Drops what only the index needs: it is as large as the cluster."""
    for key in ("pods", "gangs", "running"):
        state.header.pop(key, None)
