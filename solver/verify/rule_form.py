"""Whether the plan is for this snapshot and well formed: jobs, instants, tasks, nodes, indices."""

from __future__ import annotations

from collections.abc import Iterable

from trencadis.models import Plan, Snapshot, TaskAllocation
from trencadis.models.reckoned import chooses
from trencadis.solver.verify.situation import Situation
from trencadis.solver.verify.verdict import Violation

UNSUPPORTED = ("moves",)


def fingerprint(expected: str, plan: Plan) -> Iterable[Violation]:
    """The plan is for the snapshot with this fingerprint."""
    if plan.snapshot != expected:
        yield Violation("fingerprint", "the plan was made for another snapshot")


def finer(snapshot: Snapshot, plan: Plan) -> Iterable[Violation]:
    """Where the owner of a node chooses the GPUs, none is named; elsewhere none is expected."""
    chosen = {node.name for node in snapshot.nodes if chooses(node)}
    placed = [(start.job, task) for start in plan.starts for task in start.allocation]
    placed += [(move.job, task) for move in plan.moves for task in move.to]
    placed += [(resize.job, task) for resize in plan.resizes for task in resize.add]
    placed += [(repair.job, task) for repair in plan.repairs for task in repair.add]
    for name, task in placed:
        if task.node in chosen and task.gpus:
            text = f"job {name} on node {task.node} names GPUs that others choose"
            yield Violation("indices", text)
        if task.node not in chosen and task.expected is not None:
            text = f"job {name} on node {task.node} expects GPUs where it names them"
            yield Violation("indices", text)


def actions(_: Situation, plan: Plan) -> Iterable[Violation]:
    """A round starts, stops and resizes jobs and cuts MIG layouts, no more."""
    for kind in UNSUPPORTED:
        if getattr(plan, kind):
            yield Violation("actions", f"the plan has {kind}, which no round of this version has")


def now(situation: Situation, plan: Plan) -> Iterable[Violation]:
    """The plan is for the snapshot's instant, and starts come then or when victims are gone."""
    if plan.now != situation.snapshot.now:
        yield Violation("now", f"the plan is for {plan.now}, not for {situation.snapshot.now}")
    free = {stop.job: stop.gpus_free_at for stop in plan.preempts}
    for start in plan.starts:
        due = max((free.get(name, plan.now) for name in start.waits_for), default=plan.now)
        if start.at != due:
            yield Violation("now", f"job {start.job} starts at {start.at}, not at {due}")


def jobs(situation: Situation, plan: Plan) -> Iterable[Violation]:
    """Each start is of a pending job, once."""
    seen: set[str] = set()
    for start in plan.starts:
        job = situation.jobs.get(start.job)
        if job is None:
            yield Violation("jobs", f"job {start.job} is not in the snapshot")
        elif job.state != "pending":
            yield Violation("jobs", f"job {start.job} is {job.state}, not pending")
        if start.job in seen:
            yield Violation("jobs", f"job {start.job} is started twice")
        seen.add(start.job)


def eligible(situation: Situation, plan: Plan) -> Iterable[Violation]:
    """Each start is of an eligible job."""
    for start in plan.starts:
        reason = situation.ineligible.get(start.job)
        if reason is not None and situation.jobs[start.job].state == "pending":
            yield Violation("eligible", f"job {start.job} may not start: {reason}")


def gang(situation: Situation, plan: Plan) -> Iterable[Violation]:
    """A job starts with its minimum of tasks, and the further ones that it says, no more."""
    for start in plan.starts:
        job = situation.jobs.get(start.job)
        found = len(start.allocation) - start.further
        if job is not None and found != job.minimum:
            yield Violation("gang", f"job {job.name} starts {found} of {job.minimum} tasks")


def nodes(situation: Situation, plan: Plan) -> Iterable[Violation]:
    """Each task is on a node of the snapshot."""
    for start in plan.starts:
        for task in start.allocation:
            if task.node not in situation.states:
                yield Violation("nodes", f"job {start.job} is on the unknown node {task.node}")


def indices(situation: Situation, plan: Plan) -> Iterable[Violation]:
    """A task names as many GPUs as it asks for, or none where they are only counted."""
    for start in plan.starts:
        ask = situation.asks.get(start.job)
        for task in start.allocation:
            state = situation.states.get(task.node)
            if ask is None or state is None:
                continue
            where = f"job {start.job} on node {task.node}"
            if not ask.whole:
                yield from _parts(situation, start.job, task, where)
                continue
            if task.mig or task.share is not None:
                yield Violation("indices", f"{where} names MIG instances or a share")
            if state.counted and ask.gpus:
                if task.gpus:
                    yield Violation("indices", f"{where} names GPUs where they are only counted")
                continue
            named = task.gpus or ()
            if len(named) != ask.gpus:
                yield Violation("indices", f"{where} names {len(named)} of {ask.gpus} GPUs")
            elif len(set(named)) != len(named):
                yield Violation("indices", f"{where} names a GPU twice")


def _parts(
    situation: Situation, name: str, task: TaskAllocation, where: str
) -> Iterable[Violation]:
    """A task names the instances that it asks for and the GPU of each, or its share and its GPU."""
    ask, state = situation.asks[name], situation.states[task.node]
    named = task.gpus or ()
    if state.counted:
        yield Violation("indices", f"{where}: its GPUs are only counted there")
    elif any(gpu not in state.models for gpu in named):
        yield Violation("indices", f"{where} names a GPU that is not there")
    elif not ask.slices:
        given = (task.share.gpu_milli, task.share.memory_mib) if task.share else None
        if given != ask.share or len(named) != 1 or task.mig:
            yield Violation("indices", f"{where} does not have the share that it asks for")
    elif task.share is not None or len(named) != len(task.mig) or not named:
        yield Violation("indices", f"{where} does not name instances and the GPU of each")
    else:
        wanted = situation.knife.wanted(ask, state.models[named[0]])
        if wanted != tuple(sorted(instance.profile for instance in task.mig)):
            yield Violation("indices", f"{where} has other MIG instances than it asks for")


RULES = (actions, now, jobs, eligible, gang, nodes, indices)
