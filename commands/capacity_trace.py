"""The part of `trencadis capacity` that replays a trace on one mix after another."""

# ruff: noqa: PLC0415
# Nothing but Typer is imported at the top; see cli.py.

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trencadis.commands.capacity_rent import Renting

if TYPE_CHECKING:
    from trencadis.models import Policy, Snapshot
    from trencadis.models.trace import Trace
    from trencadis.whatif.capacity.offers import Mix, Offer
    from trencadis.whatif.capacity.replays import ReplaySearch, Trial
    from trencadis.whatif.prices import PriceList

ReplayPolicy = Annotated[
    str, typer.Option("--replay-policy", help="Trace: who schedules, as of replay --policy.")
]
Seeds = Annotated[
    int, typer.Option(min=1, max=100, help="Trace: replays of each mix; targets are held at P90.")
]
Neighbours = Annotated[
    int, typer.Option(min=0, help="Trace: sizes below the answer that must fail in a row.")
]
WindowOption = Annotated[
    str | None,
    typer.Option("--window", metavar="FROM..TO", help="Trace: only what arrives then, as 0d..7d."),
]
QueuesOption = Annotated[
    int, typer.Option(min=0, help="Trace: deal jobs that name no queue to so many, by user.")
]
RoundOption = Annotated[
    str, typer.Option("--round", help="Trace: rounds are at least so far apart.")
]
MtbfOption = Annotated[
    float, typer.Option("--mtbf-hours", min=0.0, help="Trace: nodes fail so often; 0: never.")
]
RepairOption = Annotated[float, typer.Option("--repair-hours", min=0.01)]
EffortOption = Annotated[
    float, typer.Option(min=0.01, help="Trace: work of a solve, about seconds; trencadis only.")
]
ProcessesOption = Annotated[
    int | None, typer.Option(min=1, help="Trace: at once; as many as CPUs where absent.")
]


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """What the command was asked."""

    source: Path
    kinds: tuple[str, ...]
    targets: tuple[str, ...]
    most: int
    tries: int
    prices: str | None
    fabric: str
    policy_file: str | None
    form: str | None
    timezone: str
    throughputs: Path | None
    scale_load: float | None
    window: tuple[int, int] | None
    queues: int
    policy: str
    seeds: int
    neighbours: int
    round_seconds: int
    mtbf: float
    repair: float
    effort: float
    processes: int | None
    burst: str | None


def is_trace(source: str, form: str | None) -> bool:
    """A snapshot is JSON; a trace in JSON (sacct) is one whose form is given."""
    path = Path(source)
    if form is not None:
        return True
    if source == "-" or not path.is_file():
        return False
    with path.open("rb") as stream:
        start = stream.read(1_024).removeprefix(b"\xef\xbb\xbf").lstrip()
    return bool(start) and not start.startswith(b"{")


def search_replays(
    context: typer.Context,
    asked: TraceRequest,
    renting: Renting,
    report: str | None,
    json: bool,
) -> None:
    """Finds and shows."""
    from trencadis.commands.scene import list_of_prices
    from trencadis.views import io
    from trencadis.views.outcome import Code, CommandError
    from trencadis.views.session import dumps
    from trencadis.whatif.capacity.replays import cheapest_replayed

    listed = list_of_prices(context, asked.prices)
    wanted, priced = _wanted(context, asked, listed)
    renting.check(priced)

    def told(trial: Trial) -> None:
        from trencadis.commands.capacity_trace_views import trial_words

        what = trial_words(wanted, trial)
        values = ", ".join(f"{name} {value:.4g}" for name, value in trial.high.items())
        io.tell(f"trencadis: {io.clean(what)}: {values}: {'meets it' if trial.met else 'misses'}")

    found = cheapest_replayed(wanted, told)
    from trencadis.commands.capacity_trace_views import TraceAnswer, trace_record, trace_view

    answer = TraceAnswer(wanted, found, listed.currency if priced else None, listed.as_of)
    best = found.best
    rentals = (
        [] if best is None else renting.of(wanted.offers, best.mix, listed, samples=best.busy)
    )
    if json:
        io.write(io.STANDARD, dumps(trace_record(answer) | renting.record(rentals)))
    else:
        io.show(*trace_view(answer), *renting.view(rentals, listed))
    if report is not None:
        from trencadis.commands.reporting import write_report
        from trencadis.whatif.report.capacity import trace_report
        from trencadis.whatif.report.paying import Money

        money = Money(answer.currency, listed.as_of)
        write_report(report, trace_report(wanted, found, money, renting.plan(rentals)))
    if found.best is None:
        raise CommandError(Code.NO_PLAN)


