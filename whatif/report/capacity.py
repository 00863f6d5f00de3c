"""What a capacity search found, on one page for the person who pays."""

from __future__ import annotations

from math import isfinite

from trencadis.whatif.capacity.offers import Mix, Offer
from trencadis.whatif.capacity.replays import ReplaySearch, TraceFound, Trial
from trencadis.whatif.capacity.snapshot import Found, Search, Status
from trencadis.whatif.capacity.target import TIMES, Target
from trencadis.whatif.capacity.verdict import Attempt, Verdict
from trencadis.whatif.report.charts import dots
from trencadis.whatif.report.page import Block, Drawing, Group, Report, Section, Table, Tile
from trencadis.whatif.report.paying import Money, RentPlan, fleet, rent_section, rent_tile
from trencadis.whatif.report.words import count

MEANS = {
    Status.PROVEN: "Proven: every cheaper mix is refuted, by the counting model or by a round on "
    "it that was solved to the end.",
    Status.RANGE: "The cheapest found. What costs less, down to the lower bound, is not excluded.",
    Status.IMPOSSIBLE: "Impossible: no mix of so many nodes meets the target.",
    Status.OPEN: "None was found, and none is excluded above the lower bound.",
}
ONE_MOMENT = (
    "This is about one moment: the jobs that run and wait now. How the load goes on, a search on a "
    "trace tells."
)
A_SEARCH = (
    "This was searched, not proven: waits don't always fall as nodes are added, and no lower bound "
    "on a replay is known. Smaller sizes that were replayed missed the target."
)


def capacity_report(
    search: Search, found: Found, money: Money, plan: RentPlan | None = None
) -> Report:
    """The report on a search for one snapshot."""
    goal = " and ".join(target.text for target in search.targets)
    best, offers = found.best, search.offers
    tiles = [
        _answer_tile(None if best is None else best.price_milli, money),
        Tile("lower bound", money.hour(found.lower_milli), found.status.value),
    ]
    answer: list[Block] = [MEANS[found.status]]
    if best is not None:
        answer = [f"{mix_words(offers, best.mix)} for {goal}. {MEANS[found.status]}"]
        answer.append(fleet(offers, best.mix, money))
        if money.currency is not None:
            tiles.append(Tile("a month", money.month(best.price_milli), "of 730 hours"))
    if found.why:
        answer.append(f"In the way: {found.why}")
    if found.excluded_milli:
        below = money.hour(found.excluded_milli)
        answer.append(f"Below {below} no plan at all meets it, by the counting model alone.")
    return Report(
        title="Capacity: the cheapest fleet",
        lead=f"Target: {goal}. Kinds of node: {', '.join(offer.kind for offer in offers)}.",
        tiles=[*tiles, *rent_tile(plan, money)],
        sections=[
            Section("The answer", [*answer, ONE_MOMENT, money.prices()], "answer"),
            *rent_section(plan, offers, money),
            Section("How it is known", _known(search, found, money), "known"),
        ],
    )


def trace_report(
    search: ReplaySearch, found: TraceFound, money: Money, plan: RentPlan | None = None
) -> Report:
    """The report on a search by replays of a trace."""
    goal = " and ".join(target.text for target in search.targets)
    best, offers = found.best, search.offers
    seeds = count(search.seeds, "seed")
    tiles = [_answer_tile(None if best is None else best.total_milli, money)]
    answer: list[Block] = [f"No mix that was replayed meets {goal}."]
    if best is not None:
        tiles += [
            Tile(
                f"{target.measure}, P90",
                value_words(target, best.high[target.measure]),
                f"P50 {value_words(target, best.median[target.measure])}; {seeds}",
            )
            for target in search.targets
        ]
        answer = [f"{trial_words(search, best)} for {goal}, held at P90 over {seeds}."]
        answer.append(fleet(offers, best.mix, money))
        if money.currency is not None:
            tiles.append(Tile("a month", money.month(best.total_milli), "of 730 hours"))
    answer.append(A_SEARCH if found.complete else f"{A_SEARCH} Tries ran out before all were.")
    return Report(
        title="Capacity: the cheapest fleet for a load",
        lead=f"{search.trace.name}: {count(len(search.trace.jobs), 'job')} under {search.policy}. "
        f"Target: {goal}. Kinds of node: {', '.join(offer.kind for offer in offers)}.",
        tiles=[*tiles, *_burst_tile(best, money), *rent_tile(plan, money)],
        sections=[
            Section("The answer", [*answer, money.prices()], "answer"),
            *_burst(search, found, money),
            *rent_section(plan, offers, money, 0 if best is None else best.burst_milli),
            Section("Sizes replayed", _sizes(search, found, money), "sizes"),
        ],
    )


def _answer_tile(price_milli: int | None, money: Money) -> Tile:
    if price_milli is None:
        return Tile("cheapest fleet", "none found")
    return Tile("cheapest fleet", money.hour(price_milli))


def mix_words(offers: tuple[Offer, ...], mix: Mix) -> str:
    """`2 × h100-8 and 1 × a100-8`."""
    parts = [f"{n:,} × {offer.kind}" for offer, n in zip(offers, mix, strict=True) if n]
    return " and ".join(parts) or "No node"


