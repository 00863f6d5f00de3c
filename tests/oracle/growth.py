"""The least growth of a plan by trying all further tasks (§9)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from oracle.costs import total_units
from oracle.facts import Facts, has_mig
from oracle.ground import Ground, ground_now, needs
from oracle.limits import Limits
from oracle.mend import two_jobs
from oracle.rules import may_use, minimum
from trencadis.models import Hold, Job, Plan, Snapshot
from trencadis.models.broken import as_start

Places = dict[str, int]
"""Further tasks of a job by node."""

MOST = 50_000


def is_elastic(job: Job) -> bool:
    parts = has_mig(job.request) or job.request.share is not None
    return job.tasks > minimum(job) and not (parts or job.segments or job.exclusive)


def least_growth(snapshot: Snapshot, plan: Plan) -> tuple[int, int] | None:
    """(least growth of any further tasks with the rest of the plan as it is, that of nothing)."""
    snapshot, plan = two_jobs(snapshot), _with_repairs_as_starts(plan)
    now = Facts(snapshot)
    if not snapshot.policy.elastic_milli:
        return None
    parties = [
        job
        for job in snapshot.jobs
        if is_elastic(job)
        and (job in now.eligible or (job.state == "running" and job.allocation))
    ]
    if not parties:
        return None
    rest = _after(snapshot, plan)
    facts = Facts(rest)
    shrunk = {resize.job for resize in plan.resizes if resize.remove}
    held = {hold.job for hold in snapshot.delayed}
    growing = [
        job
        for job in rest.jobs
        if is_elastic(job)
        and job.state == "running"
        and job.allocation
        and job.name not in shrunk | held
        and not (job.request.gpus and facts.model_of[job.name] is None)
    ]
    has = {job.name: len(job.allocation) - minimum(job) for job in rest.jobs if job.allocation}
    idle = {j.name: len(j.allocation) - minimum(j) for j in snapshot.jobs if j.state == "running"}
    best = None
    for count, choice in enumerate(_choices(facts, growing, _room(snapshot, plan, facts))):
        if count > MOST:
            raise OverflowError("too many ways to grow")
        if not _allowed(rest, facts, choice):
            continue
        after = {n: k + sum(choice.get(n, {}).values()) for n, k in has.items()}
        value = _missing(now, parties, after)
        best = value if best is None else min(best, value)
    assert best is not None
    return best, _missing(now, parties, idle)


def _with_repairs_as_starts(plan: Plan) -> Plan:
    begun = tuple(map(as_start, plan.repairs))
    return plan.model_copy(update={"starts": plan.starts + begun, "repairs": ()})


def _missing(facts: Facts, parties: Sequence[Job], has: Mapping[str, int]) -> int:
    return sum(
        _worth(facts, job, i)
        for job in parties
        for i in range(has.get(job.name, 0) + 1, job.tasks - minimum(job) + 1)
    )


def _fraction(facts: Facts, job: Job, i: int) -> int:
    n = minimum(job)
    return facts.policy.elastic_milli * n // (n + i)


def _worth(facts: Facts, job: Job, i: int) -> int:
    weight = facts.policy.tiers[facts.tier(job)].weight
    one = job.model_copy(update={"state": "pending", "tasks": 1, "min_tasks": None})
    above = weight * job.weight_milli * facts.size(one) * facts.policy.horizon_seconds
    return above * _fraction(facts, job, i) // (1_000 * 1_000 * facts.U)


def _after(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """The snapshot with the plan carried out but for further tasks; late starts as holds."""
    gone = {stop.job for stop in plan.preempts}
    starts = {start.job: start for start in plan.starts}
    resizes = {resize.job: resize for resize in plan.resizes}
    jobs: list[Job] = []
    holds = list(snapshot.holds)
    for job in snapshot.jobs:
        if job.name in gone:
            continue
        start = starts.get(job.name)
        update: dict[str, object] = {}
        if start is not None and start.waits_for:
            # In use, but not growing: as good as draining.
            update = {"state": "draining", "allocation": start.allocation, "start": snapshot.now}
        elif start is not None and not any(hold.job == job.name for hold in snapshot.delayed):
            tasks = start.allocation[: len(start.allocation) - start.further]
            update = {"state": "running", "allocation": tasks, "start": snapshot.now}
        elif job.name in resizes:
            left = list(job.allocation)
            for task in resizes[job.name].remove:
                left.remove(task)
            update = {"allocation": tuple(left)}
        jobs.append(job.model_copy(update=update))
    kept: list[Hold] = [hold for hold in holds if hold.job not in gone]
    return snapshot.model_copy(update={"jobs": tuple(jobs), "holds": tuple(kept)})


def _room(snapshot: Snapshot, plan: Plan, facts: Facts) -> Ground:
    """What is left both in the end and now, with the starts that wait for no one."""
    starts = tuple(start for start in plan.starts if not start.waits_for)
    calm = plan.model_copy(update={"starts": starts, "preempts": (), "resizes": ()})
    now, then = Facts(_after(snapshot, calm)), facts
    both = []
    for a, b in zip(ground_now(now), ground_now(then), strict=True):
        idle = [
            (model, tuple(g for g in gpus if g in dict(b.idle).get(model, ())))
            for model, gpus in a.idle
        ]
        free = [(thing, min(amount, dict(b.free)[thing])) for thing, amount in a.free]
        both.append(
            a._replace(idle=tuple(idle), free=tuple(free), closed=a.closed or b.closed)
        )
    return tuple(both)


def _reach(facts: Facts, job: Job, depth: int) -> int:
    several = job.model_copy(update={"state": "pending", "min_tasks": None})
    least = max(
        facts.required_depth(several), min(depth, facts.preferred_depth(job))
    )
    if not job.communicates:
        return least
    if depth <= facts.levels:
        return max(least, depth)
    levels = [facts.policy.slowdown("cluster")]
    levels += [facts.policy.slowdown(e.kind or e.name) for e in facts.snapshot.fabric.levels]
    slow, k = levels[-1], len(job.allocation)
    gain = _fraction(facts, job, k - minimum(job) + 1) * (1_000 - slow)
    return max(least, facts.levels if k * slow * 1_000 <= gain else facts.levels + 1)


def _choices(facts: Facts, jobs: Sequence[Job], ground: Ground) -> Iterator[dict[str, Places]]:
    """All ways to give further tasks that fit the nodes."""
    if not jobs:
        yield {}
        return
    job = jobs[0]
    on = {task.node for task in job.allocation}
    depth = facts.depth(on)
    reach = _reach(facts, job, depth)
    bare = job.model_copy(update={"state": "pending"})
    nodes = [
        index
        for index, node in enumerate(facts.snapshot.nodes)
        if may_use(facts, bare, node)
        and not ground[index].closed
        and reach <= depth
        and facts.depth({node.name, *on}) >= reach
        and not (
            job.nvlink_required and job.request.gpus > 1 and node.nvlink.kind != "nvswitch"
        )
    ]
    model = facts.model_of[job.name]
    most = job.tasks - len(job.allocation)
    here = Counter(task.node for task in job.allocation)

    def extend(i: int, left: int, at: Ground, so_far: Places) -> Iterator[tuple[Ground, Places]]:
        if i == len(nodes):
            yield at, so_far
            return
        name = facts.snapshot.nodes[nodes[i]].name
        cap = left
        if job.max_tasks_per_node is not None:
            cap = min(cap, job.max_tasks_per_node - here[name])
        state = at[nodes[i]]
        for count in range(max(0, cap) + 1):
            if count:
                idle = dict(state.idle)
                gpus = idle.get(model or "", ())
                free = dict(state.free)
                wanted = needs(job.request)
                if len(gpus) < job.request.gpus or any(
                    free.get(thing, 0) < amount for thing, amount in wanted.items() if amount
                ):
                    break
                if job.request.gpus:
                    idle[model or ""] = gpus[job.request.gpus :]
                for thing, amount in wanted.items():
                    free[thing] = free.get(thing, 0) - amount
                state = state._replace(
                    idle=tuple(sorted(idle.items())), free=tuple(sorted(free.items()))
                )
            after = (*at[: nodes[i]], state, *at[nodes[i] + 1 :])
            more = {**so_far, name: count} if count else so_far
            yield from extend(i + 1, left - count, after, more)

    for after, places in extend(0, most, ground, {}):
        if places and not _apart(facts, job, here, places):
            continue
        for others in _choices(facts, jobs[1:], after):
            yield {job.name: places, **others}


def _apart(facts: Facts, job: Job, here: Counter[str], places: Places) -> bool:
    """At most so many tasks in a domain that gets some."""
    cap = job.max_tasks_per_domain
    if cap is None:
        return True
    depth = facts.level_depth(cap.level)

    def domain(name: str) -> object:
        path = facts.node[name].fabric
        return path[:depth] if len(path) >= depth else name

    total: Counter[object] = Counter()
    for name in (*here.elements(), *Counter(places).elements()):
        total[domain(name)] += 1
    return all(total[domain(name)] <= cap.tasks for name in places)


def _allowed(rest: Snapshot, facts: Facts, choice: Mapping[str, Places]) -> bool:
    """Limits on quota units, and lending, with the further tasks."""
    added = {name: sum(places.values()) for name, places in choice.items()}
    more = Facts(
        rest.model_copy(
            update={
                "jobs": tuple(
                    job.model_copy(
                        update={"allocation": job.allocation + job.allocation[:1] * added[job.name]}
                    )
                    if added.get(job.name)
                    else job
                    for job in rest.jobs
                )
            }
        )
    )

    def units(of: Facts, names: set[str], on: str | None) -> int:
        return sum(
            of.units(job)
            for job in of.on_nodes
            if job.name in names and (on is None or facts.model_of[job.name] == on)
        )

    owners = [
        ({j.name for j in facts.on_nodes if j.queue in facts.leaves(q)}, q.limit)
        for q in rest.queues
    ]
    owners += [({j.name for j in facts.on_nodes if j.qos == q.name}, q.limit) for q in rest.qos]
    users = {job.user for job in facts.on_nodes}
    for names, limit in owners:
        theirs = [{n for n in names if facts.job[n].user == user} for user in users]
        for quota, groups in ((limit.quota, [names]), (limit.quota_per_user, theirs)):
            caps: dict[str | None, int] = {m: g * facts.U for m, g in quota.by_model.items()}
            total = total_units(facts, quota)
            if total is not None:
                caps[None] = total
            for group in groups:
                for on, cap in caps.items():
                    if units(more, group, on) > max(cap, units(facts, group, on)):
                        return False
    models = {job.name: facts.model_of[job.name] for job in facts.on_nodes}
    for on in (None, *facts.gpus_by_model):
        if all(Limits(facts, {}).kept(queue, on) is None for queue in rest.queues):
            continue
        before, after = (Limits(of, {}).lent(models, on) for of in (facts, more))
        gpus = facts.G if on is None else facts.gpus_by_model[on]
        if after > max(gpus * facts.U, before):
            return False
    return True
