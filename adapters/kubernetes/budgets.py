"""Decides whether PodDisruptionBudgets let the pods of a job go, all of them at once."""

from __future__ import annotations

from trencadis.adapters.kubernetes.constraints import selects
from trencadis.adapters.kubernetes.fields import quantity, text, whole
from trencadis.adapters.kubernetes.gangs import Gang, Task
from trencadis.adapters.kubernetes.objects import Object


def allows(budget: Object, gang: Gang, tasks: list[Task]) -> bool:
    """Whether a PodDisruptionBudget lets all these pods go."""
    chosen = [
        task
        for task in tasks
        if task.namespace == budget.namespace and selects(budget.spec.get("selector"), task.labels)
    ]
    if not chosen:
        return True
    allowed = whole(budget.status.get("disruptionsAllowed"))
    if allowed is None:
        members = [
            t for t in gang.tasks if t.node and selects(budget.spec.get("selector"), t.labels)
        ]
        least, most = budget.spec.get("minAvailable"), budget.spec.get("maxUnavailable")
        number = _part(most if least is None else least, len(members))
        if number is None:
            return False
        allowed = number if least is None else len(members) - number
    return allowed >= len(chosen)


def _part(value: object, total: int) -> int | None:
    written = text(value)
    if written.endswith("%"):
        percent = quantity(written[:-1])
        return None if percent is None else -int(-percent * total // 100)
    return whole(value)
