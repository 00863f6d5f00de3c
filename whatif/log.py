"""Decisions of a replay as they were made: a line each, from which it can be resumed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Any

from trencadis.models import Fault, InvalidInputError, TaskAllocation
from trencadis.whatif.decisions import (
    Around,
    Decision,
    PreemptAction,
    ResizeAction,
    SchedulingPolicy,
    StartAction,
    View,
)


def line_of(now: int, decision: Decision) -> str:
    """The decision as a line of JSON."""
    record: dict[str, Any] = {"t": now}
    if decision.preempts:
        record["preempts"] = [[p.job, p.grace, p.signal] for p in decision.preempts]
    if decision.resizes:
        record["resizes"] = [[r.job, _tasks(r.allocation)] for r in decision.resizes]
    if decision.starts:
        record["starts"] = [
            [s.job, _tasks(s.allocation), list(s.waits_for)] for s in decision.starts
        ]
    if decision.releases:
        record["releases"] = list(decision.releases)
    if decision.wake is not None:
        record["wake"] = decision.wake
    return json.dumps(record, separators=(",", ":")) + "\n"


def decision_of(record: dict[str, Any]) -> Decision:
    """What the line says."""
    return Decision(
        preempts=tuple(PreemptAction(*entry) for entry in record.get("preempts", ())),
        resizes=tuple(
            ResizeAction(job, _allocation(tasks)) for job, tasks in record.get("resizes", ())
        ),
        starts=tuple(
            StartAction(job, _allocation(tasks), tuple(waits))
            for job, tasks, waits in record.get("starts", ())
        ),
        releases=tuple(record.get("releases", ())),
        wake=record.get("wake"),
    )


def _tasks(allocation: Iterable[TaskAllocation]) -> list[dict[str, Any]]:
    return [task.model_dump(mode="json", exclude_defaults=True) for task in allocation]


def _allocation(tasks: Iterable[dict[str, Any]]) -> tuple[TaskAllocation, ...]:
    return tuple(TaskAllocation.model_validate(task) for task in tasks)


def read_log(path: Path) -> list[dict[str, Any]]:
    """The lines of a log; a last one that was cut off is dropped.

    Raises InvalidInputError where a line in the middle is no decision.
    """
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines.pop()
    records = []
    for number, text in enumerate(lines, start=1):
        try:
            record = json.loads(text)
            decision_of(record)
            records.append({**record, "t": int(record["t"])})
        except (ValueError, TypeError, KeyError, AttributeError):
            fault = Fault(f"line {number}", "this is no decision of a replay")
            raise InvalidInputError([fault]) from None
    return records


class Logged(Around):
    """A policy whose decisions are written as they are made; those of an earlier run are reused."""

    def __init__(
        self, policy: SchedulingPolicy, earlier: Sequence[dict[str, Any]], stream: IO[str]
    ) -> None:
        super().__init__(policy)
        self._earlier = list(reversed(earlier))
        self._stream = stream

    def decide(self, view: View) -> Decision:
        """The earlier decision if there is one, else the policy's."""
        if self._earlier:
            record = self._earlier.pop()
            self.observe(view)  # what it remembers of the past
            if record["t"] != view.now:
                raise InvalidInputError(
                    [Fault("decisions", "the log is of another trace, cluster or round length")]
                )
            return decision_of(record)
        decision = self._policy.decide(view)
        self._stream.write(line_of(view.now, decision))
        self._stream.flush()
        return decision
