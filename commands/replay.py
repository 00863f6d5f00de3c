"""`trencadis replay`: a trace on a cluster under one or several policies, side by side."""

# ruff: noqa: PLC0415
# Nothing but Typer is imported at the top; see cli.py.

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trencadis.commands.reporting import ReportOut, check_report, write_report
from trencadis.views import options as opt

if TYPE_CHECKING:
    from trencadis.models import Snapshot
    from trencadis.models.trace import Trace
    from trencadis.whatif.replay import Replayed, Setting

UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def duration(text: str) -> int:
    """Seconds of `90`, `90s`, `15m`, `12h`, `7d`, `2w`."""
    match = re.fullmatch(r"(\d+)([smhdw]?)", text.strip())
    if match is None:
        raise typer.BadParameter(f"{text!r} is no time; give 90s, 15m, 12h, 7d or 2w")
    return int(match.group(1)) * UNITS[match.group(2) or "s"]


def window(text: str) -> tuple[int, int]:
    """`0d..7d` as seconds after the first submission."""
    first, dots, last = text.partition("..")
    if not dots:
        raise typer.BadParameter(f"{text!r} is no window; give 0d..7d")
    bounds = duration(first), duration(last)
    if bounds[0] >= bounds[1]:
        raise typer.BadParameter(f"{text!r}: the window ends before it begins")
    return bounds


TraceFile = Annotated[Path, typer.Argument(metavar="TRACE", help="A file of jobs with runtimes.")]
ClusterOption = Annotated[
    str, typer.Option(metavar="SNAPSHOT|MIX", help="A snapshot, or kinds of node: 8xh100-8.")
]
FormatOption = Annotated[
    str | None,
    typer.Option("--format", help="csv, muri, philly, openb, sacct, sacct-json; told by itself."),
]
TimezoneOption = Annotated[str, typer.Option(help="Of times without an offset (sacct).")]
ThroughputsOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Philly: simulation_throughputs.json.")
]
FabricOption = Annotated[
    str, typer.Option(help="Network of a MIX: 10gbe, roce or infiniband, or as the prices say.")
]
ScaleOption = Annotated[
    float | None, typer.Option("--scale-load", help="Jobs arrive so many times as fast.")
]
BurstOption = Annotated[
    str | None,
    typer.Option(metavar="KIND", help="Burst nodes of the prices, for preempted jobs that wait."),
]
OfferedOption = Annotated[
    float | None, typer.Option("--load", help="Arrivals such that they ask for this part, as 0.9.")
]


