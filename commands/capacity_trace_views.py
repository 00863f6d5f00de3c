"""What a capacity search on a trace found, as a table and as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from trencadis.commands.capacity_views import by_kind, mix_words, money
from trencadis.views.io import clean
from trencadis.views.words import count
from trencadis.whatif.burst import BurstUse
from trencadis.whatif.capacity.replays import ReplaySearch, TraceFound, Trial
from trencadis.whatif.capacity.target import TIMES, Target


@dataclass(frozen=True, slots=True)
class TraceAnswer:
    """A search over replays, what it found, and in which money."""

    search: ReplaySearch
    found: TraceFound
    currency: str | None
    as_of: str

    def money(self, milli: int) -> str:
        """`51.84 USD an hour`, or a number of nodes."""
        return money(milli, self.currency)


def trace_record(answer: TraceAnswer) -> dict[str, Any]:
    """For `--json`. A wait without end is null."""
    search, found = answer.search, answer.found
    return {
        "trace": search.trace.name,
        "jobs": len(search.trace.jobs),
        "policy": search.policy,
        "seeds": search.seeds,
        "targets": [target.text for target in search.targets],
        "prices": {"as_of": answer.as_of, "currency": answer.currency},
        "status": "searched" if found.complete else "out-of-tries",
        "best": None if found.best is None else _trial(search, found.best),
        **_without(search, found),
        "trials": [_trial(search, trial) for trial in found.trials],
    }


def _without(search: ReplaySearch, found: TraceFound) -> dict[str, Any]:
    if search.burst is None:
        return {}
    return {"without_burst": None if found.without is None else _trial(search, found.without)}


def _trial(search: ReplaySearch, trial: Trial) -> dict[str, Any]:
    def finite(values: dict[str, float]) -> dict[str, float | None]:
        return {name: value if isfinite(value) else None for name, value in values.items()}

    return {
        "mix": by_kind(search.offers, trial.mix),
        "price_per_hour": trial.total_milli / 1_000,
        "nodes_per_hour": trial.price_milli / 1_000,
        "burst": None if trial.burst is None else _burst(trial, trial.burst),
        "p50": finite(trial.median),
        "p90": finite(trial.high),
        "met": trial.met,
    }


def _burst(trial: Trial, use: BurstUse) -> dict[str, Any]:
    return asdict(use) | {"cost_per_hour": trial.burst_milli / 1_000}


def trial_words(search: ReplaySearch, trial: Trial) -> str:
    """`4xh100-8`, or `3xh100-8, 120 node-hours of burst-h100-8`."""
    words = mix_words(search.offers, trial.mix)
    if trial.burst is None:
        return words
    return f"{words}, {count(trial.burst.node_hours, 'node-hour')} of {trial.burst.kind}"


def trace_view(answer: TraceAnswer) -> list[RenderableType]:
    """A headline, what it rests on, the replays."""
    search, found = answer.search, answer.found
    goal = " and ".join(target.text for target in search.targets)
    if found.best is None:
        head = f"No mix for {goal}."
    else:
        what = trial_words(search, found.best)
        head = f"{what}: {answer.money(found.best.total_milli)}, for {goal}"
    rest = "" if found.complete else "; tries ran out before all neighbours were replayed"
    seeds = count(search.seeds, "seed")
    mixes = "1 mix" if len(found.trials) == 1 else f"{len(found.trials):,} mixes"
    parts: list[RenderableType] = [
        Text(clean(head)),
        Text(
            clean(
                f"the cheapest found, not proven: {mixes}"
                f" replayed under {search.policy}, {seeds}{rest}"
            )
        ),
    ]
    if search.burst is not None:
        plain = found.without
        words = "no mix meets it" if plain is None else (
            f"{mix_words(search.offers, plain.mix)}, {answer.money(plain.total_milli)}"
        )  # fmt: skip
        parts.append(Text(clean(f"Without burst nodes: {words}")))
    table = Table(title="Replays, P50 and P90", title_justify="left", box=None, pad_edge=False)
    for name in ("nodes", "price", *(target.measure for target in search.targets), "target"):
        table.add_column(name)
    for trial in sorted(found.trials, key=lambda trial: (trial.total_milli, trial.mix)):
        table.add_row(
            clean(trial_words(search, trial)),
            answer.money(trial.total_milli),
            *(
                f"{_value(t, trial.median[t.measure])}, {_value(t, trial.high[t.measure])}"
                for t in search.targets
            ),
            "meets it" if trial.met else "misses it",
        )
    parts.append(table)
    if answer.currency is not None:
        parts.append(Text(f"Prices of {clean(answer.as_of)}, on demand"))
    return parts


def _value(target: Target, value: float) -> str:
    if not isfinite(value):
        return "for ever"
    return f"{value / 3_600:,.1f} h" if target.measure in TIMES else f"{value:.3g}"
