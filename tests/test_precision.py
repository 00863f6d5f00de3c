"""A plan claims no finer places than a node's owner lets us choose; the verifier checks that."""

from __future__ import annotations

import build as b
import pytest
from exact import solve_exactly

from trencadis.models import (
    MigGpu,
    MigInstance,
    Request,
    Share,
    Snapshot,
    Start,
    TaskAllocation,
)
from trencadis.solver.round import solve
from trencadis.solver.verify import verify

A100 = "A100-SXM4-40GB"
ONE = MigInstance(profile="1g.5gb", start=0)
HALF = Share(gpu_milli=500)


def rules(snapshot: Snapshot, where: TaskAllocation) -> set[str]:
    """What is wrong with starting the job `a` there, costs and proof aside."""
    plan = solve(snapshot).model_copy(
        update={"starts": (Start(job="a", at=b.NOW, allocation=(where,)),)}
    )
    broken = {violation.rule for violation in verify(snapshot, plan).violations}
    return broken - {"claims", "objective", "pending", "bounds"}


def test_of_a_node_chosen_as_a_whole_no_gpu_is_named() -> None:
    snap = b.snapshot(b.node("n1", 4, precision="node"), b.job("a", 2))
    (start,) = solve_exactly(snap).starts
    assert start.allocation == (TaskAllocation(node="n1"),)
    assert rules(snap, TaskAllocation(node="n1")) == set()
    assert rules(snap, b.at("n1", 0, 1)) == {"indices"}


def test_where_gpus_are_chosen_they_are_named() -> None:
    snap = b.snapshot(b.node("n1", 4, precision="gpu"), b.job("a", 2))
    (start,) = solve_exactly(snap).starts
    assert start.allocation[0].gpus is not None
    assert len(start.allocation[0].gpus) == 2
    assert "indices" in rules(snap, TaskAllocation(node="n1"))


@pytest.mark.parametrize("precision", ["node", "gpu"])
def test_starts_of_instances_are_claimed_only_where_they_are_ours(precision: str) -> None:
    """On other nodes slices are left to the owner, idle instances too."""
    mig = [MigGpu(gpu=0, instances=(ONE,))]
    job = b.job("a", request=Request(mig=("1g.5gb",)))
    snap = b.snapshot(b.node("n1", 1, A100, mig=mig, precision=precision), job)
    assert solve_exactly(snap).starts == ()
    task = TaskAllocation(node="n1", gpus=(0,), mig=(ONE,))
    assert rules(snap, task) & {"slices", "indices"}
    ours = b.snapshot(b.node("n1", 1, A100, mig=mig), job)
    assert solve_exactly(ours).starts[0].allocation == (task,)
    assert rules(ours, task) == set()


def test_shares_name_their_gpu_and_so_need_a_node_where_gpus_are_chosen() -> None:
    job = b.job("a", request=Request(share=HALF))
    task = TaskAllocation(node="n1", gpus=(0,), share=HALF)
    for precision, starts in (("node", False), ("gpu", True), ("mig", True)):
        machine = b.node("n1", 1, shareable=True, max_jobs_per_gpu=2, precision=precision)
        snap = b.snapshot(machine, job)
        assert bool(solve_exactly(snap).starts) == starts
        assert (rules(snap, task) == set()) == starts
