"""Whether the plan may stop what it stops, and had to (problem.md, 8)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

from trencadis.models import Plan, Start
from trencadis.models.plan import Resize
from trencadis.solver.verify import rule_nodes
from trencadis.solver.verify.board import Board
from trencadis.solver.verify.facts import Facts, tasks_by_node
from trencadis.solver.verify.fits import Shape
from trencadis.solver.verify.preempted import (
    Tasks,
    fixed,
    forbidden,
    grace,
    restart,
    seconds_lost,
)
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
    for resize in plan.resizes:
        if resize.remove and resize.job in situation.jobs:
            yield from _shrinks(situation, resize, waiting.get(resize.job, []))
            seen.add(resize.job)
    for start in plan.starts:
        for name in set(start.waits_for) - seen:
            yield Violation("preempts", f"job {start.job} waits for {name}, which goes on")


def _shrinks(situation: Situation, resize: Resize, gainers: list[str]) -> Iterable[Violation]:
    """What an elastic job gives up is its own, not too much, and makes room for someone."""
    job, gone = situation.jobs[resize.job], Counter(resize.remove)
    if gone - Counter(job.allocation):
        yield Violation("resizes", f"job {job.name} gives up tasks that it doesn't have")
    reason = fixed(situation, job, len(resize.remove))
    if reason:
        yield Violation("resizes", f"job {job.name} may not shrink: {reason}")
    lost = restart(situation, job) * len(resize.remove) * job.request.gpus
    if resize.lost_gpu_seconds != lost:
        yield Violation("resizes", f"job {job.name} loses {lost} GPU-seconds")
    if not gainers or set(gainers) != set(resize.makes_room_for):
        yield Violation("resizes", f"job {job.name} makes room for {sorted(gainers)}")


def waiting_for(starts: Iterable[Start]) -> dict[str, list[str]]:
    """The starts that wait for each victim."""
    found: dict[str, list[str]] = {}
    for start in starts:
        for name in start.waits_for:
            found.setdefault(name, []).append(start.job)
    return found


def room(facts: Facts, plan: Plan) -> Iterable[Violation]:
    """Starts that don't wait for a victim use what is idle now."""
    if plan.preempts or any(resize.remove for resize in plan.resizes):
        starts = place_starts(facts.base, (s for s in plan.starts if not s.waits_for))
        # Rules of nodes read no more than this.
        now = replace(facts, situation=facts.base, starts=starts, by_node=tasks_by_node(starts))
        for rule in rule_nodes.RULES:
            yield from rule(now, plan)


def legal(facts: Facts, plan: Plan) -> Iterable[Violation]:
    """A victim is of a lower tier than a start it makes room for, or a guarantee is reclaimed; a
    task that an elastic job gives up may be of the same tier."""
    tiers = facts.base.tiers
    most = facts.base.snapshot.policy.preemption.budget.reclaim_jobs
    reclaimed = [
        stop.job
        for stop in plan.preempts
        if all(tiers[gainer] >= tiers[stop.job] for gainer in stop.makes_room_for)
    ]
    if len(reclaimed) > most:
        text = f"{len(reclaimed)} jobs are stopped for guarantees alone, {most} may be"
        yield Violation("budget", text)
    actions = [(stop.job, tiers[stop.job], stop.makes_room_for) for stop in plan.preempts]
    actions += [(r.job, tiers[r.job] + 1, r.makes_room_for) for r in plan.resizes if r.remove]
    for name, below, gainers in actions:
        queue = facts.base.jobs[name].queue
        lower = any(tiers[gainer] < below for gainer in gainers)
        if not lower and not any(reclaims(facts, gainer) for gainer in gainers):
            yield Violation("victims", f"job {name} makes room for no job of a higher tier")
        elif not lower and _short_after(facts, queue):
            yield Violation("victims", f"queue {queue} ends below its target")


def reclaims(facts: Facts, name: str) -> bool:
    """Whether a start gives its queue what it is guaranteed, in all or on its GPU model, and no
    more."""
    queue, rows = facts.base.jobs[name].queue, facts.stages.targets.rows
    models = {None, *(entry.model for entry in facts.starts if entry.job.name == name)}
    return any(
        facts.before.get(row, 0) < rows[row]
        and facts.in_use.get(row, 0) <= facts.stages.targets.guarantees[row]
        for row in ((queue, model) for model in models)
        if row in rows
    )


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
    back = {entry.job.name: entry for entry in facts.base.running}
    kept: dict[int, _Kept] = {}

    def could_stay(name: str, below: int, tasks: Tasks) -> bool:
        if below not in kept:
            starts = [start for start in plan.starts if _better(facts, start, below)]
            kept[below] = _Kept(facts, starts)
        return kept[below].could_stay(replace(back[name], tasks=tasks))

    for stop in plan.preempts:
        name = stop.job
        if could_stay(name, facts.base.tiers[name], back[name].tasks):
            text = f"job {name} need not stop: its betters fit without"
            yield Violation("reprieve", text, victim=name)
    for resize in plan.resizes:
        name = resize.job
        for task in dict.fromkeys(resize.remove):
            if could_stay(name, facts.base.tiers[name] + 1, (task,)):
                text = f"job {name} need not give up its task on {task.node}"
                yield Violation("reprieve", text, victim=name)


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
        self.idle = sum(
            sum(state.gpus.values()) + len(state.second.offs()) for state in self.states.values()
        )
        self.whole = all(entry.ask.whole for entry in self.placed.values())

    def could_stay(self, entry: Placed) -> bool:
        """Whether places were found for those who wait for it, with these tasks on their nodes."""
        waiting = self.waiting.get(entry.job.name)
        if not waiting:
            return False
        # All of them together need no more GPUs than there are; pieces may share one.
        if self.whole and entry.ask.gpus * len(entry.tasks) > self.idle:
            return False
        touched = {task.node for task in entry.tasks}
        for name in waiting:
            touched |= {task.node for task in self.placed[name].tasks}
        rows = {name: self.board.row_of[name] for name in touched if name in self.board.row_of}
        for name, row in rows.items():
            self.board.put(row, self._with(name, entry, set(waiting)))
        shapes = (self.facts.shape(self.facts.base.jobs[name]) for name in waiting)
        wanted = [(shape, self._models(shape)) for shape in shapes]
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


def _better(facts: Facts, start: Start, below: int) -> bool:
    return facts.base.tiers[start.job] < below or reclaims(facts, start.job)


FORM = (form,)
RULES = (room, legal, budgets, reprieve)
