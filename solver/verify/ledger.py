"""What is in use under each limit: queues, QOS, users, arrays, licences (problem.md, 4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from trencadis.models import Job, Limits, Missing, Snapshot
from trencadis.solver.verify.situation import Placed, Situation


class Row(NamedTuple):
    """One thing that is counted against one limit."""

    scope: str
    """`queue`, `QOS`, `array` or `licence`."""
    name: str
    what: str
    """`units` or `jobs`; of arrays and licences just that."""
    model: str | None = None
    user: str | None = None

    def __str__(self) -> str:
        what = "quota units" if self.what == "units" else self.what
        on = f" on {self.model}" if self.model else ""
        by = f" of user {self.user}" if self.user else ""
        return f"{what}{on} of {self.scope} {self.name}{by}"


Charge = tuple[Row, int]


class _Rule(NamedTuple):
    row: Row
    cap: int
    per_user: bool


class Ledger:
    """Which rows a job is charged to, and the most that each row allows."""

    def __init__(self, situation: Situation) -> None:
        self.of = situation
        snapshot, unit = situation.snapshot, situation.scale.unit
        self._queues = {q.name: _rules("queue", q.name, q.limit, unit) for q in snapshot.queues}
        self._qos = {q.name: _rules("QOS", q.name, q.limit, unit) for q in snapshot.qos}
        self._arrays = _throttles(snapshot)
        self._licences = {
            pool.name: max(0, pool.total - pool.used_elsewhere) for pool in snapshot.licences
        }
        self._caps: dict[Row, int] = {}
        self._known: dict[tuple[object, ...], tuple[Charge, ...]] = {}
        self.before = self.sum_of(
            charge for entry in situation.running for charge in self.charges_of(entry)
        )

    def charges_of(self, placed: Placed) -> tuple[Charge, ...]:
        """What a job on nodes is charged."""
        return self.charges(placed.job, placed.units, placed.model)

    def charges(self, job: Job, units: int, model: str | None) -> tuple[Charge, ...]:
        """What the job is charged if it runs with so many units on this model."""
        key = (
            job.queue,
            job.user,
            job.qos,
            job.array and job.array.name,
            tuple(job.licences.items()) if job.licences else (),
            isinstance(job, Missing),
            units,
            model,
        )
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = tuple(self._work_out(job, units, model))
        return known

    def _work_out(self, job: Job, units: int, model: str | None) -> Iterable[Charge]:
        rules = [rule for name in self.of.tree.chains[job.queue] for rule in self._queues[name]]
        if job.qos is not None:
            rules += self._qos.get(job.qos, ())
        for row, cap, per_user in rules:
            if row.model is not None and row.model != model:
                continue
            if row.what == "jobs" and isinstance(job, Missing):
                continue  # its gang counts already
            mine = row._replace(user=job.user) if per_user else row
            self._caps[mine] = cap
            yield mine, units if row.what == "units" else 1
        if job.array is not None:
            row = Row("array", job.array.name, "jobs")
            self._caps[row] = self._arrays[job.array.name]
            yield row, 1
        for name, amount in job.licences.items():
            row = Row("licence", name, "licences")
            self._caps[row] = self._licences.get(name, 0)
            yield row, amount

    def most(self, row: Row) -> int:
        """The larger of the limit and what is in use without starts."""
        return max(self._caps[row], self.before.get(row, 0))

    def room(self, used: Mapping[Row, int], charges: Iterable[Charge]) -> bool:
        """Whether these charges fit on top of what is used."""
        return all(
            used.get(row, self.before.get(row, 0)) + amount <= self.most(row)
            for row, amount in self.sum_of(charges).items()
        )

    @staticmethod
    def sum_of(charges: Iterable[Charge]) -> dict[Row, int]:
        """Charges added up by row."""
        total: dict[Row, int] = {}
        for row, amount in charges:
            total[row] = total.get(row, 0) + amount
        return total


def _rules(scope: str, name: str, limit: Limits, unit: int) -> list[_Rule]:
    rules = []
    for quota, per_user in ((limit.quota, False), (limit.quota_per_user, True)):
        total = quota.total_milli()
        if total is not None:
            rules.append(_Rule(Row(scope, name, "units"), total * unit // 1_000, per_user))
        for model, gpus in quota.by_model.items():
            rules.append(_Rule(Row(scope, name, "units", model), gpus * unit, per_user))
    for jobs, per_user in ((limit.jobs, False), (limit.jobs_per_user, True)):
        if jobs is not None:
            rules.append(_Rule(Row(scope, name, "jobs"), jobs, per_user))
    return rules


def _throttles(snapshot: Snapshot) -> dict[str, int]:
    """The smallest throttle that a job of each array names."""
    smallest: dict[str, int] = {}
    for job in snapshot.jobs:
        if job.array is not None:
            name, throttle = job.array.name, job.array.throttle
            smallest[name] = min(throttle, smallest.get(name, throttle))
    return smallest
