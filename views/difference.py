"""What one plan does otherwise than another, and what that costs by stage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from trencadis.models.plan import Plan
from trencadis.views import words
from trencadis.views.io import clean

if TYPE_CHECKING:
    from rich.console import RenderableType

Key = tuple[str, str]
"""What is done, and to which job or GPU."""


def differences(first: Plan, second: Plan) -> list[dict[str, Any]]:
    """Every action that is in one plan only, or not the same in both.

    Each with `action`, `of` (a job, or a node and GPU), and what it is in `first` and `second`;
    null where that plan has no such action. Reasons and proofs of equal actions don't count.
    """
    before, after = _actions(first), _actions(second)
    return [
        {"action": key[0], "of": key[1], "first": before.get(key), "second": after.get(key)}
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key)
    ]


def costs(first: Plan, second: Plan) -> list[dict[str, Any]]:
    """The objective of each stage under both plans; null where a plan has no such stage."""
    tables = [{s.name: s.objective for s in plan.proof.stages} for plan in (first, second)]
    names = list(dict.fromkeys((*tables[0], *tables[1])))
    return [
        {"stage": name, "first": tables[0].get(name), "second": tables[1].get(name)}
        for name in names
    ]


def difference_view(first: Plan, second: Plan) -> Iterator[RenderableType]:
    """The parts of the picture, from the top."""
    found = differences(first, second)
    if first.snapshot != second.snapshot:
        yield "The plans are for different snapshots."
    if not found:
        yield "Both plans do the same."
        return
    table = words.table("Differences", "action", "of", "first", "second")
    for entry in found[: words.MAX_ROWS]:
        table.add_row(
            entry["action"], clean(entry["of"]), _said(entry["first"]), _said(entry["second"])
        )
    yield table
    if left := words.fold(len(found)):
        yield left
    cost = words.table("Cost", "stage", "first", "second", right=("first", "second"))
    for row in costs(first, second):
        values = (row["first"], row["second"])
        cost.add_row(
            clean(row["stage"]), *("-" if v is None else words.number(v) for v in values)
        )
    yield cost


def _said(action: dict[str, Any] | None) -> str:
    if action is None:
        return "-"
    where = action.get("where", "")
    return f"{where} at {action['at']}" if where and action.get("at") else where or "yes"


def _actions(plan: Plan) -> dict[Key, dict[str, Any]]:
    found: dict[Key, dict[str, Any]] = {}
    for start in plan.starts:
        found["start", start.job] = _one(words.places(start.allocation), start)
    for stop in plan.preempts:
        found["preempt", stop.job] = _one("", stop)
    for resize in plan.resizes:
        kind = "grow" if resize.add else "shrink"
        found[kind, resize.job] = _one(words.places(resize.add or resize.remove), resize)
    for repair in plan.repairs:
        found["repair", repair.job] = _one(words.places(repair.add), repair)
    for move in plan.moves:
        again = sum(other.job == move.job for other in plan.moves) > 1
        name = f"{move.job} step {move.step}" if again else move.job
        found["move", name] = _one(words.places(move.to), move)
    for reserve in plan.reserves:
        found["reserve", reserve.job] = _one(words.places(reserve.allocation), reserve)
    for change in plan.reconfigures:
        layout = " ".join(f"{entry.profile}@{entry.start}" for entry in change.after)
        when = f" step {change.step}" if plan.moves else ""
        found["reconfigure", f"{change.node} GPU {change.gpu}{when}"] = _one(
            "MIG off" if change.turn_off else layout or "empty", change
        )
    return found


def _one(where: str, action: Any) -> dict[str, Any]:
    """What counts of an action: all that it does, none of what is said about it."""
    said = ("preconditions", "waiting_saved", "spread_cost", "level", "domain")
    record = action.model_dump(mode="json", exclude_defaults=True)
    return {"where": where, **{name: v for name, v in record.items() if name not in said}}
