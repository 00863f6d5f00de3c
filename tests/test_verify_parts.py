"""Plans that break one rule of slices and shares: the verifier names just that rule."""

from __future__ import annotations

from collections.abc import Callable

import build as b
import pytest

from trencadis.models import (
    GpuGroup,
    MigGpu,
    MigInstance,
    Plan,
    Request,
    Share,
    Snapshot,
    Start,
    TaskAllocation,
)
from trencadis.models.plan import Reconfigure
from trencadis.solver.round import Options, solve
from trencadis.solver.verify import verify

MODEL = "A100-SXM4-40GB"


def inst(profile: str, start: int) -> MigInstance:
    return MigInstance(profile=profile, start=start)


def at(node: str, gpu: int, *instances: MigInstance, share: Share | None = None) -> TaskAllocation:
    gpus = (gpu,) * max(1, len(instances))
    return TaskAllocation(node=node, gpus=gpus, mig=instances, share=share)


HALF = Share(gpu_milli=500, memory_mib=20_000)
SMALL = Share(gpu_milli=100, memory_mib=1_000)
PINNED, IDLE = inst("2g.10gb", 0), inst("1g.5gb", 6)
SNAPSHOT = b.snapshot(
    b.node(
        "m1",
        2,
        MODEL,
        mig=[MigGpu(gpu=0, instances=(PINNED, IDLE)), MigGpu(gpu=1, instances=(IDLE,))],
    ),
    b.node("fixed", 1, MODEL, mig=[MigGpu(gpu=0, instances=(IDLE,))], mig_reconfigure="forbid"),
    b.node("off", 1, MODEL),
    b.node("on", 2, MODEL, mig_mode_changes=True),
    b.node("shared", 2, MODEL, shareable=True, max_jobs_per_gpu=2).model_copy(
        update={"gpus": (GpuGroup(model=MODEL, count=2, memory_mib=40_960),)}
    ),
    b.running("r", at("m1", 0, PINNED), request=Request(mig=("2g.10gb",))),
    b.running("s", at("shared", 0, share=HALF), request=Request(share=HALF)),
    b.job("slice", request=Request(mig=("3g.20gb",)), required_nodes=("m1",)),
    b.job("turns", request=Request(mig=("4g.20gb",)), required_nodes=("on",)),
    b.job("half", request=Request(share=HALF), required_nodes=("shared",)),
    b.job("small", request=Request(share=SMALL), required_nodes=("shared",)),
)
# Not waiting at all, so that nothing but what a corruption does is wrong.


def with_task(job: str, task: TaskAllocation) -> Callable[[Plan], Plan]:
    """The plan with the job's task elsewhere, and the rest of what is told about it as it was."""

    def change(plan: Plan) -> Plan:
        starts = [
            start.model_copy(update={"allocation": (task,)}) if start.job == job else start
            for start in plan.starts
        ]
        return plan.model_copy(update={"starts": tuple(starts)})

    return change


def with_change(node: str, **update: object) -> Callable[[Plan], Plan]:
    """The plan with another reconfiguration of a node's GPU."""

    def change(plan: Plan) -> Plan:
        changes = [
            entry.model_copy(update=update) if entry.node == node else entry
            for entry in plan.reconfigures
        ]
        return plan.model_copy(update={"reconfigures": tuple(changes)})

    return change


def without_changes(plan: Plan) -> Plan:
    return plan.model_copy(update={"reconfigures": ()})


def with_another(plan: Plan) -> Plan:
    more = Reconfigure(node="off", gpu=0, step=3, before=(), after=(), turn_on=True)
    return plan.model_copy(update={"reconfigures": (*plan.reconfigures, more)})


def honest() -> Plan:
    plan = solve(SNAPSHOT, Options(workers=1, gap=0.0))
    assert {start.job for start in plan.starts} == {"slice", "turns", "half", "small"}
    assert verify(SNAPSHOT, plan).violations == ()
    return plan


PLAN = honest()


def where(job: str) -> TaskAllocation:
    (found,) = (start.allocation[0] for start in PLAN.starts if start.job == job)
    return found


def test_the_honest_plan_is_what_the_corruptions_take_for_granted() -> None:
    assert where("slice").mig == (inst("3g.20gb", 4),)
    assert [change.node for change in PLAN.reconfigures] == ["on", "m1"]


GPU = (where("slice").gpus or (0,))[0]


@pytest.mark.parametrize(
    ("rule", "corrupt"),
    [
        ("indices", with_task("slice", at("m1", GPU, inst("2g.10gb", 4)))),
        ("indices", with_task("slice", TaskAllocation(node="m1", gpus=(GPU,)))),
        ("indices", with_task("slice", at("m1", 7, inst("3g.20gb", 4)))),
        ("indices", with_task("half", at("shared", 1, share=SMALL))),
        ("indices", with_task("half", TaskAllocation(node="shared", gpus=(0, 1), share=HALF))),
        ("slices", with_task("slice", at("m1", 0, inst("3g.20gb", 0)))),
        ("slices", with_task("slice", at("m1", GPU, inst("3g.20gb", 3)))),
        ("slices", with_task("turns", at("on", 0, inst("4g.20gb", 4)))),
        ("one-use", with_task("half", at("on", 0, share=HALF))),
        ("shares", with_task("half", at("on", 1, share=HALF))),
        ("layouts", without_changes),
        ("layouts", with_another),
        ("layouts", with_change("m1", before=())),
        ("layouts", with_change("m1", idle_gpu_seconds=29)),
        ("layouts", with_change("m1", step=1)),
        ("layouts", with_change("m1", turn_on=True)),
        ("layouts", with_change("m1", after=(inst("3g.20gb", 4), inst("1g.5gb", 0)))),
        ("layouts", with_change("on", reset=False)),
        ("layouts", with_change("on", after=())),
    ],
)
def test_a_plan_that_breaks_a_rule_is_caught(rule: str, corrupt: Callable[[Plan], Plan]) -> None:
    broken = {violation.rule for violation in verify(SNAPSHOT, corrupt(PLAN)).violations}
    assert rule in broken


