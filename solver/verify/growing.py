"""Which elastic jobs may grow, where, and what each further task is worth (problem.md, 9)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from trencadis.models import Job, Plan, TaskAllocation
from trencadis.solver.verify.admission import end_of, refusal, wish_of
from trencadis.solver.verify.fabric import domain, relaxed
from trencadis.solver.verify.facts import Facts
from trencadis.solver.verify.situation import Placed, Situation
from trencadis.solver.verify.stages import states_after
from trencadis.solver.verify.supply import NodeState, with_tasks
from trencadis.solver.verify.units import has_mig


def elastic(job: Job) -> bool:
    """Whether the number of its tasks may change."""
    whole = not has_mig(job.request) and job.request.share is None
    return job.tasks > job.minimum and whole and not (job.segments or job.exclusive)


def given(plan: Plan) -> dict[str, tuple[TaskAllocation, ...]]:
    """Further tasks by job, of starts and of running jobs."""
    found = {
        start.job: start.allocation[len(start.allocation) - start.further :]
        for start in plan.starts
        if start.further
    }
    return found | {resize.job: resize.add for resize in plan.resizes if resize.add}


def without_further(plan: Plan) -> Plan:
    """The plan with each start at its minimum."""
    if not any(start.further for start in plan.starts):
        return plan
    starts = (
        start.model_copy(
            update={"allocation": start.allocation[: len(start.allocation) - start.further]}
        )
        if start.further
        else start
        for start in plan.starts
    )
    return plan.model_copy(update={"starts": tuple(starts)})


def worth(situation: Situation, job: Job, number: int) -> int:
    """g_i: what its `number`-th task beyond the minimum is worth."""
    policy, scale = situation.snapshot.policy, situation.scale
    weight = policy.tiers[situation.tiers[job.name]].weight * job.weight_milli
    size = scale.size(situation.asks[job.name], 1)
    fraction = fraction_of(situation, job, number)
    return weight * size * policy.horizon_seconds * fraction // (1_000 * 1_000 * scale.unit)


def fraction_of(situation: Situation, job: Job, number: int) -> int:
    """f_i, thousandths."""
    milli = situation.snapshot.policy.elastic_milli
    return milli * job.minimum // (job.minimum + number)


@dataclass(frozen=True, slots=True)
class Growing:
    """The rest of the plan, as growth finds it."""

    facts: Facts
    placed: Mapping[str, Placed]
    """Jobs that may grow, with the tasks that they have."""
    before: Mapping[str, NodeState]
    """What nodes have left for further tasks: now, and once victims have gone and starts come."""
    states: Mapping[str, NodeState]
    """Nodes after all further tasks."""
    given: Mapping[str, tuple[TaskAllocation, ...]]

    def open_to(self, name: str) -> tuple[NodeState, ...]:
        """Nodes on which one more task of the job may be, as far as the plan leaves room."""
        return tuple(s for s in self.states.values() if not self.refusal(name, s, taken=False))

    def refusal(self, name: str, state: NodeState, *, taken: bool) -> str:
        """Why a further task may not be on the node; empty if it may. `taken`: it is there."""
        situation, entry = self.facts.situation, self.placed[name]
        job, ask = entry.job, entry.ask
        policy = situation.snapshot.policy
        wish = wish_of(job, end_of(job, situation.now), policy)
        why = refusal(wish, state.node, policy, situation.now)
        if why:
            return f"node {state.node.name} {why}"
        for owner in self.facts.kept.barred_from(job, state.node.name, further=True):
            return f"node {state.node.name} is reserved for job {owner}"
        if state.exclusive:
            return f"an exclusive job is on node {state.node.name}"
        if job.nvlink_required and ask.gpus > 1 and state.node.nvlink.kind != "nvswitch":
            return f"not all GPUs of node {state.node.name} are linked"
        here = [t for t in (*entry.tasks, *self.given.get(name, ())) if t.node == state.node.name]
        if job.max_tasks_per_node and len(here) + (not taken) > job.max_tasks_per_node:
            return f"node {state.node.name} has {len(here)} of its tasks already"
        if self._crowded(name, state, taken=taken):
            return f"the domain of node {state.node.name} has as many of its tasks as it may"
        reach = self.reach(entry)
        levels, nodes = situation.levels, situation.states
        if reach > entry.depth or domain(levels, state.node, reach) != domain(
            levels, nodes[entry.tasks[0].node].node, reach
        ):
            return f"node {state.node.name} is too far from its other tasks"
        if not taken and not _has_room(entry, state):
            return f"node {state.node.name} is full"
        return ""

    def _crowded(self, name: str, state: NodeState, *, taken: bool) -> bool:
        """Whether too many of its tasks share a domain with the node."""
        entry, levels = self.placed[name], self.facts.situation.levels
        cap, states = entry.job.max_tasks_per_domain, self.facts.situation.states
        if cap is None:
            return False
        depth = levels.depth(cap.level)
        mine = domain(levels, state.node, depth)
        tasks = (*entry.tasks, *self.given.get(name, ()))
        near = sum(domain(levels, states[task.node].node, depth) == mine for task in tasks)
        return near + (not taken) > cap.tasks

    def reach(self, entry: Placed) -> int:
        """r: the depth of the domain that further tasks stay in."""
        situation, job, depth = self.facts.situation, entry.job, entry.depth
        levels, waited = situation.levels, situation.waited[job.name]
        topology = job.topology
        least = levels.boundary
        if topology and topology.mode == "required" and not relaxed(job, waited):
            least = max(least, levels.depth(topology.level))
        least = max(least, min(depth, levels.preferred(job, waited)))
        if not job.communicates:
            return least
        if depth < levels.node:
            return max(least, depth)
        has = len(entry.tasks)
        loss = levels.slowdown[levels.node - 1]
        gain = fraction_of(situation, job, has - job.minimum + 1) * (1_000 - loss)
        return max(least, levels.node - 1 if has * loss * 1_000 <= gain else levels.node)


def _has_room(entry: Placed, state: NodeState) -> bool:
    ask = entry.ask
    return (
        (not ask.gpus or state.gpus.get(entry.model or "", 0) >= ask.gpus)
        and state.cpu_milli >= ask.cpu_milli
        and state.memory_mib >= ask.memory_mib
        and all(state.resources.get(name, 0) >= amount for name, amount in ask.resources)
    )


def growing(facts: Facts, plan: Plan) -> Growing:
    """`facts` are those of the plan without further tasks; `plan` has them."""
    situation = facts.situation
    shrunk = {resize.job for resize in plan.resizes if resize.remove}
    late = {start.job for start in plan.starts if start.waits_for}
    wanted = situation.snapshot.policy.elastic_milli > 0
    placed = {
        entry.job.name: entry
        for entry in (*situation.running, *facts.starts)
        if wanted
        and elastic(entry.job)
        and entry.job.state != "draining"
        and entry.job.name not in shrunk | late
        and (entry.model is not None or not entry.ask.gpus)
    }
    extra = {name: tasks for name, tasks in given(plan).items() if name in placed}
    by_node: dict[str, list[tuple[Placed, TaskAllocation]]] = {}
    for name, tasks in extra.items():
        for task in tasks:
            by_node.setdefault(task.node, []).append((placed[name], task))
    before = _room(facts, plan)
    states = dict(before)
    for node, found in by_node.items():
        tasks_ = [(entry.job, entry.ask, entry.model, task) for entry, task in found]
        states[node] = with_tasks(states[node], tasks_, situation.knife)
    return Growing(facts, placed, before, states, extra)


def _room(facts: Facts, plan: Plan) -> Mapping[str, NodeState]:
    if facts.situation is facts.base:
        return facts.states
    late = {start.job for start in plan.starts if start.waits_for}
    at_once = [entry for entry in facts.starts if entry.job.name not in late]
    now = states_after(facts.base, at_once)
    return {name: _both(now[name], state) for name, state in facts.states.items()}


def _both(now: NodeState, then: NodeState) -> NodeState:
    """What is left at both times."""
    idle = now.idle & then.idle
    gpus = {model: min(count, then.gpus.get(model, 0)) for model, count in now.gpus.items()}
    if not then.counted:
        gpus = {m: sum(1 for gpu in idle if now.models[gpu] == m) for m in gpus}
    return replace(
        then,
        idle=idle,
        gpus=gpus,
        cpu_milli=min(now.cpu_milli, then.cpu_milli),
        memory_mib=min(now.memory_mib, then.memory_mib),
        resources={n: min(left, then.resources[n]) for n, left in now.resources.items()},
        exclusive=now.exclusive or then.exclusive,
    )


def missing(situation: Situation, has: Mapping[str, int]) -> int | None:
    """Growth: what the tasks are worth that elastic jobs don't have; None where there is none.

    `has`: tasks beyond the minimum, by job.
    """
    if not situation.snapshot.policy.elastic_milli:
        return None
    jobs = [job for job in _may_have(situation) if elastic(job)]
    if not jobs:
        return None
    return sum(
        worth(situation, job, number)
        for job in jobs
        for number in range(has.get(job.name, 0) + 1, job.tasks - job.minimum + 1)
    )


def _may_have(situation: Situation) -> Iterable[Job]:
    yield from situation.eligible.values()
    for job in situation.jobs.values():
        if job.state == "running" and job.allocation:
            yield job