def trial_words(search: ReplaySearch, trial: Trial) -> str:
    """The mix, and the burst hours where there are any."""
    words = mix_words(search.offers, trial.mix)
    if trial.burst is None:
        return words
    return f"{words}, {count(trial.burst.node_hours, 'burst node-hour')}"


def value_words(target: Target, value: float) -> str:
    """`0.4 h`, `0.13`, `for ever`."""
    if not isfinite(value):
        return "for ever"
    return f"{value / 3_600:,.1f} h" if target.measure in TIMES else f"{value:.3g}"


def _known(search: Search, found: Found, money: Money) -> list[Block]:
    if not found.attempts:
        return ["No round had to be solved."]
    target = search.targets[0]
    names = {
        Verdict.MET: "meets it",
        Verdict.REFUTED: "refuted",
        Verdict.OPEN: "missed, not proven",
    }
    groups = {
        name: [
            (attempt.price_milli / 1_000, attempt.values[target.measure])
            for attempt in found.attempts
            if attempt.verdict is verdict
        ]
        for verdict, name in names.items()
    }
    rows = [
        (
            mix_words(search.offers, attempt.mix),
            names[attempt.verdict],
            money.hour(attempt.price_milli),
            *(f"{attempt.values[t.measure]:g}" for t in search.targets),
        )
        for attempt in found.attempts
    ]
    columns = ("nodes", "verdict", "price", *(t.measure for t in search.targets))
    drawn = Drawing(
        "Mixes, by price",
        dots(groups, money.unit(), target.measure, x_rule=found.lower_milli / 1_000),
        "Each mix that was solved, and what its round leaves; the line is the lower bound.",
    )
    return [
        *([drawn] if len(rows) > 1 else []),
        Table(columns, rows, 2, f"{count(len(rows), 'round')} solved, in order of price"),
        *_why(search, found.attempts),
    ]


def _why(search: Search, attempts: tuple[Attempt, ...]) -> list[Block]:
    rows = [(mix_words(search.offers, entry.mix), entry.why) for entry in attempts if entry.why]
    if not rows:
        return []
    return [Group("What they miss", Table(("nodes", "why"), rows, 2))]


def _burst_tile(best: Trial | None, money: Money) -> list[Tile]:
    if best is None or best.burst is None:
        return []
    note = f"{money.hour(best.burst_milli)} of the price"
    return [Tile("burst", count(best.burst.node_hours, "node-hour"), note)]


def _burst(search: ReplaySearch, found: TraceFound, money: Money) -> list[Section]:
    """Nodes against burst hours; nothing where none were asked for."""
    if search.burst is None:
        return []
    helped = [trial for trial in found.trials if trial.met and trial.burst is not None]
    pairs = (
        ("without burst nodes", found.without),
        ("with burst nodes", min(helped, key=lambda t: t.total_milli, default=None)),
    )
    rows = []
    for name, trial in pairs:
        if trial is None:
            rows.append((name, "no mix meets it", "", "", "", ""))
            continue
        use = trial.burst
        rows.append(
            (
                name,
                mix_words(search.offers, trial.mix),
                money.hour(trial.price_milli),
                "" if use is None else f"{use.node_hours:,}",
                "" if use is None else f"{use.cost:,.0f} {money.currency}",
                money.hour(trial.total_milli),
            )
        )
    burst = search.burst.burst
    rate = f"{burst.price_per_hour_milli / 1_000:,.2f} {money.currency}"
    days = search.span_seconds / 86_400
    columns = ("", "nodes", "nodes cost", "burst node-hours", "burst cost", "in all")
    return [
        Section(
            "Nodes against burst hours",
            [
                f"Burst nodes ({burst.name}, {rate} for each begun hour) take preempted jobs that "
                f"wait. Their cost is spread over the {days:,.1f} days of the load, on the mean of "
                "the seeds.",
                Table(columns, rows, 2, "The cheapest of each"),
            ],
            "burst",
        )
    ]


def _sizes(search: ReplaySearch, found: TraceFound, money: Money) -> list[Block]:
    target = search.targets[0]
    scale = 3_600 if target.measure in TIMES else 1
    groups = {
        name: [
            (trial.total_milli / 1_000, trial.high[target.measure] / scale)
            for trial in found.trials
            if trial.met is met and isfinite(trial.high[target.measure])
        ]
        for met, name in ((True, "meets it"), (False, "misses it"))
    }
    rows = [
        (
            trial_words(search, trial),
            "meets it" if trial.met else "misses it",
            money.hour(trial.total_milli),
            *(
                value_words(t, values[t.measure])
                for t in search.targets
                for values in (trial.median, trial.high)
            ),
        )
        for trial in sorted(found.trials, key=lambda trial: (trial.total_milli, trial.mix))
    ]
    measures = (f"{t.measure}, {part}" for t in search.targets for part in ("P50", "P90"))
    unit = "P90, hours" if target.measure in TIMES else "P90"
    return [
        Drawing(
            "Mixes, by price",
            dots(groups, money.unit(), f"{target.measure}, {unit}", y_rule=target.limit / scale),
            "Each mix that was replayed; the line is the target.",
        ),
        Table(("nodes", "target", "price", *measures), rows, 2, "In order of price"),
    ]
