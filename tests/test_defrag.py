"""Moves of running jobs: what may move, in which order, what it buys; apply and the verifier."""

from __future__ import annotations

from datetime import timedelta
from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.build import NOW, ago, at, demand, hold, job, nodes, running, snapshot

from trencadis.models import Job, Move, Plan, Policy, Preemption, Snapshot, apply
from trencadis.models.check import check
from trencadis.models.jobs import Checkpoint
from trencadis.models.policy import Budget, BudgetUse
from trencadis.solver.migrate.defrag import defrag
from trencadis.solver.round import Options, solve
from trencadis.solver.verify import verify

SAVES = Checkpoint(on_signal=True)
OPTIONS = Options(deterministic=True, time_limit_s=5.0)


def policy(moves: int = 4, grace: int = 0, **fields: object) -> Policy:
    """A policy that lets jobs move; `grace` and restart are short enough for that to pay."""
    preemption = Preemption(
        grace_seconds=grace,
        restart_seconds=60,
        min_runtime_seconds=0,
        budget=Budget(moves=moves),
    )
    return Policy(preemption=preemption, **fields)  # type: ignore[arg-type]


def runs(name: str, *places: object, **fields: object) -> Job:
    """A running job that saves its work when told to stop."""
    fields.setdefault("checkpoint", SAVES)
    fields.setdefault("ran", 7_200)
    return running(name, *places, **fields)  # type: ignore[arg-type]


def fewest() -> Snapshot:
    """Worked case 8: nodes of 8 that run 4+2+1, 4+2 and 4+2+1 GPUs."""
    parts = []
    for name, sizes in (("n1", (4, 2, 1)), ("n2", (4, 2)), ("n3", (4, 2, 1))):
        first = 0
        for size in sizes:
            parts.append(runs(f"{name}-{size}", at(name, *range(first, first + size))))
            first += size
    return snapshot(nodes(3), parts, job("p", 4), policy=policy())


def sound(snap: Snapshot) -> Plan:
    """The plan, verified; so is the snapshot after it."""
    plan = defrag(snap)
    assert not verify(snap, plan).violations
    assert not plan.starts
    assert not plan.preempts
    following = apply(snap, plan)
    check(following)
    before, after = plan.proof.stages[0].do_nothing, plan.proof.stages[0].objective
    assert after < before if plan.moves else after == before
    return plan


def test_where_the_scheduler_chooses_the_gpus_a_move_names_none() -> None:
    by_index = sound(fewest())
    snap = fewest()
    counted = tuple(node.model_copy(update={"precision": "node"}) for node in snap.nodes)
    plan = sound(snap.model_copy(update={"nodes": counted}))
    assert {task.gpus for move in plan.moves for task in move.to} == {None}
    assert [(m.job, m.step, m.to[0].node, m.lets_in) for m in plan.moves] == [
        (m.job, m.step, m.to[0].node, m.lets_in) for m in by_index.moves
    ]
    assert plan.proof == by_index.proof


def test_two_jobs_move_for_a_job_that_fits_nowhere() -> None:
    snap = fewest()
    plan = sound(snap)
    let_in = [move for move in plan.moves if move.lets_in]
    assert [move.lets_in for move in let_in] == [("p",)]
    last = plan.moves.index(let_in[0])
    assert last == 1
    gpus = [sum(len(task.gpus or ()) for task in move.to) for move in plan.moves[:2]]
    assert sum(gpus) == 3
    following = apply(snap, plan)
    assert [start.job for start in solve(following, OPTIONS).starts] == ["p"]
    assert not solve(snap, OPTIONS).starts


def test_a_budget_of_one_move_lets_nobody_in() -> None:
    plan = sound(fewest().model_copy(update={"policy": policy(moves=1)}))
    assert not any(move.lets_in for move in plan.moves)


def test_no_moves_can_let_in_more_than_is_idle() -> None:
    snap = fewest()
    five = [job("p", 5) if entry.name == "p" else entry for entry in snap.jobs]
    plan = sound(snap.model_copy(update={"jobs": tuple(five)}))
    assert not any(move.lets_in for move in plan.moves)


def test_moves_are_off_by_default() -> None:
    assert not sound(fewest().model_copy(update={"policy": Policy()})).moves


def test_recent_moves_use_the_budget() -> None:
    used = BudgetUse(moves_last_hour=3)
    plan = sound(fewest().model_copy(update={"budget_use": used}))
    assert len(plan.moves) <= 1


def half_empty(**fields: object) -> Snapshot:
    """Two nodes with one small job each; what the cluster should be fit for is whole nodes."""
    return snapshot(
        nodes(2),
        runs("a", at("n1", 0)),
        runs("b", at("n2", 0)),
        policy=policy(demand_profile=(demand(8),), **fields),
    )


