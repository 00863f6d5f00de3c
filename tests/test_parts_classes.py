"""GPUs in parts as bins of their own: shared ways to fill them, classes of what is alike."""

from __future__ import annotations

from collections import Counter

import build as b
import pytest

from trencadis.instances.generate import generate
from trencadis.models import MigGpu, MigInstance, Request, Snapshot
from trencadis.solver.bin_classes import BinClass
from trencadis.solver.model.build import build
from trencadis.solver.model.problem import Problem, Thresholds, classify, facts
from trencadis.solver.patterns.single import is_single
from trencadis.solver.patterns.whole import Pattern, enumerate_patterns
from trencadis.solver.round import Options, solve

NONE: frozenset[str] = frozenset()


def problem(snapshot: Snapshot) -> Problem:
    return classify(facts(snapshot), Thresholds(), NONE, NONE)


def parts(made: Problem) -> list[BinClass]:
    return [cls for cls in made.supply.classes if cls.part]


def effects(patterns: tuple[Pattern, ...]) -> list[tuple[object, ...]]:
    empty = patterns[0].fragmentation
    return [(p.counts, p.used, p.reserve, p.costs, p.fragmentation - empty) for p in patterns]


@pytest.fixture(scope="module")
def mixed() -> Problem:
    return problem(generate(120, 250, 0.7, 3, 8, mig=0.4, share=0.3))


def test_shared_ways_are_those_of_the_plain_walk(mixed: Problem) -> None:
    seen = 0
    for cls in parts(mixed):
        for kind in cls.own_kinds():
            assert is_single(kind.type, cls.slots)
            plain = enumerate_patterns(
                kind.type, cls.slots, [250] * len(cls.slots), mixed.facts.profile, 3_000, False
            )
            known = {(p.counts, p.costs): p.fragmentation for p in plain}
            assert {(p.counts, p.costs): p.fragmentation for p in kind.patterns} == known
            seen += 1
    assert seen > 100


def test_a_class_holds_kinds_that_differ_by_a_constant(mixed: Problem) -> None:
    several = [cls for cls in parts(mixed) if cls.kinds]
    assert several
    for cls in several:
        assert sum(kind.number for kind in cls.kinds) == len(cls.nodes)
        position = 0
        for kind in cls.kinds:
            assert effects(kind.patterns) == effects(cls.kinds[0].patterns)
            for state in cls.nodes[position : position + kind.number]:
                assert state.cuts == kind.type.cuts
            position += kind.number
    types = sum(len(cls.own_kinds()) for cls in parts(mixed))
    assert len(parts(mixed)) < 0.7 * types


def test_doing_nothing_costs_what_the_parts_and_nodes_are_worth(mixed: Problem) -> None:
    """The constant of F is a sum over GPUs of their own present F, whatever class they are in."""
    program = build(mixed).program
    fragmentation = next(o for o in program.objectives if o.name == "fragmentation")
    profile = mixed.facts.profile
    expected = sum(
        profile.cut_cost(state.cuts[0])
        for cls in parts(mixed)
        if cls.feed is None
        for state in cls.nodes
    )
    others = sum(
        len(cls.nodes) * (cls.patterns or ())[0].fragmentation
        for cls in mixed.supply.classes
        if not cls.part and cls.patterns is not None
    )
    assert fragmentation.constant == expected + others


def test_each_gpu_of_a_class_follows_its_own_layout() -> None:
    """Nine 1g@0 or 1g@1 by GPU: alike for 3g, which goes to start 4 on each of them; nobody is
    moved and no place is given twice. So many GPUs that they are bins of their own."""
    layouts = [(0,), (1,), (2,)] * 3
    mig = [
        MigGpu(gpu=gpu, instances=(MigInstance(profile="1g.5gb", start=start),))
        for gpu, (start,) in enumerate(layouts)
    ]
    tenants = [
        b.running(
            f"r{gpu}",
            b.at("n1", gpu).model_copy(
                update={"mig": (MigInstance(profile="1g.5gb", start=start),)}
            ),
            request=Request(mig=("1g.5gb",)),
        )
        for gpu, (start,) in enumerate(layouts)
    ]
    snap = b.snapshot(
        b.node("n1", 9, "A100-SXM4-40GB", mig=mig),
        tenants,
        [b.job(f"a{i}", request=Request(mig=("3g.20gb",))) for i in range(9)],
        [b.job(f"b{i}", request=Request(mig=("1g.5gb",))) for i in range(9)],
        [b.job(f"c{i}", request=Request(mig=("2g.10gb",))) for i in range(9)],
    )
    assert any(len(cls.own_kinds()) > 1 for cls in parts(problem(snap)))
    plan = solve(snap, Options(time_limit_s=60, workers=1))
    starts = Counter(
        task.mig[0].profile for start in plan.starts for task in start.allocation if task.mig
    )
    assert starts == {"3g.20gb": 9, "1g.5gb": 9, "2g.10gb": 9}
