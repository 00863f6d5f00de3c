"""Whether the plan may stop what it stops, and had to (problem.md, 8)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

from trencadis.models import Plan, Start
from trencadis.solver.verify import rule_nodes
from trencadis.solver.verify.board import Board
from trencadis.solver.verify.facts import Facts, tasks_by_node
from trencadis.solver.verify.fits import Shape
from trencadis.solver.verify.preempted import forbidden, grace, seconds_lost
from trencadis.solver.verify.search import Search
from trencadis.solver.verify.situation import Placed, Situation
from trencadis.solver.verify.stages import place_starts, states_after
from trencadis.solver.verify.supply import NodeState, with_tasks
from trencadis.solver.verify.verdict import Violation


def form(situation: Situation, plan: Plan) -> Iterable[Violation]:
    """Victims are known, told once, free when they say, and each makes room for someone."""
    seen: set[str] = set()
    waiting = waiting_for(plan.starts)
    for stop in plan.preempts:
        job = situation.jobs.get(stop.job)
        if job is None or stop.job in seen:
            yield Violation("preempts", f"job {stop.job} is unknown or stopped twice")
            continue
        seen.add(stop.job)
        reason = forbidden(situation, job)
        if reason:
            yield Violation("preempts", f"job {stop.job} may not be stopped: {reason}")
            continue
        free = plan.now + timedelta(seconds=grace(situation, job))
        if stop.at != plan.now or stop.gpus_free_at != free:
            yield Violation("preempts", f"job {stop.job} stops now and is gone at {free}")
        lost = seconds_lost(situation, job) * len(job.allocation) * job.request.gpus
        if stop.lost_gpu_seconds != lost:
            yield Violation("preempts", f"job {stop.job} loses {lost} GPU-seconds")
        gainers = set(waiting.get(stop.job, ()))
        if not gainers or gainers != set(stop.makes_room_for):
            yield Violation("preempts", f"job {stop.job} makes room for {sorted(gainers)}")
    for start in plan.starts:
        for name in set(start.waits_for) - seen:
            yield Violation("preempts", f"job {start.job} waits for {name}, which goes on")


def waiting_for(starts: Iterable[Start]) -> dict[str, list[str]]:
    """The starts that wait for each victim."""
    found: dict[str, list[str]] = {}
    for start in starts:
        for name in start.waits_for:
            found.setdefault(name, []).append(start.job)
    return found


def room(facts: Facts, plan: Plan) -> Iterable[Violation]:
    """Starts that don't wait for a victim use what is idle now."""
    if plan.preempts:
        starts = place_starts(facts.base, (s for s in plan.starts if not s.waits_for))
        # Rules of nodes read no more than this.
        now = replace(
            facts, situation=facts.base, starts=starts, by_node=tasks_by_node(starts)
        )
        for rule in rule_nodes.RULES:
            yield from rule(now, plan)


def legal(facts: Facts, plan: Plan) -> Iterable[Violation]:
    """A victim is of a lower tier than a start it makes room for, or a guarantee is reclaimed."""
    for stop in plan.preempts:
        job = facts.base.jobs[stop.job]
        tier = facts.base.tiers[stop.job]
        lower = any(facts.base.tiers[name] < tier for name in stop.makes_room_for)
        if not lower and not any(reclaims(facts, name) for name in stop.makes_room_for):
            yield Violation("victims", f"job {stop.job} makes room for no job of a higher tier")
        elif not lower and _short_after(facts, job.queue):
            yield Violation("victims", f"queue {job.queue} ends below its target")


def reclaims(facts: Facts, name: str) -> bool:
    """Whether a start gives its queue what it is guaranteed, and no more."""
    row = (facts.base.jobs[name].queue, None)
    target = facts.stages.targets.rows.get(row, 0)
    after = facts.in_use.get(row, 0)
    return facts.before.get(row, 0) < target and after <= facts.stages.targets.guarantees[row]


def _short_after(facts: Facts, queue: str) -> bool:
    row = (queue, None)
    return facts.in_use.get(row, 0) < facts.stages.targets.rows.get(row, 0)


