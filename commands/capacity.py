"""`trencadis capacity`: the cheapest mix of nodes that meets a target, with a proof."""

# ruff: noqa: PLC0415
# Nothing but Typer is imported at the top; see cli.py.

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trencadis.commands.capacity_guarantee import (
    GuaranteeEach,
    GuaranteeRequest,
    Teams,
    search_guarantees,
)
from trencadis.commands.capacity_rent import Growth, Months, Renting
from trencadis.commands.capacity_trace import (
    EffortOption,
    MtbfOption,
    Neighbours,
    ProcessesOption,
    QueuesOption,
    RepairOption,
    ReplayPolicy,
    RoundOption,
    Seeds,
    TraceRequest,
    WindowOption,
    is_trace,
    search_replays,
)
from trencadis.commands.replay import (
    BurstOption,
    FormatOption,
    ScaleOption,
    ThroughputsOption,
    TimezoneOption,
    duration,
    window,
)
from trencadis.commands.reporting import ReportOut, check_report
from trencadis.views import options as opt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trencadis.models import Snapshot
    from trencadis.solver.round import Options
    from trencadis.whatif.capacity.offers import Offer
    from trencadis.whatif.capacity.snapshot import Search
    from trencadis.whatif.capacity.verdict import Attempt
    from trencadis.whatif.prices import PriceList

SourceArg = Annotated[
    str,
    typer.Argument(
        metavar="SNAPSHOT|TRACE", help="A snapshot in JSON (- for stdin); else a trace, replayed."
    ),
]
Kinds = Annotated[
    list[str] | None,
    typer.Option("--sku", metavar="KIND", help="Nodes to be had, as h100-8 or NODE; repeat."),
]
Targets = Annotated[
    list[str] | None,
    typer.Option("--target", help="pending==0, fragmentation<0.15 ...; repeat: all are to be met."),
]
Shrink = Annotated[
    bool, typer.Option("--shrink", help="The least of the present nodes that serves this load.")
]
MostNodes = Annotated[
    int, typer.Option("--max-nodes", min=1, max=10_000, help="Of each kind, at most.")
]
Tries = Annotated[
    int, typer.Option(min=1, max=10_000, help="Mixes solved in order of price, before steps grow.")
]


