"""Whether a plan that only moves running jobs may, can and pays (problem.md, 10)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from trencadis.models import Job, Move, Plan
from trencadis.solver.verify import rule_claims
from trencadis.solver.verify.admission import end_of, refusal, wish_of
from trencadis.solver.verify.facts import Facts, gather
from trencadis.solver.verify.linked import is_linked
from trencadis.solver.verify.moved import (
    States,
    after,
    before_step,
    fixed,
    idle_gpu_seconds,
    in_turn,
    leaving,
    moved,
    tasks_before,
    touched,
)
from trencadis.solver.verify.rule_relayout import relayouts, room_for_slices
from trencadis.solver.verify.rule_work_conserving import Idle
from trencadis.solver.verify.situation import Placed, Situation
from trencadis.solver.verify.stages import Stages
from trencadis.solver.verify.supply import NodeState, lacks_indices, take
from trencadis.solver.verify.verdict import Violation

STAGE = "moves"
OTHERS = ("starts", "repairs", "preempts", "resizes", "reserves", "pending")


@dataclass(frozen=True, slots=True)
class MoveFacts:
    """A snapshot and moves for it whose form is sound."""

    now: Facts
    """As nothing moves and nothing starts."""
    then: Facts
    """With all moves done, and nothing started."""
    fragmentation: tuple[int, ...]
    """F of the cluster before the first move, after the first, and so on."""
    objective: dict[str, int]
    do_nothing: dict[str, int]


def form(situation: Situation, plan: Plan) -> Iterable[Violation]:
    """Moves and nothing else; each of a job that may be moved, whole, once."""
    for kind in OTHERS:
        if getattr(plan, kind):
            yield Violation("actions", f"a plan that defragments has no {kind}")
    if plan.now != situation.snapshot.now:
        yield Violation("now", f"the plan is for {plan.now}, not for {situation.snapshot.now}")
    seen: set[tuple[str, int]] = set()
    for move in in_turn(plan):
        job = situation.jobs.get(move.job)
        again = job is not None and any(name == move.job for name, _ in seen)
        # A service moves a few replicas at a time.
        if job is None or (again and not job.min_replicas) or (move.job, move.step) in seen:
            yield Violation("moves", f"job {move.job} is unknown or moved twice")
            continue
        seen.add((move.job, move.step))
        reason = fixed(situation, job)
        if reason:
            yield Violation("moves", f"job {job.name} may not be moved: {reason}")
            continue
        if len(move.to) != len(job.allocation):
            yield Violation(
                "moves", f"job {job.name} goes with {len(move.to)} of {len(job.allocation)} tasks"
            )
            continue
        before = tasks_before(situation, plan, move)
        gone = leaving(before, move)
        if not gone:
            yield Violation("moves", f"job {job.name} stays where it is")
        if job.min_replicas and len(before) - gone < job.min_replicas:
            yield Violation(
                "moves", f"job {job.name} is left with {len(before) - gone} replicas in step "
                f"{move.step}; its minimum is {job.min_replicas}"
            )
        if move.step < 1:
            yield Violation("moves", f"job {job.name} moves in step {move.step}; the first is 1")
        yield from _indices(situation, job, move)


def _indices(situation: Situation, job: Job, move: Move) -> Iterable[Violation]:
    """Known nodes, and as many GPUs as a task asks for, or none where they are only counted."""
    ask = situation.asks[job.name]
    for task in move.to:
        where = f"job {job.name} on node {task.node}"
        state = situation.states.get(task.node)
        if state is None:
            yield Violation("nodes", f"{where}: there is no such node")
            continue
        named = task.gpus or ()
        if ask.slices:
            had = {tuple(sorted(i.profile for i in there.mig)) for there in job.allocation}
            if len(named) != len(task.mig) or tuple(sorted(i.profile for i in task.mig)) not in had:
                yield Violation("indices", f"{where} gets other profiles than it has")
            continue
        known = not state.counted or task in job.allocation
        wanted = ask.gpus if known and not lacks_indices(task, ask) else 0
        if task.mig or task.share is not None or len(set(named)) != len(named):
            yield Violation("indices", f"{where} names parts of GPUs, or a GPU twice")
        elif len(named) != wanted or (lacks_indices(task, ask) and not state.counted):
            yield Violation("indices", f"{where} names {len(named)} of {ask.gpus} GPUs")


def facts_of(
    situation: Situation, plan: Plan, stages: Stages, do_nothing: Mapping[str, int]
) -> MoveFacts:
    """What the rules look at."""
    bare = plan.model_copy(update={"moves": ()})
    now = gather(situation, bare, stages, do_nothing)
    order = in_turn(plan)
    measure = stages.fragmentation
    total = measure.total_of(situation.states.values())
    found, states = [total], situation.states
    for number in range(1, len(order) + 1):
        following = after(situation, plan, order[:number])
        changed = touched(situation, order[:number])
        total += measure.total_of(following[name] for name in changed)
        total -= measure.total_of(states[name] for name in changed)
        found.append(total)
        states = following
    then = replace(now, situation=replace(situation, states=states), states=states)
    waits = stages.costs.waits
    let_in = {name for move in plan.moves for name in move.lets_in}
    idle = sum(_cost(situation, plan, move) for move in plan.moves)
    idle += sum(change.idle_gpu_seconds for change in plan.reconfigures)
    rest = sum(cost for name, cost in waits.items() if name not in let_in)
    return MoveFacts(
        now,
        then,
        tuple(found),
        {STAGE: found[-1] + idle + rest},
        {STAGE: found[0] + sum(waits.values())},
    )


def _cost(situation: Situation, plan: Plan, move: Move) -> int:
    job = situation.jobs[move.job]
    return idle_gpu_seconds(situation, job, move, tasks_before(situation, plan, move))


def budget(facts: MoveFacts, plan: Plan) -> Iterable[Violation]:
    """No more moves than the budget and the last hour leave."""
    snapshot = facts.now.base.snapshot
    most = snapshot.policy.preemption.budget.moves - snapshot.budget_use.moves_last_hour
    if len(plan.moves) > max(0, most):
        yield Violation("budgets", f"{len(plan.moves)} moves, {max(0, most)} are left")


def places(facts: MoveFacts, plan: Plan) -> Iterable[Violation]:
    """What a job takes is free when its step comes. Cycles have no such order."""
    situation = facts.now.base
    for move in plan.moves:
        entry = moved(situation, situation.jobs[move.job], move)
        states = before_step(situation, plan, move)
        for name, state in states.items():
            reason = _lacks(entry, name, state) or room_for_slices(
                situation.knife.tables, entry, name, state
            )
            if reason:
                yield Violation(
                    "moves", f"job {move.job} in step {move.step}: node {name} {reason}"
                )


def _lacks(entry: Placed, name: str, state: NodeState) -> str:
    """Why the job's tasks don't fit on a node; empty if they do."""
    tasks, ask = [task for task in entry.tasks if task.node == name], entry.ask
    if state.exclusive or (entry.job.exclusive and state.occupied):
        return "is not free of others"
    if state.counted:
        allowed = (entry.model,) if entry.model else entry.job.gpu_models
        wanted = ask.gpus * len(tasks)
        if sum(take(dict(state.gpus), allowed, wanted).values()) < wanted:
            return "has too few idle GPUs"
    named = [gpu for task in tasks for gpu in task.gpus or ()]
    whole = entry.ask.whole and not state.counted
    if whole and (len(set(named)) < len(named) or not set(named) <= state.idle):
        return "has other GPUs idle than these"
    free = {"CPU": state.cpu_milli, "memory": state.memory_mib, **state.resources}
    wants = {"CPU": ask.cpu_milli, "memory": ask.memory_mib, **dict(ask.resources)}
    for thing, amount in wants.items():
        if amount * len(tasks) > free.get(thing, 0):
            return f"has too little {thing}"
    most = entry.job.max_tasks_per_node
    return f"gets more than {most} tasks" if most is not None and len(tasks) > most else ""


def legality(facts: MoveFacts, plan: Plan) -> Iterable[Violation]:
    """The nodes admit the job; model, nearness and NVLink are no worse than before."""
    situation = facts.now.base
    policy, costs = situation.snapshot.policy, facts.now.stages.costs
    here = {entry.job.name: entry for entry in situation.running}
    for move in plan.moves:
        job = situation.jobs[move.job]
        before, entry = here[move.job], moved(situation, job, move)
        wish = wish_of(job, end_of(job, situation.now), policy)
        old = {task.node for task in job.allocation}
        for name in sorted({task.node for task in move.to}):
            node = situation.states[name].node
            reason = None if name in old else refusal(wish, node, policy, situation.now)
            if reason is not None:
                yield Violation("admission", f"job {job.name}: node {name} {reason}")
        if entry.model != before.model:
            yield Violation("model", f"job {job.name} goes from {before.model} to {entry.model}")
        least = before.depth
        if job.min_replicas and not job.communicates:
            least = situation.levels.required(job, situation.waited[job.name])
        if entry.depth < least:
            yield Violation("topology", f"the tasks of job {job.name} end further apart")
        if costs.spread(entry) > costs.spread(before):
            yield Violation("topology", f"job {job.name} loses more to distance than before")
        if job.nvlink_required and entry.ask.gpus > 1:
            for task in move.to:
                state = situation.states[task.node]
                if not is_linked(state.node, state.counted, task.gpus or None):
                    yield Violation("nvlink", f"job {job.name}: GPUs on {task.node} aren't linked")


def claims(facts: MoveFacts, plan: Plan) -> Iterable[Violation]:
    """What each move costs and buys."""
    situation = facts.now.base
    for number, move in enumerate(in_turn(plan)):
        for what, said, found in (
            (
                "idle_gpu_seconds",
                move.idle_gpu_seconds,
                _cost(situation, plan, move),
            ),
            ("fragmentation_before", move.fragmentation_before, facts.fragmentation[number]),
            ("fragmentation_after", move.fragmentation_after, facts.fragmentation[number + 1]),
        ):
            if said != found:
                yield Violation("claims", f"move of job {move.job}: {what} is {found}, not {said}")
    stages = [(s.name, s.objective, s.do_nothing) for s in plan.proof.stages]
    expected = [(STAGE, facts.objective[STAGE], facts.do_nothing[STAGE])]
    if stages != expected:
        yield Violation("objective", f"the stages are {expected}, not {stages}")
    yield from rule_claims.bounds(facts.now, plan)


def lets_in(facts: MoveFacts, plan: Plan) -> Iterable[Violation]:
    """Jobs let in could not start before, and can once the moves up to theirs are done: all."""
    base, order = facts.now.base, in_turn(plan)
    named = Counter(name for move in order for name in move.lets_in)
    now = Idle(facts.now)
    for name, times in named.items():
        if times > 1 or name not in base.eligible:
            yield Violation("lets-in", f"job {name} is not eligible, or named {times} times")
        elif now.could_start(base.eligible[name]):
            yield Violation("lets-in", f"job {name} can start without any move")
    seen: list[Job] = []
    for number, move in enumerate(order, 1):
        seen += [base.eligible[name] for name in move.lets_in if name in base.eligible]
        if move.lets_in:
            states = after(base, plan, order[:number])
            if not Idle(_with(facts.now, states)).could_start_together(seen):
                yield Violation("lets-in", f"no places for {', '.join(j.name for j in seen)}")


def _with(facts: Facts, states: States) -> Facts:
    return replace(facts, situation=replace(facts.situation, states=states), states=states)


def kept(facts: MoveFacts, _: Plan) -> Iterable[Violation]:
    """Who could start before still can: moves are never worse than doing nothing."""
    now, then = Idle(facts.now), Idle(facts.then)
    for job in facts.now.base.eligible.values():
        if job.group is None and now.could_start(job) and not then.could_start(job):
            yield Violation("moves", f"job {job.name} could start before the moves, not after")


def pays(facts: MoveFacts, plan: Plan) -> Iterable[Violation]:
    """Moves cost less than what they buy."""
    if plan.moves and facts.objective[STAGE] >= facts.do_nothing[STAGE]:
        yield Violation("moves", "the moves cost as much as they buy")


def layouts(facts: MoveFacts, plan: Plan) -> Iterable[Violation]:
    """Layouts change where slices that move need it, as their step begins."""
    return relayouts(facts.now.base, plan)


FORM = (form,)
RULES = (budget, places, layouts, legality, claims, lets_in, kept, pays)