def budgets(facts: Facts, plan: Plan) -> Iterable[Violation]:
    """No more is disturbed than the budgets leave."""
    situation = facts.base
    budget, used = situation.snapshot.policy.preemption.budget, situation.snapshot.budget_use
    running = sum(1 for job in situation.snapshot.jobs if job.state == "running")
    jobs = min(
        max(budget.jobs, -(-running * budget.jobs_milli_of_running // 1_000)),
        max(
            0,
            max(budget.jobs, -(-running * budget.jobs_per_day_milli // 1_000))
            - used.preempted_jobs_last_day,
        ),
    )
    if len(plan.preempts) > jobs:
        yield Violation("budget", f"{len(plan.preempts)} jobs are stopped, {jobs} may be")
    hour = max(8 * budget.jobs, -(-situation.scale.gpus * budget.gpus_per_hour_milli // 1_000))
    gpus = sum(
        len(job.allocation) * job.request.gpus
        for job in (situation.jobs[stop.job] for stop in plan.preempts)
    )
    if gpus > max(0, hour - used.preempted_gpus_last_hour):
        yield Violation("budget", f"{gpus} GPUs are freed, more than the hour leaves of {hour}")


def reprieve(facts: Facts, plan: Plan) -> Iterable[Violation]:
    """With a victim kept and lower starts withdrawn, its betters could not all be placed."""
    by_tier: dict[int, list[str]] = {}
    for stop in plan.preempts:
        by_tier.setdefault(facts.base.tiers[stop.job], []).append(stop.job)
    for tier, victims in sorted(by_tier.items()):
        kept = _Kept(facts, [start for start in plan.starts if _better(facts, start, tier)])
        for name in victims:
            if kept.could_stay(name):
                yield Violation("reprieve", f"job {name} need not stop: its betters fit without")


class _Kept:
    """The nodes with all victims gone and only their betters started; victims come back in turn."""

    def __init__(self, facts: Facts, better: list[Start]) -> None:
        self.facts, self.waiting = facts, waiting_for(better)
        situation = facts.situation
        self.placed = {entry.job.name: entry for entry in place_starts(situation, better)}
        self.states = states_after(situation, self.placed.values())
        # Rows of all nodes, so that those which an exclusive start took can come back.
        opened = {name: replace(state, exclusive=False) for name, state in self.states.items()}
        self.board = Board(situation, opened)
        self.on = tasks_by_node(self.placed.values())
        for name, state in self.states.items():
            if state.exclusive and name in self.board.row_of:
                self.board.put(self.board.row_of[name], state)
        self.back = {entry.job.name: entry for entry in facts.base.running}
        self.idle = sum(sum(state.gpus.values()) for state in self.states.values())
        self.whole = all(entry.ask.whole for entry in self.placed.values())

    def could_stay(self, victim: str) -> bool:
        """Whether places were found for those who wait for it, with it on its nodes."""
        waiting = self.waiting.get(victim)
        if not waiting:
            return False
        entry = self.back[victim]
        # All of them together need no more GPUs than there are; pieces may share one.
        if self.whole and entry.ask.gpus * len(entry.tasks) > self.idle:
            return False
        touched = {task.node for task in entry.tasks}
        for name in waiting:
            touched |= {task.node for task in self.placed[name].tasks}
        rows = {name: self.board.row_of[name] for name in touched if name in self.board.row_of}
        for name, row in rows.items():
            self.board.put(row, self._with(name, entry, set(waiting)))
        shapes = self.facts.stages.targets.shapes
        wanted = [
            (shape, self._models(shape))
            for shape in (shapes.of_job(self.facts.base.jobs[name]) for name in waiting)
        ]
        search = Search(self.board, self.facts.situation.levels, self.facts.situation.knife)
        places = search.together(wanted)
        found = next(places, None) is not None
        search.stop()
        for _ in places:
            pass
        for name, row in rows.items():
            self.board.put(row, self.states[name])
        return found

    def _models(self, shape: Shape) -> list[str | None]:
        if not shape.ask.gpus:
            return [None]
        return [model for model in self.board.gpus if not shape.models or model in shape.models]

    def _with(self, node: str, victim: Placed, less: set[str]) -> NodeState:
        """A node with the victim and without these starts."""
        others = [task for task in self.on.get(node, ()) if task[0].job.name not in less]
        mine = [(victim, task) for task in victim.tasks if task.node == node]
        tasks = [(entry.job, entry.ask, entry.model, task) for entry, task in (*mine, *others)]
        state = self.facts.situation.states[node]
        return with_tasks(state, tasks, self.facts.situation.knife) if tasks else state


def _better(facts: Facts, start: Start, tier: int) -> bool:
    return facts.base.tiers[start.job] < tier or reclaims(facts, start.job)


FORM = (form,)
RULES = (room, legal, budgets, reprieve)
