"""Spares: idle nodes that no job starts on, so that repairs find room."""

from __future__ import annotations

from typing import Any

import build as b
import oracle
import pytest
import strategies
from exact import EXACT, assert_exact
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from test_preempt import QUICK, after_grace, contested
from test_repair import broken

from trencadis.models import InvalidInputError, Plan, Snapshot, Spare, TaskAllocation, apply
from trencadis.models.check import check
from trencadis.solver.explain.explain import explain
from trencadis.solver.migrate.defrag import defrag
from trencadis.solver.round import solve
from trencadis.solver.spares import with_spares
from trencadis.solver.verify import verify
from trencadis.views.cluster import cluster_facts
from trencadis.views.queues import queue_records

ALL = range(8)
QUIET = [HealthCheck.too_slow, HealthCheck.filter_too_much]


def racks(*parts: Any, spares: tuple[Spare, ...] = (Spare(level="rack", nodes=1),)) -> Snapshot:
    """Two racks of two nodes of 8 GPUs."""
    return b.snapshot(
        *(b.node(f"n{i}", 8, fabric=(f"r{i // 2}",)) for i in range(4)),
        *parts,
        levels=("rack",),
        spares=spares,
    )


def marked(snapshot: Snapshot) -> set[str]:
    found = with_spares(snapshot)
    return {node.name for node in found.nodes if any(t.key == "spare" for t in node.taints)}


def begun(plan: Plan) -> dict[str, list[str]]:
    return {start.job: [task.node for task in start.allocation] for start in plan.starts}


def test_no_job_starts_on_a_spare() -> None:
    snap = racks(*b.jobs(4, "j", 8))
    plan = solve(snap)
    used = {node for nodes in begun(plan).values() for node in nodes}
    assert used == {"n1", "n3"}
    assert plan.proof.status == "OPTIMAL"
    assert len(plan.pending) == 2


def test_repairs_use_spares() -> None:
    snap = racks(
        b.running("gang", b.at("n0", *ALL), tasks=2, required="rack", ran=60),
        b.job("j", 8, 2, waited=90_000, priority="high"),
    )
    plan = solve(snap)
    assert [[task.node for task in repair.add] for repair in plan.repairs] == [["n1"]]
    assert not plan.starts


def test_which_nodes_are_spares() -> None:
    snap = racks(b.running("a", b.at("n0", 0)))
    assert marked(snap) == {"n1", "n2"}
    assert marked(racks()) == {"n0", "n2"}
    wide = (Spare(level="cluster", nodes=3), Spare(level="rack", nodes=1))
    assert marked(racks(spares=wide)) == {"n0", "n1", "n2"}
    assert marked(racks(spares=(Spare(level="rack", nodes=5),))) == {"n0", "n1", "n2", "n3"}
    held = racks(b.job("h", 8), b.hold("h", b.at("n2", *ALL)))
    assert marked(held) == {"n0", "n3"}


@pytest.mark.parametrize(
    "odd",
    [
        b.node("n0", 8, unhealthy=[1]),
        b.node("n0", 8, down=True),
        b.node("n0", 8, cordoned=True),
        b.node("n0", 8, free_for=60),
        b.node("n0", 8, health_score_milli=100),
        b.node("n0", 0),
    ],
)
def test_nodes_that_are_no_good_are_no_spares(odd: b.Node) -> None:
    snap = b.snapshot(odd, b.node("n1", 8), spares=(Spare(level="cluster", nodes=1),))
    assert marked(snap) == {"n1"}


def test_spares_of_each_kind_of_node() -> None:
    snap = b.snapshot(
        b.node("n0", 8), b.node("n1", 8), b.node("n2", 4), b.node("n3", 8, "A100"),
        spares=(Spare(level="cluster", nodes=1),),
    )
    assert marked(snap) == {"n0", "n2", "n3"}


def test_who_tolerates_everything_does_not_start_on_spares() -> None:
    snap = racks(*b.jobs(4, "j", 8, tolerations=(b.Toleration(),)))
    assert len(begun(solve(snap))) == 2


