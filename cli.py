"""The command line: which command does what. Conventions and exit codes: README.md."""

# ruff: noqa: PLC0415
# Nothing but Typer is imported at the top: the schema and ortools take most of a second to load,
# and `trencadis --help` must not wait for them.

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from trencadis.commands import capacity as capacity_command
from trencadis.commands import defrag as defrag_command
from trencadis.commands import diff as diff_command
from trencadis.commands import explain as explaining
from trencadis.commands import imports
from trencadis.commands import kubernetes as kubernetes_commands
from trencadis.commands import log as log_command
from trencadis.commands import replay as replay_command
from trencadis.commands import serve as serving
from trencadis.commands import slurm as slurm_commands
from trencadis.commands import whatif as whatif_command
from trencadis.commands.reporting import ReportOut, check_report, write_report
from trencadis.views import options as opt

app = typer.Typer(
    name="trencadis",
    help="Exact, proven and explained placement for shared GPU clusters.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(imports.app, name="import")
app.add_typer(slurm_commands.app, name="slurm")
app.add_typer(kubernetes_commands.app, name="kubernetes")
app.command()(log_command.log)
app.command()(replay_command.replay)
app.command()(whatif_command.whatif)
app.command()(capacity_command.capacity)
app.command()(defrag_command.defrag)
app.command()(diff_command.diff)
serving.register(app)


@app.callback(invoke_without_command=True)
def _start(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from trencadis import __version__

        typer.echo(f"trencadis {__version__}")
        raise typer.Exit
    if context.invoked_subcommand == "solve":
        from trencadis.views.settings import from_file

        context.default_map = {"solve": from_file()}


@app.command()
def solve(
    context: typer.Context,
    snapshot: opt.MaybeSnapshot = None,
    output: opt.PlanOut = None,
    report: ReportOut = None,
    repro: opt.Repro = None,
    policy: opt.PolicyFile = None,
    mig_tables: opt.MigTables = None,
    time_limit: opt.TimeLimit = None,
    gap: opt.Gap = None,
    workers: opt.Workers = 8,
    deterministic: opt.Deterministic = False,
    seed: opt.Seed = 0,
    json: opt.Json = False,
) -> None:
    """Decide which job runs where, with a proof."""
    from trencadis.views import io
    from trencadis.views.interrupt import interruptible
    from trencadis.views.outcome import Code, CommandError
    from trencadis.views.plan import headline, plan_view
    from trencadis.views.session import Session
    from trencadis.views.snapshots import plan_text

    io.writable(output)
    check_report(report)
    if (snapshot is None) == (repro is None):
        raise typer.BadParameter("give a SNAPSHOT, or --repro FILE")
    if snapshot is not None:
        snap = Session(context, mig_tables).snapshot(snapshot, policy)
    from trencadis.solver.round import Options
    from trencadis.solver.round import solve as solve_round

    options = Options(
        time_limit_s=time_limit, gap=gap, workers=workers, deterministic=deterministic, seed=seed
    )
    if repro is not None:
        from trencadis.commands.repro import read

        snap, options = read(context, repro)
    plan, interrupted = interruptible(
        lambda stop: solve_round(snap, options, stop), f"Solving {len(snap.jobs)} jobs"
    )
    text = plan_text(plan)
    if output is not None:
        io.write(output, text)
    if report is not None:
        from trencadis.whatif.report.solved import solve_report

        write_report(report, solve_report(snap, plan))
    if output == io.STANDARD:
        io.tell(headline(plan))
    elif json:
        io.write(io.STANDARD, text)
    else:
        io.show(*plan_view(plan, snap))
    if interrupted:
        raise CommandError(Code.INTERRUPTED, "interrupted; this was the best plan so far")


@app.command()
def verify(
    context: typer.Context,
    snapshot: opt.SnapshotArg,
    plan: opt.PlanArg,
    mig_tables: opt.MigTables = None,
    json: opt.Json = False,
) -> None:
    """Check a plan without the solver."""
    from trencadis.views import io
    from trencadis.views.outcome import Code, CommandError
    from trencadis.views.session import Session, dumps
    from trencadis.views.verdict import verdict_record, verdict_view

    snap, decided = Session(context, mig_tables).both(snapshot, plan)
    from trencadis.solver.verify import verify as verify_plan

    verdict = verify_plan(snap, decided)
    if json:
        io.write(io.STANDARD, dumps(verdict_record(verdict)))
    else:
        io.show(*verdict_view(verdict, decided))
    if verdict.violations:
        raise CommandError(Code.UNVERIFIED)


@app.command()
def apply(
    context: typer.Context,
    snapshot: opt.SnapshotArg,
    plan: opt.PlanArg,
    output: opt.SnapshotOut = "-",
    mig_tables: opt.MigTables = None,
    json: opt.AlwaysJson = False,
) -> None:
    """Print the snapshot after a plan's actions."""
    from trencadis.models import Fault, InvalidInputError, PlanMismatchError
    from trencadis.models import apply as apply_plan
    from trencadis.views import io
    from trencadis.views.session import Session, deliver

    io.writable(output)
    snap, decided = Session(context, mig_tables).both(snapshot, plan)
    with io.source_named(plan):
        try:
            following = apply_plan(snap, decided)
        except PlanMismatchError as error:
            raise InvalidInputError([Fault("$", str(error))]) from None
    deliver(following, [], output, json)


@app.command()
def show(
    context: typer.Context,
    snapshot: opt.SnapshotArg,
    mig_tables: opt.MigTables = None,
    json: opt.Json = False,
) -> None:
    """Draw the cluster: GPUs with their slices and shares, what is free, queues."""
    from trencadis.views import io
    from trencadis.views.session import Session, dumps

    snap = Session(context, mig_tables).snapshot(snapshot)
    from trencadis.views.cluster import cluster_facts, cluster_record
    from trencadis.views.drawing import cluster_view
    from trencadis.views.queues import queue_records

    facts = cluster_facts(snap)
    queues = queue_records(facts.situation)
    if json:
        io.write(io.STANDARD, dumps(cluster_record(facts, queues)))
    else:
        io.show(*cluster_view(facts, queues))


explaining.register(app)


@app.command()
def schema(kind: Literal["snapshot", "plan", "policy"], json: opt.AlwaysJson = False) -> None:  # noqa: ARG001
    """Print a JSON Schema."""
    from trencadis.models import Plan, Policy, Snapshot
    from trencadis.models.base import Record
    from trencadis.views import io
    from trencadis.views.session import dumps

    records: dict[str, type[Record]] = {"snapshot": Snapshot, "plan": Plan, "policy": Policy}
    io.write(io.STANDARD, dumps(records[kind].model_json_schema()))


@app.command()
def init(
    teams: opt.Teams,
    directory: opt.Directory = Path(),
    force: opt.Force = False,
    json: opt.Json = False,
) -> None:
    """Write a commented policy and a first snapshot."""
    from trencadis.views import io
    from trencadis.views.session import dumps
    from trencadis.views.starter import SNAPSHOT_FILE, write_starter

    paths = [str(path) for path in write_starter(directory, teams, force)]
    if json:
        io.write(io.STANDARD, dumps({"written": paths}))
    else:
        io.show(*(f"wrote {io.clean(path)}" for path in paths))
        io.tell(f"Next, in that directory: trencadis solve {SNAPSHOT_FILE}")


@app.command()
def generate(
    nodes: opt.Nodes = 100,
    pending: opt.Waiting = 200,
    load: opt.Load = 0.7,
    seed: int = 0,
    queues: opt.Queues = 10,
    gang_fraction: opt.GangFraction = 1 / 12,
    mig: opt.MigFraction = 0.0,
    share: opt.ShareFraction = 0.0,
    output: opt.SnapshotOut = "-",
    json: opt.AlwaysJson = False,
) -> None:
    """Make a synthetic cluster."""
    from trencadis.views import io
    from trencadis.views.session import deliver

    io.writable(output)
    from trencadis.instances.generate import generate as made

    if mig + share > 1:
        raise typer.BadParameter("--mig and --share are parts of the nodes, together at most 1")
    snapshot = made(
        nodes, pending, load, seed, queues, gang_fraction=gang_fraction, mig=mig, share=share
    )
    deliver(snapshot, [], output, json)


def main() -> None:
    """The program `trencadis`: runs a command and exits with its code."""
    texts: dict[str, str] = {}
    try:
        code = app(obj=texts, standalone_mode=False)
    except SystemExit:
        raise
    except BaseException as error:
        if callable(show_usage := getattr(error, "show", None)):  # Typer's own: wrong usage
            show_usage()
            sys.exit(2)
        from trencadis.views.outcome import failed

        code = failed(error, texts, sys.argv[1:])
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
