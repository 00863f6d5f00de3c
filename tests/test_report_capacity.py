"""The page for the person who pays: its figures, and how a browser takes it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from browser import both_schemes, browse, with_browser
from command import INSTANCES, Program

from trencadis.whatif.capacity.renting import rent, wanted_by_month
from trencadis.whatif.prices import Burst, example_prices
from trencadis.whatif.report.paying import Money, RentPlan, by_contract

SOURCE = str(INSTANCES / "four_h100.json")
FIXED = ("--deterministic", "--time-limit", "5")
ROWS = "".join(
    f"{3_600 * hour},{(9_000, 2_000)[hour % 2]},{(8, 4)[hour % 2]},{('low', 'high')[hour % 2]}\n"
    for hour in range(24)
)
PAGES = {
    "snapshot": (
        ("capacity", SOURCE, "--sku", "h100-8", "--sku", "a100-8", "--target", "pending==0",
         "--months", "36", "--growth-percent", "3", *FIXED),
        ("67.76 USD an hour", "Proven: every cheaper mix", "49,465 USD", "three-years",
         "2 × h100-8 and 1 × a100-8", "demand growing by 3 % a month", "Nodes by contract"),
    ),
    "guarantees": (
        ("capacity", SOURCE, "--sku", "h100-8", "--guarantee-each", "24", "--months", "12", *FIXED),
        ("51.84 USD an hour", "155.52 USD an hour", "103.68 USD an hour", "2: research",
         "24 GPUs to each of 2 teams", "Jobs that stay"),
    ),
    "trace": (
        ("capacity", "jobs.csv", "--sku", "h100-8", "--target", "p95_completion<9h", "--seeds", "2",
         "--replay-policy", "priority", "--processes", "1", "--prices", "prices.json", "--burst",
         "b", "--months", "3"),
        ("P90", "P50", "burst node-hours", "Nodes against burst hours", "without burst nodes",
         "Burst nodes come on top", "Sizes replayed"),
    ),
    "nothing": (
        ("capacity", SOURCE, "--sku", "h100-8", "--max-nodes", "1", *FIXED),
        ("none found", "Impossible: no mix"),
    ),
    "counted": (
        ("capacity", SOURCE, "--sku", "v100-8", "--target", "pending==0", *FIXED),
        ("No kind has a price: nodes are counted.", "How it is known"),
    ),
}  # fmt: skip


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Program:
    burst = Burst(name="b", sku="h100-8", price_per_hour_milli=9_000, nodes=4)
    prices = example_prices().model_copy(update={"bursts": (burst,)})
    (tmp_path / "jobs.csv").write_text("submit,seconds,gpus,priority\n" + ROWS)
    (tmp_path / "prices.json").write_text(prices.model_dump_json())
    return Program(monkeypatch, tmp_path)


@pytest.mark.parametrize("name", PAGES)
def test_the_figures_are_on_the_page(program: Program, name: str) -> None:
    words, figures = PAGES[name]
    told = program(*words, "--report", "page.html", "--json")
    assert told.code == (4 if name == "nothing" else 0), told.err
    page = (program.directory / "page.html").read_text()
    for figure in figures:
        assert figure in page, figure
    assert "Undefined" not in page
    assert "None" not in page
    # The page says what the record says.
    record = json.loads(told.out)
    if name == "trace":
        assert f"{record['best']['price_per_hour']:,.2f} USD an hour" in page
        assert f"{record['best']['burst']['node_hours']:,} node-hours" in page
        assert f"{record['renting']['cost']:,.0f} USD" in page
    if name == "snapshot":
        assert f"{record['renting']['cost']:,.0f} USD" in page
        assert f"{record['renting']['on_demand']:,.0f}" in page


@with_browser
@pytest.mark.parametrize("name", ["snapshot", "guarantees", "trace"])
def test_a_browser_shows_it_light_and_dark_without_complaint(program: Program, name: str) -> None:
    words, figures = PAGES[name]
    assert program(*words, "--report", "page.html").code == 0
    page = program.directory / "page.html"
    seen = browse(page, "--dump-dom")
    assert "CONSOLE" not in seen.stderr, seen.stderr
    for figure in figures:
        assert figure in seen.stdout, figure
    light, dark = both_schemes(page)
    assert light != dark
    assert min(len(light), len(dark)) > 20_000


def test_what_is_rented_adds_up_month_by_month() -> None:
    """Contracts and hours together are what is wanted, or more where a lease outlasts it."""
    prices = example_prices()
    demand = wanted_by_month([730, 730, 200], 14, 40)
    rental = rent("h100-8", demand, 25_920, prices.contracts)
    held = by_contract(RentPlan(14, 4.0, [rental]))
    for month, levels in enumerate(demand):
        wanted = sum(hours * nodes for hours, nodes in levels) / 730
        assert sum(held[name][month] for name in held) >= wanted - 1e-9
    assert rental.wanted == tuple(sum(h * n for h, n in levels) for levels in demand)


def test_money_without_a_currency_is_nodes() -> None:
    money = Money(None, "")
    assert (money.hour(3_000), money.hour(1_000), money.hour(None)) == ("3 nodes", "1 node",
                                                                       "unknown")  # fmt: skip
    assert Money("EUR", "2026-03").hour(1_500) == "1.50 EUR an hour"


def test_a_report_needs_a_file(program: Program) -> None:
    assert program("capacity", SOURCE, "--sku", "h100-8", "--report", "-").code == 2
    assert program("capacity", SOURCE, "--sku", "h100-8", "--report", "no/such/x.html").code != 0
