"""A stand-in for the solver, so that tests decide what a round does."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import pytest
from build import at, job, node, plan_of, queue, running, snapshot, stage, start

from trencadis.models import Plan, Snapshot

SNAP = snapshot(
    node("n1", 8, nvswitch=True, fabric=("l1",)),
    queue("red", guarantee=4),
    job("a", gpus=4, queue="red", waited=600),
    job("b", gpus=8, queue="red"),
    running("r", at("n1", 0, 1)),
    levels=("leaf",),
)
TEXT = SNAP.model_dump_json()
PLAN = plan_of(
    SNAP,
    start("a", at("n1", 2, 3, 4, 5), waiting_saved=28_800),
    stages=(stage("tier:high", 5, 4, 9),),
)


@dataclass(frozen=True)
class Options:
    """The solver's options."""

    time_limit_s: float | None = None
    gap: float | None = None
    workers: int = 2
    deterministic: bool = False
    seed: int = 0


Solve = Callable[[Snapshot, Options, threading.Event | None], Plan]


class FakeSolver:
    """Stands where `trencadis.solver.round` stands; remembers how it was called."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[Snapshot, Options]] = []
        self.answer: Callable[[Snapshot], Plan] = plan_of
        module = ModuleType("trencadis.solver.round")
        module.__dict__.update(Options=Options, solve=self._solve)
        patch.setitem(sys.modules, "trencadis.solver.round", module)

    @property
    def options(self) -> Options:
        """Of the last call."""
        return self.calls[-1][1]

    def _solve(
        self, snapshot: Snapshot, options: Options, stop: threading.Event | None = None
    ) -> Plan:
        assert stop is not None
        self.calls.append((snapshot, options))
        return self.answer(snapshot)
