"""The part of `trencadis capacity` that says what a guarantee to each of k teams costs."""

# ruff: noqa: PLC0415
# Nothing but Typer is imported at the top; see cli.py.

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trencadis.commands.capacity_rent import Renting

if TYPE_CHECKING:
    from rich.console import RenderableType

    from trencadis.models import Snapshot
    from trencadis.solver.round import Options
    from trencadis.whatif.capacity.guarantees import Step
    from trencadis.whatif.capacity.offers import Offer
    from trencadis.whatif.capacity.snapshot import Search
    from trencadis.whatif.capacity.verdict import Attempt
    from trencadis.whatif.prices import PriceList
    from trencadis.whatif.report.page import Report
    from trencadis.whatif.report.paying import RentPlan

GuaranteeEach = Annotated[
    int | None,
    typer.Option(
        min=1, max=1_000_000, metavar="GPUS", help="What a guarantee of so many to each team costs."
    ),
]
Teams = Annotated[
    list[str] | None,
    typer.Option("--team", metavar="QUEUE", help="Which teams, in this order; repeat. Else all."),
]


@dataclass(frozen=True, slots=True)
class GuaranteeRequest:
    """What the command was asked."""

    snapshot: Snapshot
    each: int
    teams: tuple[str, ...]
    supply: Callable[[Snapshot], tuple[Snapshot, Sequence[Offer], bool]]
    options: Options
    tries: int
    priced: bool
    fabric: str | None


@dataclass(frozen=True, slots=True)
class GuaranteeAnswer:
    """What was found, and in which money."""

    asked: GuaranteeRequest
    teams: tuple[str, ...]
    steps: tuple[Step, ...]
    listed: PriceList

    @property
    def currency(self) -> str | None:
        """None: nodes are counted."""
        return self.listed.currency if self.asked.priced else None

    def fleet_milli(self, snapshot: Snapshot) -> int | None:
        """What its nodes cost an hour, or their number; None where a price is unknown."""
        from trencadis.whatif.capacity.offers import NODE
        from trencadis.whatif.clusters import price_per_hour_milli

        if not self.asked.priced:
            return NODE * len(snapshot.nodes)
        return price_per_hour_milli(snapshot, self.listed, self.asked.fabric)


def search_guarantees(
    asked: GuaranteeRequest,
    listed: PriceList,
    renting: Renting,
    report: str | None,
    json: bool,
) -> None:
    """Finds and shows. Raises InvalidInputError for teams that can't be asked about."""
    from trencadis.commands.capacity_views import mix_words
    from trencadis.views import io
    from trencadis.views.interrupt import interruptible
    from trencadis.views.outcome import Code, CommandError
    from trencadis.views.session import dumps
    from trencadis.whatif.capacity.claims import check_teams, leaves
    from trencadis.whatif.capacity.guarantees import GuaranteeSearch, steps_of

    teams = asked.teams or leaves(asked.snapshot)
    each_milli = asked.each * 1_000
    check_teams(asked.snapshot, teams, each_milli)
    renting.check(asked.priced)
    wanted = GuaranteeSearch(
        asked.snapshot, teams, each_milli, asked.supply, asked.options, asked.tries
    )

    def tried(search: Search, attempt: Attempt) -> None:
        what = mix_words(search.offers, attempt.mix)
        io.tell(f"trencadis: {io.clean(what)}: {attempt.verdict}")

    def told(step: Step) -> None:
        io.tell(f"trencadis: {step.teams} of {len(teams)} teams: {step.found.status}")

    steps, interrupted = interruptible(
        lambda stop: steps_of(wanted, stop, told, tried), "Looking for the cheapest mixes"
    )
    answer = GuaranteeAnswer(asked, teams, steps, listed)
    best = steps[-1].found.best
    rentals = renting.of(steps[-1].search.offers, None if best is None else best.mix, listed)
    if json:
        io.write(io.STANDARD, dumps(guarantee_record(answer) | renting.record(rentals)))
    else:
        io.show(*guarantee_view(answer), *renting.view(rentals, listed))
    if report is not None:
        from trencadis.commands.reporting import write_report

        write_report(report, _report(answer, renting.plan(rentals)))
    if interrupted:
        raise CommandError(Code.INTERRUPTED, "interrupted; this is what was known so far")
    if best is None:
        raise CommandError(Code.NO_PLAN)


def _report(answer: GuaranteeAnswer, plan: RentPlan | None) -> Report:
    from trencadis.whatif.report.guarantees import Promised, guarantee_report
    from trencadis.whatif.report.paying import Money

    asked = Promised(
        teams=answer.teams,
        each_gpus=answer.asked.each,
        present_milli=answer.fleet_milli(answer.asked.snapshot),
        standing_milli=[answer.fleet_milli(step.search.base) for step in answer.steps],
    )
    return guarantee_report(asked, answer.steps, Money(answer.currency, answer.listed.as_of), plan)


def guarantee_record(answer: GuaranteeAnswer) -> dict[str, Any]:
    """For `--json`."""
    asked = answer.asked
    return {
        "snapshot": asked.snapshot.fingerprint(),
        "guarantee_each_gpus": asked.each,
        "teams": list(answer.teams),
        "prices": {"as_of": answer.listed.as_of, "currency": answer.currency},
        "present_per_hour": _whole(answer.fleet_milli(asked.snapshot)),
        "steps": [
            _step(answer, before, step)
            for before, step in zip((None, *answer.steps), answer.steps, strict=False)
        ],
    }


