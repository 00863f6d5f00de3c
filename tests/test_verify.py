"""The verifier: each rule passes a legal plan and catches a corruption of it, alone.

Numbers of waiting, spread, share factors, entitlements, targets and fragmentation are worked out
by hand in the comments, from docs/problem.md.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import build as b
import pytest

from trencadis.models import (
    ArrayRef,
    Licence,
    Limits,
    MigInstance,
    Plan,
    Qos,
    Quota,
    Request,
    Segments,
    Share,
    Snapshot,
    Start,
    Status,
    TaskAllocation,
    Toleration,
    Topology,
)
from trencadis.models.plan import Preempt
from trencadis.solver.verify import prepare, stage_values, verify
from trencadis.solver.verify.board import Board
from trencadis.solver.verify.facts import Facts, gather
from trencadis.solver.verify.fits import Fits, Shapes
from trencadis.solver.verify.fragmentation import Fragmentation
from trencadis.solver.verify.linked import pack
from trencadis.solver.verify.search import Search
from trencadis.solver.verify.share import fill
from trencadis.solver.verify.situation import situate
from trencadis.solver.verify.stages import Stages
from trencadis.solver.verify.targets import Targets, largest_sum


def facts_of(snap: Snapshot, *starts: Start) -> Facts:
    known = prepare(snap)
    return gather(known.situation, b.plan_of(snap, *starts), known.stages, known.do_nothing)


def honest(snap: Snapshot, *starts: Start) -> Plan:
    """A plan with these starts whose claims about itself are true."""
    facts = facts_of(snap, *starts)
    costs, levels = facts.stages.costs, facts.situation.levels
    told = [
        start.model_copy(
            update={
                "level": levels.name(placed.depth),
                "domain": "/".join(placed.path),
                "waiting_saved": costs.waits[start.job],
                "spread_cost": costs.spread(placed),
            }
        )
        for start, placed in zip(starts, facts.starts, strict=True)
    ]
    return b.plan_of(
        snap,
        *told,
        stages=[
            b.stage(name, value, do_nothing=facts.do_nothing[name])
            for name, value in facts.objective.items()
        ],
    )


def broken(snap: Snapshot, plan: Plan) -> list[str]:
    """Rules that the plan breaks, each once."""
    return sorted({violation.rule for violation in verify(snap, plan).violations})


# Every rule: legal starts, and starts that break just that rule


@dataclass(frozen=True)
class Case:
    name: str
    rule: str
    snap: Snapshot
    legal: tuple[Start, ...]
    corrupt: tuple[Start, ...]


def one(
    name: str, rule: str, snap: Snapshot, legal: Start | tuple[Start, ...], *bad: Start
) -> Case:
    return Case(name, rule, snap, legal if isinstance(legal, tuple) else (legal,), bad)


TWO = b.nodes(2, 2)
"""n1 and n2 with two GPUs each."""

A1 = b.start("a", b.at("n1", 0))
A2 = b.start("a", b.at("n2", 0))
WIDE = b.start("a", b.at("n1", 0), b.at("n2", 0))
LEAVES = (
    b.node("n1", 2, fabric=("s1", "l1")),
    b.node("n2", 2, fabric=("s1", "l1")),
    b.node("n3", 2, fabric=("s1", "l2")),
    b.node("n4", 2, fabric=("s2", "l1")),
)
LEVELS = ("spine", "leaf")


def admission(
    name: str, first: dict[str, object], second: dict[str, object], **wish: object
) -> Case:
    """Job a may use n1, which differs from n2 in the fields given."""
    snap = b.snapshot(b.node("n1", 2, **first), b.node("n2", 2, **second), b.job("a", **wish))
    return one(name, "admission", snap, A1, A2)


def pair(name: str, rule: str, *parts: object, **policy: object) -> Case:
    """Jobs a and b, of which only a may start."""
    snap = b.snapshot(TWO, *parts, **policy)
    return one(name, rule, snap, A1, A1, b.start("b", b.at("n2", 0)))


CASES = [
    admission("down", {}, {"down": True}),
    admission("cordoned", {}, {"cordoned": True}),
    admission("label", {"labels": {"x": "1"}}, {"labels": {"x": "2"}}, node_selector={"x": "1"}),
    admission("no label", {"labels": {"x": "1"}}, {}, node_selector={"x": "1"}),
    admission("excluded", {}, {}, excluded_nodes=("n2",)),
    admission("required node", {}, {}, required_nodes=("n1",)),
    admission("taint", {}, {"taints": ["t"]}),
    admission("tolerated taint", {"taints": ["t"]}, {"taints": ["u"]}, tolerations=["t"]),
    admission(
        "toleration of a value",
        {"taints": ["t=1"]},
        {"taints": ["t=2"]},
        tolerations=[Toleration(value="1")],
    ),
    admission(
        "toleration of an effect",
        {"taints": [b.taint("t", "PreferNoSchedule")]},
        {"taints": [b.taint("t", "NoExecute")]},
        tolerations=[Toleration(key="t", effect="NoSchedule")],
    ),
    admission("free long enough", {"free_for": 60}, {"free_for": 59}, runtime_seconds=60),
    admission("unknown runtime", {}, {"free_for": 10**6}),
    one(
        "poor health",
        "admission",
        b.snapshot(
            b.node("n1", 4),
            b.node("n2", 4, health_score_milli=499),
            b.job("a", 2, 2),
            large_gang_gpus=4,
        ),
        b.start("a", b.at("n1", 0, 1), b.at("n1", 2, 3)),
        b.start("a", b.at("n1", 0, 1), b.at("n2", 2, 3)),
    ),
    one(
        "GPU in use",
        "gpus",
        b.snapshot(b.node("n1", 2), b.running("r", b.at("n1", 0)), b.job("a")),
        b.start("a", b.at("n1", 1)),
        b.start("a", b.at("n1", 0)),
    ),
    one(
        "GPU of a share",
        "gpus",
        b.snapshot(
            b.node("n1", 2),
            b.running("r", b.at("n1", 0), request=Request(share=Share(gpu_milli=500))),
            b.job("a"),
        ),
        b.start("a", b.at("n1", 1)),
        b.start("a", b.at("n1", 0)),
    ),
    one(
        "GPU held",
        "gpus",
        b.snapshot(b.node("n1", 2), b.hold("h", b.at("n1", 0)), b.job("h"), b.job("a")),
        b.start("a", b.at("n1", 1)),
        b.start("a", b.at("n1", 0)),
    ),
    one(
        "GPU broken",
        "gpus",
        b.snapshot(b.node("n1", 2, unhealthy=[0]), b.job("a")),
        b.start("a", b.at("n1", 1)),
        b.start("a", b.at("n1", 0)),
    ),
    one(
        "GPU in MIG mode",
        "gpus",
        b.snapshot(b.node("n1", 2, mig=[0]), b.job("a")),
        b.start("a", b.at("n1", 1)),
        b.start("a", b.at("n1", 0)),
    ),
    one(
        "no such GPU",
        "gpus",
        b.snapshot(b.node("n1", 2), b.job("a")),
        A1,
        b.start("a", b.at("n1", 2)),
    ),
    one(
        "GPU given twice",
        "gpus",
        b.snapshot(b.node("n1", 2), b.jobs(2, "a")),
        (b.start("a1", b.at("n1", 0)), b.start("a2", b.at("n1", 1))),
        b.start("a1", b.at("n1", 0)),
        b.start("a2", b.at("n1", 0)),
    ),
    one(
        "too many of counted GPUs",
        "gpus",
        b.snapshot(
            b.node("n1", 2, precision="node"), b.node("n2", 2, precision="node"), b.jobs(2, "a", 2)
        ),
        (b.start("a1", b.somewhere("n1")), b.start("a2", b.somewhere("n2"))),
        b.start("a1", b.somewhere("n1")),
        b.start("a2", b.somewhere("n1")),
    ),
    one(
        "two models",
        "model",
        b.snapshot(b.node("n1", {"H100": 2, "A100": 2}), b.job("a", 1, 2)),
        b.start("a", b.at("n1", 0), b.at("n1", 1)),
        b.start("a", b.at("n1", 0), b.at("n1", 2)),
    ),
    one(
        "wrong model",
        "model",
        b.snapshot(b.node("n1", {"H100": 1, "A100": 1}), b.job("a", models=["A100"])),
        b.start("a", b.at("n1", 1)),
        b.start("a", b.at("n1", 0)),
    ),
    one(
        "CPU",
        "capacity",
        b.snapshot(
            b.node("n1", 2, cpu_milli=10),
            b.node("n2", 2, cpu_milli=9),
            b.running("r", b.at("n1", 1), cpu_milli=4),
            b.running("s", b.at("n2", 1), cpu_milli=4),
            b.job("a", cpu_milli=6),
        ),
        A1,
        A2,
    ),
    one(
        "memory, with what is held",
        "capacity",
        b.snapshot(
            b.nodes(2, 2, memory_mib=10),
            b.hold("h", b.at("n2", 1)),
            b.job("h", memory_mib=5),
            b.job("a", memory_mib=6),
        ),
        A1,
        A2,
    ),
    one(
        "resource",
        "capacity",
        b.snapshot(
            b.node("n1", 2, resources={"nic": 1}), b.node("n2", 2), b.job("a", resources={"nic": 1})
        ),
        A1,
        A2,
    ),
    one(
        "tasks per node",
        "tasks-per-node",
        b.snapshot(TWO, b.job("a", 1, 2, max_tasks_per_node=1)),
        WIDE,
        b.start("a", b.at("n1", 0), b.at("n1", 1)),
    ),
    one(
        "exclusive beside a running job",
        "exclusive",
        b.snapshot(TWO, b.running("r", b.at("n2", 1)), b.job("a", exclusive=True)),
        A1,
        A2,
    ),
    one(
        "exclusive beside a hold",
        "exclusive",
        b.snapshot(TWO, b.hold("h", b.at("n2", 1)), b.job("h"), b.job("a", exclusive=True)),
        A1,
        A2,
    ),
    one(
        "beside an exclusive job that drains",
        "exclusive",
        b.snapshot(
            TWO,
            b.running("r", b.at("n2", 1), exclusive=True, state="draining"),
            b.job("a"),
        ),
        A1,
        A2,
    ),
    one(
        "exclusive beside a start",
        "exclusive",
        b.snapshot(TWO, b.job("a", exclusive=True), b.job("c")),
        (A1, b.start("c", b.at("n2", 0))),
        A1,
        b.start("c", b.at("n1", 1)),
    ),
    one(
        "links",
        "nvlink",
        b.snapshot(b.node("n1", 4, links=[(0, 1), (2, 3)]), b.job("a", 2, nvlink_required=True)),
        b.start("a", b.at("n1", 2, 3)),
        b.start("a", b.at("n1", 1, 2)),
    ),
    one(
        "a chain of links",
        "nvlink",
        b.snapshot(b.node("n1", 4, links=[(0, 1), (1, 2)]), b.job("a", 3, nvlink_required=True)),
        b.start("a", b.at("n1", 0, 1, 2)),
        b.start("a", b.at("n1", 1, 2, 3)),
    ),
    one(
        "NVSwitch",
        "nvlink",
        b.snapshot(
            b.node("n1", 2, nvswitch=True), b.node("n2", 2), b.job("a", 2, nvlink_required=True)
        ),
        b.start("a", b.at("n1", 0, 1)),
        b.start("a", b.at("n2", 0, 1)),
    ),
    one(
        "required level",
        "topology",
        b.snapshot(LEAVES, b.job("a", 1, 3, required="leaf", max_tasks_per_node=2), levels=LEVELS),
        b.start("a", b.at("n1", 0), b.at("n1", 1), b.at("n2", 0)),
        b.start("a", b.at("n1", 0), b.at("n1", 1), b.at("n3", 0)),
    ),
    one(
        "equal names in other branches",
        "topology",
        b.snapshot(LEAVES, b.job("a", 1, 3, required="leaf"), levels=LEVELS),
        b.start("a", b.at("n1", 0), b.at("n1", 1), b.at("n2", 0)),
        b.start("a", b.at("n1", 0), b.at("n1", 1), b.at("n4", 0)),
    ),
    one(
        "required node",
        "topology",
        b.snapshot(TWO, b.job("a", 1, 2, required="node")),
        b.start("a", b.at("n1", 0), b.at("n1", 1)),
        WIDE,
    ),
    one(
        "boundary",
        "topology",
        b.snapshot(LEAVES, b.job("a", 1, 5), levels=("spine!", "leaf")),
        b.start("a", *(b.at(n, g) for n in ("n1", "n2") for g in (0, 1)), b.at("n3", 0)),
        b.start("a", *(b.at(n, g) for n in ("n1", "n2") for g in (0, 1)), b.at("n4", 0)),
    ),
    one(
        "segments",
        "segments",
        b.snapshot(
            LEAVES, b.job("a", 1, 6, segments=Segments(tasks=2, level="leaf")), levels=LEVELS
        ),
        b.start("a", *(b.at(n, g) for n in ("n1", "n3", "n4") for g in (0, 1))),
        b.start(
            "a",
            *(b.at(n, g) for n in ("n1", "n3") for g in (0, 1)),
            b.at("n2", 0),
            b.at("n4", 0),
        ),
    ),
    one(
        "segments on nodes",
        "segments",
        b.snapshot(TWO, b.job("a", 1, 2, segments=Segments(tasks=2, level="node"))),
        b.start("a", b.at("n1", 0), b.at("n1", 1)),
        WIDE,
    ),
    one(
        "group",
        "groups",
        b.snapshot(b.node("n1", 2), b.jobs(2, "a", group="g"), b.job("c")),
        (b.start("a1", b.at("n1", 0)), b.start("a2", b.at("n1", 1))),
        b.start("a1", b.at("n1", 0)),
        b.start("c", b.at("n1", 1)),
    ),
    pair("queue limit", "limits", b.queue("main", limit=1), b.job("a"), b.job("b")),
    pair(
        "limit of a parent",
        "limits",
        b.queue("top", limit=1),
        b.queue("x", "top"),
        b.queue("y", "top"),
        b.job("a", queue="x"),
        b.job("b", queue="y"),
    ),
    pair(
        "limit on a model",
        "limits",
        b.queue("main", limit=b.quota(None, H100=1)),
        b.job("a"),
        b.job("b"),
    ),
    pair("jobs limit", "limits", b.queue("main", limit=Limits(jobs=1)), b.job("a"), b.job("b")),
    pair(
        "user's quota",
        "limits",
        b.queue("main", limit=Limits(quota_per_user=Quota(gpu_milli=1_999))),
        b.job("a", user="u"),
        b.job("b", user="u"),
    ),
    pair(
        "user's jobs in a QOS",
        "limits",
        Qos(name="q", limit=Limits(jobs_per_user=1)),
        b.job("a", user="u", qos="q", queue="x"),
        b.job("b", user="u", qos="q", queue="y"),
    ),
    pair(
        "array",
        "limits",
        b.job("a", array=ArrayRef(name="x", throttle=1)),
        b.job("b", array=ArrayRef(name="x", throttle=2)),
    ),
    pair(
        "licence",
        "limits",
        Licence(name="x", total=5, used_elsewhere=2),
        b.job("a", licences={"x": 2}),
        b.job("b", licences={"x": 2}),
    ),
    # 4 GPUs; `lender` keeps 3 of its 3: one is left for `main`.
    pair("lending", "lending", b.queue("lender", guarantee=3, lending=0), b.job("a"), b.job("b")),
    pair(
        "lending on a model",
        "lending",
        b.queue("lender", guarantee=b.quota(None, H100=4), lending=b.quota(None, H100=1)),
        b.job("a"),
        b.job("b"),
    ),
    one(
        "strict FIFO",
        "strict-fifo",
        b.snapshot(
            b.node("n1", 2),
            b.running("r", b.at("n1", 1)),
            b.queue("main", order="strict_fifo"),
            b.job("first", 2, waited=10),
            b.job("late", 1, waited=5),
            b.job("a", queue="other"),
        ),
        A1,
        b.start("late", b.at("n1", 0)),
    ),
    one(
        "work conserving",
        "work-conserving",
        b.snapshot(TWO, b.job("a"), b.job("c", 2)),
        (A1, b.start("c", b.at("n2", 0, 1))),
        A1,
    ),
    one(
        "a group left out",
        "work-conserving",
        b.snapshot(TWO, b.job("a", 2, group="g"), b.job("c", 2, group="g")),
        (b.start("a", b.at("n1", 0, 1)), b.start("c", b.at("n2", 0, 1))),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_legal_plan_passes(case: Case) -> None:
    assert verify(case.snap, honest(case.snap, *case.legal)).violations == ()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_exactly_the_broken_rule_is_named(case: Case) -> None:
    assert broken(case.snap, honest(case.snap, *case.corrupt)) == [case.rule]


# Form: nothing else is judged


FORM = b.snapshot(
    b.node("n1", 4, model="H100-80GB"),
    b.node("n2", 2, model="H100-80GB", precision="node"),
    b.running("r", b.at("n1", 3)),
    b.job("a", 2),
    b.job("elastic", 1, 4, min_tasks=1),
    b.job("held", state="held"),
    b.job("later", not_before=b.ago(-1)),
    b.job("after", after=("r",)),
    b.job("talks", tasks=2, request=Request(mig=("1g.10gb",))),
    b.job("keeps", models=["H100-80GB"]),
    b.hold("keeps", b.at("n1", 2)),
    b.job("g1", group="g"),
    b.job("g2", group="g", state="held"),
    elastic_milli=0,
)
FORM_STARTS = (b.start("a", b.at("n1", 0, 1)), b.start("elastic", b.somewhere("n2")))


def with_start(*starts: Start) -> Callable[[Plan], Plan]:
    return lambda plan: plan.model_copy(update={"starts": starts})


def field(**update: object) -> Callable[[Plan], Plan]:
    return lambda plan: plan.model_copy(update=update)


SLICE_0, SLICE_1 = (
    TaskAllocation(node="n1", gpus=(0,), mig=(MigInstance(profile="1g.10gb", start=start),))
    for start in (0, 1)
)
MIG = TaskAllocation(node="n1", gpus=(0, 1), mig=(MigInstance(profile="1g.10gb", start=0),))


@pytest.mark.parametrize(
    ("rule", "corrupt"),
    [
        ("fingerprint", field(snapshot="0" * 64)),
        ("now", field(now=b.ago(1))),
        ("now", with_start(b.start("a", b.at("n1", 0, 1), at=b.ago(-60)), FORM_STARTS[1])),
        ("preempts", field(preempts=(Preempt(job="r", at=b.NOW, gpus_free_at=b.NOW),))),
        ("jobs", with_start(b.start("nobody", b.at("n1", 0)))),
        ("jobs", with_start(b.start("r", b.at("n1", 0)))),
        ("jobs", with_start(b.start("held", b.at("n1", 0)))),
        ("jobs", with_start(FORM_STARTS[0], FORM_STARTS[0])),
        ("eligible", with_start(b.start("later", b.at("n1", 0)))),
        ("eligible", with_start(b.start("after", b.at("n1", 0)))),
        ("eligible", with_start(b.start("talks", SLICE_0, SLICE_1))),
        ("holds", with_start(b.start("keeps", b.at("n1", 0)))),
        ("eligible", with_start(b.start("g1", b.at("n1", 0)))),
        ("gang", with_start(b.start("a"))),
        ("gang", with_start(b.start("elastic", b.at("n1", 0), b.at("n1", 1)))),
        ("nodes", with_start(b.start("a", b.at("n9", 0, 1)))),
        ("indices", with_start(b.start("a", b.at("n1", 0)))),
        ("indices", with_start(b.start("a", b.at("n1", 0, 0)))),
        ("indices", with_start(b.start("a", b.somewhere("n1")))),
        ("indices", with_start(b.start("a", b.at("n2", 0, 1)))),
        ("indices", with_start(b.start("a", MIG))),
    ],
)
def test_a_plan_of_broken_form_is_judged_no_further(
    rule: str, corrupt: Callable[[Plan], Plan]
) -> None:
    plan = honest(FORM, *FORM_STARTS)
    assert verify(FORM, plan).violations == ()
    verdict = verify(FORM, corrupt(plan))
    assert {violation.rule for violation in verdict.violations} == {rule}
    assert verdict.stages == {}


# Claims


CLAIMS = b.snapshot(LEAVES, b.job("a", 2, 2), b.job("big", 8, 8), levels=LEVELS)
CLAIM_START = b.start("a", b.at("n1", 0, 1), b.at("n2", 0, 1))


def first_start(**update: object) -> Callable[[Plan], Plan]:
    return lambda plan: plan.model_copy(
        update={"starts": (plan.starts[0].model_copy(update=update),)}
    )


def stage_field(which: str, **update: object) -> Callable[[Plan], Plan]:
    def change(plan: Plan) -> Plan:
        stages = tuple(
            stage.model_copy(update=update) if stage.name == which else stage
            for stage in plan.proof.stages
        )
        return plan.model_copy(update={"proof": plan.proof.model_copy(update={"stages": stages})})

    return change


@pytest.mark.parametrize(
    ("rule", "corrupt"),
    [
        ("claims", first_start(level="node")),
        ("claims", first_start(domain="s1")),
        ("claims", first_start(waiting_saved=1)),
        ("claims", first_start(spread_cost=1)),
        ("objective", stage_field("tier:high", do_nothing=7, gap=0.0)),
        ("objective", stage_field("guarantee", objective=1, bound=1, gap=1.0)),
        ("objective", stage_field("tier:low", name="tier:lower")),
        ("bounds", stage_field("tier:normal", bound=0, status=Status.OPTIMAL)),
        ("bounds", stage_field("tier:normal", bound=10**12, gap=0.0)),
        ("bounds", stage_field("tier:normal", gap=0.5)),
        ("pending", field(pending=())),
        ("pending", field(pending=(b.pending("big"), b.pending("big")))),
        ("pending", field(pending=(b.pending("big"), b.pending("a")))),
        ("pending", field(pending=(b.pending("big"), b.pending("nobody")))),
    ],
)
def test_what_a_plan_says_of_itself_is_checked(rule: str, corrupt: Callable[[Plan], Plan]) -> None:
    plan = honest(CLAIMS, CLAIM_START)
    assert (plan.starts[0].level, plan.starts[0].domain) == ("leaf", "s1/l1")
    assert verify(CLAIMS, plan).violations == ()
    assert rule in broken(CLAIMS, corrupt(plan))
    # A wrong objective or do_nothing may upset the gap that follows from it, and nothing else.
    assert set(broken(CLAIMS, corrupt(plan))) <= {rule, "bounds"}


def test_the_gap_is_relative_to_doing_nothing() -> None:
    plan = honest(CLAIMS, CLAIM_START)
    normal = next(stage for stage in plan.proof.stages if stage.name == "tier:normal")
    bound = normal.objective - 100
    gap = 100 / (normal.do_nothing - bound)
    changed = stage_field("tier:normal", bound=bound, gap=gap, status=Status.FEASIBLE)(plan)
    proof = changed.proof.model_copy(update={"gap": gap, "status": Status.FEASIBLE})
    assert verify(CLAIMS, changed.model_copy(update={"proof": proof})).violations == ()
    assert broken(CLAIMS, changed) == ["bounds"]


@pytest.mark.parametrize(
    ("nodes", "level", "domain"),
    [
        (("n1", "n1"), "node", "s1/l1/n1"),
        (("n1", "n2"), "leaf", "s1/l1"),
        (("n1", "n3"), "spine", "s1"),
        (("n1", "n4"), "cluster", ""),
    ],
)
def test_level_and_domain(nodes: tuple[str, str], level: str, domain: str) -> None:
    snap = b.snapshot(LEAVES, b.job("a", 1, 2), levels=LEVELS)
    start = b.start("a", b.at(nodes[0], 0), b.at(nodes[1], 1))
    plan = honest(snap, start)
    assert (plan.starts[0].level, plan.starts[0].domain) == (level, domain)


# Work conserving: what may be added, exactly


def waits_rightly(snap: Snapshot, *starts: Start) -> bool:
    return broken(snap, honest(snap, *starts)) != ["work-conserving"]


HELD = Segments(tasks=2, level="leaf")


@pytest.mark.parametrize(
    ("fits", "parts"),
    [
        (True, [b.nodes(2, 3), b.job("a", 2, 2)]),
        (False, [b.nodes(2, 3), b.job("a", 2, 3)]),
        # Of six linked in a ring, 0 and 3 busy: two pairs are left; a chain of three leaves one.
        (True, [b.node("n1", 6, links=[(i, (i + 1) % 6) for i in range(6)]),
                b.running("r", b.at("n1", 0, 3)), b.job("a", 2, 2, nvlink_required=True)]),
        (False, [b.node("n1", 6, links=[(i, (i + 1) % 6) for i in range(6)]),
                 b.running("r", b.at("n1", 0, 2)), b.job("a", 2, 2, nvlink_required=True)]),
        # Leaves of 3 and 3 hold two segments of two, not three.
        (True, [b.node("n1", 3, fabric=("s", "l1")), b.node("n2", 3, fabric=("s", "l2")),
                b.job("a", 1, 4, segments=HELD)]),
        (False, [b.node("n1", 3, fabric=("s", "l1")), b.node("n2", 3, fabric=("s", "l2")),
                 b.job("a", 1, 6, segments=HELD)]),
        # A node whose path is too short is near nobody.
        (False, [b.node("n1", 1, fabric=("s",)), b.node("n2", 1, fabric=("s",)),
                 b.job("a", 1, 2, required="leaf")]),
        (True, [b.node("n1", 1, fabric=("s",)), b.node("n2", 1, fabric=("s",)),
                b.job("a", 1, 2, required="spine")]),
        (True, [b.node("n1", 1, fabric=("s", "x")), b.node("n2", 1, fabric=("s", "y")),
                b.job("a", 1, 2, required="leaf", relax_after=60, waited=60)]),
        (False, [b.node("n1", 1, fabric=("s", "x")), b.node("n2", 1, fabric=("s", "y")),
                 b.job("a", 1, 2, required="leaf", relax_after=60, waited=59)]),
        (False, [b.node("n1", {"H100": 2, "A100": 2}), b.job("a", 1, 3)]),
        (True, [b.node("n1", 0, cpu_milli=10), b.job("a", 0, 2, cpu_milli=5)]),
        (False, [b.node("n1", 0, cpu_milli=9), b.job("a", 0, 2, cpu_milli=5)]),
        (False, [b.nodes(2, 2), b.job("a", 1, 3, max_tasks_per_node=1)]),
        (False, [b.nodes(2, 2), b.running("r", b.at("n1", 0)), b.job("a", 1, 3, exclusive=True)]),
        (False, [b.node("n1", 4, nvswitch=False, precision="node", links=[(0, 1)]),
                 b.job("a", 2, nvlink_required=True)]),
        (True, [b.node("n1", 4, nvswitch=True, precision="node"),
                b.job("a", 2, nvlink_required=True)]),
        (False, [b.nodes(1, 4), b.job("a", group="g"), b.job("c", group="g", state="held")]),
        (False, [b.nodes(1, 4), b.job("a", 3, group="g"), b.job("c", 2, group="g")]),
        # Four GPUs, all kept for the lender.
        (False, [b.nodes(1, 4), b.queue("lender", guarantee=4, lending=0), b.job("a")]),
        # A limit that what runs already passes allows no more, but jobs without GPUs.
        (False, [b.nodes(1, 4), b.queue("main", limit=1), b.running("r", b.at("n1", 0, 1)),
                 b.job("a")]),
        (True, [b.node("n1", 4, cpu_milli=1), b.queue("main", limit=1),
                b.running("r", b.at("n1", 0, 1)), b.job("a", 0, cpu_milli=1)]),
    ],
)  # fmt: skip
def test_only_what_fits_must_start(fits: bool, parts: list[object]) -> None:
    snap = b.snapshot(*parts, levels=LEVELS)
    assert waits_rightly(snap) is not fits


def test_a_group_needs_places_for_all_its_jobs() -> None:
    jobs = [b.job("a", 2, 2, group="g", required="node"), b.job("c", 1, 2, group="g")]
    assert waits_rightly(b.snapshot(b.node("n1", 4), b.node("n2", 1), jobs))
    # c alone would fit n1 as well; it has to make do with n2.
    assert not waits_rightly(b.snapshot(b.node("n1", 4), b.node("n2", 2), jobs))


def test_members_of_a_group_share_limits() -> None:
    jobs = b.jobs(2, "a", group="g")
    assert waits_rightly(b.snapshot(b.node("n1", 4), b.queue("main", limit=1), jobs))
    assert not waits_rightly(b.snapshot(b.node("n1", 4), b.queue("main", limit=2), jobs))


def test_a_strict_queue_waits_for_its_head_only() -> None:
    parts = [
        b.node("n1", {"H100": 2, "A100": 2}),
        b.running("r", b.at("n1", 0)),
        b.queue("main", order="strict_fifo"),
        b.job("head", 2, models=["H100"], waited=9),
    ]
    assert waits_rightly(b.snapshot(*parts, b.job("a", models=["H100"])))
    assert waits_rightly(b.snapshot(*parts, b.job("a")))
    assert not waits_rightly(b.snapshot(*parts, b.job("a", models=["A100"])))
    # A head that could never run, or came at the same time, holds nobody back.
    assert not waits_rightly(b.snapshot(*parts[:3], b.job("head", 3, waited=9), b.job("a")))
    assert not waits_rightly(b.snapshot(*parts, b.job("a", waited=9)))


def test_weighted_fragmentation_lets_a_job_wait_whose_start_costs_more() -> None:
    # Two GPUs, and only tasks of two matter. Starting a saves 1000 of waiting:
    # ceil(1000 · 14400 · 1000 · 1000 · 1000 / (1000 · 14400 · 1000 · 1000)) = 1000, and makes the
    # one GPU left useless: F = 1 · 1000 = 1000, weighted 500, 1000 or 1500. Only 500 is less.
    for weight, waits in ((500, False), (1_000, True), (1_500, True)):
        snap = b.snapshot(
            b.node("n1", 2),
            b.job("a", communicates=False),
            fragmentation="weighted",
            fragmentation_weight_milli=weight,
            demand_profile=(b.demand(2),),
            horizon_seconds=1_000,
            default_tier="low",
        )
        assert list(stage_values(snap))[-1] == "tier:low"
        assert stage_values(snap)["tier:low"] == 1_000
        assert stage_values(snap, [A1])["tier:low"] == weight
        assert waits_rightly(snap) is waits


def test_a_higher_tier_starts_whatever_fragmentation_costs() -> None:
    snap = b.snapshot(
        b.node("n1", 2),
        b.job("a", priority="normal"),
        fragmentation="weighted",
        fragmentation_weight_milli=9_000,
        demand_profile=(b.demand(2),),
    )
    assert not waits_rightly(snap)


# Numbers by hand


def costs_of(snap: Snapshot, *starts: Start) -> tuple[dict[str, int], list[int]]:
    facts = facts_of(snap, *starts)
    costs = facts.stages.costs
    return costs.waits, [costs.spread(placed) for placed in facts.starts]


def test_wait() -> None:
    # 8 GPUs, 80 CPUs of 1000: a CPU is a tenth of a GPU. c asks for 25 CPUs in two tasks:
    # ceil(2 · 12500 · 1000 · 8 / 80000) = 2500 units. a: 4 GPUs, 4000 units.
    # a: ceil(3000 · (14400 + 7200) · 1000 · 4000 · 100 / (1000 · 14400 · 1000 · 1000))
    #    = 3 · 1.5 · 4 · 100 = 1800.   c: 2.5 · 100 = 250, weight and age 1.
    # m: 1 MiB of 3000 MiB: ceil(1000 · 8 / 3000) = 3 units: ceil(0.003 · 100) = 1.
    snap = b.snapshot(
        b.node("n1", 8, cpu_milli=80_000, memory_mib=3_000),
        b.job("a", 4, weight_milli=3_000, waited=7_200),
        b.job("c", 0, 2, cpu_milli=12_500),
        b.job("m", 0, memory_mib=1),
        horizon_seconds=100,
    )
    assert costs_of(snap)[0] == {"a": 1_800, "c": 250, "m": 1}


def test_wait_in_one_weighted_sum() -> None:
    # Tier weights 16, 4, 1; one GPU over 100 s. u waited a day and is promoted from low to normal:
    # (1 + 86400/14400) · 4 · 100 = 2800.
    snap = b.snapshot(
        b.node("n1"),
        b.job("h", priority="high"),
        b.job("l", priority="low"),
        b.job("u", priority="low", waited=86_400),
        priority_mode="weighted",
        horizon_seconds=100,
    )
    assert costs_of(snap)[0] == {"h": 1_600, "l": 100, "u": 2_800}
    assert list(stage_values(snap)) == ["guarantee", "guarantee_parents", "wait", "fragmentation"]
    assert stage_values(snap)["wait"] == 4_500


def test_promotion_stops_at_the_top() -> None:
    snap = b.snapshot(b.node("n1"), b.job("a", waited=10 * 86_400), b.job("c", waited=86_399))
    assert dict(situate(snap).tiers) == {"a": 0, "c": 1}
    unpromoted = b.snapshot(b.job("a", waited=10 * 86_400), promote_after_seconds=None)
    assert dict(situate(unpromoted).tiers) == {"a": 1}


SPREAD = b.snapshot(
    b.node("n1", 4, fabric=("s1", "l1"), links=[(0, 1), (2, 3)]),
    b.node("n2", 4, fabric=("s1", "l1"), nvswitch=True),
    b.node("n3", 4, fabric=("s1", "l2"), precision="node"),
    b.node("n4", 4, "A100", fabric=("s2", "l3")),
    b.job("a", 2, 2, preferred="leaf", runtime_seconds=1_000),
    b.job("quiet", 2, 2, communicates=False),
    b.job("slow", 1, speed_milli={"A100": 500}),
    b.job("huge", 8, 8),
    levels=LEVELS,
    horizon_seconds=2_000,
    share_floor_milli=500,
)


@pytest.mark.parametrize(
    ("start", "cost"),
    [
        # a: 4 GPUs over its 1000 s at half weight is 2000 GPU-s. On n1 all four would talk over
        # PCIe (15 %), 300; through the network of the leaf (3 %) it is 60, each pair being linked.
        (b.start("a", b.at("n1", 0, 1), b.at("n1", 2, 3)), 60),
        # With pairs that aren't linked either, 60 and 2 · 150: PCIe is cheaper.
        (b.start("a", b.at("n1", 0, 2), b.at("n1", 1, 3)), 300),
        (b.start("a", b.at("n2", 0, 1), b.at("n2", 2, 3)), 0),
        # Over two nodes of a leaf (3 %): A = 60; the GPUs of each task are linked.
        (b.start("a", b.at("n1", 0, 1), b.at("n2", 2, 3)), 60),
        # 1 and 2 of n1 aren't: B = 2 · 1000 · 0.5 · 0.150 = 150.
        (b.start("a", b.at("n1", 1, 2), b.at("n2", 2, 3)), 210),
        # Over the spine (5 %) the preferred leaf is missed (4 %): A = 180; on n3 indices are
        # unknown, its pair is unlinked: B = 150.
        (b.start("a", b.at("n1", 0, 1), b.somewhere("n3")), 330),
        # No communication, no preference: distance is free; pairs still want NVLink within a task:
        # 2 GPUs · 2000 s · 0.5 · 0.150 = 300.
        (b.start("quiet", b.at("n1", 0, 1), b.at("n1", 2, 3)), 0),
        (b.start("quiet", b.at("n1", 0, 1), b.somewhere("n3")), 300),
        # Half as fast: 1 GPU · 2000 s · 0.5 · (1 − 0.5) = 500.
        (b.start("slow", b.at("n4", 0)), 500),
        (b.start("slow", b.at("n1", 0)), 0),
    ],
)  # fmt: skip
def test_spread(start: Start, cost: int) -> None:
    assert costs_of(SPREAD, start)[1] == [cost]


def test_spread_of_the_whole_cluster_and_of_what_runs() -> None:
    # Two nodes under different spines: max(5 %, 3 %, cluster 10 %). 2 GPUs, 600 of 1000 s have run:
    # 2 · 400 · 0.5 · 0.1 = 40 while it runs; the tier's stage counts it though nothing starts.
    snap = b.snapshot(
        LEAVES,
        b.running("r", b.at("n1", 0), b.at("n4", 0), ran=600, runtime_seconds=1_000),
        levels=LEVELS,
        share_floor_milli=500,
    )
    assert stage_values(snap)["tier:normal"] == 40


def test_water_filling() -> None:
    # 10 to weights 1, 1, 2 with caps 1, 9, 9: the first is full at 1; 9 left to 1 : 2.
    caps = [Fraction(1), Fraction(9), Fraction(9)]
    weights = [Fraction(1), Fraction(1), Fraction(2)]
    assert fill(Fraction(10), weights, caps) == [1, 3, 6]
    assert fill(Fraction(30), weights, caps) == caps
    assert fill(Fraction(0), weights, caps) == [0, 0, 0]
    assert fill(Fraction(5), [Fraction(0), Fraction(1)], [Fraction(9), Fraction(9)]) == [0, 5]


def test_entitlement_without_history() -> None:
    # 8 GPUs. red (guarantee 2, weight 1) wants 8, blue (weight 2) wants 8: base 2 and 0, the other
    # 6 are shared 1 : 2. red 2 + 2 = 4, blue 4.
    snap = b.snapshot(
        b.node("n1"),
        b.queue("red", guarantee=2),
        b.queue("blue", weight=2),
        b.queue("idle", guarantee=5),
        b.job("r", 8, queue="red"),
        b.job("c", 8, queue="blue"),
    )
    assert dict(situate(snap).entitled) == {"red": 4_000, "blue": 4_000, "idle": 0}


def test_entitlement_with_history() -> None:
    # 8 GPUs, equal weights: S = 1/2 each. red used 3/4 of the past, blue 1/4:
    # w' = 2 · (1/2) / (1/2 + 3/4) = 4/5 and 2 · (1/2) / (1/2 + 1/4) = 4/3, as 3 : 5.
    # red 3 GPUs, blue 5. blue's children share 5: b1 wants 1, b2 the rest; b2's limit of 3
    # caps blue's demand at 1 + 3 = 4, so red gets 4 of the 8.
    parts = [
        b.node("n1"),
        b.queue("red", past_usage_gpu_hours=30),
        b.queue("blue"),
        b.queue("b1", "blue", past_usage_gpu_hours=10),
        b.job("r", 8, queue="red"),
        b.job("one", 1, queue="b1"),
        b.job("two", 8, queue="b2"),
    ]
    free = situate(b.snapshot(*parts, b.queue("b2", "blue")))
    assert dict(free.entitled) == {"red": 3_000, "blue": 5_000, "b1": 1_000, "b2": 4_000}
    capped = situate(b.snapshot(*parts, b.queue("b2", "blue", limit=3)))
    assert dict(capped.entitled) == {"red": 4_000, "blue": 4_000, "b1": 1_000, "b2": 3_000}


def test_share_factors() -> None:
    # 8 GPUs, both queues want all: 4 each. red uses 1 and has, in order: first (2), then two of 1.5
    # at once, then last (1), and one without GPUs. first is below: 1000. The block of 3 has
    # 4 − 3 = 1 below: (1000 + 2 · 500) / 3 = 666. last is above: 500.
    snap = b.snapshot(
        b.node("n1"),
        b.running("r", b.at("n1", 0), queue="red"),
        b.job("first", 2, queue="red", waited=30),
        b.job("same1", 1, queue="red", waited=20),
        b.job("same2", 2, queue="red", waited=20),
        b.job("last", 1, queue="red", waited=10),
        b.job("none", 0, queue="red", waited=10),
        b.job("other", 8, queue="blue"),
        share_floor_milli=500,
    )
    shares = {name: share for name, share in situate(snap).shares.items() if name != "other"}
    assert shares == {"first": 1_000, "same1": 666, "same2": 666, "last": 500, "none": 1_000}


def test_targets() -> None:
    # red's guarantee is 7: of 4 (runs), 2, 2 and 16 (fits nowhere) the largest sum is 6. On A100
    # there is nothing but `small` (2) if it may run there. The parent's guarantee of 5 reaches 4.
    snap = b.snapshot(
        b.node("n1", 8),
        b.node("n2", 8, "A100", down=True),
        b.node("n3", 2, "A100"),
        b.queue("top", guarantee=5),
        b.queue("red", "top", guarantee=b.quota(7, A100=3)),
        b.running("r", b.at("n1", 0, 1, 2, 3), queue="red"),
        b.job("small", 2, queue="red"),
        b.job("fast", 2, queue="red", models=["H100"]),
        b.job("far", 16, queue="red"),
    )
    stages = Stages(situate(snap))
    assert stages.targets.rows == {
        ("top", None): 4_000,
        ("red", None): 6_000,
        ("red", "A100"): 2_000,
    }
    # Short by 2 in all and by 2 on A100; a start of small on n3 settles both.
    assert stage_values(snap)["guarantee"] == 4_000
    assert stage_values(snap)["guarantee_parents"] == 0
    assert stage_values(snap, [b.start("small", b.at("n3", 0, 1))])["guarantee"] == 0
    assert stage_values(snap, [b.start("fast", b.at("n1", 4, 5))])["guarantee"] == 2_000


def test_a_target_counts_jobs_that_the_empty_cluster_holds() -> None:
    # One node of 8 in two pieces of NVLink: a task of 3 linked fits only in the piece of four.
    snap = b.snapshot(
        b.node("n1", 8, links=[(0, 1), (1, 2), (2, 3), (4, 5)], mig=[0]),
        b.running("r", b.at("n1", 4, 5, 6, 7)),
        b.hold("x", b.at("n1", 2)),
        b.job("a", 3, nvlink_required=True),
        b.job("c", 5, nvlink_required=True),
    )
    targets = Targets(situate(snap))
    assert targets.could_run(snap.jobs[1]) == {"H100"}
    assert targets.could_run(snap.jobs[2]) == frozenset()


@pytest.mark.parametrize(
    ("parts", "most", "largest"),
    [
        ({3: 2, 5: 1}, 10, 8),
        ({3: 2, 5: 1}, 11, 11),
        ({3: 2, 5: 1}, 7, 6),
        ({4: 3, 6: 1}, 9, 8),
        ({7: 1}, 6, 0),
        ({}, 5, 0),
        ({2: 100, 7: 1}, 9, 9),
    ],
)
def test_largest_sum(parts: dict[int, int], most: int, largest: int) -> None:
    assert largest_sum(parts, most) == largest


def test_shortfall_is_in_milli_gpus_where_mig_makes_the_unit_finer() -> None:
    # A profile of 3 sevenths runs: 3000 of 7000 units; a guarantee of 500 milli is 3500 units.
    # The target is 3000 and met; with a whole GPU waiting besides it is still 3000.
    task = TaskAllocation(node="n1", gpus=(0,), mig=(MigInstance(profile="3g.40gb", start=0),))
    snap = b.snapshot(
        b.node("n1", 2, mig=[0]),
        b.queue("main", guarantee=Quota(gpu_milli=500)),
        b.running("r", task, request=Request(mig=("3g.40gb",))),
        b.job("a"),
    )
    stages = Stages(situate(snap))
    assert stages.of.scale.unit == 7_000
    assert stages.targets.rows == {("main", None): 3_000}
    assert stage_values(snap)["guarantee"] == 0


def fragmentation_of(snap: Snapshot) -> dict[str, int]:
    situation = situate(snap)
    measure = Fragmentation(situation)
    return {name: measure.total_of([state]) for name, state in situation.states.items()}


def test_fragmentation() -> None:
    # Kinds: four tasks of 1 GPU, one of 4 on H100, one with CPUs alone, one with a share that no
    # node takes: N = 7; over 600 s.
    # n1: 3 idle H100. 1s fit, the other three don't: ⌊3 · 3 · 600 / 7⌋ = 771.
    # n2: 4 idle A100: the 4 wants H100: ⌊3 · 4 · 600 / 7⌋ = 1028.
    # n3: 8 idle H100, no CPU: all whole tasks fit: ⌊2 · 8 · 600 / 7⌋ = 1371.
    # n4 is cordoned, n5 has an exclusive job, n6 has no idle GPU.
    snap = b.snapshot(
        b.node("n1", 4),
        b.node("n2", 4, "A100"),
        b.node("n3", 8),
        b.node("n4", 8, cordoned=True),
        b.node("n5", 8),
        b.node("n6", 1),
        b.running("r", b.at("n1", 0)),
        b.running("x", b.at("n5", 0), exclusive=True),
        b.running("s", b.at("n6", 0)),
        b.job("one", 1),
        b.job("four", 4, models=["H100"]),
        b.job("cpu", 0, cpu_milli=5),
        b.job("held", 2, 9, state="held"),
        b.job("shared", request=Request(share=Share(gpu_milli=500))),
        horizon_seconds=600,
    )
    assert fragmentation_of(snap) == {
        "n1": 771,
        "n2": 1_028,
        "n3": 1_371,
        "n4": 0,
        "n5": 0,
        "n6": 0,
    }
    assert stage_values(snap)["fragmentation"] == 3_170


def test_fragmentation_by_cpu_links_and_profile() -> None:
    # Profile: 1 GPU (weight 1), linked pairs (weight 2). n1: idle 1 and 3, not linked to each
    # other: 2 · 2 · 300 / 3 = 400. n2: idle 0 and 1, linked: 0. n3 likewise but only counted: 400.
    links = [(0, 1), (2, 3)]
    snap = b.snapshot(
        b.node("n1", 4, links=links),
        b.node("n2", 4, links=links),
        b.node("n3", 4, links=links, precision="node"),
        b.running("r1", b.at("n1", 0, 2)),
        b.running("r2", b.at("n2", 2, 3)),
        b.running("r3", b.somewhere("n3"), gpus=2),
        horizon_seconds=300,
        demand_profile=(b.demand(1), b.demand(2, weight=2, nvlink_required=True)),
    )
    assert fragmentation_of(snap) == {"n1": 400, "n2": 0, "n3": 400}


def test_stages_follow_the_policy() -> None:
    parts = [b.node("n1"), b.job("a")]
    tiers = ["tier:high", "tier:normal", "tier:low"]
    guarantees = ["guarantee", "guarantee_parents"]
    assert list(stage_values(b.snapshot(*parts))) == [*guarantees, *tiers, "fragmentation"]
    off = b.snapshot(*parts, fragmentation="off")
    assert list(stage_values(off)) == [*guarantees, *tiers]
    verdict = verify(off, honest(off, A1))
    assert verdict.legal
    assert list(verdict.stages.items()) == list(stage_values(off, [A1]).items())
    assert verdict.do_nothing == stage_values(off)


# Supply


def idle_of(snap: Snapshot) -> dict[str, dict[str, int]]:
    return {name: dict(state.gpus) for name, state in situate(snap).states.items()}


def test_gpus_of_unknown_index_come_from_the_model_most_idle() -> None:
    snap = b.snapshot(
        b.node("n1", {"A100": 2, "H100": 4}),
        b.running("r", b.somewhere("n1"), gpus=3),
        b.running("s", b.somewhere("n1"), gpus=3, models=["A100"]),
    )
    # r takes three of the four H100; s takes both A100 and lacks one.
    assert idle_of(snap) == {"n1": {"A100": 0, "H100": 1}}
    state = situate(snap).states["n1"]
    assert state.counted


def test_a_task_without_gpus_does_not_make_a_node_counted() -> None:
    snap = b.snapshot(b.node("n1", 2), b.running("r", b.somewhere("n1"), gpus=0))
    situation = situate(snap)
    assert not situation.states["n1"].counted


@pytest.mark.parametrize(
    ("links", "gpus", "size", "sets"),
    [
        ([(i, i + 1) for i in range(7)], range(8), 2, 4),
        ([(i, i + 1) for i in range(7)], range(8), 3, 2),
        # A star has one pair only, whatever its size.
        ([(0, i) for i in range(1, 8)], range(8), 2, 1),
        # A cube: two faces of four; and never three sets of three.
        ([(a, b) for a in range(8) for b in range(a) if (a ^ b).bit_count() == 1], range(8), 4, 2),
        ([(a, b) for a in range(8) for b in range(a) if (a ^ b).bit_count() == 1], range(8), 3, 2),
        # A spider of three legs of two: pairs 3, triples 2 would need the middle twice.
        ([(0, 1), (1, 2), (0, 3), (3, 4), (0, 5), (5, 6)], range(7), 2, 3),
        ([(0, 1), (1, 2), (0, 3), (3, 4), (0, 5), (5, 6)], range(7), 3, 1),
        ([(a, b) for a in range(16) for b in range(a)], range(16), 5, 3),
    ],
)
def test_disjoint_linked_sets(
    links: list[tuple[int, int]], gpus: range, size: int, sets: int
) -> None:
    found = pack(tuple(links), frozenset(gpus), size)
    assert len(found) == sets
    assert all(len(part) == size for part in found)
    assert len(frozenset().union(*found)) == sets * size


def test_topology_of_a_single_task_asks_for_nothing() -> None:
    snap = b.snapshot(
        LEAVES,
        b.job("a", topology=Topology(level="leaf", mode="required")),
        levels=("spine!", "leaf"),
    )
    assert broken(snap, honest(snap, A1)) == []


@pytest.mark.parametrize("seed", range(30))
def test_counting_agrees_with_places_that_are_found(seed: int) -> None:
    """For one job, a place is found exactly where counting says that there is one."""
    rng = random.Random(seed)
    ring = [(i, (i + 1) % 4) for i in range(4)]
    nodes = [
        b.node(
            f"n{i}",
            {"H100": rng.randrange(5), "A100": rng.choice([0, 0, 2])},
            cpu_milli=rng.randrange(9),
            fabric=(f"s{rng.randrange(2)}", f"l{rng.randrange(2)}")[: rng.choice([1, 2, 2, 2])],
            precision=rng.choice(["mig", "mig", "node"]),
            labels={"zone": str(rng.randrange(2))},
            **rng.choice([{"nvswitch": True}, {"links": ring}, {}]),
        )
        for i in range(6)
    ]
    jobs = [
        b.job(
            f"a{i}",
            rng.randrange(4),
            rng.randrange(1, 6),
            cpu_milli=rng.randrange(3),
            models=rng.choice([(), ("H100",), ("A100",)]),
            nvlink_required=rng.random() < 0.4,
            required=rng.choice([None, "leaf", "spine", "node"]),
            segments=rng.choice([None, Segments(tasks=2, level=rng.choice(["leaf", "node"]))]),
            max_tasks_per_node=rng.choice([None, 1, 2]),
            node_selector=rng.choice([{}, {"zone": "1"}]),
            exclusive=rng.random() < 0.2,
            excluded_nodes=rng.choice([(), ("n1", "n2")]),
        )
        for i in range(30)
    ]
    snap = b.snapshot(nodes, jobs, b.running("r", b.somewhere("n3"), gpus=0), levels=LEVELS)
    situation = situate(snap)
    fits, shapes = Fits(situation, situation.states), Shapes(situation)
    search = Search(
        Board(situation, situation.states), situation.levels, situation.knife, budget=10_000
    )
    for job in jobs:
        shape = shapes.of_job(job)
        for model in fits.candidates(shape):
            found = list(search.together([(shape, [model])]))
            assert bool(found) is (model in fits.models(shape)), job
            assert all(len(places[0].tasks) == job.tasks for places in found)