def _wanted(
    context: typer.Context, asked: TraceRequest, listed: PriceList
) -> tuple[ReplaySearch, bool]:
    from trencadis.commands.scene import burst_of
    from trencadis.whatif.capacity.offers import rented
    from trencadis.whatif.capacity.replays import ReplaySearch
    from trencadis.whatif.capacity.target import targets
    from trencadis.whatif.clusters import cluster_of
    from trencadis.whatif.engine import ReplayOptions
    from trencadis.whatif.failures import FailureModel
    from trencadis.whatif.policies.registry import check_names
    from trencadis.whatif.replay import Setting

    goals = targets(asked.targets, trace=True)
    (policy, *_) = check_names([asked.policy])
    rules = _rules(context, asked.policy_file)
    empty = cluster_of({}, listed, asked.fabric, rules)
    offers, priced = rented(empty, asked.kinds, listed, asked.fabric, asked.most)
    burst = burst_of(listed, asked.burst)
    if burst is not None and not priced:
        raise typer.BadParameter("--burst takes kinds with a price")
    options = ReplayOptions(
        round_seconds=asked.round_seconds,
        failures=FailureModel(asked.mtbf, asked.repair) if asked.mtbf else None,
    )
    search = ReplaySearch(
        trace=_trace(asked, empty, offers),
        offers=tuple(offers),
        targets=goals,
        cluster=_Clusters(tuple(offer.kind for offer in offers), listed, asked.fabric, rules),
        policy=policy,
        seeds=asked.seeds,
        setting=Setting(options=options, effort=asked.effort),
        neighbours=asked.neighbours,
        tries=asked.tries,
        processes=asked.processes,
        burst=burst,
    )
    return search, priced


@dataclass(frozen=True, slots=True)
class _Clusters:
    """The cluster of a mix."""

    kinds: tuple[str, ...]
    listed: PriceList
    fabric: str
    rules: Policy | None

    def __call__(self, mix: Mix) -> Snapshot:
        from trencadis.whatif.clusters import cluster_of

        nodes: dict[str, int] = {
            kind: count for kind, count in zip(self.kinds, mix, strict=True) if count
        }
        return cluster_of(nodes, self.listed, self.fabric, self.rules)


def _rules(context: typer.Context, source: str | None) -> Policy | None:
    from trencadis.models import load_policy
    from trencadis.views import io
    from trencadis.views.session import Session

    if source is None:
        return None
    with io.source_named(source):
        return load_policy(Session(context).text(source), toml=source.endswith(".toml"))


def _trace(asked: TraceRequest, empty: Snapshot, offers: list[Offer]) -> Trace:
    """The jobs, shaped for the smallest of the kinds."""
    from trencadis.commands.scene import jobs_for

    smallest = min((offer.first(1)[0] for offer in offers), key=lambda node: node.gpu_count)
    return jobs_for(
        asked.source,
        empty.model_copy(update={"nodes": (smallest,)}),
        form=asked.form,
        timezone=asked.timezone,
        throughputs=asked.throughputs,
        between=asked.window,
        factor=asked.scale_load,
        load=None,
        queues=asked.queues,
    )
