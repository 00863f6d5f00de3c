"""How often a waiting job starts within the range that `explain` gave for it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from replay_lab.cases import FILES, WINDOWS, Case, cluster, jobs
from replay_lab.runs import code_key
from trencadis.models.base import seconds
from trencadis.solver.explain.explain import explain
from trencadis.solver.round import solve
from trencadis.whatif.decisions import Decision, View
from trencadis.whatif.engine import Engine, ReplayOptions
from trencadis.whatif.policies.solver import Solver, decision_of
from trencadis.whatif.runs import State
from trencadis.whatif.support import with_queues

EVERY, MOST = 10, 2
"""Rounds with waiting jobs of which one is asked about; jobs asked about there."""
LOAD = 1.1


@dataclass(frozen=True, slots=True)
class Said:
    """What was said of a job; instants in seconds since 1970."""

    job: str
    at: int
    best: int | None
    likely: int | None
    worst: int | None
    started: int | None = None


class Asking(Solver):
    """The solver, asked every now and then when those that wait may start."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[Said] = []
        self._rounds = 0

    def decide(self, view: View) -> Decision:
        """The solver's decision; some of those that it leaves waiting are asked about."""
        fresh = [run for run in view.pending if not run.starts]
        if not fresh:
            return super().decide(view)
        self._rounds += 1
        if self._rounds % EVERY:
            return super().decide(view)
        self.observe(view)
        snapshot = self.snapshot(view)
        plan = solve(snapshot, self._options)
        starts = {start.job for start in plan.starts}
        left = [run.name for run in fresh if run.name not in starts]
        step = max(1, -(-len(left) // MOST))
        for name in left[::step]:
            (found,) = explain(snapshot, plan, [name]).jobs
            when = found.when
            ends = [None] * 3 if when is None else [when.best, when.likely, when.worst]
            self.said.append(Said(name, view.now, *(e and seconds(e) for e in ends)))
        return decision_of(plan, view)


def ranges(data: Path, cache: Path) -> dict[str, list[Said]]:
    """By trace, what was said in all windows at one load, with when each job started."""
    code = code_key()
    found: dict[str, list[Said]] = {}
    for trace in FILES:
        kept = cache / f"ranges-{trace}.json"
        if kept.exists():
            record = json.loads(kept.read_text())
            if record["code"] == code:
                found[trace] = [Said(**entry) for entry in record["said"]]
                continue
        said = [entry for window in range(WINDOWS) for entry in _window(trace, window, data)]
        record = {"code": code, "said": [asdict(entry) for entry in said]}
        kept.write_text(json.dumps(record) + "\n")
        found[trace] = said
    return found


def _window(trace: str, window: int, data: Path) -> list[Said]:
    place = cluster(trace)
    part = jobs(Case(trace, LOAD, window, "trencadis"), place, data)
    policy = Asking()
    engine = Engine(part, with_queues(part, place), policy, ReplayOptions())
    engine.run()
    starts = {run.name: run.first_start for run in engine.runs if run.state is State.DONE}
    return [
        Said(s.job, s.at, s.best, s.likely, s.worst, starts.get(s.job)) for s in policy.said
    ]