def _step(answer: GuaranteeAnswer, before: Step | None, step: Step) -> dict[str, Any]:
    from trencadis.commands.capacity_views import by_kind
    from trencadis.whatif.capacity.claims import unclaimed
    from trencadis.whatif.capacity.guarantees import marginal_milli

    best = step.found.best
    low, found, high = (None,) * 3 if before is None else marginal_milli(before, step)
    standing = answer.fleet_milli(step.search.base)
    price = step.price_milli
    return {
        "teams": step.teams,
        "team": answer.teams[step.teams - 1] if step.teams else None,
        "status": step.found.status.value,
        "mix": None if best is None else by_kind(step.search.offers, best.mix),
        "nodes": None if best is None else [
            node.name
            for offer, number in zip(step.search.offers, best.mix, strict=True)
            for node in offer.first(number)
        ],
        "price_per_hour": _whole(price),
        "lower_bound_per_hour": _whole(step.lower_milli),
        "marginal_per_hour": _whole(found),
        "marginal_at_least_per_hour": _whole(low),
        "marginal_at_most_per_hour": _whole(high),
        "fleet_per_hour": _whole(
            None if price is None or standing is None else standing + price
        ),
        "why": step.found.why,
        "unclaimed": unclaimed(step.claims),
        "claims": [
            {
                "queue": claim.queue,
                "guarantee_gpus": claim.guarantee_milli / 1_000,
                "claimed_gpus": claim.claimed_milli / 1_000,
                "running": [job.name for job in claim.running],
                "waiting": len(claim.waiting),
            }
            for claim in step.claims
        ],
    }


def _whole(milli: int | None) -> float | None:
    return None if milli is None else milli / 1_000


def guarantee_view(answer: GuaranteeAnswer) -> list[RenderableType]:
    """A headline, a row for each number of teams, the claims of the last step."""
    from rich.table import Table
    from rich.text import Text

    from trencadis.commands.capacity_views import MEANS, mix_words, money
    from trencadis.views.io import clean
    from trencadis.views.words import count
    from trencadis.whatif.capacity.claims import unclaimed
    from trencadis.whatif.capacity.guarantees import marginal_milli

    asked, last = answer.asked, answer.steps[-1]

    def priced(milli: int | None) -> str:
        return "unknown" if milli is None else money(milli, answer.currency)

    gpus, teams = count(asked.each, "GPU"), count(last.teams, "team")
    head = f"A guarantee of {gpus} to each of {teams}: "
    if last.found.best is None:
        head += "no mix holds it"
    else:
        head += f"{mix_words(last.search.offers, last.found.best.mix)}, {priced(last.price_milli)}"
    present = priced(answer.fleet_milli(asked.snapshot))
    parts: list[RenderableType] = [
        Text(clean(head)),
        Text(f"{MEANS[last.found.status]} (lower bound {priced(last.lower_milli)})"),
        Text(clean(f"Present fleet: {present}")),
    ]
    if less := unclaimed(last.claims):
        parts.append(Text(clean(less)))
    if last.found.why:
        parts.append(Text(clean(f"In the way: {last.found.why}")))
    table = Table(title="By number of teams", title_justify="left", box=None, pad_edge=False)
    for name in ("teams", "the last", "nodes", "price", "lower bound", "marginal", "known"):
        table.add_column(name)
    for before, step in zip((None, *answer.steps), answer.steps, strict=False):
        best = step.found.best
        low, high = None, None
        if before is not None:
            low, _, high = marginal_milli(before, step)
        table.add_row(
            f"{step.teams}",
            clean(answer.teams[step.teams - 1]) if step.teams else "as it is",
            "none" if best is None else clean(mix_words(step.search.offers, best.mix)),
            priced(step.price_milli),
            priced(step.lower_milli),
            "" if before is None else _span(low, high, answer.currency),
            step.found.status.value,
        )
    parts += [table, _claims(last)]
    if answer.currency is not None:
        parts.append(Text(f"Prices of {clean(answer.listed.as_of)}, on demand"))
    return parts


def _claims(step: Step) -> RenderableType:
    from rich.table import Table

    from trencadis.views.io import clean

    table = Table(title="What each team claims", title_justify="left", box=None, pad_edge=False)
    for name in ("team", "guarantee", "claimed", "jobs that stay", "jobs to start"):
        table.add_column(name)
    for claim in step.claims:
        table.add_row(
            clean(claim.queue),
            f"{claim.guarantee_milli / 1_000:g}",
            f"{claim.claimed_milli / 1_000:g}",
            f"{len(claim.running)}",
            f"{len(claim.waiting)}",
        )
    return table


def _span(low: int | None, high: int | None, currency: str | None) -> str:
    """What is known of a difference: one value, or from least to most."""
    from trencadis.commands.capacity_views import money

    if low is None or high is None:
        return "unknown"
    if low == high:
        return money(low, currency)
    return f"{low / 1_000:,.2f} to {money(high, currency)}"
