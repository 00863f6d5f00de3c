"""Whether further tasks of elastic jobs may be where they are, and are as many as fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from trencadis.models import Plan, Status, TaskAllocation
from trencadis.solver.verify.facts import Facts
from trencadis.solver.verify.growing import (
    Growing,
    elastic,
    growing,
    missing,
)
from trencadis.solver.verify.ledger import Charge
from trencadis.solver.verify.rule_claims import TOLERANCE
from trencadis.solver.verify.situation import Situation
from trencadis.solver.verify.supply import take
from trencadis.solver.verify.verdict import Violation


def form(situation: Situation, plan: Plan) -> Iterable[Violation]:
    """Further tasks are of jobs that may have them, and no more than they may have."""
    for start in plan.starts:
        job = situation.jobs.get(start.job)
        if job is not None and start.further:
            may = elastic(job) and not start.waits_for
            most = job.tasks - job.minimum if may else 0
            if start.further > most:
                text = f"job {job.name} has {start.further} further tasks of at most {most}"
                yield Violation("growth", text)
    seen: set[str] = set()
    stopped = {stop.job for stop in plan.preempts}
    for resize in plan.resizes:
        job, name = situation.jobs.get(resize.job), resize.job
        if job is None or job.state != "running" or not elastic(job) or name in seen | stopped:
            yield Violation("resizes", f"job {name} is not a running elastic job, resized once")
            continue
        seen.add(name)
        if resize.at != plan.now or bool(resize.add) == bool(resize.remove):
            yield Violation("resizes", f"job {name} doesn't either grow or shrink, now")
        if len(job.allocation) + len(resize.add) > job.tasks:
            yield Violation("resizes", f"job {name} grows beyond its {job.tasks} tasks")
        if resize.add and (resize.makes_room_for or resize.lost_gpu_seconds):
            yield Violation("resizes", f"job {name} grows, which makes no room")
        yield from _places(situation, name, resize.add)


def _places(
    situation: Situation, name: str, tasks: Sequence[TaskAllocation]
) -> Iterable[Violation]:
    """The places of a running job's further tasks are well formed."""
    gpus = situation.asks[name].gpus
    for task in tasks:
        state = situation.states.get(task.node)
        if state is None:
            yield Violation("nodes", f"job {name} grows onto the unknown node {task.node}")
            continue
        named = task.gpus or ()
        wanted = 0 if state.counted else gpus
        if len(named) != wanted or len(set(named)) != wanted or task.mig or task.share:
            text = f"job {name} on node {task.node} names {len(named)} of {wanted} GPUs"
            yield Violation("indices", text)


def places(facts: Facts, plan: Plan) -> Iterable[Violation]:
    """Further tasks are of jobs that may grow, on nodes that they may use, and fit there."""
    found = growing(facts, plan)
    wanted = {start.job: start.further for start in plan.starts if start.further}
    wanted |= {resize.job: len(resize.add) for resize in plan.resizes if resize.add}
    for name in wanted.keys() - found.given.keys():
        yield Violation("growth", f"job {name} may not grow")
    by_node: dict[str, list[tuple[str, TaskAllocation]]] = {}
    for name, tasks in found.given.items():
        for task in tasks:
            by_node.setdefault(task.node, []).append((name, task))
    for node, here in by_node.items():
        state = found.before[node]
        for name in dict.fromkeys(name for name, _ in here):
            why = found.refusal(name, found.states[node], taken=True)
            if why:
                yield Violation("growth", f"job {name}: {why}")
        idle, gpus, free = set(state.idle), dict(state.gpus), Counter(_free(found, node))
        for name, task in here:
            entry = found.placed[name]
            taken = take(gpus, (entry.model or "",), entry.ask.gpus)
            if state.counted and sum(taken.values()) < entry.ask.gpus:
                yield Violation("growth", f"job {name}: too few GPUs are idle on {node}")
            for gpu in task.gpus or ():
                if gpu not in idle or state.models[gpu] != entry.model:
                    yield Violation("growth", f"job {name}: GPU {gpu} of {node} isn't for it")
                idle.discard(gpu)
            free.subtract({"CPU": entry.ask.cpu_milli, "memory": entry.ask.memory_mib})
            free.subtract(dict(entry.ask.resources))
        for thing, left in free.items():
            if left < 0:
                yield Violation("growth", f"further tasks on node {node} exceed its {thing}")


