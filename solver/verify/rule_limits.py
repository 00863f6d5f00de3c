"""Whether the starts keep all limits, lending, groups and the order of strict queues."""

from __future__ import annotations

from collections.abc import Iterable

from trencadis.models import Plan
from trencadis.solver.verify.facts import Facts
from trencadis.solver.verify.verdict import Violation


def groups(facts: Facts, _: Plan) -> Iterable[Violation]:
    """Eligible jobs of one group start together."""
    started: set[str] = {e.job.group for e in facts.starts if e.job.group is not None}
    for job in facts.situation.eligible.values():
        if job.group in started and job.name not in facts.started:
            yield Violation("groups", f"job {job.name} waits, others of group {job.group} start")


def limits(facts: Facts, _: Plan) -> Iterable[Violation]:
    """Queues, QOS, users, arrays and licences."""
    for row, used in facts.used.items():
        before = facts.ledger.before.get(row, 0)
        if used > before and used > facts.ledger.most(row):
            yield Violation("limits", f"{used} {row} in use, at most {facts.ledger.most(row)}")


def lending(facts: Facts, _: Plan) -> Iterable[Violation]:
    """What queues never lend stays free for them."""
    for model, use in facts.lending.use(facts.in_use).items():
        most = facts.lending.most(model)
        if use > most:
            yield Violation(
                "lending",
                f"{use} units of {model or 'GPUs'} are in use or never lent, {most} are there",
            )


def strict_fifo(facts: Facts, _: Plan) -> Iterable[Violation]:
    """Nobody passes the head of a strict queue."""
    for name in sorted(facts.started & facts.blocked.keys()):
        yield Violation("strict-fifo", f"job {name} passes job {facts.blocked[name]}")


RULES = (groups, limits, lending, strict_fifo)
