"""What the reports of a capacity search say of money: prices, and how to rent over months."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trencadis.whatif.capacity.offers import Mix, Offer
from trencadis.whatif.capacity.renting import HOURS, Rental
from trencadis.whatif.report.charts import curves, stacks
from trencadis.whatif.report.page import Drawing, Section, Table, Tile
from trencadis.whatif.report.words import count


@dataclass(frozen=True, slots=True)
class Money:
    """In which currency, of which day; without one, nodes are counted."""

    currency: str | None
    as_of: str

    def hour(self, milli: int | None) -> str:
        """`51.84 USD an hour`, or a number of nodes."""
        if milli is None:
            return "unknown"
        if self.currency is None:
            return count(milli // 1_000, "node")
        return f"{milli / 1_000:,.2f} {self.currency} an hour"

    def month(self, milli: int) -> str:
        """`49,465 USD`, of 730 hours; empty where nodes are counted."""
        if self.currency is None:
            return ""
        return f"{milli * HOURS / 1_000:,.0f} {self.currency}"

    def unit(self) -> str:
        """Of an axis."""
        return "nodes" if self.currency is None else f"{self.currency} an hour"

    def prices(self) -> str:
        """Where the figures are from."""
        if self.currency is None:
            return "No kind has a price: nodes are counted."
        return (
            f"Prices of {self.as_of}, on demand where nothing else is said. Power, rooms and "
            "people are not in them."
        )


@dataclass(frozen=True, slots=True)
class RentPlan:
    """How to rent the answer."""

    months: int
    growth_percent: float
    rentals: Sequence[Rental]


def fleet(offers: Sequence[Offer], mix: Mix, money: Money) -> Table:
    """What a mix is made of."""
    rows = []
    for offer, number in zip(offers, mix, strict=True):
        if number:
            price = offer.price_milli * number
            row = [offer.kind, f"{number:,}"]
            if money.currency is not None:
                row += [f"{price / 1_000:,.2f}", f"{price * HOURS / 1_000:,.0f}"]
            rows.append(row)
    columns = ("kind", "nodes")
    if money.currency is None:
        return Table(columns, rows)
    return Table((*columns, "an hour", "a month"), rows, caption=f"Money in {money.currency}")


def rent_tile(plan: RentPlan | None, money: Money) -> list[Tile]:
    """What all months cost."""
    if plan is None or not plan.rentals:
        return []
    cost, hourly = _sums(plan)[0], _sums(plan)[2]
    note = f"by the hour {hourly:,.0f}"
    return [Tile(f"rent for {count(plan.months, 'month')}", f"{cost:,.0f} {money.currency}", note)]


def rent_section(
    plan: RentPlan | None, offers: Sequence[Offer], money: Money, burst_milli: int = 0
) -> list[Section]:
    """Contracts by month, and what they save; nothing without months.

    `burst_milli`: what burst nodes cost on top, an hour of today's load.
    """
    if plan is None or not plan.rentals:
        return []
    cost, bound, hourly = _sums(plan)
    known = "no way to rent costs less" if cost == bound else f"the bound is {bound:,.0f}"
    grows = f", demand growing by {plan.growth_percent:g} % a month" if plan.growth_percent else ""
    saved = f", {100 * (hourly / cost - 1):.1f} % more than planned" if hourly > cost > 0 else ""
    rows = []
    for rental in plan.rentals:
        for lease in rental.leases:
            rows.append(
                (
                    rental.kind,
                    lease.contract,
                    f"{lease.start + 1}",
                    f"{lease.months}",
                    f"{lease.nodes:,}",
                    f"{lease.cost_milli / 1_000:,.0f}",
                )
            )
        if any(rental.hours):
            paid = rental.cost_milli - sum(lease.cost_milli for lease in rental.leases)
            hours = f"{sum(rental.hours):,} node-hours"
            rows.append((rental.kind, "by the hour", "", hours, "", f"{paid / 1_000:,.0f}"))
    top = f" Burst nodes come on top: {money.month(burst_milli)} a month of today's load."
    columns = ("kind", "contract", "from month", "for months", "nodes", "cost")
    held = by_contract(plan)
    parts = [name for name in held if any(held[name])]
    bars = [
        {"name": f"{month + 1}", **{name: held[name][month] for name in parts}}
        for month in range(plan.months)
    ]
    plain, planned = _cumulated(plan, offers)
    return [
        Section(
            "Renting",
            [
                f"For {count(plan.months, 'month')}{grows}: {cost:,.0f} {money.currency}, {known}. "
                f"All of it by the hour would be {hourly:,.0f}{saved}.{top if burst_milli else ''}",
                Table(columns, rows, 2, f"Money in {money.currency}"),
                Drawing(
                    "Nodes by contract",
                    stacks(bars, parts, "nodes", percent=False, upright="month"),
                    "Nodes under each contract, and on the mean of the month by the hour.",
                ),
                Drawing(
                    "What is spent",
                    curves(
                        {"as planned": planned, "by the hour": plain},
                        "months",
                        f"thousand {money.currency}",
                        steps=False,
                    ),
                    "Money until the end of each month; a contract is paid over its months.",
                ),
            ],
            "renting",
        )
    ]


def by_contract(plan: RentPlan) -> Mapping[str, list[float]]:
    """Nodes of all kinds under each contract, and by the hour on the mean, month by month."""
    held: dict[str, list[float]] = {}
    for rental in plan.rentals:
        for lease in rental.leases:
            row = held.setdefault(lease.contract, [0.0] * plan.months)
            for month in range(lease.start, lease.start + lease.months):
                row[month] += lease.nodes
    hours = [sum(rental.hours[month] for rental in plan.rentals) for month in range(plan.months)]
    return {**held, "by the hour": [each / HOURS for each in hours]}


def _sums(plan: RentPlan) -> tuple[float, float, float]:
    """Cost, bound, and by the hour."""
    names = ("cost_milli", "bound_milli", "on_demand_milli")
    cost, bound, hourly = (
        sum(getattr(rental, name) for rental in plan.rentals) / 1_000 for name in names
    )
    return cost, bound, hourly


def _cumulated(
    plan: RentPlan, offers: Sequence[Offer]
) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """Thousands spent until the end of each month: all by the hour, and as planned."""
    prices = {offer.kind: offer.price_milli for offer in offers}
    planned = [0.0] * plan.months
    for rental in plan.rentals:
        for month, hours in enumerate(rental.hours):
            planned[month] += hours * prices[rental.kind] / 1_000
        for lease in rental.leases:
            for month in range(lease.start, lease.start + lease.months):
                planned[month] += lease.cost_milli / 1_000 / lease.months
    plain = [0.0] * plan.months
    for rental in plan.rentals:
        for month, hours in enumerate(rental.wanted):
            plain[month] += hours * prices[rental.kind] / 1_000
    return _running(plain), _running(planned)


def _running(values: Sequence[float]) -> list[tuple[float, float]]:
    found, total = [(0.0, 0.0)], 0.0
    for month, value in enumerate(values, start=1):
        total += value
        found.append((float(month), total / 1_000))
    return found
