"""Without any one family of rows, or any one part of an objective, the model is wrong and it shows.

Placement and verification may repair the plan of a wrong model; its bounds then miss the optimum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import pytest
from build import demand, job, jobs, node, nodes, queue, quota, running, snapshot, somewhere
from exact import EXACT, solve_exactly

from trencadis.models import Segments, Snapshot, Tier
from trencadis.solver.model import bins, domains, fillers, objective, starts
from trencadis.solver.model import build as model
from trencadis.solver.model.columns import Columns
from trencadis.solver.model.problem import Problem, Thresholds
from trencadis.solver.program import Program
from trencadis.solver.round import InternalError, Options

ONE_TIER = (Tier(name="normal"),)
TWO_TIERS = (Tier(name="high"), Tier(name="normal"))
OFF: dict[str, Any] = {"tiers": ONE_TIER, "fragmentation": "off"}
POOLED = Options(time_limit_s=60, gap=0.0, workers=1, thresholds=Thresholds(patterns=1))
"""Every class of nodes has more patterns than that."""


def too_many_jobs() -> Snapshot:
    """Each of the sizes has room, but not all jobs."""
    return snapshot(node("n1", 2), job("one", 1), job("two", 2), **OFF)


def too_many_gangs_for_a_leaf() -> Snapshot:
    """Either gang fits into the leaf."""
    return snapshot(
        nodes(3, 1, fabric=("leaf",)),
        job("pair", tasks=2, required="leaf"),
        job("three", tasks=3, required="leaf"),
        levels=("leaf",),
        **OFF,
    )


def gangs_in_two_leaves() -> Snapshot:
    """Three GPUs in each of two leaves: six in all, but two gangs of two, not three."""
    return snapshot(
        nodes(3, 1, fabric=("left",)),
        nodes(3, 1, fabric=("right",), first=4),
        jobs(3, "pair", tasks=2, required="leaf"),
        levels=("leaf",),
        **OFF,
    )


def too_many_tasks_without_gpus() -> Snapshot:
    """Each of the two fits on the CPUs of the node."""
    return snapshot(
        node("n1", 0, cpu_milli=4_000, memory_mib=8_000),
        job("wide", 0, cpu_milli=3_000),
        job("narrow", 0, cpu_milli=2_000),
        **OFF,
    )


def cpu_for_gpus_or_for_a_task_without() -> Snapshot:
    """The GPU job and the CPU job want the same CPUs."""
    return snapshot(
        node("n1", 1, cpu_milli=4_000),
        job("gpu", 1, cpu_milli=3_000),
        job("cpu", 0, cpu_milli=2_000),
        **OFF,
    )


def queue_at_its_limit() -> Snapshot:
    """GPUs for two jobs, a limit for one."""
    return snapshot(node("n1", 2), queue("main", limit=1), jobs(2, "j"), **OFF)


def jobs_at_their_limit() -> Snapshot:
    """The limit counts what runs as well."""
    return snapshot(
        node("n1", 3),
        queue("main", limit=2),
        running("r", somewhere("n1"), gpus=1),
        jobs(2, "j"),
        **OFF,
    )


def guarantee_against_weight() -> Snapshot:
    """The heavy job would win but for the guarantee of the other queue."""
    return snapshot(
        node("n1", 1),
        queue("main"),
        queue("owed", guarantee=1),
        job("heavy", weight_milli=90_000),
        job("due", queue="owed"),
        **OFF,
    )


def guarantee_that_cannot_be_met() -> Snapshot:
    """The GPU is taken: the shortfall stays, and the bound must say so."""
    return snapshot(
        node("n1", 1),
        queue("main"),
        queue("owed", guarantee=1),
        running("r", somewhere("n1"), gpus=1),
        job("due", queue="owed"),
        **OFF,
    )


def guarantee_of_a_parent() -> Snapshot:
    """Only the parent is owed anything: any of its queues will do, and no other."""
    return snapshot(
        node("n1", 1),
        queue("main"),
        queue("top", guarantee=1),
        queue("team", "top"),
        job("heavy", weight_milli=90_000),
        job("due", queue="team"),
        **OFF,
    )


def gpu_that_is_not_lent() -> Snapshot:
    """The other queue keeps a GPU for itself, though it has nothing to run."""
    return snapshot(
        node("n1", 2),
        queue("main"),
        queue("keeps", guarantee=1, lending=0),
        jobs(2, "j"),
        **OFF,
    )


def head_of_the_line_waits() -> Snapshot:
    """The head needs the GPU that is taken, so the job behind it waits with it."""
    return snapshot(
        node("n1", 2),
        queue("main", order="strict_fifo"),
        running("r", somewhere("n1"), gpus=1),
        job("head", 2, waited=600),
        job("behind", 1, waited=60),
        **OFF,
    )


def heavy_or_light() -> Snapshot:
    """Room for one of two jobs; the heavy one must be it."""
    return snapshot(node("n1", 1), job("a"), job("b", weight_milli=3_000), **OFF)


def higher_tier_first() -> Snapshot:
    """Room for one of two jobs; the weight of the lower one says nothing."""
    return snapshot(
        node("n1", 1),
        job("a", weight_milli=9_000),
        job("b", priority="high"),
        tiers=TWO_TIERS,
        fragmentation="off",
    )


def near_or_far() -> Snapshot:
    """Two tasks fit into one leaf, or lie apart and cost more."""
    return snapshot(
        nodes(2, 1, fabric=("left",)),
        nodes(2, 1, fabric=("right",), first=3),
        running("r", somewhere("n1"), gpus=1),
        job("pair", tasks=2),
        levels=("leaf",),
        **OFF,
    )


def linked_or_not() -> Snapshot:
    """A pair of GPUs is linked on one of the nodes only."""
    return snapshot(node("n1", 2), node("n2", 2, links=[(0, 1)]), job("two", 2), **OFF)


def node_broken_into() -> Snapshot:
    """The job leaves an odd GPU that is of no use to pairs: F rises above what it was."""
    return snapshot(node("n1", 2), job("one"), tiers=ONE_TIER, demand_profile=(demand(2),))


def node_broken_into_in_one_sum() -> Snapshot:
    """The same with F as a part of the waiting."""
    found = node_broken_into()
    policy = found.policy.model_copy(update={"fragmentation": "weighted"})
    return found.model_copy(update={"policy": policy})


def gpu_of_no_use() -> Snapshot:
    """Nothing can start, and F stays what it was."""
    return snapshot(
        node("n1", 2), running("r", somewhere("n1"), gpus=1), job("two", 2), tiers=ONE_TIER
    )


def two_small_or_one_large() -> Snapshot:
    """The largest job leaves a GPU that no other can use."""
    return snapshot(
        node("n1", 4, nvswitch=True),
        job("large", 3, weight_milli=1_200),
        jobs(2, "small", 2),
        **OFF,
    )


def model_at_its_limit() -> Snapshot:
    """Jobs that may run on either model: one of them at most on A100s."""
    return snapshot(
        node("n1", 2, "A100"),
        node("n2", 1, "H100"),
        queue("main", limit=quota(A100=1)),
        jobs(3, "j"),
        **OFF,
    )


def nothing_beside_an_exclusive_job() -> Snapshot:
    """The other job asks for next to nothing, and yet it can't share the node."""
    return snapshot(
        node("n1", 1, cpu_milli=1_000),
        job("alone", exclusive=True),
        job("tiny", 0),
        **OFF,
    )


