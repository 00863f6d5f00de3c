"""Deterministic mode: equal snapshots give the same bytes, in any process and in any order."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import Random

import build
import pytest
import strategies
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from trencadis.instances import catalog
from trencadis.instances.generate import generate
from trencadis.models import Plan, Snapshot
from trencadis.solver.round import Options, solve

DETERMINISTIC = Options(deterministic=True)
PROGRAM = """
import sys
from trencadis.models import Snapshot
from trencadis.solver.round import Options, solve
for line in sys.stdin:
    plan = solve(Snapshot.model_validate_json(line), Options(deterministic=True))
    print(plan.model_dump_json())
"""


def plans_of(texts: list[str], hash_seed: int, folder: Path) -> list[str]:
    """The plans that another process makes of these snapshots."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input="\n".join(texts),
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    "snapshot",
    [
        pytest.param(catalog.load("fabric3"), id="fabric3"),
        pytest.param(catalog.load("nvlink_pairs"), id="nvlink_pairs"),
        pytest.param(generate(nodes=30, pending=60), id="30-nodes"),
        pytest.param(generate(nodes=200, pending=400), id="200-nodes", marks=pytest.mark.slow),
    ],
)
def test_two_processes_and_any_order_give_the_same_bytes(
    snapshot: Snapshot, tmp_path: Path
) -> None:
    text = snapshot.model_dump_json()
    stirred = [strategies.shuffled(snapshot, Random(seed)).model_dump_json() for seed in (1, 2)]
    assert len({text, *stirred}) == 3
    first = plans_of([text], 1, tmp_path)
    second = plans_of([text, *stirred], 2, tmp_path)
    assert second == first * 3


def without_times(plan: Plan) -> bool:
    return plan.timings_s is None and all(stage.solve_s is None for stage in plan.proof.stages)


def test_a_plan_tells_the_time_only_where_it_may_differ() -> None:
    snapshot = catalog.load("team_node")
    assert without_times(solve(snapshot, DETERMINISTIC))
    timed = solve(snapshot)
    assert timed.timings_s is not None
    assert all(stage.solve_s is not None for stage in timed.proof.stages)


@pytest.mark.parametrize("name", catalog.names())
@given(rng=st.randoms(use_true_random=False))
@settings(max_examples=20, deadline=None)
def test_the_fingerprint_says_nothing_of_the_order(name: str, rng: Random) -> None:
    snapshot = catalog.load(name)
    assert strategies.shuffled(snapshot, rng).fingerprint() == snapshot.fingerprint()


@settings(
    max_examples=60,
    deadline=None,
    phases=[phase for phase in Phase if phase is not Phase.shrink],  # takes minutes here
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(strategies.snapshots_all(), st.randoms(use_true_random=False))
def test_any_order_of_a_tiny_snapshot_gives_the_same_bytes(snapshot: Snapshot, rng: Random) -> None:
    plan = solve(snapshot, DETERMINISTIC)
    again = solve(strategies.shuffled(snapshot, rng), DETERMINISTIC)
    # What warnings say of the order is a test of its own.
    silent = [found.model_copy(update={"warnings": ()}) for found in (plan, again)]
    assert silent[0].model_dump_json() == silent[1].model_dump_json()
    assert without_times(plan)


def test_warnings_say_nothing_of_the_order() -> None:
    # A GPU that is broken counts as absent, with a warning.
    snapshot = build.snapshot(
        build.node("n1", 2, unhealthy=(0,)),
        build.job("waits", 2),
        build.running("runs", build.at("n1", 0)),
    )
    other = snapshot.model_copy(update={"jobs": snapshot.jobs[::-1]})
    plan = solve(snapshot, DETERMINISTIC)
    assert plan.warnings
    assert solve(other, DETERMINISTIC).model_dump_json() == plan.model_dump_json()


def test_warnings_that_speak_for_several_name_the_same_one_in_any_order() -> None:
    jobs = [build.job(name, 4) for name in ("x", "y", "z")]
    snapshot = build.snapshot(build.node("n1", 2), *jobs)
    other = snapshot.model_copy(update={"jobs": snapshot.jobs[::-1]})
    plan = solve(snapshot, DETERMINISTIC)
    assert plan.warnings
    assert solve(other, DETERMINISTIC).warnings == plan.warnings
