"""`trencadis slurm`: how the commands for a live Slurm talk; what they do is in `adapters`."""

# ruff: noqa: PLC0415
# As in cli.py: nothing but Typer at the top.

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from trencadis.commands.live import native, opened, read_config
from trencadis.views import options as opt

if TYPE_CHECKING:
    import threading

    from trencadis.adapters.live.context import Context

app = typer.Typer(help="Live with a running Slurm.", no_args_is_help=True, rich_markup_mode=None)

ConfigFile = Annotated[
    str | None,
    typer.Option(
        "--config",
        envvar="TRENCADIS_SLURM",
        metavar="FILE",
        help="TOML: [live], [slurm], [policy], [[queues]]. trencadis-slurm.toml if there.",
    ),
]
State = Annotated[
    Path,
    typer.Option(
        envvar="TRENCADIS_STATE", metavar="FILE", help="The log, and what is under way (SQLite)."
    ),
]
Mode = Literal["shadow", "recommend", "enforce"]
LogLevel = Annotated[Literal["debug", "info", "warning", "error"], typer.Option()]
STATE = Path("trencadis-live.sqlite")


@app.command()
def snapshot(
    config: ConfigFile = None,
    output: opt.SnapshotOut = "-",
    json: opt.AlwaysJson = False,
) -> None:
    """The cluster now, as a snapshot."""
    from trencadis.adapters.slurm.live import SlurmCluster
    from trencadis.views import io
    from trencadis.views.session import deliver

    io.writable(output)
    with native():
        reading = SlurmCluster(read_config(config)).read({})
    deliver(reading.snapshot, list(reading.warnings), output, json)


@app.command()
def apply(
    context: typer.Context,
    plan: opt.PlanArg,
    config: ConfigFile = None,
    state: State = STATE,
    yes: Annotated[bool, typer.Option("--yes", help="Send the actions; else only tell.")] = False,
    log_level: LogLevel = "info",
    json: opt.Json = False,
) -> None:
    """Send a plan's actions whose preconditions hold (a dry run without --yes)."""
    from trencadis.adapters.live.carry import carry_out, rehearse
    from trencadis.adapters.live.lock import locked
    from trencadis.models import load_plan
    from trencadis.views import io
    from trencadis.views.outcome import Code, CommandError
    from trencadis.views.session import Session, dumps

    text = Session(context).text(plan)
    with io.source_named(plan):
        decided = load_plan(text)
    with opened(config, state, log_level) as live, native():
        if yes:
            _may_enforce(live)
        reading = live.cluster.read(live.store.terms())
        if not yes:
            steps = rehearse(live, decided, reading.snapshot, reading)
        else:
            with locked(state):
                epoch = live.store.epoch()
                steps = carry_out(live, decided, reading.snapshot, reading, epoch)
    if json:
        rows = [
            {"action": s.kind, "job": s.job, "nodes": list(s.nodes), "blocked": s.blocked}
            for s in steps
        ]
        io.write(io.STANDARD, dumps({"sent": yes, "steps": rows}))
    else:
        word = "sent" if yes else "would send"
        io.show(
            *(
                f"{'skip' if s.blocked else word}  {s.kind}  {s.job}  {','.join(s.nodes)}"
                f"{f'  ({s.blocked})' if s.blocked else ''}"
                for s in steps
            )
        )
        if not yes:
            io.tell("Nothing was sent; --yes sends it.")
    if any(step.blocked for step in steps):
        raise CommandError(Code.UNVERIFIED, "preconditions of some actions don't hold")