def capacity(
    context: typer.Context,
    source: SourceArg,
    sku: Kinds = None,
    target: Targets = None,
    shrink: Shrink = False,
    guarantee_each: GuaranteeEach = None,
    team: Teams = None,
    max_nodes: MostNodes = 1_000,
    tries: Tries = 40,
    prices: opt.Prices = None,
    fabric: opt.Network = None,
    policy: opt.PolicyFile = None,
    time_limit: opt.TimeLimit = None,
    gap: opt.Gap = None,
    workers: opt.Workers = 8,
    deterministic: opt.Deterministic = False,
    seed: opt.Seed = 0,
    form: FormatOption = None,
    timezone: TimezoneOption = "UTC",
    throughputs: ThroughputsOption = None,
    scale_load: ScaleOption = None,
    window_of: WindowOption = None,
    queues: QueuesOption = 0,
    replay_policy: ReplayPolicy = "trencadis",
    seeds: Seeds = 1,
    neighbours: Neighbours = 3,
    round_length: RoundOption = "300s",
    burst: BurstOption = None,
    mtbf: MtbfOption = 0.0,
    repair: RepairOption = 4.0,
    effort: EffortOption = 0.5,
    processes: ProcessesOption = None,
    months: Months = 0,
    growth: Growth = 0.0,
    report: ReportOut = None,
    json: opt.Json = False,
) -> None:
    """Find the cheapest mix of nodes that meets a target; on a snapshot with a proof."""
    check_report(report)
    if is_trace(source, form):
        if guarantee_each or team:
            raise typer.BadParameter("--guarantee-each and --team take a snapshot")
        if shrink or not sku or not target:
            raise typer.BadParameter("a trace takes --sku KIND and --target, as p95_wait<1h")
        search_replays(
            context,
            TraceRequest(
                source=Path(source),
                kinds=tuple(sku),
                targets=tuple(target),
                most=max_nodes,
                tries=tries,
                prices=prices,
                fabric=fabric or "infiniband",
                policy_file=policy,
                form=form,
                timezone=timezone,
                throughputs=throughputs,
                scale_load=scale_load,
                window=None if window_of is None else window(window_of),
                queues=queues,
                policy=replay_policy,
                seeds=seeds,
                neighbours=neighbours,
                round_seconds=duration(round_length),
                mtbf=mtbf,
                repair=repair,
                effort=effort,
                processes=processes,
                burst=burst,
            ),
            Renting(months, growth),
            report,
            json,
        )
        return
    if burst is not None:
        raise typer.BadParameter("--burst takes a trace")
    if shrink == bool(sku):
        raise typer.BadParameter("give --sku KIND for nodes to come, or --shrink")
    if guarantee_each and target:
        raise typer.BadParameter("--guarantee-each has its own target: that all claims start")
    if team and not guarantee_each:
        raise typer.BadParameter("--team takes --guarantee-each")
    from trencadis.commands.scene import list_of_prices
    from trencadis.solver.round import Options
    from trencadis.views.session import Session
    from trencadis.whatif.capacity.target import targets

    wanted = targets(target or ["pending==0"], trace=False)
    listed = list_of_prices(context, prices)
    if fabric is not None and listed.fabric(fabric) is None:
        raise typer.BadParameter(f"the prices have no fabric {fabric!r}")
    options = Options(
        time_limit_s=time_limit,
        gap=gap,
        workers=workers,
        deterministic=deterministic,
        seed=seed,
    )
    from trencadis.whatif.capacity.offers import kept, rented
    from trencadis.whatif.capacity.snapshot import Search
    from trencadis.whatif.clusters import price_per_hour_milli

    base = Session(context).snapshot(source, policy)
    if guarantee_each:

        known = listed
        if shrink and price_per_hour_milli(base, listed, fabric) is None:
            known = listed.model_copy(update={"skus": (), "gpu_hour_milli": {}})

        def supply(load: Snapshot) -> tuple[Snapshot, Sequence[Offer], bool]:
            if shrink:
                return kept(load, known, fabric)
            return load, *rented(load, sku or [], known, fabric, max_nodes)

        search_guarantees(
            GuaranteeRequest(
                snapshot=base,
                each=guarantee_each,
                teams=tuple(team or ()),
                supply=supply,
                options=options,
                tries=tries,
                priced=supply(base)[2],
                fabric=fabric,
            ),
            listed,
            Renting(months, growth),
            report,
            json,
        )
        return
    if shrink:
        load = base if target else _served(base, options)
        rest, offers, priced = kept(load, listed, fabric)
    else:
        rest = base
        offers, priced = rented(base, sku or [], listed, fabric, max_nodes)
    search = Search(rest, tuple(offers), wanted, options, tries)
    _search(search, listed, priced, Renting(months, growth), report, json)


def _served(snapshot: Snapshot, options: Options) -> Snapshot:
    """The load that the cluster serves as it is."""
    from trencadis.solver.round import solve
    from trencadis.views.interrupt import interruptible
    from trencadis.whatif.capacity.offers import served

    plan, _ = interruptible(lambda stop: solve(snapshot, options, stop), "Solving it as it is")
    return served(snapshot, plan)


def _search(
    search: Search,
    listed: PriceList,
    priced: bool,
    renting: Renting,
    report: str | None,
    json: bool,
) -> None:
    from trencadis.commands.capacity_views import Answer, found_record, found_view, mix_words
    from trencadis.views import io
    from trencadis.views.interrupt import interruptible
    from trencadis.views.outcome import Code, CommandError
    from trencadis.views.session import dumps
    from trencadis.whatif.capacity.snapshot import cheapest

    renting.check(priced)

    def told(attempt: Attempt) -> None:
        what = mix_words(search.offers, attempt.mix)
        io.tell(f"trencadis: {io.clean(what)}: {attempt.verdict}")

    found, interrupted = interruptible(
        lambda stop: cheapest(search, stop, told), "Looking for the cheapest mix"
    )
    rentals = renting.of(search.offers, None if found.best is None else found.best.mix, listed)
    answer = Answer(search, found, listed.currency if priced else None, listed.as_of)
    if json:
        io.write(io.STANDARD, dumps(found_record(answer) | renting.record(rentals)))
    else:
        io.show(*found_view(answer), *renting.view(rentals, listed))
    if report is not None:
        from trencadis.commands.reporting import write_report
        from trencadis.whatif.report.capacity import capacity_report
        from trencadis.whatif.report.paying import Money

        money = Money(answer.currency, listed.as_of)
        write_report(report, capacity_report(search, found, money, renting.plan(rentals)))
    if interrupted:
        raise CommandError(Code.INTERRUPTED, "interrupted; this is what was known so far")
    if found.best is None:
        raise CommandError(Code.NO_PLAN)
