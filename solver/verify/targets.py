"""How much of its guarantee each queue could use: t_q of the guarantee stages (problem.md, 5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cached_property
from math import gcd

from trencadis.models import Job
from trencadis.solver.verify.fits import Fits, Shape, Shapes
from trencadis.solver.verify.situation import Placed, Row, Situation, add_use
from trencadis.solver.verify.supply import empty, empty_in_parts


class Targets:
    """Guarantee targets, and which jobs could run on the empty cluster."""

    def __init__(self, situation: Situation) -> None:
        self.of = situation
        self.shapes = Shapes(situation)

    @cached_property
    def _empty(self) -> Fits:
        return Fits(self.of, empty(self.of.snapshot))

    def could_run(self, job: Job) -> frozenset[str | None]:
        """GPU models on which the job alone fits on the empty cluster; {None} without GPUs."""
        return self._fits(self.shapes.of_job(job))

    def _fits(self, shape: Shape) -> frozenset[str | None]:
        return (self._empty if shape.ask.whole else self._empty_parts).models(shape)

    @cached_property
    def _empty_parts(self) -> Fits:
        return Fits(self.of, empty_in_parts(self.of.snapshot, self.of.scale.tables))

    @cached_property
    def guarantees(self) -> dict[Row, int]:
        """Guarantees in units, queue by queue."""
        unit, rows = self.of.scale.unit, dict[Row, int]()
        for name, queue in self.of.tree.queues.items():
            total = queue.guarantee.total_milli()
            if total:
                rows[name, None] = total * unit // 1_000
            for model, gpus in queue.guarantee.by_model.items():
                rows[name, model] = gpus * unit
        return rows

    @cached_property
    def rows(self) -> dict[Row, int]:
        """t_q, t_{q,m} in units, for each guarantee."""
        of, guarantees = self.of, self.guarantees
        parts: dict[Row, dict[int, int]] = {row: {} for row in guarantees}

        def count(queue: str, model: str | None, units: int, jobs: int) -> None:
            for name in of.tree.chains[queue]:
                part = parts.get((name, model))
                if part is not None:
                    part[units] = part.get(units, 0) + jobs

        present = Counter((p.job.queue, p.model, p.units) for p in of.running)
        for (queue, model, units), jobs in present.items():
            if units:
                count(queue, None, units, jobs)
                if model is not None:
                    count(queue, model, units, jobs)
        wanted = {queue for queue, _ in guarantees}
        reaching = {q for q, chain in of.tree.chains.items() if not wanted.isdisjoint(chain)}
        alike = Counter(
            (job.queue, self.shapes.of_job(job))
            for job in of.eligible.values()
            if job.queue in reaching
        )
        for (queue, shape), jobs in alike.items():
            units = shape.tasks * shape.ask.units
            models = self._fits(shape) if units else frozenset()
            for model in models | {None} if models else ():
                count(queue, model, units, jobs)
        return {row: largest_sum(parts[row], most) for row, most in guarantees.items()}

    def shortfall(self, in_use: Mapping[Row, int]) -> tuple[int, int]:
        """Milli-GPUs that leaf queues, and their ancestors, are short of their targets."""
        short = [0, 0]
        for row, target in self.rows.items():
            short[not self.of.tree.is_leaf(row[0])] += max(0, target - in_use.get(row, 0))
        unit = self.of.scale.unit
        return short[0] * 1_000 // unit, short[1] * 1_000 // unit


def in_use(situation: Situation, starts: Iterable[Placed] = ()) -> dict[Row, int]:
    """Quota units in use by each subtree, with these starts, in all and on each model."""
    leaves: dict[Row, int] = dict(situation.leaf_use)
    add_use(leaves, starts)
    total: dict[Row, int] = {}
    for (queue, model), units in leaves.items():
        for name in situation.tree.chains[queue]:
            total[name, model] = total.get((name, model), 0) + units
    return total


def largest_sum(parts: Mapping[int, int], most: int) -> int:
    """The largest sum of a subset that is at most `most`; parts are value -> how many there are."""
    if sum(value * count for value, count in parts.items()) <= most:
        return sum(value * count for value, count in parts.items())
    step = gcd(*parts)
    cap = most // step
    greedy = 0
    for value in sorted(parts, reverse=True):
        greedy += min(parts[value], (most - greedy) // value) * value
    if greedy == cap * step:
        return greedy
    # Bit s of `sums` says that s steps can be made; counts are split into powers of two.
    sums, mask = 1, (1 << (cap + 1)) - 1
    for value, count in parts.items():
        chunk, left = 1, min(count, most // value)
        while left:
            chunk = min(chunk, left)
            sums |= (sums << (value // step * chunk)) & mask
            left -= chunk
            chunk *= 2
    return (sums.bit_length() - 1) * step