def test_without_repairs_there_are_no_spares() -> None:
    snap = racks(*b.jobs(4, "j", 8))
    off = snap.model_copy(update={"policy": snap.policy.model_copy(update={"repairs": False})})
    assert len(begun(solve(off))) == 4


def test_elastic_jobs_do_not_grow_onto_spares() -> None:
    snap = racks(b.job("e", 8, 4, min_tasks=1, communicates=False))
    assert len(begun(solve(snap))["e"]) == 2


def test_a_level_that_is_not_there() -> None:
    with pytest.raises(InvalidInputError, match="the levels are cluster, rack"):
        solve(racks(spares=(Spare(level="node", nodes=1),)))


def test_a_job_that_only_spares_suit_is_told_so() -> None:
    snap = racks(b.job("big", 8, 4))
    plan = solve(snap)
    assert "no nodes that are kept as spares" in plan.pending[0].sentence
    explain(snap, plan, ["big"])


def test_the_verifier_sees_a_start_on_a_spare() -> None:
    snap = racks(b.job("j", 8))
    plan = solve(snap)
    (start,) = plan.starts
    moved = start.model_copy(
        update={"allocation": (TaskAllocation(node="n0", gpus=tuple(ALL)),), "domain": "r0/n0"}
    )
    wrong = plan.model_copy(update={"starts": (moved,)})
    assert {v.rule for v in verify(snap, wrong).violations} == {"admission"}


@st.composite
def spared(draw: st.DrawFn, snapshots: st.SearchStrategy[Snapshot]) -> Snapshot:
    snap = draw(snapshots)
    levels = ["cluster", *(level.name for level in snap.fabric.levels)]
    number = draw(st.integers(1, 2))
    spares = tuple(
        Spare(level=draw(st.sampled_from(levels)), nodes=draw(st.integers(1, 2)))
        for _ in range(number)
    )
    policy = snap.policy.model_copy(update={"spares": spares})
    found = snap.model_copy(update={"policy": policy})
    assume(marked(found))
    return found


@pytest.mark.parametrize("family", ["queues", "topology", "all", "broken"])
def test_brute_force_agrees(family: str) -> None:
    drawn = {
        "queues": strategies.snapshots_queues(),
        "topology": strategies.snapshots_topology(),
        "all": strategies.snapshots_all(),
        "broken": broken("topology"),
    }[family]

    @settings(max_examples=40, deadline=None, suppress_health_check=QUIET)
    @given(spared(drawn))
    def agree(snapshot: Snapshot) -> None:
        try:
            best = oracle.lexicographic_optimum(snapshot)
        except oracle.TooLarge:
            assume(False)
            raise
        assert_exact(snapshot, solve(snapshot, EXACT), best)

    agree()


@settings(max_examples=40, deadline=None, suppress_health_check=QUIET)
@given(spared(contested()))
def test_spares_beside_victims_and_moves(snapshot: Snapshot) -> None:
    plan = solve(snapshot, QUICK)  # verifies
    explain(snapshot, plan, everyone=True)
    after = after_grace(apply(snapshot, plan))
    check(apply(after, solve(after, QUICK)))
    budget = snapshot.policy.preemption.budget.model_copy(update={"moves": 3})
    preemption = snapshot.policy.preemption.model_copy(update={"budget": budget})
    policy = snapshot.policy.model_copy(update={"preemption": preemption})
    defrag(snapshot.model_copy(update={"policy": policy}))  # verifies


def test_show_marks_spares_and_counts_no_repair_as_a_job() -> None:
    snap = racks(b.running("gang", b.at("n0", *ALL), tasks=2), b.job("j", 8))
    facts = cluster_facts(snap)
    assert {node.name for node in facts.nodes if "spare" in node.marks} == {"n1", "n2"}
    (queue,) = queue_records(facts.situation)
    assert (queue["running_jobs"], queue["pending_jobs"]) == (1, 1)
    assert queue["asked_milli"] == 16_000