def test_an_emptied_node_is_worth_a_move() -> None:
    plan = sound(half_empty())
    assert len(plan.moves) == 1
    move = plan.moves[0]
    # Fourteen idle GPUs that no task of eight can use, then six.
    assert (move.fragmentation_before, move.fragmentation_after) == (14 * 3_600, 6 * 3_600)
    assert move.idle_gpu_seconds == 60
    assert plan.proof.stages[0].bound == plan.proof.stages[0].objective
    following = apply(half_empty(), plan)
    assert following.budget_use.moves_last_hour == 1
    assert not sound(following.model_copy(update={"budget_use": BudgetUse()})).moves


def test_a_move_that_costs_more_than_it_buys_is_not_made() -> None:
    snap = half_empty()
    unsaved = [entry.model_copy(update={"checkpoint": None, "start": ago(90_000)})
               for entry in snap.jobs]
    assert not sound(snap.model_copy(update={"jobs": tuple(unsaved)})).moves


@pytest.mark.parametrize(
    "change",
    [
        {"preemptible": False},
        {"requeueable": False},
        {"min_replicas": 1},
        {"excluded_nodes": ("n1", "n2")},
        {"state": "draining", "drain_ends": NOW + timedelta(seconds=60)},
    ],
)
def test_who_stays(change: dict[str, object]) -> None:
    snap = half_empty()
    jobs = tuple(entry.model_copy(update=change) for entry in snap.jobs)
    assert not sound(snap.model_copy(update={"jobs": jobs})).moves


def test_what_is_held_is_no_place_to_move_to() -> None:
    base = snapshot(
        nodes(2),
        runs("a", at("n1", 0)),
        runs("b", at("n2", 0)),
        job("w", 7),
        job("v", 7),
        hold("w", at("n1", *range(1, 8))),
        hold("v", at("n2", *range(1, 8))),
        policy=policy(demand_profile=(demand(8),)),
    )
    assert not sound(base).moves


def test_room_of_those_who_can_start_is_theirs() -> None:
    snap = snapshot(
        nodes(2),
        runs("a", at("n1", 0)),
        runs("b", at("n2", 0)),
        job("x", 7),
        job("y", 7),
        policy=policy(demand_profile=(demand(8),)),
    )
    assert not sound(snap).moves


def test_a_job_that_loses_its_checkpoint_begins_anew() -> None:
    snap = half_empty()
    jobs = tuple(
        entry.model_copy(update={"checkpoint": None, "start": ago(100)}) for entry in snap.jobs
    )
    snap = snap.model_copy(update={"jobs": jobs})
    plan = sound(snap)
    assert plan.moves[0].idle_gpu_seconds == 160
    there = {entry.name: entry for entry in apply(snap, plan).jobs}[plan.moves[0].job]
    assert there.start == NOW
    assert there.allocation == plan.moves[0].to


# The verifier


def broken(snap: Snapshot, plan: Plan, **update: object) -> set[str]:
    moves = tuple(move.model_copy(update=update) for move in plan.moves[:1]) + plan.moves[1:]
    verdict = verify(snap, plan.model_copy(update={"moves": moves}))
    return {violation.rule for violation in verdict.violations}


@pytest.mark.parametrize(
    ("update", "rule"),
    [
        ({"job": "nobody"}, "moves"),
        ({"step": 0}, "moves"),
        ({"to": ()}, "moves"),
        ({"to": (at("n9", 1),)}, "nodes"),
        ({"to": (at("n1", 1, 2),)}, "indices"),
        ({"idle_gpu_seconds": 1}, "claims"),
        ({"fragmentation_after": 1}, "claims"),
        ({"lets_in": ("a",)}, "lets-in"),
    ],
)
def test_broken_moves_are_found(update: dict[str, object], rule: str) -> None:
    snap = half_empty()
    assert rule in broken(snap, defrag(snap), **update)


def test_busy_gpus_are_no_place_to_go() -> None:
    snap = half_empty()
    plan = defrag(snap)
    there = "n1" if plan.moves[0].job == "b" else "n2"
    assert "moves" in broken(snap, plan, to=(at(there, 0),))


def test_two_jobs_cannot_change_places() -> None:
    snap = snapshot(
        nodes(2, 1), runs("a", at("n1", 0)), runs("b", at("n2", 0)), policy=policy()
    )
    plan = defrag(snap)
    assert not plan.moves
    for steps in ((1, 1), (1, 2), (2, 1)):
        moves = (
            Move(job="a", step=steps[0], to=(at("n2", 0),)),
            Move(job="b", step=steps[1], to=(at("n1", 0),)),
        )
        verdict = verify(snap, plan.model_copy(update={"moves": moves}))
        assert any("has other GPUs idle" in v.message for v in verdict.violations)


def test_a_budget_is_kept_and_a_round_has_no_moves() -> None:
    snap = half_empty()
    plan = defrag(snap)
    tight = snap.model_copy(update={"policy": policy(moves=0, demand_profile=(demand(8),))})
    mine = plan.model_copy(update={"snapshot": tight.fingerprint()})
    assert "budgets" in {v.rule for v in verify(tight, mine).violations}
    round_ = plan.model_copy(update={"purpose": "round"})
    assert "actions" in {v.rule for v in verify(snap, round_).violations}


# The best set of moves, by enumeration


