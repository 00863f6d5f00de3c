"""The commands `explain` and `doctor`: why jobs wait, what would help, how the cluster is."""

# ruff: noqa: PLC0415
# As in cli.py, nothing but Typer is imported at the top.

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from trencadis.views import options as opt

if TYPE_CHECKING:
    from trencadis.models import Plan, Snapshot

QUICK_S = 2.0
"""Seconds for the round that is solved where no plan is given."""

Jobs = Annotated[
    list[str] | None, typer.Argument(metavar="[JOB]...", help="Jobs; with none, give --all.")
]
Everyone = Annotated[
    bool, typer.Option("--all", help="All waiting jobs, in groups of the same reason.")
]
Started = Annotated[
    str | None, typer.Option("--start", metavar="JOB", help="Why this job starts, there and now.")
]
PlanFile = Annotated[
    str | None,
    typer.Option(
        "--plan", metavar="PLAN", help="The plan in question; a round is solved if absent."
    ),
]
Viewer = Annotated[
    str | None,
    typer.Option(metavar="QUEUE", help="Hide the names of jobs outside this queue."),
]
Remedies = Annotated[
    bool | None,
    typer.Option(
        "--remedies/--no-remedies",
        help="What would help; on for named jobs, off for --all.",
        show_default=False,
    ),
]
RoundLimit = Annotated[
    float,
    typer.Option(
        "--time-limit", metavar="S", min=0.001, max=1e9, help="For the round, without --plan."
    ),
]


def explain(
    context: typer.Context,
    snapshot: opt.SnapshotArg,
    jobs: Jobs = None,
    everyone: Everyone = False,
    start: Started = None,
    plan: PlanFile = None,
    viewer: Viewer = None,
    remedies: Remedies = None,
    mig_tables: opt.MigTables = None,
    time_limit: RoundLimit = QUICK_S,
    json: opt.Json = False,
) -> None:
    """Say why jobs wait, what would help, and when they may start."""
    names = [*(jobs or ()), *([start] if start is not None else ())]
    if bool(names) == everyone:
        raise typer.BadParameter("give either JOBs or --all")
    from trencadis.views import io
    from trencadis.views.explanation import report_view
    from trencadis.views.session import Session

    session, quiet = Session(context, mig_tables), viewer is not None
    if plan is None:
        snap = session.snapshot(snapshot, quiet=quiet)
    else:
        snap, decided = session.both(snapshot, plan, quiet=quiet)
    if viewer is None:
        _known(names, (job.name for job in snap.jobs), "job")
    else:
        _known([viewer], (queue.name for queue in snap.queues), "queue")
    if plan is None:
        decided = _round(snap, time_limit)
    if viewer is not None:
        snap, decided = _hidden(snap, decided, viewer, names)
    from trencadis.models import Fault, InvalidInputError, PlanMismatchError
    from trencadis.solver.explain.explain import explain as answer

    with io.source_named(plan or snapshot):
        try:
            report = answer(
                snap,
                decided,
                names,
                everyone=everyone,
                help_=not everyone if remedies is None else remedies,
            )
        except PlanMismatchError as error:
            raise InvalidInputError([Fault("$", str(error))]) from None
    if json:
        io.write(io.STANDARD, report.model_dump_json(indent=2) + "\n")
    else:
        io.show(*report_view(report))


def doctor(
    context: typer.Context,
    snapshot: opt.SnapshotArg,
    mig_tables: opt.MigTables = None,
    json: opt.Json = False,
) -> None:
    """Tell how the cluster is: full or in pieces, who is owed what, what can never run."""
    from trencadis.views import io
    from trencadis.views.health import health_view
    from trencadis.views.session import Session

    snap = Session(context, mig_tables).snapshot(snapshot)
    from trencadis.solver.explain.doctor import doctor as examine

    health = examine(snap)
    if json:
        io.write(io.STANDARD, health.model_dump_json(indent=2) + "\n")
    else:
        io.show(*health_view(health))


def register(app: typer.Typer) -> None:
    """Adds the commands of this module to the program."""
    app.command()(explain)
    app.command()(doctor)


def _known(names: Iterable[str], there: Iterable[str], what: str) -> None:
    """Raises typer.BadParameter for a name that isn't there."""
    known = set(there)
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, sorted(known), n=1)
            maybe = f" Maybe {near[0]}?" if near else ""
            raise typer.BadParameter(f"there is no {what} {name!r} in the snapshot.{maybe}")


def _round(snapshot: Snapshot, seconds: float) -> Plan:
    from trencadis.solver.round import Options, solve
    from trencadis.views.interrupt import interruptible

    decided, _ = interruptible(
        lambda stop: solve(snapshot, Options(time_limit_s=seconds), stop),
        f"Solving {len(snapshot.jobs)} jobs",
    )
    return decided


def _hidden(
    snapshot: Snapshot, plan: Plan, viewer: str, names: Iterable[str]
) -> tuple[Snapshot, Plan]:
    from trencadis.models.hidden import hidden

    snap, decided = hidden(snapshot, plan, viewer)
    seen = {job.name for job in snap.jobs}
    for name in names:
        if name not in seen:
            raise typer.BadParameter(f"job {name!r} is not in queue {viewer}")
    return snap, decided
