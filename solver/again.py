"""The last plan's starts as the beginning of a round: kept where they fit, but for the least."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from trencadis.models import Job, Plan, Snapshot
from trencadis.solver.greedy import order
from trencadis.solver.ledger import Bundles, Ledger
from trencadis.solver.model.problem import Facts
from trencadis.solver.same_places import on_same_nodes
from trencadis.solver.shapes import Shape

FREED = 0.35
"""Part of what the kept starts take that is searched anew, the least urgent first. Smaller parts
left no room for what came since, larger ones took as long as a search from nothing: see
docs/decisions/043."""


@dataclass(frozen=True, slots=True)
class Earlier:
    """What one round leaves to the next."""

    nodes: Mapping[str, tuple[str, ...]]
    """By job of a start at once: a node for each task."""
    waited: frozenset[str]
    """All that waited then."""

    @classmethod
    def of(cls, snapshot: Snapshot, plan: Plan) -> Earlier:
        """From a plan for the snapshot."""
        return cls(
            {
                start.job: tuple(task.node for task in start.allocation)
                for start in plan.starts
                if not start.waits_for
            },
            frozenset(job.name for job in snapshot.jobs if job.state == "pending"),
        )


@dataclass(frozen=True, slots=True)
class Beginning:
    """Which of the earlier starts a search begins with."""

    earlier: Earlier
    share: float
    """Part of them that is searched anew."""

    def enter(self, ledger: Ledger, shape_of: Callable[[str], Shape]) -> None:
        """Puts them into the ledger."""
        keep(ledger, shape_of, self.earlier)
        free_least(ledger, self.share)


def shares(earlier: Earlier | None, read: Facts, least: int) -> tuple[float, ...]:
    """Parts of the kept starts to search anew, in the order in which they are worth a try.

    None where fewer than `least` jobs wait, and where none of the starts waits any more: they were
    carried out, and all that waits is new.
    """
    waiting = read.values.eligible.keys()
    if earlier is None or len(waiting) < least or not earlier.nodes.keys() & waiting:
        return ()
    arrived = waiting - earlier.waited
    return (FREED,) if arrived else (0.0, FREED)


def keep(ledger: Ledger, shape_of: Callable[[str], Shape], earlier: Earlier) -> None:
    """Enters the earlier starts that are still possible, in the order of a greedy scheduler."""
    for unit in order(ledger.facts):
        if not all(job.name in earlier.nodes for job in unit):
            continue
        taken: list[tuple[Job, str | None, Bundles]] = []
        for job in unit:
            found = on_same_nodes(ledger, job, shape_of(job.name), earlier.nodes[job.name])
            if found is None:
                break
            taken.append((job, *found))
        if len(taken) == len(unit) and ledger.may_start([(job, model) for job, model, _ in taken]):
            for job, model, bundles in taken:
                ledger.start(job, model, bundles)
        else:
            for job, _, bundles in taken:
                ledger.give_back(job.name, bundles)


def free_least(ledger: Ledger, share: float) -> None:
    """Withdraws the least urgent starts, as many as take this part of what all of them take."""
    worth = ledger.facts.values.worth
    started = ledger.started
    units = [u for u in reversed(order(ledger.facts)) if all(job.name in started for job in u)]
    left = share * sum(worth[job.name].size for unit in units for job in unit)
    for unit in units:
        if left <= 0:
            break
        ledger.withdraw([job.name for job in unit])
        left -= sum(worth[job.name].size for job in unit)