def replay(
    context: typer.Context,
    trace: TraceFile,
    cluster: ClusterOption,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="Repeat to compare; all; with switches, as volcano+kill."),
    ] = None,
    form: FormatOption = None,
    timezone: TimezoneOption = "UTC",
    throughputs: ThroughputsOption = None,
    scale_load: ScaleOption = None,
    load: OfferedOption = None,
    window_of: Annotated[
        str | None,
        typer.Option("--window", metavar="FROM..TO", help="Only what arrives then, as 0d..7d."),
    ] = None,
    queues: Annotated[
        int, typer.Option(min=0, help="Deal jobs that name no queue to so many, by user.")
    ] = 0,
    round_length: Annotated[
        str, typer.Option("--round", help="Rounds are at least so far apart.")
    ] = "300s",
    mtbf: Annotated[
        float, typer.Option("--mtbf-hours", min=0.0, help="Nodes fail so often; 0: never.")
    ] = 0.0,
    repair: Annotated[float, typer.Option("--repair-hours", min=0.01)] = 4.0,
    serial: Annotated[
        int, typer.Option("--serial-milli", min=0, max=1_000, help="Of elastic jobs (Amdahl).")
    ] = 0,
    effort: Annotated[
        float, typer.Option(min=0.01, help="Work of a solve, about seconds; trencadis only.")
    ] = 0.5,
    fabric: FabricOption = "infiniband",
    prices: opt.Prices = None,
    burst: BurstOption = None,
    policy_file: Annotated[
        str | None,
        typer.Option("--policy-file", metavar="FILE", help="The policy, TOML or JSON."),
    ] = None,
    seed: opt.Seed = 0,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Rounds, decisions, jobs as CSV and JSON.")
    ] = None,
    resume: Annotated[bool, typer.Option(help="Go on where a replay into DIR stopped.")] = False,
    processes: Annotated[
        int | None, typer.Option(min=1, help="At once; as many as CPUs where absent.")
    ] = None,
    report: ReportOut = None,
    json: opt.Json = False,
) -> None:
    """Run a trace through time under one or several policies."""
    if resume and out is None:
        raise typer.BadParameter("--resume needs --out DIR")
    if scale_load is not None and load is not None:
        raise typer.BadParameter("give --scale-load or --load, not both")
    for name, value in (("--scale-load", scale_load), ("--load", load)):
        if value is not None and not 0 < value < 1e6:
            raise typer.BadParameter(f"{name} must be above 0")
    check_report(report)
    spaced = duration(round_length)
    chosen = None if window_of is None else window(window_of)
    from trencadis.commands.scene import burst_of, cluster_for, jobs_for, list_of_prices, price_of
    from trencadis.commands.tables import replay_record, replay_view
    from trencadis.views import io
    from trencadis.views.session import dumps
    from trencadis.whatif.engine import ReplayOptions
    from trencadis.whatif.failures import FailureModel
    from trencadis.whatif.policies.registry import check_names
    from trencadis.whatif.replay import Setting

    names = check_names(policy or ["trencadis"])
    table = list_of_prices(context, prices)
    place = cluster_for(context, cluster, table, fabric, policy_file)
    jobs = jobs_for(
        trace,
        place,
        form=form,
        timezone=timezone,
        throughputs=throughputs,
        between=chosen,
        factor=scale_load,
        load=load,
        queues=queues,
    )
    setting = Setting(
        options=ReplayOptions(
            round_seconds=spaced,
            seed=seed,
            failures=FailureModel(mtbf, repair) if mtbf else None,
            serial_milli=serial,
            burst=burst_of(table, burst),
        ),
        effort=effort,
        price_per_gpu_hour=price_of(place, table, cluster, fabric),
        directory=out,
        resume=resume,
    )
    done, failed = _run_all(jobs, place, names, setting, processes)
    if json:
        io.write(io.STANDARD, dumps(replay_record(jobs, place, table, done, failed)))
    else:
        io.show(*replay_view(jobs, place, table, done))
    if report is not None:
        from trencadis.commands.tables import scene_of
        from trencadis.whatif.report.replayed import replay_report

        write_report(report, replay_report(scene_of(jobs, place, table), done))
    _tell_failed(failed)


def _run_all(
    jobs: Trace,
    place: Snapshot,
    names: list[str],
    setting: Setting,
    processes: int | None,
) -> tuple[dict[str, Replayed], dict[str, BaseException]]:
    from functools import partial

    from trencadis.models import InvalidInputError
    from trencadis.views.progress import Progress
    from trencadis.whatif.replay import replay
    from trencadis.whatif.sweep import sweep

    done: dict[str, Replayed] = {}
    failed: dict[str, BaseException] = {}
    tasks = [partial(replay, jobs, place, name, setting) for name in names]
    with Progress(len(tasks), "Replaying") as progress:
        for outcome in sweep(tasks, processes):
            name = names[outcome.index]
            progress.step(name)
            if outcome.result is not None:
                done[name] = outcome.result
            elif outcome.error is not None:
                failed[name] = outcome.error
    if not done:  # nothing to show: say why, as if there had been one
        raise next(iter(failed.values()))
    for error in failed.values():
        if isinstance(error, InvalidInputError):
            raise error
    return {name: done[name] for name in names if name in done}, failed


def _tell_failed(failed: dict[str, BaseException]) -> None:
    from trencadis.views import io
    from trencadis.views.outcome import Code, CommandError

    for name, error in failed.items():
        io.tell(f"trencadis: policy {name} failed: {type(error).__name__}: {error}")
    if failed:
        raise CommandError(Code.INTERNAL, f"{len(failed)} of the replays failed; see above")
