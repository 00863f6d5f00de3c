"""The section of docs/results.md about replays, written from the figures of the runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from replay_lab.cases import FILES, LOADS, TITLES, WINDOWS, Case
from replay_lab.claims import claims
from replay_lab.figures import DEFAULTS, OURS, mean_of, values
from replay_lab.paired import Difference, difference
from replay_lab.ranges import EVERY, LOAD, MOST, Said
from replay_lab.runs import Row
from replay_lab.slices import Left
from trencadis.whatif.policies.registry import POLICIES

BEGIN, END = "<!-- replays: written by make results -->", "<!-- end of replays -->"
ROUND_S = 300


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure of the tables."""

    key: str
    title: str
    scale: float
    digits: int
    more_is_better: bool
    why: str
    """Why a baseline may be ahead: from what each optimises, not from an experiment."""


MEASURES = (
    Measure("p95_h", "p95 wait, h", 1, 1, False,
            "the jobs that wait longest are the large and long ones: they go last here, and "
            "nothing is reserved for them by default; `volcano` stops jobs for its head without "
            "a budget, `fgd` keeps nodes whole for it"),
    Measure("weighted_h", "weighted mean wait, h", 1, 1, False,
            "short jobs go first, and those of the Philly trace have one GPU: the mean over jobs "
            "is the least there, while the few of many GPUs wait longer, for whom `backfill` "
            "reserves and `volcano` stops others; nothing is reserved by default here"),
    Measure("effective", "effective utilization, %", 100, 1, True,
            "no term of the objective is about later rounds: a start now may leave a "
            "later job less room, and what is stopped for a short job pays a restart"),
    Measure("fragmentation", "fragmentation, %", 100, 1, False,
            "F comes last, after all that starts; and F is measured on what is idle, which "
            "a policy that leaves more idle has less of in pieces"),
    Measure("violated_gpu_h", "guarantees violated, GPU-h", 1, 1, False,
            "budgets and the least runtime keep victims, or those of one round are not enough"),
    Measure("preempted", "jobs preempted, %", 100, 1, False,
            "it preempts where tiers and guarantees ask for it; a policy that never does has 0"),
)  # fmt: skip


def inserted(document: str, section: str, begin: str = BEGIN, end: str = END) -> str:
    """The document with the section between its marks, at its end if they are not there."""
    marked = f"{begin}\n{section}{end}\n"
    if begin not in document:
        return f"{document.rstrip()}\n\n{marked}"
    before, _, rest = document.partition(begin)
    return before + marked + rest.partition(end)[2].removeprefix("\n")


def page(
    rows: dict[Case, Row],
    said: dict[str, list[Said]],
    rounds: list[Left],
    failed: Sequence[Case] = (),
) -> str:
    """The whole section, Markdown."""
    parts = ["## Replays: every policy, window by window\n", _method(rows, failed)]
    for trace in FILES:
        for load in LOADS:
            parts += [f"### {TITLES[trace]}, {load:.0%} load\n", _levels(rows, trace, load)]
            parts.append(_differences(rows, trace, load))
    parts += [_losses(rows), claims(rows, rounds), _ranges(said)]
    return "\n".join(parts)


def _method(rows: dict[Case, Row], failed: Sequence[Case]) -> str:
    stuck = [case.name for case, row in rows.items() if row["unfinished"]]
    left = sum(row["unfinished"] for row in rows.values())
    of = f" (of {', '.join(f'`{name}`' for name in stuck)})" if stuck else ""
    count = len(LOADS) * len(FILES) * len(MEASURES) * (len(POLICIES) - 1)
    names = ", ".join(f"`{case.name}`" for case in failed)
    broken = (
        f" Of {len(rows) + len(failed)} replays {len(failed)} ended with an internal error, as the "
        f"verifier refused a plan: {names}; means leave it out."
        if failed
        else ""
    )
    return (
        f"`make results`: {len(rows)} replays, {left} jobs of them unfinished{of}.{broken} Each "
        f"trace is cut into {WINDOWS} windows of equally many consecutive jobs, each replayed on "
        "an empty cluster with arrivals spaced for the load; four queues, each guaranteed an "
        "eighth of the GPUs. The policy lets short jobs go first (`short_first_seconds` is 30 "
        "days) and promotes nobody for having waited, which only `trencadis` takes notice of "
        "([decision 052](decisions/052-short-jobs-first.md)); all else is default, and rows named "
        "*defaults* are "
        "`trencadis` without the two. They were chosen on the whole of Muri's trace, of which the "
        "windows are parts, and on estimates that are exact in both traces: users' limits are not, "
        "so this is the best case of such a policy. Differences are of the same window under "
        "both policies; ± is half a 95 % interval (Student's t, 4 degrees of freedom). They are "
        f"{count} comparisons, not corrected for their number: about one in twenty would leave 0 "
        "out by chance. Five windows of one trace are few, and not independent of each other. The "
        "load is what the jobs of a window ask for within its span of arrivals; long jobs reach "
        "past that, so the cluster is busy for much less of the span than the load says. And "
        "windows begin empty: the queues of weeks that build up in the whole Muri trace don't "
        "occur in them; for these see [replay.md](replay.md).\n\n"
        "Two measures took their present form after first runs had been looked at. Utilization "
        "and fragmentation count from the first to the last submission: over the whole replay one "
        "very long job at the end decided them (`useful` on Philly was 15 to 21 %). Violated "
        "guarantees leave out what no start of a whole job could have covered; before, they "
        "counted GPUs, whatever their places, and `trencadis` had violations in the first Muri "
        "window at 90 % as well (1,034 GPU-hours; `volcano` 779, `backfill` 3,679). "
        "Both favour `trencadis` against most baselines, so the last two columns have the measures "
        "without them: *all shortfall*, and what was useful from the first submission to the last "
        "end.\n"
    )


