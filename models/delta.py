"""What changed from one snapshot to the next."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

from trencadis.models.base import Instant, Names, Record
from trencadis.models.cluster import Node
from trencadis.models.faults import Fault, InvalidInputError
from trencadis.models.jobs import Hold, Job
from trencadis.models.policy import BudgetUse, Policy
from trencadis.models.queues import Queue
from trencadis.models.snapshot import Snapshot


class Delta(Record):
    """Changes of a snapshot. What is absent stays as it was."""

    now: Instant | None = None
    jobs: tuple[Job, ...] = ()
    """New jobs, and jobs that changed: whole, by name."""
    gone: Names = ()
    """Jobs that have left; holds for them go too."""
    nodes: tuple[Node, ...] = ()
    """New nodes, and nodes that changed."""
    gone_nodes: Names = ()
    queues: tuple[Queue, ...] = ()
    holds: tuple[Hold, ...] | None = None
    """All holds."""
    policy: Policy | None = None
    budget_use: BudgetUse | None = None


def change(snapshot: Snapshot, delta: Delta) -> Snapshot:
    """The snapshot after the changes.

    Raises InvalidInputError where what is gone was never there. Whether the parts agree, `check`
    and `solve` say.
    """
    faults = [
        Fault(f"$.{field}[{index}]", f"{name} isn't in the snapshot")
        for field, names, present in (
            ("gone", delta.gone, {job.name for job in snapshot.jobs}),
            ("gone_nodes", delta.gone_nodes, {node.name for node in snapshot.nodes}),
        )
        for index, name in enumerate(names)
        if name not in present
    ]
    if faults:
        raise InvalidInputError(faults)
    holds = snapshot.holds if delta.holds is None else delta.holds
    return snapshot.model_copy(
        update={
            "now": delta.now or snapshot.now,
            "jobs": _merged(snapshot.jobs, delta.jobs, delta.gone),
            "nodes": _merged(snapshot.nodes, delta.nodes, delta.gone_nodes),
            "queues": _merged(snapshot.queues, delta.queues, ()),
            "holds": tuple(hold for hold in holds if hold.job not in delta.gone),
            "policy": delta.policy or snapshot.policy,
            "budget_use": delta.budget_use or snapshot.budget_use,
        }
    )


class _Named(Protocol):
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=_Named)


def _merged(before: Iterable[N], changed: Iterable[N], gone: Iterable[str]) -> tuple[N, ...]:
    table = {record.name: record for record in before}
    table.update((record.name, record) for record in changed)
    for name in gone:
        table.pop(name, None)
    return tuple(table.values())
