"""A plan claims no finer places than a node's owner lets us choose; the verifier checks that."""

from __future__ import annotations

import build as b
import pytest
from exact import solve_exactly

from trencadis.models import (
    Job,
    MigGpu,
    MigInstance,
    Request,
    Share,
    Snapshot,
    Start,
    TaskAllocation,
    apply,
)
from trencadis.models.reckoned import reckoned
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


NAMED = TaskAllocation(node="n1", gpus=(0,), share=HALF)
EXPECTED = TaskAllocation(node="n1", expected=(0,), share=HALF)


@pytest.mark.parametrize(
    ("precision", "right", "wrong"),
    [("node", EXPECTED, NAMED), ("gpu", NAMED, EXPECTED), ("mig", NAMED, EXPECTED)],
)
def test_shares_name_their_gpu_or_what_they_reckon_with(
    precision: str, right: TaskAllocation, wrong: TaskAllocation
) -> None:
    job = b.job("a", request=Request(share=HALF))
    machine = b.node("n1", 1, shareable=True, max_jobs_per_gpu=2, precision=precision)
    snap = b.snapshot(machine, job)
    assert solve_exactly(snap).starts[0].allocation == (right,)
    assert rules(snap, right) == set()
    assert rules(snap, wrong) == {"indices"}
    assert "indices" in rules(snap, TaskAllocation(node="n1", share=HALF))


def shared_node(*jobs: Job, **more: object) -> Snapshot:
    machine = b.node("n1", 2, shareable=True, max_jobs_per_gpu=4, precision="node", **more)
    return b.snapshot(machine, *jobs)


def test_shares_and_whole_gpus_of_a_node_chosen_as_a_whole_take_no_more_than_there_is() -> None:
    """What the plan reckons with is a witness: half, quarter and quarter fill one GPU, and the
    other is left for whoever wants all of it."""
    quarter = Request(share=Share(gpu_milli=250))
    jobs = [
        b.job("half", request=Request(share=HALF)),
        b.job("q1", request=quarter),
        b.job("q2", request=quarter),
        b.job("whole", 1),
        b.job("q3", request=quarter),
    ]
    snap = shared_node(*jobs)
    plan = solve_exactly(snap)
    assert len(plan.starts) == 4
    tasks = {start.job: start.allocation[0] for start in plan.starts}
    assert all(task.gpus is None for task in tasks.values())
    after = apply(snap, plan)
    follow = solve_exactly(after)
    assert follow.starts == ()
    broken = plan.model_copy(
        update={
            "starts": tuple(
                start.model_copy(
                    update={
                        "allocation": (
                            start.allocation[0].model_copy(update={"expected": (0,)}),
                        )
                    }
                )
                for start in plan.starts
            )
        }
    )
    assert {v.rule for v in verify(snap, broken).violations} & {"one-use", "shares", "gpus"}


def test_what_turned_out_otherwise_than_expected_is_not_reckoned_with() -> None:
    """The owner put a whole GPU's job where the share was expected: where that is, nobody knows."""
    where = TaskAllocation(node="n1", expected=(0,), share=HALF)
    share = b.running("s", where, request=Request(share=HALF))
    whole = b.running("w", b.at("n1", 0))
    alone = reckoned(shared_node(share))
    assert alone.jobs[0].allocation == (TaskAllocation(node="n1", gpus=(0,), share=HALF),)
    assert reckoned(shared_node(share, whole)).jobs[0].allocation == (where,)
    waits = b.job("x", request=Request(share=HALF))
    assert [s.job for s in solve_exactly(shared_node(share, waits)).starts] == ["x"]
    assert solve_exactly(shared_node(share, whole, waits)).starts == ()