def segments_against_a_gang() -> Snapshot:
    """Four GPUs under the spine: two segments of two, or the other gang."""
    return snapshot(
        nodes(2, 1, fabric=("spine", "left")),
        nodes(2, 1, fabric=("spine", "right"), first=3),
        job("wide", tasks=4, required="spine", segments=Segments(tasks=2, level="leaf")),
        job("pair", tasks=2, required="leaf"),
        levels=("spine", "leaf"),
        **OFF,
    )


CASES: dict[str, tuple[Callable[[], Snapshot], ...]] = {
    "starts": (too_many_jobs, too_many_tasks_without_gpus, model_at_its_limit),
    "bins": (too_many_jobs,),
    "domains": (too_many_gangs_for_a_leaf, gangs_in_two_leaves, segments_against_a_gang),
    "fillers": (too_many_tasks_without_gpus, cpu_for_gpus_or_for_a_task_without),
    "limits": (queue_at_its_limit, jobs_at_their_limit, model_at_its_limit),
    "guarantees": (guarantee_against_weight, guarantee_that_cannot_be_met, guarantee_of_a_parent),
    "lending": (gpu_that_is_not_lent,),
    "order": (head_of_the_line_waits,),
    "objective": (heavy_or_light, higher_tier_first),
}
"""Per family: snapshots on which a model without it goes wrong."""

PAIRS = [(family, make) for family, cases in CASES.items() for make in cases]


def name_of(family: model.Family) -> str:
    return family.__module__.rpartition(".")[2]


def assert_right(make: Callable[[], Snapshot], options: Options = EXACT) -> None:
    """The model finds and proves the optimum."""
    solve_exactly(make(), options)


