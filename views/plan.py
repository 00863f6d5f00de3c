"""A plan as a person reads it: what starts where, what waits and why, and how good that is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from trencadis.models.jobs import Job, TaskAllocation
from trencadis.models.plan import Plan, Start
from trencadis.models.snapshot import Snapshot
from trencadis.views import words
from trencadis.views.io import clean

if TYPE_CHECKING:
    from rich.console import RenderableType


def plan_view(plan: Plan, snapshot: Snapshot) -> Iterator[RenderableType]:
    """The parts of the picture, from the top."""
    from rich.text import Text  # noqa: PLC0415

    yield Text(headline(plan), style="bold")
    jobs = {job.name: job for job in snapshot.jobs}
    yield from _starts(plan, jobs)
    yield from _repairs(plan, jobs)
    yield from _moves(plan, jobs)
    yield from _layouts(plan)
    yield from _reserves(plan, jobs)
    yield from _pending(plan, jobs)
    yield from _proof(plan)
    yield from _metrics(plan)
    for warning in plan.warnings[: words.MAX_ROWS]:
        yield Text(f"Warning: {clean(warning)}")
    if left := words.fold(len(plan.warnings)):
        yield Text(left)


def headline(plan: Plan) -> str:
    """The plan in one line."""
    proof = plan.proof
    what = (
        f"{words.count(len({move.job for move in plan.moves}), 'job')} to move"
        if plan.purpose == "defrag"
        else f"{words.count(len(plan.starts), 'job')} to start, "
        + (f"{words.count(len(plan.repairs), 'gang')} to repair, " if plan.repairs else "")
        + f"{words.number(len(plan.pending))} waiting"
    )
    line = (
        f"Plan for {plan.now:%Y-%m-%d %H:%M:%S} UTC: {what}. "
        f"{proof.status}, gap {words.percent(proof.gap)}"
    )
    if proof.bound_scope == "restricted":
        line += f" (of a restricted problem: {clean(proof.restricted_to)})"
    return line + "."


def _starts(plan: Plan, jobs: dict[str, Job]) -> Iterator[RenderableType]:
    if not plan.starts:
        return
    columns = ("job", "queue", "where", "GPUs", "level", "saves (GPU-s)", "spread (GPU-s)")
    table = words.table("Starts", *columns, right=(columns[3], *columns[5:]))
    for start in plan.starts[: words.MAX_ROWS]:
        job = jobs.get(start.job)
        table.add_row(
            clean(start.job),
            clean(job.queue) if job else "?",
            words.places(start.allocation),
            words.number(_gpus(start, job)),
            clean(f"{start.level} {start.domain}".strip()),
            words.number(start.waiting_saved),
            words.number(start.spread_cost),
        )
    yield table
    if left := words.fold(len(plan.starts)):
        yield left


def _repairs(plan: Plan, jobs: dict[str, Job]) -> Iterator[RenderableType]:
    if not plan.repairs:
        return
    columns = ("gang", "queue", "new tasks", "level", "saves (GPU-s)", "waits for")
    table = words.table("Repairs", *columns, right=(columns[4],))
    for repair in plan.repairs[: words.MAX_ROWS]:
        job = jobs.get(repair.job)
        table.add_row(
            clean(repair.job),
            clean(job.queue) if job else "?",
            words.places(repair.add),
            clean(f"{repair.level} {repair.domain}".strip()),
            words.number(repair.waiting_saved),
            clean(", ".join(repair.waits_for)),
        )
    yield table
    if left := words.fold(len(plan.repairs)):
        yield left


def _moves(plan: Plan, jobs: dict[str, Job]) -> Iterator[RenderableType]:
    if not plan.moves:
        return
    columns = ("step", "job", "from", "to", "costs (GPU-s)", "F before", "F after", "lets in")
    table = words.table("Moves", *columns, right=(columns[0], *columns[4:7]))
    order = sorted(plan.moves, key=lambda move: (move.step, move.job))
    here = {name: job.allocation for name, job in jobs.items()}
    for move in order[: words.MAX_ROWS]:
        before = here.get(move.job)
        here[move.job] = move.to
        table.add_row(
            words.number(move.step),
            clean(move.job),
            "?" if before is None else words.places(_only(before, move.to)),
            words.places(move.to if before is None else _only(move.to, before)),
            words.number(move.idle_gpu_seconds),
            words.number(move.fragmentation_before),
            words.number(move.fragmentation_after),
            clean(", ".join(move.lets_in)),
        )
    yield table
    if left := words.fold(len(plan.moves)):
        yield left


def _only(
    tasks: Sequence[TaskAllocation], others: Sequence[TaskAllocation]
) -> list[TaskAllocation]:
    """The tasks that are not among the others as well."""
    return list((Counter(tasks) - Counter(others)).elements())


def _layouts(plan: Plan) -> Iterator[RenderableType]:
    if not plan.reconfigures:
        return
    columns = ("step", "GPU", "layout before", "after", "costs (GPU-s)")
    table = words.table("MIG layouts", *columns, right=(columns[0], columns[4]))
    for change in plan.reconfigures[: words.MAX_ROWS]:
        after = words.layout(change.after)
        before = "MIG off" if change.turn_on else words.layout(change.before)
        table.add_row(
            words.number(change.step),
            f"{clean(change.node)}:{change.gpu}",
            before,
            ("MIG off" if change.turn_off else after) + (" (reset)" if change.reset else ""),
            words.number(change.idle_gpu_seconds),
        )
    yield table
    if left := words.fold(len(plan.reconfigures)):
        yield left


def _reserves(plan: Plan, jobs: dict[str, Job]) -> Iterator[RenderableType]:
    if not plan.reserves:
        return
    columns = ("job", "queue", "from", "where", "GPUs")
    table = words.table("Reserved", *columns, right=(columns[4],))
    for entry in plan.reserves[: words.MAX_ROWS]:
        job = jobs.get(entry.job)
        table.add_row(
            clean(entry.job),
            clean(job.queue) if job else "?",
            f"{entry.at:%m-%d %H:%M}",
            words.places(entry.allocation),
            words.number(len(entry.allocation) * job.request.gpus) if job else "?",
        )
    yield table
    if left := words.fold(len(plan.reserves)):
        yield left


def _gpus(start: Start, job: Job | None) -> int:
    named = sum(len(task.gpus or ()) for task in start.allocation)
    return named or (len(start.allocation) * job.request.gpus if job else 0)


def _pending(plan: Plan, jobs: dict[str, Job]) -> Iterator[RenderableType]:
    if not plan.pending:
        return
    table = words.table("Waits", "job", "queue", "why")
    for entry in plan.pending[: words.MAX_ROWS]:
        job = jobs.get(entry.job)
        table.add_row(clean(entry.job), clean(job.queue) if job else "?", clean(entry.sentence))
    yield table
    if left := words.fold(len(plan.pending)):
        yield left


def _proof(plan: Plan) -> Iterator[RenderableType]:
    if not plan.proof.stages:
        return
    columns = ("stage", "unit", "cost", "bound", "do nothing", "gap", "status", "s")
    table = words.table("Proof, stage by stage", *columns, right=(*columns[2:6], "s"))
    for stage in plan.proof.stages:
        table.add_row(
            clean(stage.name),
            stage.unit,
            words.number(stage.objective),
            words.number(stage.bound),
            words.number(stage.do_nothing),
            words.percent(stage.gap),
            stage.status,
            "" if stage.solve_s is None else f"{stage.solve_s:.2f}",
        )
    yield table


def _metrics(plan: Plan) -> Iterator[RenderableType]:
    metrics = plan.metrics
    table = words.table("Cluster", "", "before", "after", "of", right=("before", "after", "of"))

    def row(what: str, before: int, after: int, total: int) -> None:
        table.add_row(what, words.number(before), words.number(after), words.number(total))

    row("GPUs in use", metrics.used_before, metrics.used_after, metrics.gpus)
    if len(metrics.by_model) > 1:
        for model, counts in sorted(metrics.by_model.items()):
            row(f"  {clean(model)}", counts.used_before, counts.used_after, counts.gpus)
    table.add_row(
        "fragmentation (F / idle)",
        words.per_mille(metrics.fragmentation_before_milli),
        words.per_mille(metrics.fragmentation_after_milli),
        "",
    )
    waiting = metrics.pending_before
    table.add_row(
        "jobs waiting", words.number(waiting), words.number(waiting - metrics.started), ""
    )
    yield table
