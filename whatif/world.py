"""The cluster and its jobs during a replay, and what each action and end does to them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from trencadis.models import Snapshot
from trencadis.models.trace import Trace
from trencadis.whatif.books import Books
from trencadis.whatif.burst import BurstKind, BurstPool
from trencadis.whatif.cluster import ClusterState
from trencadis.whatif.decisions import (
    Decision,
    Disturbance,
    PreemptAction,
    ResizeAction,
    StartAction,
    model_of,
)
from trencadis.whatif.events import Agenda, Event, Kind
from trencadis.whatif.failures import FailureModel, NodeClock
from trencadis.whatif.legality import IllegalDecisionError, Judge, may_stop
from trencadis.whatif.placing import Placer
from trencadis.whatif.runs import JobRun, State, new_run, rate_of
from trencadis.whatif.shapes import shapes_of

DAY = 86_400
BUSY = (State.RUNNING, State.DRAINING, State.HELD, State.HOLDING)


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """How time passes; the policy decides the rest."""

    round_seconds: int = 300
    """Rounds are at least so far apart, and only after a change."""
    seed: int = 0
    """Of node failures."""
    failures: FailureModel | None = None
    serial_milli: int = 0
    """Thousandths of an elastic task's work that don't run in parallel."""
    gangs: bool = True
    """Whether a start must bring all tasks at once."""
    burst: BurstKind | None = None
    """Where preempted jobs that wait go."""


class World:
    """State, books and jobs; knows how things change, not when."""

    def __init__(self, trace: Trace, snapshot: Snapshot, options: ReplayOptions) -> None:
        self.trace, self.snapshot, self.options = trace, snapshot, options
        self.runs = [new_run(i, entry, snapshot.policy) for i, entry in enumerate(trace.jobs)]
        self.by_name = {run.name: run for run in self.runs}
        self.placer = Placer(snapshot, [entry.job for entry in trace.jobs])
        for run, shape in zip(self.runs, shapes_of(snapshot, self.runs), strict=True):
            run.shape = shape
        self.state = ClusterState(snapshot)
        self.books = Books(snapshot)
        self.judge = Judge(snapshot, self.placer, options.gangs)
        self.pool: BurstPool | None = None
        if options.burst is not None:
            self.pool = BurstPool(options.burst, snapshot, [entry.job for entry in trace.jobs])
        self.agenda = Agenda()
        self.now = self.runs[0].submit if self.runs else 0
        self.unfinished = 0
        self._by_state: dict[State, dict[int, JobRun]] = {state: {} for state in State}
        self._pending_milli = 0
        self.disturbed: deque[Disturbance] = deque()
        """Who was told to stop within the last day."""
        self._clocks: list[NodeClock] = []
        self._changed = False
        """Whether something happened since the last round."""

    def _in(self, state: State) -> list[JobRun]:
        """In order of index, which is that of submission."""
        runs = self._by_state[state]
        return [runs[index] for index in sorted(runs)]

    def _put(self, run: JobRun, state: State) -> None:
        """The job's new state."""
        self._by_state[run.state].pop(run.index, None)
        self._by_state[state][run.index] = run
        self._pending_milli += run.asks_milli * (
            (state is State.WAITING) - (run.state is State.WAITING)
        )
        run.state = state

    def _active(self) -> Iterator[JobRun]:
        """Submitted and not over."""
        for state in (*BUSY, State.WAITING):
            yield from self._by_state[state].values()

    # Decisions

    def carry_out(self, decision: Decision) -> None:
        """Preempts, resizes, releases, starts. Raises IllegalDecisionError."""
        stopped: dict[str, JobRun] = {}
        for preempt in decision.preempts:
            run = self.by_name[preempt.job]
            self._allow(run, [reason] if (reason := may_stop(run)) else [])
            self._preempt(run, preempt)
            stopped[run.name] = run
        for name in decision.releases:
            self._give_back(self.by_name[name])
        for resize in decision.resizes:
            self._resize(self.by_name[resize.job], resize, stopped)
        draining = {run.name: run for run in self._in(State.DRAINING)}
        for action in decision.starts:
            run = self.by_name[action.job]
            named = {name: draining[name] for name in action.waits_for if name in draining}
            victims = {**named, **_gone(stopped)}
            keeping = [*draining.values(), *self._in(State.HELD)] if draining else []
            self._allow(
                run,
                self.judge.start(
                    run, action, self.state, self._books_after(stopped), self.now, victims, keeping
                ),
            )
            self._start(run, action, named)
        # A grace of nothing ends at once, and who waited for it starts.
        for run in stopped.values():
            if run.state is State.DRAINING and run.began == self.now and run.restart == 0:
                self._drained(run)

    def _books_after(self, stopped: dict[str, JobRun]) -> Books:
        """Limits count what is in use once those stopped in this round are gone."""
        if not stopped:
            return self.books
        books = self.books.copy()
        for run in stopped.values():
            books.clear(run.job, len(run.allocation), model_of(self.state, run.allocation))
        return books

    def _allow(self, run: JobRun, faults: Iterable[str]) -> None:
        listed = list(faults)
        if listed:
            raise IllegalDecisionError(
                f"at {datetime.fromtimestamp(self.now, UTC)}: job {run.name}: {'; '.join(listed)}"
            )

    def _start(self, run: JobRun, action: StartAction, victims: dict[str, JobRun]) -> None:
        self.state.take(run.job, action.allocation)
        model = model_of(self.state, action.allocation)
        count = len(action.allocation)
        self.books.book(run.job, count, model, starts=run.state is State.WAITING)
        if run.state is State.HOLDING:
            self._wait_for_gang(run)
        run.allocation = (*run.allocation, *action.allocation)
        if victims:
            self._put(run, State.HELD)
            run.waits_for = {victim.index for victim in victims.values()}
        elif len(run.allocation) < run.job.minimum:
            self._put(run, State.HOLDING)
            run.began = self.now
        else:
            self._begin(run)

    def _begin(self, run: JobRun) -> None:
        preemption = self.snapshot.policy.preemption
        several = len({task.node for task in run.allocation}) > 1
        again = preemption.restart_seconds_multi_node if several else preemption.restart_seconds
        run.restart = again if run.starts else 0
        if run.first_start is None:
            run.first_start = self.now
        run.starts += 1
        run.stopped = False
        self._go_on(run)

    def _go_on(self, run: JobRun) -> None:
        """A segment begins: how fast, and when it ends."""
        run.slow = self.placer.slowdown(run.job, run.allocation)
        model = model_of(self.state, run.allocation)
        speed = self.placer.speed(run.job, model)
        run.rate = rate_of(run.job, len(run.allocation), speed, run.slow, self.options.serial_milli)
        self._put(run, State.RUNNING)
        run.began = self.now
        run.epoch += 1
        self.agenda.add(Event(run.finishes_at(), Kind.END, run.index, run.epoch))

    def _resize(self, run: JobRun, action: ResizeAction, stopped: dict[str, JobRun]) -> None:
        """The job writes a checkpoint, and goes on with other tasks or elsewhere."""
        count = len(action.allocation)
        faults = [] if run.state is State.RUNNING else [f"it is {run.state}, not running"]
        if not run.job.minimum <= count <= run.job.tasks:
            faults.append(f"{count} tasks instead of {run.job.minimum} to {run.job.tasks}")
        self._allow(run, faults)
        present = frozenset(task.node for task in run.allocation)
        run.close(self.now, saved=True)
        self._vacate(run)
        self._put(run, State.WAITING)
        start = StartAction(run.name, action.allocation)
        keeping = [*self._in(State.DRAINING), *self._in(State.HELD)]
        self._allow(
            run,
            self.judge.start(
                run, start, self.state, self._books_after(stopped), self.now, {}, keeping, present
            ),
        )
        self._start(run, start, {})

    def _preempt(self, run: JobRun, action: PreemptAction) -> None:
        run.close(self.now, saved=action.signal and run.on_signal and action.grace > 0)
        self._put(run, State.DRAINING)
        run.began, run.restart = self.now, action.grace
        run.preemptions += 1
        run.last_preempted, run.stopped = self.now, True
        while self.disturbed and self.now - self.disturbed[0].at >= DAY:
            self.disturbed.popleft()
        self.disturbed.append(Disturbance(self.now, run.milli))
        if action.grace:
            self.agenda.add(Event(self.now + action.grace, Kind.DRAINED, run.index, run.epoch))

    # Ends

    def _end(self, run: JobRun) -> None:
        run.close(self.now, saved=True)
        self._vacate(run)
        self._over(run, State.DONE)

    def _over(self, run: JobRun, state: State) -> None:
        self._put(run, state)
        run.end = self.now
        self.unfinished -= 1

    def _drained(self, run: JobRun) -> None:
        run.spent.grace += (self.now - run.began) * run.milli * 1_000
        run.epoch += 1
        self._vacate(run)
        self._put(run, State.WAITING)
        self._changed = True
        for waiting in self._in(State.HELD):
            waiting.waits_for.discard(run.index)
            if not waiting.waits_for:
                if self._room_for(waiting):
                    self._begin(waiting)
                else:
                    self._give_back(waiting)

    def _room_for(self, held: JobRun) -> bool:
        """Whether its places are free, whatever other holds are still waiting for theirs."""
        state = self.state.copy()
        for other in self._in(State.HELD):
            if other is not held:
                state.release(other.job, other.allocation)
        return not state.overbooked(held.allocation)

    def _vacate(self, run: JobRun) -> None:
        if run.state is State.AWAY and self.pool is not None:
            self.pool.release(run, self.now)
        else:
            model = model_of(self.state, run.allocation)
            self.state.release(run.job, run.allocation)
            self.books.clear(run.job, len(run.allocation), model)
        run.allocation = ()

    def _wait_for_gang(self, run: JobRun) -> None:
        run.spent.gang_wait += (self.now - run.began) * run.milli * 1_000

    def _give_back(self, run: JobRun) -> None:
        """Places that were kept and not used yet."""
        if run.state is State.HOLDING:
            self._wait_for_gang(run)
        self._vacate(run)
        run.waits_for = set()
        self._put(run, State.WAITING)
        self._changed = True

    def _fail(self, row: int) -> None:
        self.state.up[row] = False
        self.agenda.add(Event(self.now + self._clocks[row].down_for(), Kind.REPAIR, row))
        name = self.state.names[row]
        for run in [run for state in BUSY for run in self._in(state)]:
            if not any(task.node == name for task in run.allocation):
                continue
            if run.state in (State.HELD, State.HOLDING):
                self._give_back(run)
            elif run.state is State.DRAINING:
                self._drained(run)
            elif run.state is State.RUNNING:
                run.close(self.now, saved=False)
                run.failures += 1
                self._vacate(run)
                self._put(run, State.WAITING)
                if not run.job.requeueable:
                    run.forfeit()
                    self._over(run, State.LOST)


def _gone(stopped: dict[str, JobRun]) -> dict[str, JobRun]:
    """Those stopped without any grace: their places are free."""
    return {
        name: run
        for name, run in stopped.items()
        if run.state is State.DRAINING and run.restart == 0
    }
