"""Moves of MIG slices and of services: cases, corruption, every set of moves on tiny clusters."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_defrag import SAVES, policy, sound
from tests.build import job, node, running, snapshot

from trencadis.models import (
    DemandEntry,
    Job,
    MigGpu,
    MigInstance,
    Move,
    Node,
    Plan,
    Policy,
    Request,
    Snapshot,
    TaskAllocation,
    apply,
)
from trencadis.models.mig import find_table
from trencadis.models.policy import MigPolicy
from trencadis.solver.migrate import compact
from trencadis.solver.migrate.defrag import defrag
from trencadis.solver.round import solve
from trencadis.solver.verify import verify

A100 = "A100-SXM4-40GB"
ONE, TWO, THREE, FOUR, SEVEN = "1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"


def gpus(*layouts: tuple[tuple[str, int], ...], name: str = "n1", **fields: Any) -> Node:
    """A node with GPUs in MIG mode, one per layout of what stands idle or is listed."""
    mig = [
        MigGpu(gpu=i, instances=tuple(MigInstance(profile=p, start=s) for p, s in layout))
        for i, layout in enumerate(layouts)
    ]
    return node(name, len(layouts), A100, mig=mig, **fields)


def at(profile: str, start: int, gpu: int = 0, name: str = "n1") -> TaskAllocation:
    instance = MigInstance(profile=profile, start=start)
    return TaskAllocation(node=name, gpus=(gpu,), mig=(instance,))


def runs(name: str, *places: TaskAllocation, **fields: Any) -> Job:
    """A running job that saves its work; a service where `min_replicas` is given."""
    fields = {"checkpoint": SAVES, "ran": 7_200, "communicates": False, **fields}
    return running(name, *places, request=Request(mig=(places[0].mig[0].profile,)), **fields)


def asks(name: str, profile: str, **fields: Any) -> Job:
    return job(name, request=Request(mig=(profile,)), **fields)


def rules(moves: int = 4, **fields: Any) -> Policy:
    return policy(moves, **fields)


def demand(*profiles: str) -> tuple[DemandEntry, ...]:
    return tuple(DemandEntry(request=Request(mig=(profile,)), weight=1) for profile in profiles)


def told(plan: Plan) -> list[tuple[int, str, list[tuple[str, int, str, int]], tuple[str, ...]]]:
    return [
        (
            move.step,
            move.job,
            [(t.node, (t.gpus or ())[0], t.mig[0].profile, t.mig[0].start) for t in move.to],
            move.lets_in,
        )
        for move in plan.moves
    ]


def test_a_slice_moves_on_its_gpu_to_let_a_larger_one_in() -> None:
    """A lone 2g at 2 leaves no place for a 4g at 0; at 4 it does."""
    snap = snapshot(gpus(()), runs("r", at(TWO, 2)), asks("w", FOUR), policy=rules())
    plan = sound(snap)
    assert told(plan) == [(1, "r", [("n1", 0, TWO, 4)], ("w",))]
    (change,) = plan.reconfigures
    assert (change.step, change.gpu, change.idle_gpu_seconds) == (1, 0, 30)
    assert [(i.profile, i.start) for i in change.before] == [(TWO, 2)]
    assert [(i.profile, i.start) for i in change.after] == [(TWO, 2), (TWO, 4)]
    assert [start.job for start in solve(apply(snap, plan)).starts] == ["w"]
    assert defrag(apply(snap, plan)).moves == ()


def test_a_slice_moves_to_an_idle_instance_of_another_node_for_nothing_but_its_restart() -> None:
    nodes = [gpus(()), gpus(((ONE, 6),), name="n2", mig_reconfigure="forbid")]
    snap = snapshot(nodes, runs("r", at(ONE, 3)), asks("w", SEVEN), policy=rules())
    plan = sound(snap)
    assert told(plan) == [(1, "r", [("n2", 0, ONE, 6)], ("w",))]
    assert plan.reconfigures == ()
    # A seventh of a GPU for the minute of its restart, rounded up.
    assert plan.moves[0].idle_gpu_seconds == 9


def test_slices_of_two_jobs_leave_for_one() -> None:
    nodes = [gpus(()), gpus((), name="n2")]
    jobs = [
        runs("a", at(ONE, 0)), runs("c", at(ONE, 4)), runs("d", at(FOUR, 0, name="n2")),
        asks("w", SEVEN),
    ]
    plan = sound(snapshot(nodes, jobs, policy=rules()))
    assert [(move.job, move.lets_in) for move in plan.moves] == [("a", ()), ("c", ("w",))]
    assert {task.node for move in plan.moves for task in move.to} == {"n2"}


def service(minimum: int, *places: TaskAllocation, **fields: Any) -> Job:
    return runs("s", *places, min_replicas=minimum, **fields)


def test_a_service_moves_replica_by_replica() -> None:
    nodes = [gpus(()), gpus((), name="n2")]
    jobs = [service(1, at(ONE, 0), at(ONE, 4)), asks("w", SEVEN), runs("d", at(FOUR, 0, name="n2"))]
    snap = snapshot(nodes, jobs, policy=rules())
    plan = sound(snap)
    assert [(move.step, move.job) for move in plan.moves] == [(1, "s"), (2, "s")]
    assert [sum(task.node == "n1" for task in move.to) for move in plan.moves] == [1, 0]
    assert plan.moves[1].lets_in == ("w",)
    # At once it would be down.
    last = plan.moves[1].model_copy(update={"step": 1})
    wrong = plan.model_copy(update={"moves": (last,)})
    assert any("minimum is 1" in v.message for v in verify(snap, wrong).violations)
    following = apply(snap, plan)
    assert following.budget_use.moves_last_hour == 2
    assert {job.name for job in following.jobs if job.state == "running"} == {"s", "d"}


def test_a_service_at_its_minimum_stays() -> None:
    nodes = [gpus(()), gpus((), name="n2")]
    jobs = [service(2, at(ONE, 0), at(ONE, 4)), asks("w", SEVEN), runs("d", at(FOUR, 0, name="n2"))]
    assert sound(snapshot(nodes, jobs, policy=rules())).moves == ()


def test_replicas_that_must_stay_near_each_other_do() -> None:
    nodes = [
        gpus((), fabric=("a",)),
        gpus((), name="n2", fabric=("b",)),
        gpus((), name="n3", fabric=("a",)),
    ]
    kinds = {"required": "rack"}
    jobs = [service(1, at(ONE, 0), at(ONE, 4), **kinds), asks("w", SEVEN), asks("v", SEVEN)]
    jobs += [runs("d", at(FOUR, 0, name="n3")), runs("e", at(FOUR, 0, name="n2"))]
    plan = sound(snapshot(nodes, jobs, levels=("rack",), policy=rules(2)))
    assert {task.node for move in plan.moves for task in move.to} == {"n1", "n3"}


def test_slices_are_brought_together_where_large_ones_are_in_demand() -> None:
    nodes = [gpus(()), gpus((), name="n2")]
    jobs = [runs("a", at(ONE, 0)), runs("c", at(ONE, 0, name="n2"))]
    plan = sound(snapshot(nodes, jobs, policy=rules(demand_profile=demand(SEVEN))))
    assert len(plan.moves) == 1
    assert plan.moves[0].fragmentation_before > plan.moves[0].fragmentation_after
    assert plan.proof.status == "OPTIMAL"


@pytest.mark.parametrize(
    "change",
    [
        {"preemptible": False}, {"requeueable": False}, {"ran": 10}, {"exclusive": True},
        {"min_replicas": 1},
    ],
)
def test_who_stays(change: dict[str, Any]) -> None:
    rule = rules()
    kept = rule.preemption.model_copy(update={"min_runtime_seconds": 60})
    snap = snapshot(
        gpus(()), runs("r", at(TWO, 2), **change), asks("w", FOUR),
        policy=rule.model_copy(update={"preemption": kept}),
    )
    assert sound(snap).moves == ()


def test_where_layouts_are_fixed_slices_go_to_idle_instances_alone() -> None:
    jobs = [runs("r", at(TWO, 2)), asks("w", FOUR)]
    forbid = MigPolicy(reconfigure="forbid")
    assert sound(snapshot(gpus(((TWO, 4),)), jobs, policy=rules(mig=forbid))).moves == ()
    fixed = gpus(((ONE, 6),), name="n2", mig_reconfigure="forbid")
    snap = snapshot([gpus(()), fixed], runs("r", at(ONE, 0)), asks("w", SEVEN), policy=rules())
    assert told(sound(snap))[0][2] == [("n2", 0, ONE, 6)]


def test_a_slice_goes_where_its_cpus_are_free() -> None:
    nodes = [gpus((), cpu_milli=4_000), gpus((), name="n2", cpu_milli=1_000)]
    mine = Request(mig=(ONE,), cpu_milli=2_000)
    running_ = runs("r", at(ONE, 3)).model_copy(update={"request": mine})
    snap = snapshot(nodes, running_, asks("w", SEVEN), policy=rules())
    assert sound(snap).moves == ()
    wide = snap.model_copy(
        update={"nodes": (nodes[0], nodes[1].model_copy(update={"cpu_milli": 2_000}))}
    )
    plan = defrag(wide)
    # Where the other node is empty as well, w starts there without any move.
    assert plan.moves == ()


def test_no_slice_moves_on_a_node_that_gives_more_cpus_than_it_has() -> None:
    wants = Request(mig=(TWO,), cpu_milli=3_000)
    mine = runs("r", at(TWO, 2)).model_copy(update={"request": wants})
    for cpus, moves in ((3_000, 1), (2_000, 0)):
        snap = snapshot(gpus((), cpu_milli=cpus), mine, asks("w", FOUR), policy=rules())
        assert len(sound(snap).moves) == moves


def test_what_moves_on_one_node_at_once_needs_cpus_for_both_places() -> None:
    """As each is reckoned with where it was and where it goes; where that is too much, in turn."""
    wants = Request(mig=(TWO,), cpu_milli=1_000)
    jobs = [runs("a", at(TWO, 2)), runs("c", at(TWO, 2, 1)), runs("d", at(ONE, 6, 1))]
    jobs = [one.model_copy(update={"request": wants}) for one in jobs[:2]]
    waiting = [asks("v", FOUR), asks("w", FOUR)]
    for cpus, steps in ((4_000, [1, 1]), (2_000, [1, 2])):
        node_ = gpus((), (), cpu_milli=cpus)
        plan = sound(snapshot(node_, jobs, waiting, policy=rules(2)))
        assert [move.step for move in plan.moves] == steps
        assert {name for move in plan.moves for name in move.lets_in} == {"v", "w"}


# Corruption


SNAP = snapshot(gpus(()), runs("r", at(TWO, 2)), asks("w", FOUR), policy=rules())
PLAN = defrag(SNAP)


def move(**update: Any) -> Plan:
    (one,) = PLAN.moves
    return PLAN.model_copy(update={"moves": (one.model_copy(update=update),)})


def layout(**update: Any) -> Plan:
    (one,) = PLAN.reconfigures
    return PLAN.model_copy(update={"reconfigures": (one.model_copy(update=update),)})


@pytest.mark.parametrize(
    ("plan", "rule", "words"),
    [
        (PLAN.model_copy(update={"reconfigures": ()}), "layouts", "must change"),
        (layout(before=()), "layouts", "starts from"),
        (layout(after=()), "layouts", "what runs, comes and stays"),
        (layout(idle_gpu_seconds=0), "layouts", "costs 30"),
        (layout(step=2), "layouts", "for nobody"),
        (layout(turn_off=True), "layouts", "mode"),
        (move(to=(at(TWO, 1),)), "moves", "no legal place"),
        (move(to=(at(ONE, 4),)), "indices", "other profiles"),
        (move(to=(TaskAllocation(node="n1", gpus=(0,)),)), "indices", "other profiles"),
        (move(to=(at(TWO, 2),)), "moves", "stays where it is"),
        (move(to=(at(TWO, 4, name="n9"),)), "nodes", "no such node"),
        (move(idle_gpu_seconds=0), "claims", "idle_gpu_seconds"),
        (move(fragmentation_after=7), "claims", "fragmentation_after"),
        (move(lets_in=()), "objective", "stages"),
        (
            PLAN.model_copy(update={"moves": (*PLAN.moves, PLAN.moves[0].model_copy(
                update={"step": 2, "to": (at(TWO, 0),), "lets_in": ()}
            ))}),
            "moves", "moved twice",
        ),
    ],
)
def test_the_verifier_sees_what_is_wrong(plan: Plan, rule: str, words: str) -> None:
    assert verify(SNAP, PLAN).violations == ()
    found = verify(SNAP, plan).violations
    assert any(v.rule == rule and words in v.message for v in found), found


def test_two_slices_cannot_change_places() -> None:
    jobs = [runs("a", at(THREE, 0)), runs("c", at(THREE, 4))]
    snap = snapshot(gpus(()), jobs, policy=rules())
    plan = defrag(snap)
    for steps in ((1, 1), (1, 2)):
        moves = tuple(
            Move(job=name, step=step, to=(at(THREE, start),))
            for name, step, start in zip(("a", "c"), steps, (4, 0), strict=True)
        )
        wrong = plan.model_copy(update={"moves": moves})
        assert any("legal place" in v.message for v in verify(snap, wrong).violations)


# Every set of moves


PROFILES = (ONE, TWO, THREE)


@st.composite
def cut(draw: st.DrawFn) -> Snapshot:
    """Two or three GPUs with up to four slices."""
    table = find_table(A100)
    assert table is not None
    where = [("n1", 0), ("n1", 1), ("n2", 0)][: draw(st.integers(2, 3))]
    taken: dict[tuple[str, int], set[int]] = {gpu: set() for gpu in where}
    jobs: list[Job] = []
    for number in range(draw(st.integers(1, 3))):
        profile = table.profile(draw(st.sampled_from(PROFILES)))
        assert profile is not None
        gpu = draw(st.sampled_from(where))
        start = draw(st.sampled_from(profile.starts))
        slots = set(range(start, start + profile.memory_slices))
        if slots & taken[gpu]:
            continue
        taken[gpu] |= slots
        jobs.append(runs(f"j{number}", at(profile.name, start, gpu[1], gpu[0])))
    nodes = [gpus(*[()] * sum(name == n for name, _ in where), name=n) for n in ("n1", "n2")
             if any(name == n for name, _ in where)]
    wanted = draw(st.lists(st.sampled_from((TWO, THREE, FOUR, SEVEN)), min_size=1, max_size=2))
    rule = rules(draw(st.integers(1, 2)), demand_profile=demand(*wanted))
    return snapshot(nodes, jobs, policy=rule)


def brute(snap: Snapshot) -> int:
    """The most that F falls, less what moves and layouts cost: every order of moves to every start,
    each job once; F by the brute force of rounds."""
    from oracle.costs import demand as kinds  # noqa: PLC0415
    from oracle.costs import node_fragmentation  # noqa: PLC0415
    from oracle.facts import Facts  # noqa: PLC0415
    from oracle.ground import ground_now  # noqa: PLC0415
    from oracle.parts import is_legal  # noqa: PLC0415

    table = find_table(A100)
    assert table is not None
    everywhere = [(n.name, entry.gpu) for n in snap.nodes for entry in n.mig]
    entries = kinds(Facts(snap))

    def waste(where: dict[str, TaskAllocation]) -> int:
        there = tuple(
            j.model_copy(update={"allocation": (where[j.name],)}) for j in snap.jobs
        )
        facts = Facts(snap.model_copy(update={"jobs": there}))
        return sum(
            node_fragmentation(facts, n, state, entries)
            for n, state in zip(facts.snapshot.nodes, ground_now(facts), strict=True)
        )

    first = {j.name: j.allocation[0] for j in snap.jobs}
    most, best = snap.policy.preemption.budget.moves, 0
    now = waste(first)

    def used(where: dict[str, TaskAllocation], gpu: tuple[str, int]) -> list[tuple[int, str]]:
        return [
            (t.mig[0].start, t.mig[0].profile)
            for t in where.values()
            if (t.node, (t.gpus or ())[0]) == gpu
        ]

    def go(
        left: tuple[str, ...], where: dict[str, TaskAllocation], present: Any, paid: int
    ) -> None:
        nonlocal best
        best = max(best, now - waste(where) - paid)
        if not left:
            return
        name = left[0]
        profile = where[name].mig[0].profile
        found = table.profile(profile)
        assert found is not None
        for gpu in everywhere:
            for start in found.starts:
                new = (start, profile)
                here = used(where, gpu)
                if new in here or not is_legal(table, [*here, new]):
                    continue
                layouts, cost = present, -(-60 * found.compute_slices // 7)
                if new not in present[gpu]:
                    kept = [*here, new]
                    for other in sorted(present[gpu] - set(here)):
                        if is_legal(table, [*kept, other]):
                            kept.append(other)
                    layouts = {**present, gpu: frozenset(kept)}
                    cost += 30
                there = {**where, name: at(profile, start, gpu[1], gpu[0])}
                go(left[1:], there, layouts, paid + cost)

    present = {gpu: frozenset(used(first, gpu)) for gpu in everywhere}
    for count in range(1, most + 1):
        for names in permutations(first, count):
            go(names, first, present, 0)
    return best


@settings(max_examples=40, deadline=None)
@given(cut())
def test_no_moves_of_slices_gain_more(snap: Snapshot) -> None:
    plan = sound(snap)
    stage = plan.proof.stages[0]
    assert stage.do_nothing - stage.objective == brute(snap)
    assert plan.proof.status == "OPTIMAL"


@st.composite
def busy(draw: st.DrawFn) -> Snapshot:
    """The same with services, waiting jobs, idle instances and CPUs."""
    snap = draw(cut())
    jobs = list(snap.jobs)
    if len(jobs) > 1 and draw(st.booleans()):
        alike = [j for j in jobs if j.request == jobs[0].request]
        tasks = tuple(task for j in alike for task in j.allocation)
        jobs = [j for j in jobs if j not in alike]
        jobs.append(service(min(len(tasks), draw(st.integers(1, 2))), *tasks))
    for number in range(draw(st.integers(0, 3))):
        jobs.append(asks(f"w{number}", draw(st.sampled_from((ONE, TWO, THREE, FOUR, SEVEN)))))
    if draw(st.booleans()):
        jobs.append(job("whole"))
    nodes = tuple(
        n.model_copy(
            update={
                "mig_reconfigure": draw(st.sampled_from((None, None, "forbid"))),
                "mig_mode_changes": draw(st.booleans()),
                "gpus": (
                    n.gpus[0].model_copy(update={"count": n.gpu_count + draw(st.integers(0, 1))}),
                ),
            }
        )
        for n in snap.nodes
    )
    own = draw(st.booleans())
    rule = snap.policy if own else snap.policy.model_copy(update={"demand_profile": ()})
    return snap.model_copy(
        update={"jobs": tuple(sorted(jobs, key=lambda j: j.name)), "nodes": nodes, "policy": rule}
    )


@st.composite
def crowded(draw: st.DrawFn) -> Snapshot:
    """Services and single jobs on slices of one or two nodes with few CPUs, and who waits."""
    table = find_table(A100)
    assert table is not None
    where = [("n1", 0), ("n1", 1), ("n2", 0)][: draw(st.integers(2, 3))]
    taken: dict[tuple[str, int], set[int]] = {gpu: set() for gpu in where}
    tasks: dict[str, list[TaskAllocation]] = {}
    for _ in range(draw(st.integers(2, 7))):
        profile = table.profile(draw(st.sampled_from((ONE, ONE, TWO, THREE))))
        assert profile is not None
        gpu, start = draw(st.sampled_from(where)), draw(st.sampled_from(profile.starts))
        slots = set(range(start, start + profile.memory_slices))
        if not slots & taken[gpu]:
            taken[gpu] |= slots
            tasks.setdefault(profile.name, []).append(at(profile.name, start, gpu[1], gpu[0]))
    jobs: list[Job] = []
    for name, here in tasks.items():
        if draw(st.booleans()):
            together = service(draw(st.integers(1, len(here))), *here)
            jobs.append(together.model_copy(update={"name": f"s-{name}"}))
        else:
            jobs += [runs(f"j-{name}-{i}", task) for i, task in enumerate(here)]
    cpus = draw(st.sampled_from((0, 2_000, 4_000)))
    if cpus:
        jobs = [
            one.model_copy(
                update={"request": one.request.model_copy(update={"cpu_milli": 500})}
            )
            for one in jobs
        ]
    wanted = draw(st.lists(st.sampled_from((TWO, THREE, FOUR, SEVEN)), min_size=1, max_size=3))
    jobs += [asks(f"w{i}", profile) for i, profile in enumerate(wanted)]
    nodes = [
        gpus(
            *[()] * number, name=name, cpu_milli=cpus, fabric=(draw(st.sampled_from("ab")),),
            mig_reconfigure=draw(st.sampled_from((None, None, "forbid"))),
        )
        for name in ("n1", "n2")
        if (number := sum(name == n for n, _ in where))
    ]
    return snapshot(nodes, jobs, levels=("rack",), policy=rules(draw(st.integers(1, 5))))


@settings(max_examples=80, deadline=None)
@given(st.one_of(busy(), crowded()), st.booleans())
def test_moves_of_slices_are_sound(snap: Snapshot, large: bool) -> None:
    """`large`: as on clusters that are not searched whole."""
    with pytest.MonkeyPatch.context() as patch:
        if large:
            patch.setattr(compact, "MOST_SETS", 0)
        plan = sound(snap)
    for entry in plan.moves:
        assert entry.lets_in or plan.proof.stages[0].objective < plan.proof.stages[0].do_nothing