def _levels(rows: dict[Case, Row], trace: str, load: float) -> str:
    head = [m.title for m in MEASURES] + [
        "mean wait, h", "all shortfall, GPU-h", "useful to the last end, %",
    ]  # fmt: skip
    lines = ["| mean of the windows | " + " | ".join(head) + " |", "| --- " * (len(head) + 1) + "|"]
    for policy in (*POLICIES, DEFAULTS):
        cells = [
            f"{mean_of(rows, trace, load, policy, m.key) * m.scale:,.{m.digits}f}" for m in MEASURES
        ]
        cells.append(f"{mean_of(rows, trace, load, policy, 'mean_h'):,.1f}")
        cells.append(f"{mean_of(rows, trace, load, policy, 'short_gpu_h'):,.1f}")
        cells.append(f"{100 * mean_of(rows, trace, load, policy, 'useful'):,.1f}")
        lines.append(f"| `{policy}` | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _paired(rows: dict[Case, Row], trace: str, load: float, other: str, m: Measure) -> Difference:
    ours = values(rows, trace, load, OURS, m.key)
    theirs = values(rows, trace, load, other, m.key)
    return difference([v * m.scale for v in ours], [v * m.scale for v in theirs])


def _differences(rows: dict[Case, Row], trace: str, load: float) -> str:
    head = " | ".join(m.title for m in MEASURES)
    lines = [f"| `trencadis` minus | {head} |", "| --- " * (len(MEASURES) + 1) + "|"]
    for other in (*POLICIES, DEFAULTS):
        if other == OURS:
            continue
        cells = []
        for m in MEASURES:
            d = _paired(rows, trace, load, other, m)
            text = f"{d.mean:+,.{m.digits}f} ± {d.half:,.{m.digits}f}"
            cells.append(f"**{text}**" if d.sure else text)
        lines.append(f"| `{other}` | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n\nBold: the interval leaves 0 out.\n"


def _lost(rows: dict[Case, Row], m: Measure) -> Iterator[tuple[str, bool]]:
    for trace in FILES:
        for load in LOADS:
            for other in POLICIES:
                d = _paired(rows, trace, load, other, m)
                if other != OURS and d.mean and (d.mean < 0) == m.more_is_better:
                    text = f"`{other}` ({trace} {load:.0%}, {d.mean:+,.2f})"
                    yield (f"**{text}**" if d.sure else text), d.sure


def _losses(rows: dict[Case, Row]) -> str:
    lines = [
        "### Where a baseline is ahead\n",
        "All pairs in which the mean favours the baseline; bold where the interval leaves 0 out. "
        "The reasons follow from what each policy optimises; no experiment here isolates them.\n",
    ]
    for m in MEASURES:
        found = list(_lost(rows, m))
        sure = sum(is_sure for _, is_sure in found)
        listed = ", ".join(text for text, _ in found) or "none"
        why = f": {m.why}" if found else ""
        lines.append(f"- **{m.title}** ({len(found)}, {sure} sure){why}. {listed}.")
    lines.append(
        "- The last two columns are not compared. *Useful to the last end* is lower where long "
        "jobs go last, as the cluster empties around them; *all shortfall* counts what no whole "
        "job could have covered, too, and what is being freed."
    )
    return "\n".join(lines) + "\n"


def _ranges(said: dict[str, list[Said]]) -> str:
    lines = [
        "### Predicted starts\n",
        f"`explain` was asked in replays at {LOAD:.0%} load, at every {EVERY}th round with jobs "
        f"that had never started, about up to {MOST} that the plan left waiting; a round "
        f"({ROUND_S} s) of tolerance at both ends. One job may be asked about several times, so "
        "answers are not independent. With the policy's defaults 88 % and 81 % were inside the "
        "range when that was measured: here short jobs that are yet to come pass, which the worst "
        "end supposes that nobody does.\n",
        "| trace | answers | about jobs | inside range | before best | jobs before | after worst |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for trace, entries in said.items():
        late = count = 0
        early: list[str] = []
        for s in entries:
            if s.best is None or s.worst is None or s.started is None:
                continue
            count += 1
            if s.started < s.best - ROUND_S:
                early.append(s.job)
            late += s.started > s.worst + ROUND_S
        inside = count - len(early) - late
        shares = (inside, len(early), late)
        part = [f"{100 * n / count:.0f} %" if count else "" for n in shares]
        part.insert(2, str(len(set(early))))
        jobs = len({s.job for s in entries})
        lines.append(f"| {trace} | {count} of {len(entries)} | {jobs} | {' | '.join(part)} |")
    lines.append(
        "\nThe best end supposes estimates, which are exact here, and no preemption; the worst, "
        "that nobody passes who is yet to come. Of the starts before the best, those of Philly's "
        "second window were looked at: jobs that got the places of preempted ones, each asked "
        "about many times. Those after the worst were not looked into."
    )
    return "\n".join(lines) + "\n"


__all__ = ["BEGIN", "END", "inserted", "page"]
