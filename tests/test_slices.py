"""MIG slices and shares in a round: worked cases, one rule each; brute force prices all of them."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import build as b
import pytest
from exact import solve_exactly
from oracle.parts import is_legal as plainly_legal

from trencadis.models import (
    DemandEntry,
    Job,
    MigGpu,
    MigInstance,
    Node,
    Plan,
    PlanMismatchError,
    Quota,
    Request,
    Share,
    Snapshot,
    TaskAllocation,
    apply,
    load_snapshot,
)
from trencadis.models.check import check
from trencadis.models.faults import InvalidInputError
from trencadis.models.mig import MigTable, find_table
from trencadis.models.policy import MigPolicy
from trencadis.solver.cuts import cutter
from trencadis.solver.pieces import MigCut, Piece
from trencadis.solver.repack import repack
from trencadis.solver.round import Options, solve
from trencadis.solver.segments import maximal_layouts

A100 = "A100-SXM4-40GB"
ONE, TWO, THREE, FOUR, SEVEN = "1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"


def table() -> MigTable:
    found = find_table(A100)
    assert found is not None
    return found


def gpus(
    *layouts: tuple[tuple[str, int], ...], name: str = "n1", whole: int = 0, **fields: Any
) -> Node:
    """A node with A100s in MIG mode, one per layout, and so many whole ones after them."""
    mig = [
        MigGpu(gpu=i, instances=tuple(MigInstance(profile=p, start=s) for p, s in layout))
        for i, layout in enumerate(layouts)
    ]
    return b.node(name, len(layouts) + whole, A100, mig=mig, **fields)


def on(name: str, profile: str, start: int, gpu: int = 0, node: str = "n1", **fields: Any) -> Job:
    """A job that runs on an instance."""
    where = TaskAllocation(
        node=node, gpus=(gpu,), mig=(MigInstance(profile=profile, start=start),)
    )
    return b.running(name, where, request=Request(mig=(profile,)), **fields)


def ask(name: str, *profiles: str, **fields: Any) -> Job:
    return b.job(name, request=Request(mig=profiles), **fields)


def share(name: str, milli: int, memory_mib: int = 0, **fields: Any) -> Job:
    part = Share(gpu_milli=milli, memory_mib=memory_mib)
    return b.job(name, request=Request(share=part), **fields)


def placed(plan: Plan) -> dict[str, list[tuple[str, int, str, int]]]:
    """Job -> (node, GPU, profile, start) of its instances."""
    return {
        start.job: [
            (task.node, gpu, instance.profile, instance.start)
            for task in start.allocation
            for gpu, instance in zip(task.gpus or (), task.mig, strict=True)
        ]
        for start in plan.starts
    }


def started(plan: Plan) -> set[str]:
    return {start.job for start in plan.starts}


# case 5: holes


HOLES = ((ONE, 0), (ONE, 1), (ONE, 5))


def with_holes(*jobs: Job, **fields: Any) -> Snapshot:
    node = gpus(HOLES, **fields)
    pinned = [on(f"r{start}", profile, start) for profile, start in HOLES]
    return b.snapshot(node, pinned, jobs)


@pytest.mark.parametrize("profile", [THREE, FOUR, SEVEN])
def test_large_profiles_do_not_fit_between_pinned_instances(profile: str) -> None:
    plan = solve_exactly(with_holes(ask("a", profile)))
    assert plan.starts == ()
    assert plan.pending[0].code in ("mig-layout", "not-enough-free")


def test_a_2g_fits_only_at_start_2() -> None:
    plan = solve_exactly(with_holes(ask("a", TWO), ask("b", TWO)))
    assert list(placed(plan).values()) == [[("n1", 0, TWO, 2)]]


def test_four_more_1g_fit() -> None:
    plan = solve_exactly(with_holes(*(ask(f"a{i}", ONE) for i in range(6))))
    assert sorted(spot[0][3] for spot in placed(plan).values()) == [2, 3, 4, 6]


@pytest.mark.parametrize(("profile", "restarts"), [(THREE, 1), (FOUR, 2), (TWO, 0), (ONE, 0)])
def test_how_many_restarts_would_make_room(profile: str, restarts: int) -> None:
    pinned = [MigInstance(profile=p, start=s) for p, s in HOLES]
    found = repack(table(), pinned, [profile])
    assert found is not None
    assert found.restarts == restarts
    assert plainly_legal(table(), [(i.start, i.profile) for i in found.layout])
    if profile == THREE:
        assert found.moved == ((MigInstance(profile=ONE, start=5), 2),)
        assert MigInstance(profile=THREE, start=4) in found.layout
    assert repack(table(), pinned, [SEVEN]) is None


def test_the_reason_tells_how_many_restarts_would_do() -> None:
    plan = solve_exactly(with_holes(ask("a", THREE)))
    assert plan.pending[0].code == "mig-layout"
    assert plan.pending[0].evidence["restarts"] == 1
    assert "restarting 1 job on GPU 0 of n1 would make room" in plan.pending[0].sentence


# case 6: MIG is not symmetric


def test_4g_and_3g_share_a_gpu_in_one_way_only() -> None:
    plan = solve_exactly(b.snapshot(gpus(()), ask("a", THREE), ask("b", FOUR)))
    assert placed(plan) == {"a": [("n1", 0, THREE, 4)], "b": [("n1", 0, FOUR, 0)]}


def test_a_lone_3g_leaves_room_for_the_4g_that_is_in_demand() -> None:
    wanted = (DemandEntry(request=Request(mig=(FOUR,))),)
    plan = solve_exactly(b.snapshot(gpus(()), ask("a", THREE), demand_profile=wanted))
    assert placed(plan) == {"a": [("n1", 0, THREE, 4)]}


@pytest.mark.parametrize(
    ("profiles", "least"),
    [
        ((THREE, THREE, ONE), 2),
        ((THREE,) * 4 + (ONE,), 3),
        ((TWO,) * 7, 3),
        ((THREE, TWO, TWO), 1),
        ((TWO, TWO, TWO, ONE), 1),
    ],
)
def test_slices_need_the_gpus_that_geometry_asks_for(profiles: tuple[str, ...], least: int) -> None:
    jobs = [ask(f"a{i}", profile) for i, profile in enumerate(profiles)]
    for number in (least - 1, least):
        snapshot = b.snapshot(gpus(*((),) * number), jobs, fragmentation="off")
        plan = solve(snapshot, Options(time_limit_s=60, gap=0.0, workers=1))
        assert (len(plan.starts) == len(jobs)) == (number == least)


# layouts


def test_exactly_the_legal_layouts_can_be_reached() -> None:
    knife = cutter(b.snapshot(gpus(())))
    names = [profile.name for profile in table().profiles if profile.plain]
    empty = knife.empty_mig(A100)
    reached = {frozenset[tuple[int, str]](): empty}
    todo = list(reached)
    while todo:
        layout = todo.pop()
        for name in names:
            for start, after in knife.places(reached[layout], Piece(name)):
                assert isinstance(after, MigCut)
                grown = layout | {(start, name)}
                if grown not in reached:
                    reached[grown] = after
                    todo.append(grown)
    spots = [(start, p.name) for p in table().profiles if p.plain for start in p.starts]
    legal = {
        frozenset(some)
        for number in range(8)
        for some in combinations(spots, number)
        if plainly_legal(table(), some)
    }
    assert reached.keys() == legal


def test_every_multiset_of_a_maximal_layout_starts_on_one_gpu() -> None:
    multisets = {
        tuple(sorted(i.profile for i in layout))
        for layout in maximal_layouts(table(), frozenset({ONE, TWO, THREE, FOUR, SEVEN}))
    }
    # Without 3g and 4g: 4; with 3g at 4: 5; with 3g at 0: 2 more; with 4g: 2 more; 7g.
    assert len(multisets) == 14
    for wanted in sorted(multisets):
        jobs = [ask(f"a{i}", profile) for i, profile in enumerate(wanted)]
        plan = solve(b.snapshot(gpus(()), jobs, fragmentation="off"), Options(workers=1))
        after = plan.reconfigures[0].after
        assert Counter(instance.profile for instance in after) == Counter(wanted)
        assert plainly_legal(table(), [(i.start, i.profile) for i in after])


def test_an_idle_instance_that_fits_is_used_as_it_is() -> None:
    plan = solve_exactly(b.snapshot(gpus(((TWO, 2),)), ask("a", TWO)))
    assert placed(plan) == {"a": [("n1", 0, TWO, 2)]}
    assert plan.reconfigures == ()


def test_only_idle_instances_in_the_way_are_destroyed() -> None:
    layout = ((ONE, 0), (ONE, 1), (ONE, 6))
    plan = solve_exactly(b.snapshot(gpus(layout), ask("a", FOUR)))
    (change,) = plan.reconfigures
    assert [(i.profile, i.start) for i in change.after] == [(FOUR, 0), (ONE, 6)]
    assert change.idle_gpu_seconds == 30
    assert not change.turn_on


def test_fixed_layouts_stay() -> None:
    layout = ((TWO, 0), (THREE, 4))
    for fields in ({"mig_reconfigure": "forbid"}, {}):
        policy = MigPolicy() if fields else MigPolicy(reconfigure="forbid")
        jobs = [ask("a", THREE), ask("b", ONE), ask("c", TWO), ask("d", TWO)]
        plan = solve_exactly(b.snapshot(gpus(layout, **fields), jobs, mig=policy))
        assert plan.reconfigures == ()
        assert sorted(spot[0][2:] for spot in placed(plan).values()) == [(TWO, 0), (THREE, 4)]


def test_mig_is_turned_on_only_where_that_is_allowed() -> None:
    jobs = ask("a", THREE)
    for node, policy, starts in (
        (b.node("n1", 1, A100), MigPolicy(), False),
        (b.node("n1", 1, A100, mig_mode_changes=True), MigPolicy(), True),
        (b.node("n1", 1, A100), MigPolicy(mode="free"), True),
        (b.node("n1", 1, A100, mig_mode_changes=True), MigPolicy(mode="fixed"), False),
        (b.node("n1", 1, A100, mig_mode_changes=True, precision="gpu"), MigPolicy(), False),
    ):
        plan = solve_exactly(b.snapshot(node, jobs, mig=policy))
        assert bool(plan.starts) == starts
        if starts:
            (change,) = plan.reconfigures
            assert (change.turn_on, change.reset, change.idle_gpu_seconds) == (True, True, 90)


def test_a_reset_takes_an_idle_node_and_a_live_change_does_not() -> None:
    h100 = b.node("n1", 2, "H100-80GB", mig_mode_changes=True)
    a100 = b.node("n1", 2, A100, mig_mode_changes=True)
    busy = b.running("r", b.at("n1", 0))
    plan = solve_exactly(b.snapshot(h100, busy, ask("a", "3g.40gb")))
    assert started(plan) == {"a"}
    assert not plan.reconfigures[0].reset
    assert solve_exactly(b.snapshot(a100, busy, ask("a", THREE))).starts == ()


def test_gpus_to_be_reset_come_first() -> None:
    nodes = [gpus((), name="n1"), b.node("n2", 1, A100, mig_mode_changes=True)]
    jobs = [ask(f"a{i}", SEVEN) for i in range(2)]
    plan = solve_exactly(b.snapshot(nodes, jobs))
    assert [(c.step, c.node, c.reset) for c in plan.reconfigures] == [
        (1, "n2", True),
        (2, "n1", False),
    ]


def test_the_new_layout_is_in_the_next_snapshot_and_nothing_is_left_to_do() -> None:
    node = gpus(((ONE, 0), (ONE, 6)), whole=1, mig_mode_changes=True)
    snapshot = b.snapshot(node, ask("a", FOUR), ask("b", SEVEN), share("c", 500))
    plan = solve_exactly(snapshot)
    after = apply(snapshot, plan)
    assert started(plan) == {"a", "b"}
    layout = {entry.gpu: entry.instances for entry in after.nodes[0].mig}
    for spots in placed(plan).values():
        for _, gpu, profile, start in spots:
            assert MigInstance(profile=profile, start=start) in layout[gpu]
    check(after)
    again = solve_exactly(after)
    assert again.starts == again.reconfigures == ()


def test_a_layout_that_has_changed_meanwhile_is_not_overwritten() -> None:
    snapshot = b.snapshot(gpus(((ONE, 0),)), ask("a", FOUR))
    plan = solve(snapshot)
    wrong = plan.model_copy(
        update={"reconfigures": (plan.reconfigures[0].model_copy(update={"before": ()}),)}
    )
    with pytest.raises(PlanMismatchError, match="from another MIG layout"):
        apply(snapshot, wrong)


# requests


def test_memory_and_compute_get_the_smallest_profile() -> None:
    jobs = [
        b.job("twelve", request=Request(mig_memory_mib=12 * 1_024)),
        b.job("five", request=Request(mig_memory_mib=5 * 1_024)),
        b.job("half", request=Request(mig_compute_milli=500)),
    ]
    plan = solve_exactly(b.snapshot(gpus((), ()), jobs))
    found = {name: spots[0][2] for name, spots in placed(plan).items()}
    assert found == {"twelve": THREE, "five": ONE, "half": FOUR}


def test_several_instances_of_one_task_may_sit_on_one_gpu() -> None:
    plan = solve_exactly(b.snapshot(gpus(()), ask("a", THREE, TWO, ONE)))
    assert sorted(spot[2] for spot in placed(plan)["a"]) == [ONE, TWO, THREE]
    assert {spot[1] for spot in placed(plan)["a"]} == {0}


def test_communicating_tasks_get_no_slices_unless_they_do_not_care() -> None:
    talks = ask("a", ONE, tasks=2)
    plan = solve_exactly(b.snapshot(gpus(()), talks))
    assert plan.starts == ()
    assert plan.pending[0].code == "slices-talk"
    assert "set communicates to false" in plan.pending[0].sentence
    gang = ask("a", ONE, tasks=2, communicates=False)
    assert len(solve_exactly(b.snapshot(gpus(()), gang)).starts[0].allocation) == 2


def test_a_gang_of_slices_starts_as_a_whole_or_not_at_all() -> None:
    gang = ask("a", THREE, tasks=3, communicates=False)
    assert solve_exactly(b.snapshot(gpus(()), gang)).starts == ()
    assert len(solve_exactly(b.snapshot(gpus((), ()), gang)).starts[0].allocation) == 3


def test_slices_leave_no_cpu_where_there_is_none() -> None:
    node = gpus((), cpu_milli=3_000)
    jobs = [
        b.job(f"a{i}", request=Request(mig=(ONE,), cpu_milli=1_000)) for i in range(5)
    ]
    assert len(solve_exactly(b.snapshot(node, jobs)).starts) == 3


def test_a_profile_that_no_model_has_is_named_in_the_reason() -> None:
    plan = solve_exactly(b.snapshot(gpus(()), ask("a", "1g.10gb+me")))
    assert plan.pending[0].code == "kind-of-gpu"
    plan = solve_exactly(b.snapshot(b.node("n1", 1, "V100"), ask("a", ONE)))
    assert "known to have MIG" in plan.pending[0].sentence


# quotas


def test_slices_count_by_compute_or_by_memory() -> None:
    # Two 1g.10gb: 2 of 7 compute slices, 4 of 8 memory slices.
    jobs = [ask(f"a{i}", "1g.10gb") for i in range(2)]
    limit = b.queue("main", limit=Quota(gpu_milli=300))
    by_compute = b.snapshot(gpus(()), jobs, limit)
    assert len(solve_exactly(by_compute).starts) == 2
    by_memory = b.snapshot(gpus(()), jobs, limit, mig=MigPolicy(count_by="memory"))
    assert len(solve_exactly(by_memory).starts) == 1


def test_a_guarantee_counts_slices() -> None:
    queues = [b.queue("main"), b.queue("sure", guarantee=Quota(gpu_milli=429))]
    jobs = [ask("a", THREE, queue="sure"), ask("b", SEVEN, waited=9_000)]
    plan = solve_exactly(b.snapshot(gpus(()), queues, jobs))
    assert started(plan) == {"a"}


# shares


def test_shares_of_a_half_go_two_by_two() -> None:
    """Case 11: 16 shares of 0.5 on 8 GPUs."""
    node = b.node("n1", 8, shareable=True, max_jobs_per_gpu=8)
    plan = solve(b.snapshot(node, [share(f"a{i:02}", 500) for i in range(16)]))
    used = Counter(start.allocation[0].gpus for start in plan.starts)
    assert set(used.values()) == {2}
    assert len(used) == 8


def test_a_limit_of_03_gpus_holds_01_and_02() -> None:
    """Case 11: exact arithmetic."""
    runs = TaskAllocation(node="n1", gpus=(0,), share=Share(gpu_milli=100))
    snapshot = b.snapshot(
        b.node("n1", 1, shareable=True, max_jobs_per_gpu=4),
        b.running("r", runs, request=Request(share=Share(gpu_milli=100))),
        share("a", 200),
        share("b", 100),
        b.queue("main", limit=Quota(gpu_milli=300)),
    )
    assert started(solve_exactly(snapshot)) == {"a"}


def test_memory_and_number_of_shares_on_a_gpu_are_bounded() -> None:
    node = b.node("n1", 1, A100, shareable=True, max_jobs_per_gpu=2)
    node = node.model_copy(
        update={"gpus": (node.gpus[0].model_copy(update={"memory_mib": 40_960}),)}
    )
    by_memory = b.snapshot(node, share("a", 100, 30_000), share("b", 100, 20_000))
    assert len(solve_exactly(by_memory).starts) == 1
    by_number = b.snapshot(node, [share(f"a{i}", 100) for i in range(3)])
    assert len(solve_exactly(by_number).starts) == 2


def test_a_gpu_is_whole_or_in_mig_mode_or_shared() -> None:
    node = b.node("n1", 2, A100, shareable=True, max_jobs_per_gpu=4, mig_mode_changes=True)
    jobs = [share("a", 100), ask("b", ONE), b.job("c", 1)]
    plan = solve_exactly(b.snapshot(node, jobs))
    assert len(plan.starts) == 2
    assert len({start.allocation[0].gpus for start in plan.starts}) == 2


def test_nodes_that_are_not_shareable_take_no_shares() -> None:
    plan = solve_exactly(b.snapshot(b.node("n1", 1), share("a", 100)))
    assert plan.pending[0].code == "kind-of-gpu"
    assert "Maybe set shareable" in plan.pending[0].sentence


# input


def test_two_jobs_on_one_instance_are_a_fault() -> None:
    snapshot = b.snapshot(gpus(((ONE, 0),)), on("r", ONE, 0), on("s", ONE, 0))
    with pytest.raises(InvalidInputError, match="both have the MIG instance at start 0 of GPU 0"):
        check(snapshot)


def test_instances_without_a_gpu_each_are_a_fault() -> None:
    where = TaskAllocation(
        node="n1",
        gpus=(0,),
        mig=(MigInstance(profile=ONE, start=0), MigInstance(profile=ONE, start=1)),
    )
    job = b.running("r", where, request=Request(mig=(ONE, ONE)))
    with pytest.raises(InvalidInputError, match="gpus names the GPU of each instance"):
        check(b.snapshot(gpus(()), job))


def test_instances_that_the_table_does_not_know_close_their_gpu() -> None:
    odd = gpus((("1g.77gb", 0),))
    plan = solve_exactly(b.snapshot(odd, ask("a", ONE)))
    assert plan.starts == ()


def test_one_new_gpu_is_reserved_once_by_recipes_of_pieces() -> None:
    data = Path(__file__).with_name("data") / "shares_recipe.json"
    found, _ = load_snapshot(data.read_bytes())
    solve_exactly(found)


def test_instances_that_jobs_have_are_there_whether_nodes_list_them_or_not() -> None:
    """What a running job has is part of the present layout, and of the next."""
    running = on("r", ONE, 0)
    plan = solve_exactly(b.snapshot(gpus(()), running, ask("a", TWO)))
    (change,) = plan.reconfigures
    assert change.before == (MigInstance(profile=ONE, start=0),)
    assert set(change.after) == {*change.before, *plan.starts[0].allocation[0].mig}
    after = apply(b.snapshot(gpus(()), running, ask("a", TWO)), plan)
    assert after.nodes[0].mig[0].instances == change.after
