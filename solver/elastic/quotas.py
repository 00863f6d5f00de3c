"""How many further tasks queues, QOS and users may have: limits and lending after the plan."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from trencadis.models import Job, Limits
from trencadis.solver.elastic.jobs import Grower
from trencadis.solver.model.lending import kept, kept_models, total_use, uses
from trencadis.solver.model.problem import Facts
from trencadis.solver.program import INFINITE, Program

Use = tuple[Job, int, str | None]
"""A job, its quota units, the GPU model that they are on."""
Key = tuple[str, ...]


class Quotas:
    """What growth may still use."""

    def __init__(self, read: Facts, growers: Sequence[Grower], in_use: Iterable[Use]) -> None:
        self.read, self.growers = read, growers
        self.qos = {entry.name: entry.limit for entry in read.snapshot.qos}
        caps: dict[Key, int] = {}
        self.rows: dict[Key, list[int]] = {}
        """Growers by the limit that binds them."""
        for index, grower in enumerate(growers):
            for key, cap in self._limits(grower.job, grower.model):
                caps[key] = cap
                self.rows.setdefault(key, []).append(index)
        used: Counter[Key] = Counter()
        self.leaves: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """Units by GPU model ('' in all) and leaf queue."""
        for job, units, model in in_use:
            for key, _ in self._limits(job, model):
                used[key] += units
            self.leaves[""][job.queue] += units
            if model is not None:
                self.leaves[model][job.queue] += units
        self.slack = {key: max(0, cap - used[key]) for key, cap in caps.items()}
        self.models = kept_models(read)
        self.most = {model: self._most(model) for model in self.models}

    def _limits(self, job: Job, model: str | None) -> Iterator[tuple[Key, int]]:
        tree = self.read.values.tree
        owners: list[tuple[Key, Limits]] = [
            (("queue", name), tree.queues[name].limit) for name in tree.chain(job.queue)
        ]
        if job.qos is not None:
            owners.append((("qos", job.qos), self.qos[job.qos]))
        unit = self.read.values.rates.unit
        for owner, limits in owners:
            for quota, who in ((limits.quota, ""), (limits.quota_per_user, job.user)):
                total = quota.total_milli()
                if total is not None:
                    yield (*owner, "", who), total * unit // 1_000
                if model in quota.by_model:
                    yield (*owner, model or "", who), quota.by_model[model or ""] * unit

    def _total(self, model: str, more: Mapping[str, int]) -> int:
        now = self.leaves[model]
        used = {name: now[name] + more.get(name, 0) for name in self.read.values.tree.queues}
        return total_use(self.read, uses(self.read, model, used))

    def _most(self, model: str) -> int:
        supply = self.read.capacity
        gpus = supply.gpus_by_model.get(model, 0) if model else supply.gpus
        return max(gpus * self.read.values.rates.unit, self._total(model, {}))

    def allow(self, counts: Sequence[int]) -> bool:
        """Whether so many further tasks, by grower, keep to the limits."""
        growers = self.growers
        for key, members in self.rows.items():
            if sum(counts[i] * growers[i].units for i in members) > self.slack[key]:
                return False
        for model in self.models:
            more: Counter[str] = Counter()
            for count, grower in zip(counts, growers, strict=True):
                if not model or grower.model == model:
                    more[grower.job.queue] += count * grower.units
            if self._total(model, more) > self.most[model]:
                return False
        return True

    def constrain(self, program: Program, tasks: Sequence[Sequence[int]]) -> None:
        """The same as rows. `tasks`: columns that count further tasks, by grower."""
        for key, members in self.rows.items():
            terms = [(c, self.growers[i].units) for i in members for c in tasks[i]]
            program.row(terms, -INFINITE, self.slack[key])
        for model in self.models:
            self._lend(program, tasks, model)

    def _lend(self, program: Program, tasks: Sequence[Sequence[int]], model: str) -> None:
        tree, unit = self.read.values.tree, self.read.values.rates.unit
        now = uses(
            self.read, model, {name: self.leaves[model][name] for name in tree.queues}
        )
        use = {
            name: program.column(
                kept(tree.queues[name], model, unit), self.most[model], rest=now[name]
            )
            for name in tree.upwards()
        }
        for name, column in use.items():
            if tree.is_leaf(name):
                terms = [
                    (c, -grower.units)
                    for grower, columns in zip(self.growers, tasks, strict=True)
                    if grower.job.queue == name and (not model or grower.model == model)
                    for c in columns
                ]
                program.row([(column, 1), *terms], self.leaves[model][name], INFINITE)
            else:
                children = [(use[child], -1) for child in tree.children[name]]
                program.row([(column, 1), *children], 0, INFINITE)
        roots = tree.children.get(None, ())
        program.row([(use[name], 1) for name in roots], -INFINITE, self.most[model])
