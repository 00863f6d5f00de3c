"""Explanations as a person reads them: the reason, what would help, when it may start."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from trencadis.models.explanation import Explanation, ReasonGroup, Remedy, Report, StartRange
from trencadis.views import words
from trencadis.views.io import clean

if TYPE_CHECKING:
    from rich.console import RenderableType

PROOFS = {
    "rules": "the rules say so",
    "alone-empty": "proven: the job alone on the emptied cluster",
    "alone-now": "proven: the job alone on the present state",
    "moved": "proven: the job alone, even with all that runs allowed to move",
    "plan": "by the plan",
    "open": "alone on the present state; whether it would fit if jobs moved is not settled",
}
VERBS = {
    "pending": "waits",
    "started": "starts",
    "running": "runs",
    "draining": "drains",
    "held": "is held",
}


def report_view(report: Report) -> Iterator[RenderableType]:
    """The parts of the picture, from the top."""
    from rich.text import Text  # noqa: PLC0415

    yield Text(f"At {report.now:%Y-%m-%d %H:%M:%S} UTC. Plan: {clean(report.plan)}.", style="bold")
    if report.groups:
        yield from _groups(report.groups)
    for entry in report.jobs:
        yield ""
        yield from _explanation(entry)


def _groups(groups: tuple[ReasonGroup, ...]) -> Iterator[RenderableType]:
    jobs = sum(len(group.jobs) for group in groups)
    table = words.table(
        f"Why {words.count(jobs, 'job')} wait",
        *("jobs", "GPUs", "queue", "reason", "such as", "why"),
        right=("jobs", "GPUs"),
    )
    for group in groups[: words.MAX_ROWS]:
        table.add_row(
            words.number(len(group.jobs)),
            words.number(group.gpus),
            clean(group.queue),
            clean(group.code),
            clean(group.jobs[0]),
            clean(group.sentence),
        )
    yield table
    if left := words.fold(len(groups)):
        yield left


def _explanation(entry: Explanation) -> Iterator[RenderableType]:
    from rich.text import Text  # noqa: PLC0415

    head = f"{entry.job} (queue {entry.queue}) {VERBS[entry.state]}: {entry.code}"
    yield Text(clean(head), style="bold")
    yield f"  {clean(entry.sentence)}."
    yield f"  Proof: {PROOFS[entry.proof]}."
    for text in entry.conflicts:
        yield f"  Conflict: {clean(text)}"
    if entry.remedies:
        yield from _remedies(entry.remedies)
    for kind, why in entry.no_remedy.items():
        yield f"  No {kind}: {clean(why)}."
    if entry.when is not None:
        yield from _when(entry.when)
    if entry.assumptions:
        yield f"  Assuming: {clean('; '.join(entry.assumptions))}."


def _remedies(remedies: tuple[Remedy, ...]) -> Iterator[RenderableType]:
    table = words.table("  What would help", "kind", "change", "next round", "cheapest")
    for remedy in remedies:
        table.add_row(
            remedy.kind,
            clean(remedy.sentence),
            _next(remedy),
            "proven" if remedy.cheapest else "-" if remedy.kind == "shape" else "best found",
        )
    yield table


def _next(remedy: Remedy) -> str:
    if remedy.in_round is None:
        return "not solved"
    if remedy.in_round:
        return "starts"
    return clean(f"{remedy.instead[0]} first") if remedy.instead else "waits"


def _when(range_: StartRange) -> Iterator[RenderableType]:
    parts = (("best", range_.best), ("likely", range_.likely), ("worst", range_.worst))
    yield "  Start: " + ", ".join(f"{name} {_instant(value)}" for name, value in parts) + "."
    yield f"  Supposing: {clean('; '.join(range_.assumptions))}."


def _instant(value: datetime | None) -> str:
    return "unknown" if value is None else f"{value:%Y-%m-%d %H:%M} UTC"
