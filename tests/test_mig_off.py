"""MIG turned off on idle GPUs for jobs that want whole ones: cases, corruption, brute force."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import build as b
import pytest
from exact import solve_exactly
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import trim

from trencadis.models import (
    DemandEntry,
    Hold,
    Job,
    MigGpu,
    MigInstance,
    Node,
    NvLink,
    Plan,
    PlanMismatchError,
    Request,
    TaskAllocation,
    apply,
)
from trencadis.models.check import check
from trencadis.models.policy import MigPolicy
from trencadis.solver.round import solve
from trencadis.solver.verify import verify

A100, H100 = "A100-SXM4-40GB", "H100-80GB"
IDLE = MigInstance(profile="1g.10gb", start=0)


def cut(
    *layouts: tuple[tuple[str, int], ...], model: str = H100, whole: int = 0, **fields: Any
) -> Node:
    """A node with GPUs in MIG mode, one per layout, and so many whole ones after them."""
    mig = [
        MigGpu(gpu=i, instances=tuple(MigInstance(profile=p, start=s) for p, s in layout))
        for i, layout in enumerate(layouts)
    ]
    fields = {"name": "n1", "mig_mode_changes": True, **fields}
    name = fields.pop("name")
    return b.node(name, len(layouts) + whole, model, mig=mig, **fields)


def on(name: str, profile: str, start: int, gpu: int = 0) -> Job:
    """A job that runs on an instance."""
    instance = MigInstance(profile=profile, start=start)
    where = TaskAllocation(node="n1", gpus=(gpu,), mig=(instance,))
    return b.running(name, where, request=Request(mig=(profile,)))


def changes(plan: Plan) -> list[tuple[str, int, bool, bool, int]]:
    return [
        (c.node, c.gpu, c.turn_off, c.reset, c.idle_gpu_seconds) for c in plan.reconfigures
    ]


# Worked cases


def test_an_idle_gpu_in_mig_mode_becomes_whole_for_a_job() -> None:
    snapshot = b.snapshot(cut(()), b.job("a"))
    plan = solve_exactly(snapshot)
    assert [start.job for start in plan.starts] == ["a"]
    assert changes(plan) == [("n1", 0, True, False, 60)]
    (change,) = plan.reconfigures
    assert (change.before, change.after, change.turn_on) == ((), (), False)


def test_idle_instances_go_first_and_cost_as_well() -> None:
    plan = solve_exactly(b.snapshot(cut((("1g.10gb", 0), ("2g.20gb", 2))), b.job("a")))
    assert changes(plan) == [("n1", 0, True, False, 90)]
    assert [i.profile for i in plan.reconfigures[0].before] == ["1g.10gb", "2g.20gb"]


@pytest.mark.parametrize(
    ("fields", "policy"),
    [
        ({"mig_mode_changes": False}, MigPolicy()),
        ({}, MigPolicy(mode="fixed")),
        ({}, MigPolicy(reconfigure="forbid")),
        ({"mig_reconfigure": "forbid"}, MigPolicy(mode="free")),
        ({"precision": "gpu"}, MigPolicy(mode="free")),
        ({"whole": 1, "nvlink": NvLink(kind="links", links=((0, 1),))}, MigPolicy(mode="free")),
    ],
)
def test_mig_stays_on_where_policy_says_so(fields: dict[str, Any], policy: MigPolicy) -> None:
    jobs = [b.job(f"a{i}") for i in range(1 + fields.get("whole", 0))]
    plan = solve_exactly(b.snapshot(cut((), **fields), jobs, mig=policy))
    assert (len(plan.starts), plan.reconfigures) == (len(jobs) - 1, ())


def test_anywhere_where_the_policy_leaves_modes_free() -> None:
    node = cut((), mig_mode_changes=False)
    assert solve_exactly(b.snapshot(node, b.job("a"), mig=MigPolicy(mode="free"))).reconfigures


def test_a_reset_takes_an_idle_node() -> None:
    idle, busy = cut((), model=A100, whole=1), b.running("r", b.at("n1", 1))
    plan = solve_exactly(b.snapshot(idle, b.job("a", gpus=2)))
    assert changes(plan) == [("n1", 0, True, True, 60)]
    assert solve_exactly(b.snapshot(idle, busy, b.job("a"))).starts == ()
    live = solve_exactly(b.snapshot(cut((), whole=1), busy, b.job("a")))
    assert changes(live) == [("n1", 0, True, False, 60)]


def test_a_gpu_with_somebodys_instance_stays_in_mig_mode() -> None:
    snapshot = b.snapshot(cut((), ()), on("r", "1g.10gb", 0), b.job("a", gpus=2), b.job("c"))
    plan = solve_exactly(snapshot)
    assert [start.job for start in plan.starts] == ["c"]
    assert [change.gpu for change in plan.reconfigures] == [1]


def test_a_whole_gpu_comes_first_where_slices_are_in_demand() -> None:
    slices = DemandEntry(request=Request(mig=("1g.10gb",)), weight=1)
    plan = solve_exactly(b.snapshot(cut((), whole=1), b.job("a"), demand_profile=(slices,)))
    assert plan.starts[0].allocation[0].gpus == (1,)
    assert plan.reconfigures == ()


def test_where_nobody_wants_slices_the_whole_gpu_is_kept() -> None:
    """The one in MIG mode would be of no use to anyone: F says that this is worth the minute."""
    plan = solve_exactly(b.snapshot(cut((), whole=1), b.job("a")))
    assert changes(plan) == [("n1", 0, True, False, 60)]


def test_a_job_on_whole_gpus_and_such_as_were_cut() -> None:
    node = cut((), (("1g.10gb", 0),), whole=2, nvlink=NvLink(kind="nvswitch"))
    plan = solve_exactly(b.snapshot(node, b.job("a", gpus=4, nvlink_required=True)))
    assert plan.starts[0].allocation[0].gpus == (0, 1, 2, 3)
    assert sorted(changes(plan)) == [("n1", 0, True, False, 60), ("n1", 1, True, False, 90)]


def test_slices_and_whole_gpus_compete_for_the_same_gpu() -> None:
    """Both are worth their start; the slice goes where something else runs already."""
    jobs = [b.job("a"), b.job("s", request=Request(mig=("3g.40gb",)))]
    plan = solve_exactly(b.snapshot(cut((), ()), on("r", "1g.10gb", 0), jobs))
    assert {start.job for start in plan.starts} == {"a", "s"}
    where = {start.job: start.allocation[0].gpus for start in plan.starts}
    assert where == {"a": (1,), "s": (0,)}


def test_resets_come_first_whatever_they_are_for() -> None:
    nodes = [
        cut((), name="n0"),
        cut((), model=A100, name="n1"),
        b.node("n2", 1, A100, mig_mode_changes=True),
    ]
    jobs = [b.job("a", models=(H100,)), b.job("c", models=(A100,), required_nodes=("n1",))]
    jobs.append(b.job("d", request=Request(mig=("7g.40gb",)), required_nodes=("n2",)))
    plan = solve_exactly(b.snapshot(nodes, jobs))
    told = [(c.node, c.turn_off, c.turn_on, c.reset) for c in plan.reconfigures]
    assert told == [
        ("n1", True, False, True), ("n2", False, True, True), ("n0", True, False, False)
    ]


def test_the_next_round_stands_still() -> None:
    jobs = [b.job("a"), b.job("s", request=Request(mig=("2g.20gb",)))]
    snapshot = b.snapshot(cut((("1g.10gb", 6),), (), whole=0), jobs)
    plan = solve_exactly(snapshot)
    after = apply(snapshot, plan)
    check(after)
    off = {change.gpu for change in plan.reconfigures if change.turn_off}
    assert len(off) == 1
    assert {entry.gpu for entry in after.nodes[0].mig} == {0, 1} - off
    again = solve_exactly(after)
    assert again.starts == again.reconfigures == ()


def test_nothing_is_turned_off_for_nobody() -> None:
    """Not to look tidy: even where only whole GPUs are in demand."""
    waits = b.job("a", gpus=2)
    assert solve_exactly(b.snapshot(cut(()), waits)).reconfigures == ()


def test_a_gpu_that_somebody_is_promised_stays_his() -> None:
    mine = TaskAllocation(node="n1", gpus=(0,), mig=(IDLE,))
    drains = {"state": "draining", "drain_ends": b.NOW + timedelta(seconds=60)}
    request = Request(mig=("1g.10gb",))
    jobs = [b.running("r", mine, request=request).model_copy(update=drains)]
    jobs += [b.job("h", request=request), b.job("a")]
    snapshot = b.snapshot(cut(()), jobs).model_copy(
        update={"holds": (Hold(job="h", at=drains["drain_ends"], allocation=(mine,)),)}
    )
    assert solve(snapshot).starts == ()


def test_nobody_is_stopped_where_mig_can_be_turned_off_instead() -> None:
    """Two jobs of a higher tier: one gets the GPU that was cut, for the other one is stopped."""
    nodes = [cut(()), b.node("n2", 1, H100)]
    victim = b.running("v", b.at("n2", 0), priority="low", ran=7_200)
    jobs = [b.job(name, priority="high") for name in ("a", "c", "d")]
    for number, stopped in ((1, 0), (2, 1), (3, 1)):
        snapshot = b.snapshot(nodes, victim, jobs[:number])
        plan = solve(snapshot)
        assert verify(snapshot, plan).violations == ()
        assert len(plan.starts) == min(2, number)
        assert (len(plan.preempts), len(plan.reconfigures)) == (stopped, 1)
        high = next(stage for stage in plan.proof.stages if stage.name == "tier:high")
        assert high.bound <= high.objective
        if number == 3:
            # Without whom it was cut for, another one would wait.
            assert high.bound < 2 * high.do_nothing // 3


# Corruption


NODE = cut((("1g.10gb", 0),), whole=1)
SNAPSHOT = b.snapshot(NODE, b.job("a", gpus=2))
PLAN = solve(SNAPSHOT)


def changed(**update: Any) -> Plan:
    (change,) = PLAN.reconfigures
    return PLAN.model_copy(update={"reconfigures": (change.model_copy(update=update),)})


@pytest.mark.parametrize(
    ("plan", "rule", "words"),
    [
        (PLAN.model_copy(update={"reconfigures": ()}), "layouts", "is in MIG mode"),
        (changed(turn_off=False), "layouts", "must be turned off"),
        (changed(turn_on=True), "layouts", "must be turned off"),
        (changed(after=(IDLE,)), "layouts", "nothing stays"),
        (changed(before=()), "layouts", "starts from"),
        (changed(reset=True), "layouts", "reset"),
        (changed(idle_gpu_seconds=60), "layouts", "costs 90"),
        (changed(gpu=1), "layouts", "changes for nobody"),
    ],
)
def test_the_verifier_sees_what_is_wrong(plan: Plan, rule: str, words: str) -> None:
    assert verify(SNAPSHOT, PLAN).violations == ()
    found = verify(SNAPSHOT, plan).violations
    assert any(v.rule == rule and words in v.message for v in found), found


def test_the_verifier_knows_where_mig_must_stay_on() -> None:
    """The same plan for the node under another policy."""
    for node in (
        NODE.model_copy(update={"mig_mode_changes": False}),
        NODE.model_copy(update={"precision": "gpu"}),
        NODE.model_copy(update={"nvlink": NvLink(kind="links", links=((0, 1),))}),
    ):
        other = SNAPSHOT.model_copy(update={"nodes": (node,)})
        plan = PLAN.model_copy(update={"snapshot": other.fingerprint()})
        assert any(v.rule == "gpus" for v in verify(other, plan).violations)


def test_the_verifier_misses_a_job_that_could_have_had_such_a_gpu() -> None:
    """A plan that starts nothing is not work-conserving."""
    closed = SNAPSHOT.model_copy(
        update={"nodes": (NODE.model_copy(update={"mig_mode_changes": False}),)}
    )
    lazy = solve(closed).model_copy(update={"snapshot": SNAPSHOT.fingerprint()})
    assert any(v.rule == "work-conserving" for v in verify(SNAPSHOT, lazy).violations)


def test_a_layout_that_is_not_there_is_not_turned_off() -> None:
    with pytest.raises(PlanMismatchError, match="from another MIG layout"):
        apply(SNAPSHOT, changed(before=()))
    with pytest.raises(PlanMismatchError, match="keeps instances"):
        apply(SNAPSHOT, changed(after=(IDLE,)))


# Brute force


@st.composite
def clusters(draw: st.DrawFn) -> Any:
    """One or two nodes of few GPUs, some in MIG mode, some of these used; whole jobs and slices."""
    nodes, jobs = [], []
    for n in range(draw(st.integers(1, 2))):
        name, model = f"n{n}", draw(st.sampled_from((A100, H100)))
        small = "1g.5gb" if model == A100 else "1g.10gb"
        mig: list[MigGpu] = []
        count = draw(st.integers(1, 3))
        for gpu in range(count):
            kind = draw(st.sampled_from(("whole", "empty", "idle", "used")))
            if kind == "whole":
                continue
            instance = MigInstance(profile=small, start=draw(st.sampled_from((0, 3, 6))))
            mig.append(MigGpu(gpu=gpu, instances=() if kind == "empty" else (instance,)))
            if kind == "used":
                where = TaskAllocation(node=name, gpus=(gpu,), mig=(instance,))
                jobs.append(b.running(f"r{n}{gpu}", where, request=Request(mig=(small,))))
        nodes.append(
            b.node(
                name, count, model, mig=mig, mig_mode_changes=draw(st.booleans()),
                nvlink=NvLink(kind=draw(st.sampled_from(("none", "nvswitch")))),
                cpu_milli=draw(st.sampled_from((2_000, 4_000))),
            )
        )
    for i in range(draw(st.integers(1, 4))):
        profile = draw(st.sampled_from(("", "", "1g.5gb", "3g.20gb", "3g.40gb", "7g.80gb")))
        cpu = draw(st.sampled_from((0, 1_000)))
        if profile:
            jobs.append(b.job(f"j{i}", request=Request(mig=(profile,), cpu_milli=cpu)))
            continue
        jobs.append(
            b.job(
                f"j{i}",
                request=Request(gpus=draw(st.integers(1, 3)), cpu_milli=cpu),
                tasks=draw(st.sampled_from((1, 1, 2))),
                exclusive=draw(st.sampled_from((False, False, True))),
                weight_milli=draw(st.sampled_from((1_000, 2_000))),
            )
        )
    weighted = draw(st.sampled_from(("last", "last", "weighted", "off")))
    return trim(b.snapshot(nodes, jobs, fragmentation=weighted))


@settings(max_examples=60, deadline=None)
@given(clusters())
def test_brute_force_agrees(snapshot: Any) -> None:
    plan = solve_exactly(snapshot)
    check(apply(snapshot, plan))
    again = solve(apply(snapshot, plan))
    assert again.reconfigures == ()
