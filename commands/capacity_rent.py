"""The part of `trencadis capacity` that says how to rent what was found."""

# ruff: noqa: PLC0415
# Nothing but Typer is imported at the top; see cli.py.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import RenderableType

    from trencadis.whatif.capacity.offers import Mix, Offer
    from trencadis.whatif.capacity.renting import Rental
    from trencadis.whatif.engine import Sample
    from trencadis.whatif.prices import PriceList
    from trencadis.whatif.report.paying import RentPlan

Months = Annotated[
    int, typer.Option(min=0, max=120, help="Plan how to rent the answer for so many months.")
]
Growth = Annotated[
    float, typer.Option("--growth-percent", min=0.0, max=100.0, help="Of demand, each month.")
]


@dataclass(frozen=True, slots=True)
class Renting:
    """For how long, and how demand grows; no plan for 0 months."""

    months: int
    growth_percent: float

    def check(self, priced: bool) -> None:
        """Raises BadParameter where there is nothing to plan with."""
        if self.growth_percent and not self.months:
            raise typer.BadParameter("--growth-percent takes --months")
        if self.months and not priced:
            raise typer.BadParameter("--months takes kinds with a price")

    def of(
        self,
        offers: Sequence[Offer],
        mix: Mix | None,
        listed: PriceList,
        samples: Sequence[Sample] | None = None,
    ) -> list[Rental]:
        """How to rent each kind of a mix."""
        from trencadis.whatif.capacity.renting import rented_mix

        if mix is None or not self.months:
            return []
        growth = round(self.growth_percent * 10)
        return rented_mix(offers, mix, listed.contracts, self.months, growth, samples)

    def plan(self, rentals: Sequence[Rental]) -> RentPlan | None:
        """For a report; None without months."""
        from trencadis.whatif.report.paying import RentPlan

        if not self.months:
            return None
        return RentPlan(self.months, self.growth_percent, rentals)

    def record(self, rentals: Sequence[Rental]) -> dict[str, Any]:
        """For `--json`; nothing without months."""
        if not self.months:
            return {}
        return {
            "renting": {
                "months": self.months,
                "growth_percent": self.growth_percent,
                "cost": sum(rental.cost_milli for rental in rentals) / 1_000,
                "lower_bound": sum(rental.bound_milli for rental in rentals) / 1_000,
                "on_demand": sum(rental.on_demand_milli for rental in rentals) / 1_000,
                "kinds": [
                    {
                        "kind": rental.kind,
                        "leases": [_lease(asdict(lease)) for lease in rental.leases],
                        "node_hours_on_demand": list(rental.hours),
                    }
                    for rental in rentals
                ],
            }
        }

    def view(self, rentals: Sequence[Rental], listed: PriceList) -> list[RenderableType]:
        """A table; nothing without months."""
        from rich.table import Table
        from rich.text import Text

        from trencadis.views.io import clean

        if not rentals:
            return []
        table = Table(
            title=f"Renting for {self.months} months", title_justify="left", box=None,
            pad_edge=False,
        )
        for name in ("kind", "contract", "from month", "for", "nodes", listed.currency):
            table.add_column(clean(name))
        for rental in rentals:
            for lease in rental.leases:
                table.add_row(
                    clean(rental.kind),
                    clean(lease.contract),
                    f"{lease.start + 1}",
                    f"{lease.months} months",
                    f"{lease.nodes}",
                    f"{lease.cost_milli / 1_000:,.0f}",
                )
            if any(rental.hours):
                paid = rental.cost_milli - sum(lease.cost_milli for lease in rental.leases)
                hours = f"{sum(rental.hours):,} node-hours"
                table.add_row(
                    clean(rental.kind), "by the hour", "", hours, "", f"{paid / 1_000:,.0f}"
                )
        cost, bound, hourly = (
            sum(getattr(rental, name) for rental in rentals) / 1_000
            for name in ("cost_milli", "bound_milli", "on_demand_milli")
        )
        known = "the least" if cost == bound else f"at least {bound:,.0f}"
        line = f"In all {cost:,.0f} {listed.currency} ({known}); by the hour {hourly:,.0f}"
        return [table, Text(clean(line))]


def _lease(fields: dict[str, Any]) -> dict[str, Any]:
    cost = fields.pop("cost_milli")
    return fields | {"cost": cost / 1_000}