def brute(snap: Snapshot, most: int) -> int:
    """The most that F falls, less what moves cost, over all sets of moves and all orders: GPUs of
    one model, jobs of one task, one kind of demand on whole nodes."""
    size = {n.name: n.gpu_count for n in snap.nodes}
    where = {j.name: (j.allocation[0].node, j.request.gpus) for j in snap.jobs}
    kinds = [(entry.request.gpus, entry.weight) for entry in snap.policy.demand_profile]
    weights = sum(weight for _, weight in kinds)

    def idle(places: dict[str, tuple[str, int]]) -> dict[str, int]:
        left = dict(size)
        for name, gpus in places.values():
            left[name] -= gpus
        return left

    def waste(places: dict[str, tuple[str, int]]) -> int:
        return sum(
            sum(weight * have for gpus, weight in kinds if gpus > have) * 3_600 // weights
            for have in idle(places).values()
        )

    def orders(left: dict[str, str], places: dict[str, tuple[str, int]]) -> bool:
        if not left:
            return True
        for name, node_ in left.items():
            gpus = places[name][1]
            if idle(places)[node_] >= gpus:
                rest = {other: to for other, to in left.items() if other != name}
                if orders(rest, {**places, name: (node_, gpus)}):
                    return True
        return False

    best = 0
    for count in range(1, most + 1):
        for names in combinations(where, count):
            for targets in product(size, repeat=count):
                to = dict(zip(names, targets, strict=True))
                if any(where[name][0] == there for name, there in to.items()):
                    continue
                after = {**where, **{name: (there, where[name][1]) for name, there in to.items()}}
                if min(idle(after).values()) < 0 or not orders(to, where):
                    continue
                cost = 60 * sum(where[name][1] for name in names)
                best = max(best, waste(where) - waste(after) - cost)
    return best


@st.composite
def crowded(draw: st.DrawFn) -> Snapshot:
    """Three nodes of four GPUs with small jobs on them."""
    parts = []
    for name in ("n1", "n2", "n3"):
        first = 0
        for size in draw(st.lists(st.sampled_from([1, 1, 2, 3]), max_size=3)):
            if first + size <= 4:
                parts.append(runs(f"{name}-{first}", at(name, *range(first, first + size))))
                first += size
    profile = draw(
        st.lists(st.builds(demand, st.integers(1, 4), st.integers(1, 3)), min_size=1, max_size=3)
    )
    return snapshot(
        nodes(3, 4),
        parts,
        policy=policy(moves=draw(st.integers(0, 3)), demand_profile=tuple(profile)),
    )


@settings(deadline=None)
@given(crowded())
def test_no_set_of_moves_gains_more(snap: Snapshot) -> None:
    plan = sound(snap)
    stage = plan.proof.stages[0]
    best = brute(snap, snap.policy.preemption.budget.moves)
    assert stage.do_nothing - stage.objective <= best
    if stage.bound == stage.objective:
        assert stage.do_nothing - stage.objective == best
    assert stage.bound <= stage.do_nothing - best


def test_larger_clusters_are_compacted_node_by_node() -> None:
    parts = [
        runs(f"{name}{i}", at(f"n{n}", i))
        for n, name in enumerate("abcdefghij", 1)
        for i in range(2)
    ]
    snap = snapshot(
        nodes(10), parts, policy=policy(moves=10, demand_profile=(demand(8),))
    )
    plan = sound(snap)
    emptied = 10 - len({t.node for j in apply(snap, plan).jobs for t in j.allocation})
    assert emptied == 5
    assert plan.proof.stages[0].bound < plan.proof.stages[0].objective


@settings(deadline=None)
@given(st.data())
def test_plans_with_waiting_jobs_are_sound(data: st.DataObject) -> None:
    snap = data.draw(crowded())
    waiting = [
        job(f"w{i}", data.draw(st.integers(1, 4)), data.draw(st.integers(1, 2)))
        for i in range(data.draw(st.integers(1, 3)))
    ]
    snap = snap.model_copy(
        update={"jobs": (*snap.jobs, *waiting), "queues": snapshot(waiting).queues}
    )
    plan = sound(snap)
    let_in = {name for move in plan.moves for name in move.lets_in}
    alone = apply(snap, plan)
    others = tuple(j for j in alone.jobs if j.on_nodes or j.name in let_in)
    started = {s.job for s in solve(alone.model_copy(update={"jobs": others}), OPTIONS).starts}
    assert let_in <= started


def test_the_other_models_nodes_are_no_place_for_a_job() -> None:
    """A job that any model suits: room is made on the node whose GPUs are in the way."""
    snap = snapshot(
        nodes(1, 8),
        nodes(1, 8, "A100", first=2),
        nodes(1, 8, first=3),
        runs("a", at("n1", 0, 1), models=["H100"]),
        running("b", at("n2", *range(6)), preemptible=False),
        running("c", at("n3", *range(6)), preemptible=False),
        job("p", 8),
        policy=policy(),
    )
    plan = sound(snap)
    assert [(move.job, move.lets_in) for move in plan.moves] == [("a", ("p",))]
