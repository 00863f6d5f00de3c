"""Which sets of starts the limits, throttles, licences, lending and queue orders allow (§4)."""

from __future__ import annotations

from collections.abc import Mapping

from oracle.costs import total_units
from oracle.facts import Facts, instant, uses_gpus
from trencadis.models import Job, Missing, Queue, Quota

Models = Mapping[str, str | None]
"""Jobs that start, or that are in use, with their GPU model."""


class Limits:
    """Judges sets of starts of one snapshot."""

    def __init__(self, facts: Facts, can_run: Mapping[str, set[str | None]]) -> None:
        self.facts = facts
        self.can_run = can_run
        self.before: Models = facts.model_of

    def allow(self, started: Models) -> bool:
        """All rules that only get harder to keep the more starts."""
        after = {**self.before, **started}
        return (
            self._quotas(after)
            and self._arrays(after)
            and self._licences(after)
            and self._lending(after)
        )

    # quotas of queues and QOS, and of their users

    def _quotas(self, after: Models) -> bool:
        facts = self.facts
        scopes = []
        for queue in facts.snapshot.queues:
            leaves = facts.leaves(queue)
            names = {job.name for job in facts.snapshot.jobs if job.queue in leaves}
            scopes.append((queue.limit, names))
        for qos in facts.snapshot.qos:
            names = {job.name for job in facts.snapshot.jobs if job.qos == qos.name}
            scopes.append((qos.limit, names))
        for limit, names in scopes:
            if not self._within(limit.quota, limit.jobs, names, after):
                return False
            for user in {facts.job[name].user for name in names}:
                theirs = {name for name in names if facts.job[name].user == user}
                if not self._within(limit.quota_per_user, limit.jobs_per_user, theirs, after):
                    return False
        return True

    def _within(self, quota: Quota, jobs: int | None, names: set[str], after: Models) -> bool:
        def units(models: Models, on: str | None) -> int:
            return sum(
                self.facts.units(self.facts.job[name])
                for name, model in models.items()
                if name in names and on in (None, model)
            )

        total = total_units(self.facts, quota)
        if total is not None and units(after, None) > max(total, units(self.before, None)):
            return False
        for model, gpus in quota.by_model.items():
            most = max(gpus * self.facts.U, units(self.before, model))
            if units(after, model) > most:
                return False
        if jobs is None:
            return True
        names = {name for name in names if not isinstance(self.facts.job[name], Missing)}
        return len(names & after.keys()) <= max(jobs, len(names & self.before.keys()))

    # arrays and licences

    def _arrays(self, after: Models) -> bool:
        throttles: dict[str, list[int]] = {}
        for job in self.facts.snapshot.jobs:
            if job.array is not None:
                throttles.setdefault(job.array.name, []).append(job.array.throttle)
        for name, numbers in throttles.items():
            before = sum(self._array_of(job) == name for job in self.before)
            if sum(self._array_of(job) == name for job in after) > max(min(numbers), before):
                return False
        return True

    def _array_of(self, name: str) -> str | None:
        array = self.facts.job[name].array
        return None if array is None else array.name

    def _licences(self, after: Models) -> bool:
        for licence in self.facts.snapshot.licences:
            before = sum(self.facts.job[name].licences.get(licence.name, 0) for name in self.before)
            in_use = sum(self.facts.job[name].licences.get(licence.name, 0) for name in after)
            if in_use > max(licence.total - licence.used_elsewhere, 0, before):
                return False
        return True

    # lending

    def _lending(self, after: Models) -> bool:
        facts = self.facts
        if any(self.kept(queue, None) is not None for queue in facts.snapshot.queues):
            most = max(facts.G * facts.U, self.lent(self.before, None))
            if self.lent(after, None) > most:
                return False
        for model in {model for q in facts.snapshot.queues for model in q.guarantee.by_model}:
            if any(self.kept(queue, model) is not None for queue in facts.snapshot.queues):
                here = facts.gpus_by_model.get(model, 0) * facts.U
                if self.lent(after, model) > max(here, self.lent(self.before, model)):
                    return False
        return True

    def kept(self, queue: Queue, model: str | None) -> int | None:
        """r_q; None where the guarantee and the lending limit don't both have a value."""
        if queue.lending_limit is None:
            return None
        if model is None:
            guarantee = total_units(self.facts, queue.guarantee)
            lent = total_units(self.facts, queue.lending_limit)
            return None if guarantee is None or lent is None else max(0, guarantee - lent)
        if model in queue.guarantee.by_model and model in queue.lending_limit.by_model:
            kept = queue.guarantee.by_model[model] - queue.lending_limit.by_model[model]
            return max(0, kept) * self.facts.U
        return None

    def lent(self, models: Models, on: str | None) -> int:
        """The sum of `use` over roots."""
        roots = [queue for queue in self.facts.snapshot.queues if queue.parent is None]
        return sum(self._use(queue, models, on) for queue in roots)

    def _use(self, queue: Queue, models: Models, on: str | None) -> int:
        children = self.facts.children(queue)
        if children:
            used = sum(self._use(child, models, on) for child in children)
        else:
            used = sum(
                self.facts.units(self.facts.job[name])
                for name, model in models.items()
                if self.facts.job[name].queue == queue.name and on in (None, model)
            )
        return max(self.kept(queue, on) or 0, used)

    # strict_fifo

    def in_order(self, started: Models) -> bool:
        """Whether no job starts past an earlier one of its queue and pool that could run."""
        facts = self.facts
        for job in facts.eligible:
            if job.name not in started or facts.queue[job.queue].order != "strict_fifo":
                continue
            if isinstance(job, Missing):
                continue
            for other in facts.eligible:
                if (
                    other.queue == job.queue
                    and not isinstance(other, Missing)
                    and self._rank(other) < self._rank(job)
                    and _same_pool(job, other)
                    and self.can_run[other.name]
                    and other.name not in started
                ):
                    return False
        return True

    def _rank(self, job: Job) -> tuple[int, int]:
        return self.facts.tier(job), instant(job.submit)


def _same_pool(one: Job, other: Job) -> bool:
    if not (uses_gpus(one.request) and uses_gpus(other.request)):
        return uses_gpus(one.request) == uses_gpus(other.request)
    if not one.gpu_models or not other.gpu_models:
        return True
    return bool(set(one.gpu_models) & set(other.gpu_models))
