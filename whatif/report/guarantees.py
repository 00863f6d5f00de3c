"""What a guarantee to each of k teams costs, on one page for the person who pays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trencadis.whatif.capacity.claims import unclaimed
from trencadis.whatif.capacity.guarantees import Step, marginal_milli
from trencadis.whatif.report.capacity import MEANS, mix_words
from trencadis.whatif.report.charts import stacks
from trencadis.whatif.report.page import Block, Drawing, Group, Report, Section, Table, Tile
from trencadis.whatif.report.paying import Money, RentPlan, fleet, rent_section, rent_tile
from trencadis.whatif.report.words import count, gpus


@dataclass(frozen=True, slots=True)
class Promised:
    """What was asked."""

    teams: Sequence[str]
    each_gpus: int
    present_milli: int | None
    """Of the present fleet, an hour; None where a price is unknown."""
    standing_milli: Sequence[int | None]
    """By step: of the present nodes that stay whatever is chosen."""


def guarantee_report(
    asked: Promised, steps: Sequence[Step], money: Money, plan: RentPlan | None = None
) -> Report:
    """The report on `steps`: no team, the first, the first two, …"""
    last = steps[-1]
    best, offers = last.found.best, last.search.offers
    promise = f"{count(asked.each_gpus, 'GPU')} to each of {count(last.teams, 'team')}"
    answer: list[Block] = [f"{promise}: no mix holds it. {MEANS[last.found.status]}"]
    if best is not None:
        answer = [
            f"{promise}, at once: {mix_words(offers, best.mix)}. {MEANS[last.found.status]}",
            fleet(offers, best.mix, money),
        ]
    if less := unclaimed(last.claims):
        answer.append(f"{less}.")
    if last.found.why:
        answer.append(f"In the way: {last.found.why}")
    price = "none found" if last.price_milli is None else money.hour(last.price_milli)
    tiles = [
        Tile("cheapest nodes for it", price),
        Tile("lower bound", money.hour(last.lower_milli), last.found.status.value),
        Tile("present fleet", money.hour(asked.present_milli)),
    ]
    return Report(
        title="What guarantees cost",
        lead=f"A guarantee of {promise}: {', '.join(asked.teams)}.",
        tiles=[*tiles, *rent_tile(plan, money)],
        sections=[
            Section("The answer", [*answer, money.prices()], "answer"),
            Section("By number of teams", _by_number(asked, steps, money), "teams"),
            Section("What each team claims", _claims(last), "claims"),
            *rent_section(plan, offers, money),
        ],
    )


def _by_number(asked: Promised, steps: Sequence[Step], money: Money) -> list[Block]:
    rows, bars = [], []
    for before, step in zip((None, *steps), steps, strict=False):
        name = asked.teams[step.teams - 1] if step.teams else "as it is"
        best = step.found.best
        low, high = (None, None) if before is None else marginal_milli(before, step)[::2]
        standing = asked.standing_milli[step.teams]
        price = step.price_milli
        whole = None if price is None or standing is None else price + standing
        rows.append(
            (
                f"{step.teams}",
                name,
                "none" if best is None else mix_words(step.search.offers, best.mix),
                step.found.status.value,
                money.hour(price),
                "" if before is None else _span(low, high, money),
                money.hour(whole),
            )
        )
        if price is not None:
            present = 0 if standing is None else standing / 1_000
            bars.append(
                {"name": f"{step.teams}: {name}", "present": present, "chosen": price / 1_000}
            )
    columns = ("teams", "the last", "nodes", "known", "price", "marginal", "whole fleet")
    blocks: list[Block] = [
        "The first k teams have the guarantee; the others keep what they have now. The last team's "
        "marginal price is what it adds, a range where one of two steps is not proven.",
    ]
    if any(bar["present"] or bar["chosen"] for bar in bars):
        blocks.append(
            Drawing(
                "The fleet, team by team",
                stacks(bars, ["present", "chosen"], money.unit(), percent=False),
                "Present nodes that stay, and those chosen for the guarantees.",
            )
        )
    return [*blocks, Table(columns, rows, 4)]


def _claims(step: Step) -> list[Block]:
    rows = [
        (
            claim.queue,
            gpus(claim.guarantee_milli / 1_000),
            gpus(claim.claimed_milli / 1_000),
            f"{len(claim.running):,}",
            f"{len(claim.waiting):,}",
        )
        for claim in step.claims
    ]
    stays = [(claim.queue, job.name) for claim in step.claims for job in claim.running]
    blocks: list[Block] = [
        "All teams ask at once, each in the shapes of its own jobs, for as much of its guarantee "
        "as these fill. Jobs that may not be stopped stay where they are, and of the others those "
        "within the guarantee.",
        Table(("team", "guarantee", "claimed", "jobs that stay", "jobs to start"), rows, 1, "GPUs"),
    ]
    if stays:
        blocks.append(Group("Jobs that stay", Table(("team", "job"), stays, 2)))
    return blocks


def _span(low: int | None, high: int | None, money: Money) -> str:
    if low is None or high is None:
        return "unknown"
    return money.hour(low) if low == high else f"{low / 1_000:,.2f} to {money.hour(high)}"
