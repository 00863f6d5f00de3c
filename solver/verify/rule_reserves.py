"""Whether reservations hold, are as early as can be, and delayed by no one (problem.md, 11)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from trencadis.models import Missing, Plan
from trencadis.models.base import seconds
from trencadis.models.plan import Reserve
from trencadis.solver.verify import nearness
from trencadis.solver.verify.admission import FOREVER, refusal
from trencadis.solver.verify.facts import Facts
from trencadis.solver.verify.fits import Fits, Shapes
from trencadis.solver.verify.forecast import Forecast, Stay
from trencadis.solver.verify.kept import holds
from trencadis.solver.verify.situation import Situation, place
from trencadis.solver.verify.units import has_mig
from trencadis.solver.verify.verdict import Violation


def form(situation: Situation, plan: Plan) -> Iterable[Violation]:
    """Each is of another job that waits alone, for all its tasks, on known nodes, later."""
    seen = {start.job for start in plan.starts}
    if len(plan.reserves) > situation.snapshot.policy.reservations:
        yield Violation("reserves", f"the plan reserves for {len(plan.reserves)} jobs")
    for entry in plan.reserves:
        job = situation.eligible.get(entry.job)
        alone = job is not None and job.group is None and not isinstance(job, Missing)
        if job is None or entry.job in seen or not alone:
            yield Violation("reserves", f"job {entry.job} is not one that waits for room")
            continue
        seen.add(entry.job)
        whole = not has_mig(job.request) and job.request.share is None
        if not whole or len(entry.allocation) != job.minimum:
            yield Violation("reserves", f"job {entry.job}: {len(entry.allocation)} tasks reserved")
        if entry.at <= plan.now:
            yield Violation("reserves", f"job {entry.job}: {entry.at} is not later than now")
        for task in entry.allocation:
            if task.node not in situation.states:
                yield Violation("reserves", f"job {entry.job}: there is no node {task.node}")
            if task.mig or task.share or task.gpus != (None if job.request.gpus else ()):
                yield Violation("reserves", f"job {entry.job}: it is too early to name GPUs")


def backfill(facts: Facts, plan: Plan) -> Iterable[Violation]:
    """Who goes after the reservation's job has left its nodes by then."""
    jobs = facts.situation.jobs
    for start in plan.starts:
        core = len(start.allocation) - start.further
        for i, task in enumerate(start.allocation):
            job = jobs[start.job]
            for owner in facts.kept.barred_from(job, task.node, further=i >= core):
                yield _delays(start.job, owner, task.node)
    for resize in plan.resizes:
        for task in resize.add:
            job = jobs[resize.job]
            for owner in facts.kept.barred_from(job, task.node, further=True):
                yield _delays(resize.job, owner, task.node)


def _delays(name: str, owner: str, node: str) -> Violation:
    return Violation("backfill", f"job {name} on node {node} would delay job {owner}")


def fits(facts: Facts, plan: Plan) -> Iterable[Violation]:
    """By the estimates the job finds its places free then, and may use them."""
    if not plan.reserves:
        return
    forecast = facts.kept.forecast
    others = [*forecast.stays(), *forecast.starts(None, further=True)]
    for i, entry in enumerate(plan.reserves):
        before = {other.job for other in plan.reserves[:i]}
        at, end = _span(forecast, entry)
        then = forecast.at(at, end, [*others, *forecast.reserved(before)])
        yield from _placed(then, entry)


def _placed(then: Situation, entry: Reserve) -> Iterable[Violation]:
    job, ask = then.jobs[entry.job], then.asks[entry.job]
    shape, policy = Shapes(then).of_job(job), then.snapshot.policy
    wanted = Counter(task.node for task in entry.allocation)
    for name in sorted(wanted):
        why = refusal(shape.wish, then.states[name].node, policy, then.now)
        if why:
            yield Violation("reserves", f"job {job.name} at {entry.at}: node {name} {why}")
    if not holds(then, shape, wanted):
        yield Violation("reserves", f"job {job.name} does not fit its places at {entry.at}")
    nodes = {name: state.node for name, state in then.states.items()}
    placed = place(job, ask, entry.allocation, nodes, then.levels)
    for rule in nearness.RULES:
        yield from rule(then, placed)


def earliest(facts: Facts, plan: Plan) -> Iterable[Violation]:
    """At the last instant before it at which something ends, the job would not fit anywhere, had
    only those started that go before it."""
    if not plan.reserves or facts.situation.snapshot.policy.fragmentation == "weighted":
        return
    forecast = facts.kept.forecast
    for i, entry in enumerate(plan.reserves):
        job = facts.situation.jobs[entry.job]
        if job.segments is not None:
            continue  # looked for by first fit
        before = {other.job for other in plan.reserves[:i]}
        stays: list[Stay] = [
            *forecast.stays(),
            *forecast.starts(entry.job, further=False),
            *forecast.reserved(before),
        ]
        at, _ = _span(forecast, entry)
        ends = {until for _, until, _, _ in stays if facts.situation.now < until < at}
        if not ends:
            continue
        instant = max(ends)
        then = forecast.at(instant, instant + forecast.runtime[job.name], stays)
        units = facts.situation.units(job)
        for model in Fits(then, then.states).models(Shapes(then).of_job(job)):
            charges = facts.ledger.charges(job, units, model)
            more = {(job.queue, model): units}
            if facts.ledger.room(facts.used, charges) and facts.lending.room(facts.in_use, more):
                yield Violation("reserves", f"job {job.name} could start before {entry.at}")


def _span(forecast: Forecast, entry: Reserve) -> tuple[int, int]:
    at = seconds(entry.at)
    return at, min(FOREVER, at + forecast.runtime[entry.job])


FORM = (form,)
RULES = (backfill, fits, earliest)
