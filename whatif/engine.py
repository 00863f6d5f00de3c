"""The replay itself: events in order of time, rounds after changes, decisions carried out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from trencadis.models import Snapshot, TaskAllocation
from trencadis.models.base import seconds
from trencadis.models.trace import Trace
from trencadis.whatif.books import Books
from trencadis.whatif.cluster import ClusterState
from trencadis.whatif.decisions import (
    Decision,
    PreemptAction,
    ResizeAction,
    SchedulingPolicy,
    StartAction,
    View,
    model_of,
)
from trencadis.whatif.events import Agenda, Event, Kind
from trencadis.whatif.failures import FailureModel, NodeClock
from trencadis.whatif.legality import IllegalDecisionError, Judge, may_stop
from trencadis.whatif.placing import Placer
from trencadis.whatif.policies.ranking import BestFit
from trencadis.whatif.runs import JobRun, State, new_run, rate_of
from trencadis.whatif.shapes import shapes_of
from trencadis.whatif.watch import Fragments, GpuTime, Guarantees

FRUITLESS_ROUNDS = 100
"""Rounds in a row with nothing at work and nothing to come, after which a replay is stalled."""
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


@dataclass(frozen=True, slots=True)
class Sample:
    """The cluster after a round."""

    at: int
    """Seconds since 1970."""
    pending: int
    pending_milli: int
    running: int
    idle_milli: int
    fragments_milli: int
    """F, milli-GPUs."""
    capacity_milli: int


class Engine:
    """One replay of a trace on a cluster under one policy. `run` may be called once."""

    def __init__(
        self, trace: Trace, snapshot: Snapshot, policy: SchedulingPolicy, options: ReplayOptions
    ) -> None:
        self.trace, self.snapshot, self.policy, self.options = trace, snapshot, policy, options
        self.runs = [new_run(i, entry, snapshot.policy) for i, entry in enumerate(trace.jobs)]
        self.by_name = {run.name: run for run in self.runs}
        self.placer = Placer(snapshot, [entry.job for entry in trace.jobs])
        for run, shape in zip(self.runs, shapes_of(snapshot, self.runs), strict=True):
            run.shape = shape
        self.state = ClusterState(snapshot)
        self.books = Books(snapshot)
        self.judge = Judge(snapshot, self.placer, options.gangs)
        self.agenda = Agenda()
        self.now = self.runs[0].submit if self.runs else 0
        self.began = self.now
        self._by_state: dict[State, dict[int, JobRun]] = {state: {} for state in State}
        self._pending_milli = 0
        self.gpu_time = GpuTime()
        self.fragments = Fragments(trace, self.state)
        leaves = {queue.parent for queue in snapshot.queues}
        self.guarantees = Guarantees(
            tuple(
                queue
                for queue in snapshot.queues
                if queue.name not in leaves and queue.guarantee.total_milli()
            ),
            grace=snapshot.policy.preemption.grace_seconds + options.round_seconds,
        )
        self.samples: list[Sample] = []
        self.last_sample: Sample | None = None
        self.fragment_time = 0
        """F over time, milli-GPU-seconds."""
        self.idle_time_seen = 0
        """Idle GPU time as seen at rounds: what F is a part of."""
        self.rounds = 0
        self._chained = any(run.job.after or run.job.not_before for run in self.runs)
        self._clocks: list[NodeClock] = []
        self._changed = False
        self._next_round = self.now
        self._round_at: int | None = None
        self.unfinished = 0
        self._to_come = 0
        self._up = self.state.up.copy()
        self._fruitless = 0
        self.stalled = False
        """Jobs wait, and nothing that could ever start them is left to happen."""

    # Time

    def run(self, on_sample: Callable[[Sample], None] | None = None) -> None:
        """Until all jobs are over, or nothing can happen any more."""
        self._foresee()
        while self.unfinished and not self.stalled and (at := self.agenda.next_at()) is not None:
            self._pass_time(at)
            while self.agenda.next_at() == at:
                self._happen(self.agenda.pop())
            if self._changed and self._round_at is None:
                self._round_at = max(at, self._next_round)
                self.agenda.add(Event(self._round_at, Kind.ROUND, 0))
            if self.last_sample is not None and self.last_sample.at == at and on_sample:
                on_sample(self.last_sample)
        for run in self._in(State.HOLDING):
            self._give_back(run)

    def _foresee(self) -> None:
        empty = ClusterState(self.snapshot)
        possible: dict[int, bool] = {}
        for run in self.runs:
            if run.shape not in possible:
                found = self.placer.place(empty, run.job, 0, BestFit())
                possible[run.shape] = found is not None and self.books.allows(
                    run.job, len(found), model_of(empty, found)
                )
            if not possible[run.shape]:
                self._put(run, State.REJECTED)
                continue
            self.unfinished += 1
            self.agenda.add(Event(run.submit, Kind.ARRIVE, run.index))
            self._to_come += 1
            if run.job.not_before is not None:
                self._to_come += 1
                self.agenda.add(Event(seconds(run.job.not_before), Kind.ELIGIBLE, run.index))
        if self.options.failures is not None:
            for row, name in enumerate(self.state.names):
                clock = NodeClock(self.options.failures, self.options.seed, name)
                self._clocks.append(clock)
                if self.state.up[row]:
                    self.agenda.add(Event(self.now + clock.up_for(), Kind.FAIL, row))

    def _pass_time(self, at: int) -> None:
        span = at - self.now
        if span > 0:
            self.gpu_time.pass_time(self.state, span, self._in(State.HELD))
            self.guarantees.pass_time(at, span)
            if self.last_sample is not None:
                self.fragment_time += self.last_sample.fragments_milli * span
                self.idle_time_seen += self.last_sample.idle_milli * span
        self.now = at

    def _happen(self, event: Event) -> None:
        if event.kind is Kind.ROUND:
            self._round_at = None
            self._round()
            return
        if event.kind is Kind.FAIL:
            self._fail(event.subject)
        elif event.kind is Kind.REPAIR:
            self.state.up[event.subject] = True
            clock = self._clocks[event.subject]
            self.agenda.add(Event(self.now + clock.up_for(), Kind.FAIL, event.subject))
        else:
            run = self.runs[event.subject]
            if event.kind in (Kind.ARRIVE, Kind.ELIGIBLE):
                self._to_come -= 1
            if event.kind is Kind.ARRIVE:
                self._put(run, State.WAITING)
            elif event.kind in (Kind.END, Kind.DRAINED):
                if event.epoch != run.epoch:
                    return
                if event.kind is Kind.END:
                    self._end(run)
                else:
                    self._drained(run)
        self._changed = True

    # Rounds

    def _round(self) -> None:
        self._changed = False
        self._next_round = self.now + self.options.round_seconds
        view = self.view()
        decision = self.policy.decide(view)
        self.rounds += 1
        self.carry_out(decision)
        if decision.wake is not None and self.unfinished:
            wake = max(decision.wake, self._next_round)
            self._round_at = wake
            self.agenda.add(Event(wake, Kind.ROUND, 0))
        self.stalled = self._is_stalled(decision)
        self.guarantees.look(self.now, self.state, self.books, self._active())
        self.last_sample = Sample(
            at=self.now,
            pending=len(self._by_state[State.WAITING]),
            pending_milli=self._pending_milli,
            running=len(self._by_state[State.RUNNING]),
            idle_milli=self.state.idle_milli(),
            fragments_milli=self.fragments.milli(self.state),
            capacity_milli=self.state.healthy * 1_000,
        )
        self.samples.append(self.last_sample)

    def _is_stalled(self, decision: Decision) -> bool:
        """Whether no later round can do more than this one did."""
        at_work = any(self._by_state[s] for s in (State.RUNNING, State.DRAINING, State.HELD))
        if at_work or self._to_come:
            self._fruitless = 0
            return False
        # Tasks that wait for their gangs come and go; two gangs may do so for ever.
        self._fruitless += 1
        if self._fruitless > FRUITLESS_ROUNDS:
            return True
        waits = decision.wake is not None or self._changed or self._by_state[State.HOLDING]
        return not waits and bool((self.state.up == self._up).all())

    def view(self) -> View:
        """What the policy sees now."""
        waiting = self._in(State.WAITING)
        eligible = [run for run in waiting if self._eligible(run)] if self._chained else waiting
        ready = {run.index for run in eligible} if self._chained else set()
        others = [run for run in waiting if run.index not in ready] if self._chained else []
        return View(
            now=self.now,
            snapshot=self.snapshot,
            placer=self.placer,
            state=self.state,
            books=self.books,
            pending=eligible,
            running=self._in(State.RUNNING),
            draining=self._in(State.DRAINING),
            held=self._in(State.HELD),
            holding=self._in(State.HOLDING),
            waiting_elsewhere=others,
        )

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

    def _eligible(self, run: JobRun) -> bool:
        job = run.job
        if job.not_before is not None and seconds(job.not_before) > self.now:
            return False
        over = (State.FUTURE, State.DONE, State.LOST, State.REJECTED)
        return all(self.by_name[name].state in over for name in job.after if name in self.by_name)

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
            self._resize(self.by_name[resize.job], resize)
        draining = {run.name: run for run in self._in(State.DRAINING)}
        for action in decision.starts:
            run = self.by_name[action.job]
            named = {name: draining[name] for name in action.waits_for if name in draining}
            victims = {**named, **_gone(stopped)}
            keeping = [*draining.values(), *self._in(State.HELD)] if draining else []
            self._allow(
                run,
                self.judge.start(run, action, self.state, self.books, self.now, victims, keeping),
            )
            self._start(run, action, named)
        # A grace of nothing ends at once, and who waited for it starts.
        for run in stopped.values():
            if run.state is State.DRAINING and run.began == self.now and run.restart == 0:
                self._drained(run)

    def _allow(self, run: JobRun, faults: Iterable[str]) -> None:
        listed = list(faults)
        if listed:
            raise IllegalDecisionError(
                f"policy {self.policy.name} at {datetime.fromtimestamp(self.now, UTC)}: "
                f"job {run.name}: {'; '.join(listed)}"
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

    def _resize(self, run: JobRun, action: ResizeAction) -> None:
        """The job writes a checkpoint, and goes on with other tasks or elsewhere."""
        count = len(action.allocation)
        faults = [] if run.state is State.RUNNING else [f"it is {run.state}, not running"]
        if not run.job.minimum <= count <= run.job.tasks:
            faults.append(f"{count} tasks instead of {run.job.minimum} to {run.job.tasks}")
        self._allow(run, faults)
        run.close(self.now, saved=True)
        self._vacate(run)
        self._put(run, State.WAITING)
        start = StartAction(run.name, action.allocation)
        self._allow(run, self.judge.start(run, start, self.state, self.books, self.now, {}))
        self._start(run, start, {})

    def _preempt(self, run: JobRun, action: PreemptAction) -> None:
        run.close(self.now, saved=action.signal and run.on_signal and action.grace > 0)
        self._put(run, State.DRAINING)
        run.began, run.restart = self.now, action.grace
        run.preemptions += 1
        run.last_preempted = self.now
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
            if not _touches(run.allocation, name):
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


def _touches(allocation: tuple[TaskAllocation, ...], node: str) -> bool:
    return any(task.node == node for task in allocation)


def _gone(stopped: dict[str, JobRun]) -> dict[str, JobRun]:
    """Those stopped without any grace: their places are free."""
    return {
        name: run
        for name, run in stopped.items()
        if run.state is State.DRAINING and run.restart == 0
    }
