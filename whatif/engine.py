"""The replay itself: events in order of time, rounds after changes, decisions carried out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trencadis.models import Snapshot
from trencadis.models.base import seconds
from trencadis.models.trace import Trace
from trencadis.whatif.books import leaf_queues
from trencadis.whatif.decisions import Decision, SchedulingPolicy, View, model_of
from trencadis.whatif.events import Event, Kind
from trencadis.whatif.failures import NodeClock
from trencadis.whatif.policies.ranking import BestFit
from trencadis.whatif.runs import JobRun, State
from trencadis.whatif.watch import Fragments, GpuTime, Guarantees
from trencadis.whatif.world import ReplayOptions, World

FRUITLESS_ROUNDS = 100
"""Rounds in a row with nothing at work and nothing to come, after which a replay is stalled."""


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


class Engine(World):
    """One replay of a trace on a cluster under one policy. `run` may be called once."""

    def __init__(
        self, trace: Trace, snapshot: Snapshot, policy: SchedulingPolicy, options: ReplayOptions
    ) -> None:
        super().__init__(trace, snapshot, options)
        self.policy = policy
        self.began = self.now
        self.gpu_time = GpuTime()
        self.fragments = Fragments(trace, self.state)
        self.guarantees = Guarantees(
            tuple(leaf_queues(snapshot)),
            grace=snapshot.policy.preemption.grace_seconds + options.round_seconds,
            least=snapshot.policy.preemption.min_runtime_seconds,
        )
        self.samples: list[Sample] = []
        self.last_sample: Sample | None = None
        self.fragment_time = 0
        """F over time, milli-GPU-seconds."""
        self.idle_time_seen = 0
        """Idle GPU time as seen at rounds: what F is a part of."""
        self.rounds = 0
        self._chained = any(run.job.after or run.job.not_before for run in self.runs)
        self._next_round = self.now
        self._round_at: int | None = None
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
            if self._changed:
                self._plan_round(max(at, self._next_round))
            if self.last_sample is not None and self.last_sample.at == at and on_sample:
                on_sample(self.last_sample)
        for run in self._in(State.HOLDING):
            self._give_back(run)

    def _foresee(self) -> None:
        """Who could run at all, on what is still the empty cluster, and what is sure to happen."""
        possible: dict[int, bool] = {}
        for run in self.runs:
            if run.shape not in possible:
                found = self.placer.place(self.state, run.job, 0, BestFit())
                possible[run.shape] = found is not None and self.books.allows(
                    run.job, len(found), model_of(self.state, found)
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
            if event.at == self._round_at:
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
        due = self._send_away()
        if due is not None:
            self._plan_round(max(due, self._next_round))
        if decision.wake is not None and self.unfinished:
            self._plan_round(max(decision.wake, self._next_round))
        self.stalled = due is None and self._is_stalled(decision)
        self.guarantees.look(self.now, self.state, self.books, self._active(), self.placer)
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

    def _send_away(self) -> int | None:
        """Jobs with GPUs that were told to stop and still wait go to burst nodes, by tier.

        Returns when the next of those may go who wait too short for it.
        """
        if self.pool is None:
            return None
        due: list[int] = []
        waiting = [run for run in self._in(State.WAITING) if run.stopped and run.asks_milli]
        for run in sorted(waiting, key=lambda run: run.tier):
            assert run.last_preempted is not None
            since = run.last_preempted + self.pool.kind.after_seconds
            if since > self.now:
                due.append(since)
            elif self.pool.send(run, self.now, self.options.serial_milli):
                self._put(run, State.AWAY)
                run.starts += 1
                run.stopped = False
                run.began = self.now
                run.epoch += 1
                self.agenda.add(Event(run.finishes_at(), Kind.END, run.index, run.epoch))
        return min(due, default=None)

    def _plan_round(self, at: int) -> None:
        """A round then, unless there is one before."""
        if self._round_at is None or at < self._round_at:
            self._round_at = at
            self.agenda.add(Event(at, Kind.ROUND, 0))

    def _is_stalled(self, decision: Decision) -> bool:
        """Whether no later round can do more than this one did."""
        working = (State.RUNNING, State.DRAINING, State.HELD, State.AWAY)
        at_work = any(self._by_state[state] for state in working)
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
        eligible, others = self._in(State.WAITING), list[JobRun]()
        if self._chained:
            waiting, eligible = eligible, []
            for run in waiting:
                (eligible if self._eligible(run) else others).append(run)
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
            disturbed=tuple(self.disturbed),
        )

    def _eligible(self, run: JobRun) -> bool:
        job = run.job
        if job.not_before is not None and seconds(job.not_before) > self.now:
            return False
        over = (State.FUTURE, State.DONE, State.LOST, State.REJECTED)
        return all(self.by_name[name].state in over for name in job.after if name in self.by_name)

__all__ = ["Engine", "ReplayOptions", "Sample"]