def assert_wrong(make: Callable[[], Snapshot], options: Options = EXACT) -> None:
    """The checks that hold for the right model fail."""
    with pytest.raises((AssertionError, InternalError)):
        solve_exactly(make(), options)


def test_every_family_has_its_cases() -> None:
    assert [name_of(family) for family in model.FAMILIES] == list(CASES)


@pytest.mark.parametrize(("family", "make"), PAIRS)
def test_a_family_left_out_is_noticed(
    family: str, make: Callable[[], Snapshot], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_right(make)
    rest = tuple(known for known in model.FAMILIES if name_of(known) != family)
    monkeypatch.setattr(model, "FAMILIES", rest)
    assert_wrong(make)


# parts of a family

PARTS: tuple[tuple[ModuleType, str, Callable[[], Snapshot], Options], ...] = (
    (starts, "_add_models", model_at_its_limit, EXACT),
    (bins, "_bins", too_many_jobs, EXACT),
    (bins, "_pooled_bins", too_many_jobs, POOLED),
    (domains, "_tie", segments_against_a_gang, EXACT),
    (domains, "_hall", too_many_gangs_for_a_leaf, EXACT),
    (fillers, "_keep_out_of_exclusive", nothing_beside_an_exclusive_job, EXACT),
)


@pytest.mark.parametrize(("module", "part", "make", "options"), PARTS)
def test_a_part_of_a_family_left_out_is_noticed(
    module: ModuleType,
    part: str,
    make: Callable[[], Snapshot],
    options: Options,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert_right(make, options)
    monkeypatch.setattr(module, part, lambda *_: None)
    assert_wrong(make, options)


# parts of the objectives

Pick = Callable[[Columns], Iterable[int]]


def waiting(columns: Columns) -> Iterable[int]:
    return (piece.column for pieces in columns.pieces for piece in pieces)


def spread(columns: Columns) -> Iterable[int]:
    return columns.chosen.values()


def patterns(columns: Columns) -> Iterable[int]:
    return columns.fills.values()


def shortfalls(columns: Columns) -> Iterable[int]:
    return columns.shortfalls


TERMS: tuple[tuple[str, Pick, Callable[[], Snapshot]], ...] = (
    ("guarantee", shortfalls, guarantee_against_weight),
    ("guarantee_parents", shortfalls, guarantee_of_a_parent),
    ("tier:high", waiting, higher_tier_first),
    ("tier:normal", waiting, two_small_or_one_large),
    ("tier:normal", spread, near_or_far),
    ("tier:normal", patterns, linked_or_not),
    ("tier:normal", patterns, node_broken_into_in_one_sum),
    ("fragmentation", patterns, node_broken_into),
)


@pytest.mark.parametrize(("stage", "pick", "make"), TERMS)
def test_terms_left_out_of_an_objective_are_noticed(
    stage: str, pick: Pick, make: Callable[[], Snapshot], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_right(make)
    dropped: list[int | None] = []

    def forgetful(problem: Problem, program: Program, columns: Columns) -> None:
        objective.add(problem, program, columns)
        for entry in program.objectives:
            if entry.name == stage:
                dropped.extend(entry.terms.pop(column, None) for column in pick(columns))

    put_in_place_of_objective(forgetful, monkeypatch)
    assert_wrong(make)
    assert any(dropped), "no such term"


@pytest.mark.parametrize(
    ("stage", "make"),
    [("tier:normal", heavy_or_light), ("fragmentation", gpu_of_no_use)],
)
def test_a_constant_left_out_of_an_objective_is_noticed(
    stage: str, make: Callable[[], Snapshot], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_right(make)

    def forgetful(problem: Problem, program: Program, columns: Columns) -> None:
        objective.add(problem, program, columns)
        for entry in program.objectives:
            if entry.name == stage:
                assert entry.constant
                entry.constant = 0

    put_in_place_of_objective(forgetful, monkeypatch)
    assert_wrong(make)


def test_stages_in_another_order_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_right(higher_tier_first)

    def backwards(problem: Problem, program: Program, columns: Columns) -> None:
        objective.add(problem, program, columns)
        program.objectives.reverse()

    put_in_place_of_objective(backwards, monkeypatch)
    assert_wrong(higher_tier_first)


def put_in_place_of_objective(family: model.Family, monkeypatch: pytest.MonkeyPatch) -> None:
    others = tuple(known for known in model.FAMILIES if known is not objective.add)
    monkeypatch.setattr(model, "FAMILIES", (*others, family))