@app.command()
def run(
    config: ConfigFile = None,
    state: State = STATE,
    interval: Annotated[
        float | None, typer.Option(min=0.1, help="Seconds from round to round.")
    ] = None,
    mode: Annotated[Mode | None, typer.Option(help="What to do with the plans.")] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="End after so many.")] = None,
    plan_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="Each round's plan, for `slurm apply`.")
    ] = None,
    metrics_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Prometheus text, for node_exporter.")
    ] = None,
    repro_dir: Annotated[
        Path, typer.Option(metavar="DIR", help="Where a failing round is saved.")
    ] = Path(),
    workers: opt.Workers = 8,
    log_level: LogLevel = "info",
) -> None:
    """Round after round: snapshot, solve, carry out, log."""
    from dataclasses import asdict

    from trencadis.adapters.live.lock import locked
    from trencadis.adapters.live.loop import Loop
    from trencadis.models import Plan, Snapshot
    from trencadis.views import io
    from trencadis.views.snapshots import plan_text

    io.writable(plan_file)
    stop = _told_to_stop()
    with opened(config, state, log_level, mode=mode, interval=interval) as live, locked(state):
        if live.config.mode == "enforce":
            with native():
                _may_enforce(live)
        from trencadis.solver.round import Options
        from trencadis.solver.session import Session

        limit = live.config.time_limit_seconds or live.config.interval_seconds / 2
        options = Options(time_limit_s=limit, workers=workers, seed=live.config.seed)
        session: Session | None = None

        def decide(snap: Snapshot) -> Plan:
            nonlocal session
            session = session or Session(snap, options)
            session.update(snap)
            most = snap.policy.time_limit_seconds
            return session.solve(min(limit, most))

        loop = Loop(
            live,
            decide,
            options={k: v for k, v in asdict(options).items() if k != "thresholds"},
            metrics_file=metrics_file,
            repro_dir=repro_dir,
            on_plan=None if plan_file is None else lambda p: io.write(plan_file, plan_text(p)),
        )
        loop.run(stop, rounds)


@app.command()
def watchdog(
    config: ConfigFile = None,
    state: State = STATE,
    missed: Annotated[int | None, typer.Option(min=1, help="Rounds; the config's.")] = None,
    period: Annotated[float | None, typer.Option(min=0.1, help="Seconds between looks.")] = None,
    once: Annotated[bool, typer.Option("--once", help="Look once and end.")] = False,
    log_level: LogLevel = "info",
) -> None:
    """Give all jobs back to Slurm when rounds are missed. A process of its own."""
    from trencadis.adapters.live.watchdog import Watchdog

    stop = _told_to_stop()
    with opened(config, state, log_level, missed=missed) as live:
        dog = Watchdog(live, since_start=not once)
        if once:
            dog.check()
        else:
            dog.run(stop, period or live.config.interval_seconds)


@app.command()
def pause(config: ConfigFile = None, state: State = STATE, json: opt.Json = False) -> None:
    """Give all jobs back to Slurm now, and start none until `resume`."""
    with opened(config, state, "warning") as live, native():
        _hand_back(live, "paused", json)


@app.command()
def resume(config: ConfigFile = None, state: State = STATE) -> None:
    """Start jobs again after `pause` or `uninstall`."""
    with opened(config, state, "info") as live:
        live.store.fence(control="active")
        live.note("resumed")


@app.command()
def uninstall(config: ConfigFile = None, state: State = STATE, json: opt.Json = False) -> None:
    """Give all jobs back, remove our reservations, end the loop. The log stays."""
    with opened(config, state, "warning") as live, native():
        _hand_back(live, "uninstalled", json)


@app.command()
def ack(
    jobs: Annotated[list[str], typer.Argument(metavar="JOB...")],
    config: ConfigFile = None,
    state: State = STATE,
) -> None:
    """Say that jobs in their grace are ready to be stopped."""
    with opened(config, state, "info") as live:
        for job in jobs:
            live.note("acknowledged", job)


def _told_to_stop() -> threading.Event:
    """Set by Ctrl-C and by what ends a service."""
    import signal
    import threading

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop


def _may_enforce(live: Context) -> None:
    from trencadis.views.outcome import Code, CommandError

    objections = live.cluster.objections()
    if objections:
        raise CommandError(Code.USAGE, f"enforce is refused: {'; '.join(objections)}")


def _hand_back(live: Context, control: str, json: bool) -> None:
    from trencadis.adapters.live.handback import hand_back
    from trencadis.views import io
    from trencadis.views.session import dumps

    given, leaving = hand_back(live, control, control=control)
    live.note(control, jobs=len(given))
    if json:
        io.write(io.STANDARD, dumps({"given_back": given, "leaving": leaving}))
        return
    io.show(f"{len(given)} jobs given back to Slurm")
    if leaving:
        io.show(f"still leaving their nodes: {', '.join(leaving)}; run this again soon")