def start(job: str, task: TaskAllocation) -> Start:
    return Start(job=job, at=b.NOW, allocation=(task,))


def rules(snapshot: Snapshot, *starts: Start, changes: tuple[Reconfigure, ...] = ()) -> set[str]:
    """Rules that a hand-made plan breaks, claims and proof aside."""
    base = solve(snapshot, Options(workers=1))
    plan = base.model_copy(update={"starts": starts, "reconfigures": changes})
    broken = {violation.rule for violation in verify(snapshot, plan).violations}
    return broken - {"claims", "objective", "pending", "bounds"}


def test_fixed_layouts_and_modes_are_kept() -> None:
    jobs = [b.job("a", request=Request(mig=("1g.5gb",)))]
    fixed = b.node(
        "n", 1, MODEL, mig=[MigGpu(gpu=0, instances=(IDLE,))], mig_reconfigure="forbid"
    )
    snapshot = b.snapshot(fixed, jobs)
    assert rules(snapshot, start("a", at("n", 0, IDLE))) == set()
    assert rules(snapshot, start("a", at("n", 0, inst("1g.5gb", 0)))) == {"slices", "layouts"}
    off = b.snapshot(b.node("n", 1, MODEL), jobs)
    assert "slices" in rules(off, start("a", at("n", 0, IDLE)))


def test_an_instance_is_given_once_and_destroyed_only_if_it_must_be() -> None:
    node = b.node("n", 1, MODEL, mig=[MigGpu(gpu=0, instances=(IDLE,))])
    jobs = [b.job(name, request=Request(mig=("1g.5gb",))) for name in ("a", "b")]
    snapshot = b.snapshot(node, jobs)
    twice = (start("a", at("n", 0, IDLE)), start("b", at("n", 0, IDLE)))
    assert "slices" in rules(snapshot, *twice)
    new = inst("1g.5gb", 0)
    change = Reconfigure(
        node="n", gpu=0, step=1, before=(IDLE,), after=(new,), idle_gpu_seconds=30
    )
    one = b.snapshot(node, jobs[:1])
    kept = change.model_copy(update={"after": (new, IDLE)})
    assert rules(one, start("a", at("n", 0, new)), changes=(change,)) == {"layouts"}
    assert rules(one, start("a", at("n", 0, new)), changes=(kept,)) == set()


def test_shares_keep_to_memory_number_and_fraction() -> None:
    node = b.node("n", 1, MODEL, shareable=True, max_jobs_per_gpu=2).model_copy(
        update={"gpus": (GpuGroup(model=MODEL, count=1, memory_mib=10_000),)}
    )

    def shares(*sizes: tuple[int, int]) -> set[str]:
        given = [Share(gpu_milli=milli, memory_mib=mib) for milli, mib in sizes]
        jobs = [b.job(f"a{i}", request=Request(share=one)) for i, one in enumerate(given)]
        starts = [start(f"a{i}", at("n", 0, share=one)) for i, one in enumerate(given)]
        return rules(b.snapshot(node, jobs), *starts)

    assert shares((500, 5_000), (500, 5_000)) == set()
    assert shares((500, 0), (501, 0)) == {"shares"}
    assert shares((100, 5_001), (100, 5_000)) == {"shares"}
    assert shares((100, 0), (100, 0), (100, 0)) == {"shares"}


def test_a_slice_or_share_that_could_start_may_not_wait() -> None:
    node = b.node("n", 1, MODEL, mig=[0])
    slices = b.snapshot(node, b.job("a", request=Request(mig=("7g.40gb",))))
    assert rules(slices) == {"work-conserving"}
    shared = b.node("n", 1, shareable=True)
    shares = b.snapshot(shared, b.job("a", request=Request(share=SMALL)))
    assert rules(shares) == {"work-conserving"}
    busy = b.snapshot(
        node,
        b.running("r", at("n", 0, inst("1g.5gb", 6)), request=Request(mig=("1g.5gb",))),
        b.job("a", request=Request(mig=("7g.40gb",))),
    )
    assert rules(busy) == set()


def test_a_group_of_slices_and_shares_that_could_start_may_not_wait() -> None:
    nodes = [
        b.node("n", 1, MODEL, mig=[0]),
        b.node("s", 1, MODEL, shareable=True, max_jobs_per_gpu=2),
    ]
    jobs = [
        b.job("a", request=Request(mig=("3g.20gb",)), group="g"),
        b.job("b", request=Request(mig=("4g.20gb",)), group="g"),
        b.job("c", request=Request(share=SMALL), group="g"),
        b.job("d", 0, group="g"),
    ]
    assert rules(b.snapshot(nodes, jobs)) == {"work-conserving"}
    # Together with a third 3g they fit no more: 4g and 3g share the one GPU in one way only.
    more = b.job("e", request=Request(mig=("1g.5gb",)), group="g")
    assert rules(b.snapshot(nodes, jobs, more)) == set()


def test_members_of_a_group_compete_for_whole_gpus_that_are_opened() -> None:
    node = b.node("n", 2, "H100-80GB", mig_mode_changes=True, shareable=True, max_jobs_per_gpu=2)
    jobs = [
        b.job("a", request=Request(mig=("7g.80gb",)), group="g"),
        b.job("b", request=Request(share=SMALL), group="g"),
    ]
    assert rules(b.snapshot(node, jobs)) == {"work-conserving"}
    assert rules(b.snapshot(node, jobs, b.job("c", 1, group="g"))) == set()
