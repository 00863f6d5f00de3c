"""How much of the cluster is in use or kept back by queues that lend little (problem.md, 4)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from trencadis.models import Quota
from trencadis.solver.verify.situation import Row, Situation
from trencadis.solver.verify.targets import in_use


class Lending:
    """Rows of lending: in all, and per GPU model that some queue keeps back."""

    def __init__(self, situation: Situation) -> None:
        self.of = situation
        self.kept: dict[str | None, dict[str, int]] = {}
        """GPU model or None -> queue -> what it never lends, units."""
        unit = situation.scale.unit
        for name, queue in situation.tree.queues.items():
            lending = queue.lending_limit
            if lending is None:
                continue
            for model in (None, *lending.by_model):
                has, lends = _value(queue.guarantee, model), _value(lending, model)
                if has is not None and lends is not None and has > lends:
                    self.kept.setdefault(model, {})[name] = (has - lends) * unit // 1_000

    @cached_property
    def before(self) -> dict[str | None, int]:
        """Use by model without starts."""
        return self.use(in_use(self.of))

    def use(self, in_use: Mapping[Row, int]) -> dict[str | None, int]:
        """Sum over the roots of what is in use or kept back, by model."""
        total = {}
        tree = self.of.tree
        for model, kept in self.kept.items():
            use: dict[str, int] = {}
            for name in tree.bottom_up:
                children = tree.children.get(name, ())
                mine = (
                    sum(use[child] for child in children)
                    if children
                    else in_use.get((name, model), 0)
                )
                use[name] = max(kept.get(name, 0), mine)
            total[model] = sum(use[name] for name in tree.children.get(None, ()))
        return total

    def most(self, model: str | None) -> int:
        """The larger of the capacity and what the use is without starts."""
        scale = self.of.scale
        gpus = scale.healthy if model is None else scale.by_model.get(model, 0)
        return max(gpus * scale.unit, self.before[model])

    def room(self, used: Mapping[Row, int], more: Mapping[tuple[str, str | None], int]) -> bool:
        """Whether more units, by (leaf queue, model), fit on top of what is used."""
        if not self.kept:
            return True
        total = dict(used)
        for (leaf, model), units in more.items():
            for name in self.of.tree.chains[leaf]:
                for key in {(name, None), (name, model)}:
                    total[key] = total.get(key, 0) + units
        return all(use <= self.most(model) for model, use in self.use(total).items())


def _value(quota: Quota, model: str | None) -> int | None:
    """The quota in all or on a model, milli-GPU."""
    if model is None:
        return quota.total_milli()
    gpus = quota.by_model.get(model)
    return None if gpus is None else gpus * 1_000
