"""`trencadis capacity`: the cheapest mix of nodes that meets a target, with a proof."""

# ruff: noqa: PLC0415
# Nothing but Typer is imported at the top; see cli.py.

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trencadis.views import options as opt

if TYPE_CHECKING:
    from trencadis.models import Snapshot
    from trencadis.solver.round import Options
    from trencadis.whatif.capacity.offers import Offer
    from trencadis.whatif.capacity.target import Target
    from trencadis.whatif.capacity.verdict import Attempt

SourceArg = Annotated[
    str, typer.Argument(metavar="SNAPSHOT", help="JSON file, or - for stdin.")
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
Prices = Annotated[
    str | None,
    typer.Option("--prices", metavar="FILE", help="Price list, JSON; an example where absent."),
]
Network = Annotated[
    str | None, typer.Option("--fabric", help="Network that each node pays for, by the prices.")
]


def capacity(
    context: typer.Context,
    source: SourceArg,
    sku: Kinds = None,
    target: Targets = None,
    shrink: Shrink = False,
    max_nodes: MostNodes = 1_000,
    tries: Tries = 40,
    prices: Prices = None,
    fabric: Network = None,
    policy: opt.PolicyFile = None,
    time_limit: opt.TimeLimit = None,
    gap: opt.Gap = None,
    workers: opt.Workers = 8,
    deterministic: opt.Deterministic = False,
    seed: opt.Seed = 0,
    json: opt.Json = False,
) -> None:
    """Find the cheapest mix of nodes that meets a target, with a proof."""
    if shrink == bool(sku):
        raise typer.BadParameter("give --sku KIND for nodes to come, or --shrink")
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

    base = Session(context).snapshot(source, policy)
    if shrink:
        load = base if target else _served(base, options)
        rest, offers, priced = kept(load, listed, fabric)
    else:
        rest = base
        offers, priced = rented(base, sku or [], listed, fabric, max_nodes)
    currency = listed.currency if priced else None
    _search(rest, offers, wanted, options, tries, (currency, listed.as_of), json)


def _served(snapshot: Snapshot, options: Options) -> Snapshot:
    """The load that the cluster serves as it is."""
    from trencadis.solver.round import solve
    from trencadis.views.interrupt import interruptible
    from trencadis.whatif.capacity.offers import served

    plan, _ = interruptible(lambda stop: solve(snapshot, options, stop), "Solving it as it is")
    return served(snapshot, plan)


def _search(
    base: Snapshot,
    offers: list[Offer],
    wanted: tuple[Target, ...],
    options: Options,
    tries: int,
    money: tuple[str | None, str],
    json: bool,
) -> None:
    from trencadis.commands.capacity_views import Answer, found_record, found_view, mix_words
    from trencadis.views import io
    from trencadis.views.interrupt import interruptible
    from trencadis.views.outcome import Code, CommandError
    from trencadis.views.session import dumps
    from trencadis.whatif.capacity.snapshot import Search, cheapest

    def told(attempt: Attempt) -> None:
        what = mix_words(offers, attempt.mix)
        io.tell(f"trencadis: {io.clean(what)}: {attempt.verdict}")

    search = Search(base, tuple(offers), wanted, options, tries)
    found, interrupted = interruptible(
        lambda stop: cheapest(search, stop, told), "Looking for the cheapest mix"
    )
    answer = Answer(search, found, *money)
    if json:
        io.write(io.STANDARD, dumps(found_record(answer)))
    else:
        io.show(*found_view(answer))
    if interrupted:
        raise CommandError(Code.INTERRUPTED, "interrupted; this is what was known so far")
    if found.best is None:
        raise CommandError(Code.NO_PLAN)
