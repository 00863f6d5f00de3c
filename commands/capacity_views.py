"""What a capacity search found, as a table and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from trencadis.views.io import clean
from trencadis.views.words import count
from trencadis.whatif.capacity.offers import Mix, Offer
from trencadis.whatif.capacity.snapshot import Found, Search, Status
from trencadis.whatif.capacity.verdict import Attempt, Verdict

SHOWN = 12
"""Attempts in the table; --json has all."""
MEANS = {
    Status.PROVEN: "proven: every cheaper mix is refuted",
    Status.RANGE: "the cheapest found; what costs less, down to the bound, is not excluded",
    Status.IMPOSSIBLE: "impossible: no mix of so many nodes meets the target",
    Status.OPEN: "none was found, and none is excluded above the bound",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """A search, what it found, and in which money."""

    search: Search
    found: Found
    currency: str | None
    """None: nodes are counted, as they have no prices."""
    as_of: str

    def money(self, milli: int) -> str:
        """`51.84 USD an hour`, or a number of nodes."""
        return money(milli, self.currency)


def money(milli: int, currency: str | None) -> str:
    """`51.84 USD an hour`, or a number of nodes."""
    if currency is None:
        return count(milli // 1_000, "node")
    return f"{milli / 1_000:,.2f} {currency} an hour"


def by_kind(offers: Sequence[Offer], mix: Mix) -> dict[str, int]:
    """Nodes of a mix by kind."""
    found: Counter[str] = Counter({offer.kind: 0 for offer in offers})
    for offer, number in zip(offers, mix, strict=True):
        found[offer.kind] += number
    return dict(found)


def mix_words(offers: Sequence[Offer], mix: Mix) -> str:
    """`2xh100-8 + 1xa100-8`."""
    parts = [f"{number}x{kind}" for kind, number in by_kind(offers, mix).items() if number]
    return " + ".join(parts) or "no node"


def found_record(answer: Answer) -> dict[str, Any]:
    """For `--json`."""
    search, found = answer.search, answer.found
    best = found.best
    return {
        "snapshot": search.base.fingerprint(),
        "targets": [target.text for target in search.targets],
        "prices": {"as_of": answer.as_of, "currency": answer.currency},
        "offers": [
            {"kind": o.kind, "most": o.most, "price_per_hour": o.price_milli / 1_000}
            for o in search.offers
        ],
        "status": found.status.value,
        "lower_bound_per_hour": found.lower_milli / 1_000,
        "excluded_below_per_hour": found.excluded_milli / 1_000,
        "best": None if best is None else _attempt(search, best) | {"nodes": _nodes(search, best)},
        "why": found.why,
        "attempts": [_attempt(search, attempt) for attempt in found.attempts],
    }


def _attempt(search: Search, attempt: Attempt) -> dict[str, Any]:
    return {
        "mix": by_kind(search.offers, attempt.mix),
        "price_per_hour": attempt.price_milli / 1_000,
        "verdict": attempt.verdict.value,
        "values": attempt.values,
        "why": attempt.why,
        "status": attempt.plan.proof.status.value,
        "gap": attempt.plan.proof.gap,
    }


def _nodes(search: Search, attempt: Attempt) -> list[str]:
    return [
        node.name
        for offer, number in zip(search.offers, attempt.mix, strict=True)
        for node in offer.first(number)
    ]


def found_view(answer: Answer) -> list[RenderableType]:
    """A headline, what it rests on, the attempts."""
    search, found = answer.search, answer.found
    goal = " and ".join(target.text for target in search.targets)
    parts: list[RenderableType] = []
    if found.best is None:
        parts.append(Text(clean(f"No mix for {goal}.")))
    else:
        what = mix_words(search.offers, found.best.mix)
        price = answer.money(found.best.price_milli)
        parts.append(Text(clean(f"{what}: {price}, for {goal}")))
    parts.append(Text(f"{MEANS[found.status]} (lower bound {answer.money(found.lower_milli)})"))
    if found.why:
        parts.append(Text(clean(f"In the way: {found.why}")))
    if found.excluded_milli:
        below = answer.money(found.excluded_milli)
        parts.append(Text(f"On mixes below {below} no plan meets it, by the counting model"))
    if found.attempts:
        parts.append(_table(answer))
    if answer.currency is not None:
        parts.append(Text(f"Prices of {clean(answer.as_of)}, on demand"))
    return parts


def _table(answer: Answer) -> Table:
    search, attempts = answer.search, answer.found.attempts
    table = Table(title="Rounds solved", title_justify="left", box=None, pad_edge=False)
    for name in ("nodes", "price", *(target.measure for target in search.targets), "verdict"):
        table.add_column(name)
    for attempt in attempts[-SHOWN:]:
        table.add_row(
            clean(mix_words(search.offers, attempt.mix)),
            answer.money(attempt.price_milli),
            *(f"{attempt.values[target.measure]:g}" for target in search.targets),
            "meets it" if attempt.verdict is Verdict.MET else attempt.verdict.value,
        )
    return table
