"""Who goes before whom where one would delay the other's reservation (problem.md, 11)."""

from __future__ import annotations

from trencadis.solver.model.problem import Facts
from trencadis.solver.reserve.kept import Rank


def ranks(read: Facts) -> dict[str, Rank]:
    """Of each eligible job: queues short of their guarantee first, then by tier and by weight per
    unit of size, large jobs before small ones."""
    short = {target.queue for target in read.targets if target.leaf and not target.model}
    strict = read.snapshot.policy.priority_mode == "strict"
    return {
        name: (
            job.queue not in short,
            read.values.worth[name].tier if strict else 0,
            -read.values.worth[name].rate,
            -read.values.worth[name].size,
            name,
        )
        for name, job in read.values.eligible.items()
    }