def _free(found: Growing, node: str) -> dict[str, int]:
    state = found.before[node]
    return {"CPU": state.cpu_milli, "memory": state.memory_mib, **state.resources}


def limits(facts: Facts, plan: Plan) -> Iterable[Violation]:
    """Queues, QOS and users stay within their limits, and lending leaves what it must."""
    found = growing(facts, plan)
    charges, more = _added(found, {name: len(tasks) for name, tasks in found.given.items()})
    for row, amount in facts.ledger.sum_of(charges).items():
        used = facts.used.get(row, 0)
        if used + amount > max(facts.ledger.most(row), used):
            text = f"{row}: {used + amount} in use, {amount} of it by further tasks"
            yield Violation("growth", text)
    if more and not facts.lending.room(facts.in_use, more):
        yield Violation("growth", "further tasks take what queues don't lend")


def _added(
    found: Growing, counts: dict[str, int]
) -> tuple[list[Charge], dict[tuple[str, str | None], int]]:
    """What so many further tasks are charged, and units by leaf queue and model."""
    charges: list[Charge] = []
    more: dict[tuple[str, str | None], int] = {}
    for name, count in counts.items():
        entry = found.placed[name]
        units = count * entry.ask.units
        if units:
            rows = found.facts.ledger.charges(entry.job, units, entry.model)
            charges += [(row, amount) for row, amount in rows if row.what == "units"]
            key = (entry.job.queue, entry.model)
            more[key] = more.get(key, 0) + units
    return charges, more


def maximal(facts: Facts, plan: Plan) -> Iterable[Violation]:
    """No job could have one more task."""
    found = growing(facts, plan)
    counts = {name: len(tasks) for name, tasks in found.given.items()}
    for name, entry in found.placed.items():
        has = len(entry.tasks) + counts.get(name, 0)
        if has >= entry.job.tasks:
            continue
        charges, more = _added(found, {**counts, name: counts.get(name, 0) + 1})
        if not facts.ledger.room(facts.used, charges) or not facts.lending.room(facts.in_use, more):
            continue
        if found.open_to(name):
            yield Violation("growth", f"job {name} could have one more than its {has} tasks")


def claims(facts: Facts, plan: Plan) -> Iterable[Violation]:
    """The proof says what growth costs, and no more than is true of its bound."""
    situation, said = facts.base, plan.proof.growth
    running = {entry.job.name: entry for entry in situation.running}
    now = {name: len(e.tasks) - e.job.minimum for name, e in running.items() if elastic(e.job)}
    after = dict(now)
    for stop in plan.preempts:
        after.pop(stop.job, None)
    for start in plan.starts:
        after[start.job] = start.further
    for resize in plan.resizes:
        change = len(resize.add) - len(resize.remove)
        after[resize.job] = after.get(resize.job, 0) + change
    objective, nothing = missing(situation, after), missing(situation, now)
    if said is None or objective is None:
        if said is not None or objective is not None:
            yield Violation("growth", "the proof tells of growth if and only if jobs are elastic")
        return
    if (said.objective, said.do_nothing) != (objective, nothing):
        text = f"growth costs {objective}, doing nothing {nothing}"
        yield Violation("growth", f"{text}, not {said.objective} and {said.do_nothing}")
    room = max(said.do_nothing, said.objective) - said.bound
    gap = (said.objective - said.bound) / room if room else 0.0
    optimal = said.status is Status.OPTIMAL
    if said.bound > said.objective or (optimal and said.bound < said.objective):
        yield Violation("growth", "the bound of growth contradicts its objective or status")
    if abs(gap - said.gap) > TOLERANCE:
        yield Violation("growth", f"the gap of growth is {gap}, not {said.gap}")


FORM = (form,)
RULES = (places, limits, maximal, claims)
