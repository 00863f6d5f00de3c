"""Why jobs wait in small clusters with a known answer: code, figures, and remedies that work."""

from __future__ import annotations

from collections.abc import Iterable

import build as b
import pytest

from trencadis.models import (
    Job,
    MigGpu,
    MigInstance,
    Plan,
    Request,
    Share,
    Snapshot,
    TaskAllocation,
    apply,
)
from trencadis.models.explanation import Explanation, Reason, Remedy
from trencadis.models.policy import Preemption
from trencadis.solver.explain.alone import only
from trencadis.solver.explain.changes import with_remedy
from trencadis.solver.explain.explain import Explainer
from trencadis.solver.round import Options, solve

OPTIONS = Options(time_limit_s=5.0, gap=0.0, workers=1, deterministic=True)
LOW = {"priority": "low", "ran": 3_600}
HIGH = {"priority": "high", "ran": 4_000}


class Answers:
    """The explanations of a snapshot's waiting jobs; each remedy is carried out and solved.

    Nobody is stopped by the round: whom to stop is for the remedies to say.
    """

    def __init__(self, snap: Snapshot) -> None:
        policy = snap.policy.model_copy(update={"preemption": Preemption(mode="none")})
        snap = snap.model_copy(update={"policy": policy})
        self.snapshot = snap
        self.plan: Plan = solve(snap, OPTIONS)
        self.explainer = Explainer(snap, self.plan)
        self.after = apply(snap, self.plan)
        self.started = {start.job for start in self.plan.starts}

    def __getitem__(self, name: str) -> Explanation:
        answer = self.explainer.job(name)
        for remedy in answer.remedies:
            assert name in self.starts_with(name, remedy), remedy.sentence
        return answer

    def starts_with(self, name: str, remedy: Remedy) -> set[str]:
        changed = with_remedy(self.after, name, remedy)
        group = self.explainer.jobs[name].group
        unit = [
            job.name
            for job in changed.jobs
            if job.name == name or (group and job.group == group and job.state == "pending")
        ]
        return {start.job for start in solve(only(changed, unit), OPTIONS).starts}


def kinds(answer: Explanation) -> set[str]:
    return {remedy.kind for remedy in answer.remedies}


def remedy(answer: Explanation, kind: str) -> Remedy:
    return next(entry for entry in answer.remedies if entry.kind == kind)


def full_of(tasks: Iterable[tuple[str, str, tuple[int, ...]]], **fields: object) -> list[Job]:
    return [b.running(name, b.at(node, *gpus), **fields) for name, node, gpus in tasks]


# Worked cases


def case_1(*pending: Job) -> Snapshot:
    """Four nodes of eight; on each six HIGH jobs of one GPU and two LOW ones."""
    high = [(f"h{n}{k}", f"n{n}", (k,)) for n in range(1, 5) for k in range(6)]
    low = [(f"l{n}{k}", f"n{n}", (6 + k,)) for n in range(1, 5) for k in range(2)]
    return b.snapshot(b.nodes(4, 8), full_of(high, **HIGH), full_of(low, **LOW), pending)


def test_case_1_at_most_two_gpus_can_be_freed_on_one_node() -> None:
    answers = Answers(
        case_1(b.job("P1", 8, priority="high"), b.job("P2", 1, priority="high"))
    )
    big, small = answers["P1"], answers["P2"]
    assert big.code == small.code == Reason.NOT_ENOUGH_FREE
    assert big.evidence["idle_gpus"] == 0
    assert big.evidence["freeable_on_a_node"] == 2
    assert "at most 2 GPUs" in big.sentence
    assert big.proof == "moved"
    assert "freeable_on_a_node" not in small.evidence
    one = remedy(small, "stop")
    assert one.cheapest
    assert len(one.stop) == 1
    assert one.stop[0].startswith("l")
    assert "of lower tiers" in one.sentence
    # No lower tier will do for the big one: eight jobs of one node, six of them HIGH.
    assert len(remedy(big, "stop").stop) == 8
    assert "not of lower tiers" in remedy(big, "stop").sentence


def test_case_2_stopping_keeps_to_one_leaf() -> None:
    """LOW has tasks on n1 and n2; HIGH needs two whole nodes of one leaf."""
    nodes = [b.node(f"n{i}", 8, fabric=("A" if i < 2 else "B",)) for i in range(4)]
    low = b.running("LOW", b.at("n1", *range(8)), b.at("n2", *range(8)), **LOW)
    answers = Answers(
        b.snapshot(
            nodes, low, b.job("HIGH", 8, 2, priority="high", required="leaf"), levels=("leaf",)
        )
    )
    answer = answers["HIGH"]
    assert answer.code == Reason.TOPOLOGY
    assert answer.evidence["idle_gpus"] == 16
    assert answer.evidence["largest_leaf"] == 8
    assert remedy(answer, "stop").stop == ("LOW",)
    shape = remedy(answer, "shape")
    assert shape.ask is not None
    assert shape.ask.topology is None
    assert remedy(answer, "nodes").cost == {"nodes": 1, "gpus": 8}


def test_case_3_a_queue_below_its_guarantee_waits_for_room() -> None:
    answers = Answers(
        b.snapshot(
            b.node("n", 8),
            b.queue("Q1", guarantee=3),
            b.queue("Q2", guarantee=5),
            b.running("p1", b.at("n", 0, 1, 2, 3), queue="Q1", ran=3_600),
            b.running("p2", b.at("n", 4), queue="Q2", ran=3_600),
            b.job("p3", 4, queue="Q2"),
        )
    )
    answer = answers["p3"]
    assert answer.code == Reason.NOT_ENOUGH_FREE
    assert answer.evidence["idle_gpus"] == 3
    # Stopping p2, one GPU, is cheaper than p1, four.
    assert remedy(answer, "stop").stop == ("p2",)


def test_case_4_victims_are_planned_together() -> None:
    low = full_of([("x", "n1", (0, 1, 2, 3)), ("y", "n2", (0, 1, 2, 3)), ("z", "n3", (0, 1, 2, 3))],
                  **LOW)
    waits = b.jobs(2, "a", 4, 2, priority="high")
    answers = Answers(b.snapshot(b.nodes(3, 4), low, waits))
    for name in ("a1", "a2"):
        answer = answers[name]
        assert answer.code == Reason.NOT_ENOUGH_FREE
        assert len(remedy(answer, "stop").stop) == 2
        assert remedy(answer, "stop").cheapest


def test_case_7_linked_gpus() -> None:
    """Pairs (0,2) (1,3) (4,5) (6,7); a whole pair is gone from each of the first two."""
    links = ((0, 2), (1, 3), (4, 5), (6, 7))
    busy = [b.running(f"r{i}", b.at("n", i), ran=60) for i in (0, 1, 4, 6)]
    answers = Answers(
        b.snapshot(b.node("n", 8, links=links), busy, b.job("J1", 2, nvlink_required=True))
    )
    answer = answers["J1"]
    assert answer.code == Reason.CPU_MEMORY
    assert answer.evidence["idle_gpus"] == 4
    assert answer.evidence["slots_with_cpu_memory"] == 0
    assert len(remedy(answer, "stop").stop) == 1
    assert any(entry.ask and not entry.ask.nvlink_required for entry in answer.remedies)


def case_8(*pending: Job) -> Snapshot:
    """Three nodes of eight with 4+2+1, 4+2, 4+2+1 in use."""
    tasks = [
        ("a4", "n1", (0, 1, 2, 3)), ("a2", "n1", (4, 5)), ("a1", "n1", (6,)),
        ("b4", "n2", (0, 1, 2, 3)), ("b2", "n2", (4, 5)),
        ("c4", "n3", (0, 1, 2, 3)), ("c2", "n3", (4, 5)), ("c1", "n3", (6,)),
    ]
    return b.snapshot(b.nodes(3, 8), full_of(tasks, ran=3_600), pending)


def test_case_8_fewest_moves() -> None:
    answers = Answers(case_8(b.job("four", 4), b.job("five", 5)))
    four, five = answers["four"], answers["five"]
    assert four.code == Reason.FRAGMENTED
    assert four.evidence["idle_gpus"] == 4
    assert four.evidence["largest_node"] == 2
    assert four.evidence["slots"] == 0
    moves = remedy(four, "move")
    assert moves.cheapest
    assert moves.cost == {"jobs": 2, "gpus": 3}
    # Five: only four are free in all, whatever moves.
    assert five.code == Reason.NOT_ENOUGH_FREE
    assert five.proof == "moved"
    assert "move" not in kinds(five)
    assert five.no_remedy["move"] == "wherever the running jobs moved, it would not fit"


def test_case_9_a_group_starts_as_a_whole() -> None:
    waits = [
        b.job(name, 8, 2, group="AB" if name in "AB" else "CD", runtime_seconds=3_600)
        for name in "ABCD"
    ]
    answers = Answers(b.snapshot(b.nodes(4, 8), waits))
    assert answers.started in ({"A", "B"}, {"C", "D"})
    for name in set("ABCD") - answers.started:
        answer = answers[name]
        assert answer.code == Reason.OUTRANKED
        assert remedy(answer, "nodes").cost == {"nodes": 4, "gpus": 32}
        assert set(remedy(answer, "stop").stop) == answers.started
        assert remedy(answer, "wait").at == b.ago(-3_600)
        assert "several jobs at once" in answer.no_remedy["shape"]


def test_a_group_is_told_the_one_job_in_its_way() -> None:
    busy = [
        b.running("r", b.at("n1", *range(8)), **LOW),
        b.running("s", b.at("n2", 0), ran=36_000),
    ]
    waits = [b.job(name, 8, group="G") for name in "AB"]
    answer = Answers(b.snapshot(b.nodes(3, 8), busy, waits))["A"]
    assert answer.code == Reason.GROUP
    assert remedy(answer, "stop").stop == ("r",)
    assert remedy(answer, "stop").cheapest
    assert remedy(answer, "nodes").add == 1


def test_case_10_a_hold_keeps_others_away_and_passes() -> None:
    """BIG has both nodes reserved at t + 60 min; S2 would run into that."""
    hour = 3_600
    answers = Answers(
        b.snapshot(
            b.nodes(2, 8),
            b.running("A", b.at("n1", *range(8)), runtime_seconds=hour),
            b.running("B", b.at("n2", 0, 1, 2, 3), runtime_seconds=hour),
            b.job("BIG", 8, 2, waited=30, runtime_seconds=hour),
            b.job("S2", 4, waited=10, runtime_seconds=2 * hour),
            b.hold(
                "BIG", b.at("n1", *range(8)), b.at("n2", *range(8)), kind="reservation",
                at=b.ago(-hour),
            ),
            reservations=1,
        )
    )
    small, big = answers["S2"], answers["BIG"]
    assert small.code == Reason.RESERVATION
    assert small.evidence["holders"] == "BIG"
    assert small.evidence["at"] == b.ago(-hour).isoformat()
    assert small.evidence["until"] == b.ago(-2 * hour).isoformat()
    assert "until 2026-01-05 14:00 UTC" in small.sentence
    assert small.evidence["runtime_seconds"] == 2 * hour
    # BIG runs for an hour on both nodes; or S2 is gone before BIG comes.
    assert remedy(small, "wait").at == b.ago(-2 * hour)
    shape = remedy(small, "shape")
    assert shape.ask is not None
    assert shape.ask.runtime_seconds == hour
    assert shape.in_round
    assert small.when is not None
    assert small.when.best == small.when.likely == b.ago(-2 * hour)
    assert big.when is not None
    assert big.when.best == big.when.worst == b.ago(-hour)
    assert big.code == Reason.NOT_ENOUGH_FREE, big.code


def test_case_11_limits_are_exact() -> None:
    """A tenth of a GPU below the limit of what it would take."""
    limit = b.quota(None).model_copy(update={"gpu_milli": 1_900})
    answers = Answers(
        b.snapshot(
            b.node("n", 8),
            b.queue("red", limit=limit),
            b.running("r", b.at("n", 0), queue="red"),
            b.job("j", 1, queue="red"),
        )
    )
    answer = answers["j"]
    assert answer.code == Reason.LIMIT
    assert (answer.evidence["limit"], answer.evidence["used"], answer.evidence["asks"]) == (
        1_900, 1_000, 1_000,
    )
    (larger,) = remedy(answer, "limit").raises
    assert (larger.owner, larger.name, larger.what) == ("queue", "red", "gpu_milli")
    assert (larger.current, larger.needed) == (1_900, 2_000)


HALF = Request(share=Share(gpu_milli=500))


def test_case_11_a_seventeenth_half_finds_eight_gpus_taken() -> None:
    machine = b.node("n1", 8, shareable=True, max_jobs_per_gpu=4)
    waits = b.jobs(17, "s", request=HALF, runtime_seconds=3_600)
    answers = Answers(b.snapshot(machine, waits))
    assert len(answers.started) == 16
    (last,) = (entry.job for entry in answers.plan.pending)
    answer = answers[last]
    assert answer.code == Reason.OUTRANKED
    assert answer.evidence["idle_milli_gpu"] == 8_000
    assert answer.evidence["idle_milli_gpu_after"] == 0
    assert answer.evidence["in_its_place"] in answers.started
    assert len(remedy(answer, "stop").stop) == 1
    assert remedy(answer, "wait").at == b.ago(-3_600)


def test_case_11_a_half_beside_sixteen_that_run() -> None:
    machine = b.node("n1", 8, shareable=True, max_jobs_per_gpu=4)
    busy = [
        b.running(f"r{i:02}", b.at("n1", i // 2), request=HALF, ran=60 * (i + 1)) for i in range(16)
    ]
    answer = Answers(b.snapshot(machine, busy, b.job("x", request=HALF)))["x"]
    assert answer.code == Reason.NOT_ENOUGH_FREE
    assert answer.evidence["idle_milli_gpu"] == 0
    stop = remedy(answer, "stop")
    assert stop.stop == ("r00",)
    assert stop.cheapest
    assert stop.cost == {"jobs": 1, "gpus": 0, "gpu_milli": 500, "lost_gpu_seconds": 30}


def test_case_12_the_victim_is_the_one_that_loses_least() -> None:
    nodes = [f"n{i}" for i in (1, 2, 3)]
    eight = tuple(range(8))
    victims = [
        b.running("V1", b.at(nodes[0], *eight), ran=7_200, checkpoint={"last": b.ago(55 * 60)}),
        b.running("V2", b.at(nodes[1], *eight), ran=7_200, checkpoint={"last": b.ago(2 * 60)}),
        b.running("V3", b.at(nodes[2], *eight), ran=600),
    ]
    answer = Answers(b.snapshot(b.nodes(3, 8), victims, b.job("J", 8)))["J"]
    stop = remedy(answer, "stop")
    assert stop.stop == ("V2",)
    assert stop.cost["lost_gpu_seconds"] == 16 * 60
    assert stop.cheapest


# Other reasons


def test_larger_than_any_node() -> None:
    answer = Answers(b.snapshot(b.nodes(2, 8), b.job("j", 16)))["j"]
    assert answer.code == Reason.NEVER_FITS
    assert answer.sentence == "asks for 16 GPUs on one node; the largest has 8"
    assert answer.evidence["largest_node_gpus"] == 8
    assert answer.proof == "alone-empty"
    shape = remedy(answer, "shape")
    assert shape.ask is not None
    assert (shape.ask.tasks, shape.ask.request.gpus) == (2, 8)


def test_more_tasks_than_the_cluster_holds() -> None:
    answer = Answers(b.snapshot(b.nodes(3, 8), b.job("j", 8, 5)))["j"]
    assert answer.code == Reason.NEVER_FITS
    assert answer.evidence["slots_empty"] == 3
    assert remedy(answer, "nodes").add == 2


def test_a_smallest_conflict_is_named_and_nothing_else() -> None:
    snap = b.snapshot(
        b.node("n1", 8, "A100", labels={"zone": "west"}, cpu_milli=64_000),
        b.node("n2", 8, "H100", labels={"zone": "east"}, cpu_milli=64_000),
        b.job("j", 2, models=["A100"], node_selector={"zone": "east"}, cpu_milli=1_000),
    )
    answer = Answers(snap)["j"]
    assert answer.code == Reason.CONSTRAINTS
    assert answer.conflicts == ("2 GPUs on one node", "GPU model A100", "node label zone=east")
    assert {entry.sentence for entry in answer.remedies if entry.kind == "shape"} >= {
        "ask for H100 instead of A100", "give up: node label zone=east",
    }


@pytest.mark.parametrize(
    ("fields", "code", "needed"),
    [
        ({"cordoned": True}, Reason.OUTAGE, "up and not cordoned"),
        ({"unhealthy": (0,)}, Reason.OUTAGE, "healthy GPUs"),
        ({"free_for": 600}, Reason.WINDOW, "runtime"),
        ({"taints": ("team=x",)}, Reason.CONSTRAINTS, "taint team=x"),
    ],
)
def test_what_is_up_with_the_nodes(
    fields: dict[str, object], code: Reason, needed: str
) -> None:
    snap = b.snapshot(
        b.node("n1", 4), b.node("n2", 8, **fields), b.job("j", 8, runtime_seconds=3_600)
    )
    answer = Answers(snap)["j"]
    assert answer.code == code
    assert any(needed in text for text in answer.conflicts)


def test_never_under_the_limit_of_its_queue() -> None:
    snap = b.snapshot(b.nodes(2, 8), b.queue("red", limit=4), b.job("j", 8, queue="red"))
    answer = Answers(snap)["j"]
    assert answer.code == Reason.NEVER_UNDER_LIMIT
    assert remedy(answer, "limit").raises[0].needed == 8_000
    # Nothing else forbids it: half of it would start as things are.
    assert remedy(answer, "shape").ask.request.gpus == 4  # type: ignore[union-attr]


def test_licences_and_throttles() -> None:
    array = {"name": "sweep", "throttle": 1}
    snap = b.snapshot(
        b.node("n", 8),
        b.Licence(name="lic", total=3, used_elsewhere=2),
        b.running("r", b.at("n", 0), array=array, licences={"lic": 1}),
        b.job("s", array=array),
        b.job("l", licences={"lic": 1}),
    )
    answers = Answers(snap)
    throttled, unlicensed = answers["s"], answers["l"]
    assert throttled.code == Reason.THROTTLE
    assert remedy(throttled, "limit").raises[0].needed == 2
    assert unlicensed.code == Reason.LICENCE
    assert remedy(unlicensed, "limit").raises[0].needed == 4


def test_draining_jobs_and_how_long_at_most() -> None:
    snap = b.snapshot(
        b.node("n", 4),
        b.running("d1", b.at("n", 0, 1), state="draining", drain_ends=b.ago(-100)),
        b.running("d2", b.at("n", 2), state="draining", drain_ends=b.ago(-900)),
        b.running("r", b.at("n", 3)),
        b.job("j", 2),
    )
    answer = Answers(snap)["j"]
    assert answer.code == Reason.DRAINING
    assert answer.evidence["jobs"] == "d1"
    assert answer.evidence["seconds_at_most"] == 100
    assert remedy(answer, "wait").at == b.ago(-100)


def test_guarantees_that_are_not_lent() -> None:
    snap = b.snapshot(
        b.node("n", 8),
        b.queue("red", guarantee=6, lending=0),
        b.queue("blue"),
        b.job("j", 4, queue="blue"),
    )
    answer = Answers(snap)["j"]
    assert answer.code == Reason.LENDING
    assert answer.evidence == {"queues": "red", "kept_milli": 6_000}


def test_strict_order_points_to_the_head() -> None:
    snap = b.snapshot(
        b.node("n", 8),
        b.queue("fifo", order="strict_fifo"),
        b.running("r", b.at("n", 0, 1), queue="other"),
        b.job("head", 8, queue="fifo", waited=100),
        b.job("next", 1, queue="fifo", waited=50),
    )
    answer = Answers(snap)["next"]
    assert answer.code == Reason.STRICT_ORDER
    assert answer.evidence["head"] == "head"
    assert not answer.remedies
    assert "head goes first" in answer.no_remedy["wait"]


def test_cpu_strands_gpus() -> None:
    snap = b.snapshot(
        b.node("n", 8, cpu_milli=16_000),
        b.running("r", b.at("n", 0), cpu_milli=12_000),
        b.job("j", 2, cpu_milli=8_000),
    )
    answer = Answers(snap)["j"]
    assert answer.code == Reason.CPU_MEMORY
    assert (answer.evidence["slots"], answer.evidence["slots_with_cpu_memory"]) == (3, 0)
    ask = remedy(answer, "shape").ask
    assert ask is not None
    assert ask.request.cpu_milli <= 4_000
    assert remedy(answer, "stop").stop == ("r",)


def test_weaker_than_those_that_start_and_by_how_much() -> None:
    snap = b.snapshot(
        b.node("n", 8),
        b.job("old", 8, waited=14_400),
        b.job("young", 8),
        b.job("humble", 1, priority="low"),
    )
    answers = Answers(snap)
    young, humble = answers["young"], answers["humble"]
    assert young.code == humble.code == Reason.OUTRANKED
    assert young.evidence["in_its_place"] == "old"
    worth = answers.explainer.scene.facts.values.worth
    assert young.evidence["they_save"] == worth["old"].wait
    assert young.evidence["saves"] == worth["young"].wait
    assert f"{worth['old'].wait:,}" in young.sentence
    assert "tier normal" in humble.sentence


def test_weighed_fragmentation_may_keep_a_job_out() -> None:
    """The reason of a job that fits but is not worth its fragmentation says just that."""
    snap = b.snapshot(
        b.node("n", 8),
        b.job("j", 1, priority="low"),
        fragmentation="weighted",
        fragmentation_weight_milli=1_000_000,
        demand_profile=(b.demand(8),),
    )
    answers = Answers(snap)
    assert not answers.started
    assert answers["j"].code == Reason.NOT_WORTH_IT


# When, and why there


def test_start_ranges_are_in_order_and_say_what_they_suppose() -> None:
    hour = 3_600
    snap = b.snapshot(
        b.node("n", 8),
        b.running("r", b.at("n", *range(8)), runtime_seconds=hour),
        b.job("first", 8, waited=7_200, runtime_seconds=hour),
        b.job("second", 8, waited=60, runtime_seconds=hour),
    )
    answers = Answers(snap)
    first, second = answers["first"].when, answers["second"].when
    assert first is not None
    assert second is not None
    assert first.best == first.likely == b.ago(-hour)
    assert second.best == b.ago(-hour)
    assert second.likely == b.ago(-2 * hour)
    assert second.worst == b.ago(-2 * hour)
    assert second.assumptions


def test_unknown_runtimes_leave_the_range_open() -> None:
    snap = b.snapshot(b.node("n", 8), b.running("r", b.at("n", *range(8))), b.job("j", 8))
    answer = Answers(snap)["j"]
    assert answer.when is not None
    assert answer.when.best is None
    assert any("without an estimate" in text for text in answer.when.assumptions)


def test_why_a_start_is_there_and_whom_it_displaced() -> None:
    nodes = [b.node(f"n{i}", 8, fabric=(f"leaf{i // 2}",)) for i in range(4)]
    snap = b.snapshot(
        nodes,
        b.running("r", b.at("n0", 0)),
        b.job("gang", 8, 2, waited=14_400),
        b.job("other", 8, 3),
        levels=("leaf",),
    )
    answers = Answers(snap)
    assert answers.started == {"gang"}
    answer = answers.explainer.job("gang")
    assert answer.state == "started"
    assert answer.evidence["level"] == answer.evidence["nearest_level"] == "leaf"
    assert answer.evidence["domain"] == "leaf1"
    assert answer.evidence["displaced_jobs"] == "other"
    assert answers.explainer.job("r").state == "running"


# slices and shares

A100 = "A100-SXM4-40GB"


def on_slice(name: str, profile: str, start: int) -> Job:
    instance = MigInstance(profile=profile, start=start)
    where = TaskAllocation(node="n1", gpus=(0,), mig=(instance,))
    return b.running(name, where, request=Request(mig=(profile,)))


def test_a_smaller_profile_is_offered_where_one_fits() -> None:
    """Beside 2g@0 and 1g@5 no 3g starts; a 2g does, at slice 2."""
    machine = b.node("n1", 1, A100, mig=(0,))
    wants = b.job("a", request=Request(mig=("3g.20gb",)))
    found = Answers(
        b.snapshot(machine, on_slice("r", "2g.10gb", 0), on_slice("s", "1g.5gb", 5), wants)
    )["a"]
    assert found.code == Reason.MIG_LAYOUT
    shape = remedy(found, "shape")
    assert shape.sentence == "ask for 2g.10gb instead of 3g.20gb"
    assert shape.ask is not None
    assert shape.ask.request.mig == ("2g.10gb",)


def test_no_profile_is_offered_where_none_fits() -> None:
    machine = b.node("n1", 1, A100, mig=(0,))
    wants = b.job("a", request=Request(mig=("3g.20gb",)))
    found = Answers(b.snapshot(machine, on_slice("r", "7g.40gb", 0), wants))["a"]
    assert "shape" not in kinds(found)


def test_a_smaller_share_is_offered_where_one_fits() -> None:
    machine = b.node("n1", 1, shareable=True, max_jobs_per_gpu=2)
    taken = b.running("r", b.at("n1", 0), request=Request(share=Share(gpu_milli=650)))
    wants = b.job("a", request=Request(share=Share(gpu_milli=500)))
    found = Answers(b.snapshot(machine, taken, wants))["a"]
    shape = remedy(found, "shape")
    assert shape.sentence == "ask for a share of 350 milli-GPU instead of 500"


def on_slices(*instances: tuple[str, str, int], wants: str) -> Snapshot:
    """One A100 in MIG mode with a job per instance, of which the i-th ends in i + 1 hours."""
    machine = b.node("n1", 1, A100, mig=(0,))
    busy = [
        on_slice(*instance).model_copy(update={"start": b.NOW, "runtime_seconds": 3_600 * (i + 1)})
        for i, instance in enumerate(instances)
    ]
    return b.snapshot(machine, busy, b.job("a", request=Request(mig=(wants,))))


HOLES = (("r", "1g.5gb", 0), ("s", "1g.5gb", 1), ("t", "1g.5gb", 5))


def test_case_5_which_job_to_stop_for_a_slice_and_when_one_ends() -> None:
    """1g at 0, 1, 5: a 3g at 4 once the last is gone, a 3g at 0 only once the first two are."""
    found = Answers(on_slices(*HOLES, wants="3g.20gb"))["a"]
    assert found.code == Reason.MIG_LAYOUT
    assert found.evidence["restarts"] == 1
    assert found.evidence["gpu"] == "n1/0"
    assert found.evidence["legal_starts"] == "3g.20gb: 0, 4"
    stop = remedy(found, "stop")
    assert stop.stop == ("t",)
    assert stop.cheapest
    # t restarts at 2 or 3, and 4 to 7 are free.
    move = remedy(found, "move")
    assert move.cheapest
    (relocation,) = move.move
    assert relocation.job == "t"
    assert relocation.to[0].mig[0].start in (2, 3)
    # r and s are gone after two hours, which opens start 0; t goes after three.
    assert remedy(found, "wait").at == b.ago(-2 * 3_600)
    assert remedy(found, "shape").sentence == "ask for 2g.10gb instead of 3g.20gb"
    assert found.when is not None
    assert found.when.best == b.ago(-2 * 3_600)


def test_case_5_a_whole_layout_takes_all_to_stop() -> None:
    found = Answers(on_slices(*HOLES, wants="7g.40gb"))["a"]
    assert remedy(found, "stop").stop == ("r", "s", "t")
    assert remedy(found, "wait").at == b.ago(-3 * 3_600)


def test_case_6_a_lone_4g_has_one_start() -> None:
    """Beside 3g at 0 no 4g starts, though four compute slices are free: it stops for it."""
    found = Answers(on_slices(("r", "3g.20gb", 0), wants="4g.20gb"))["a"]
    assert found.code == Reason.MIG_LAYOUT
    assert remedy(found, "stop").stop == ("r",)
    assert remedy(found, "wait").at == b.ago(-3_600)


def test_a_share_waits_for_one_of_those_that_share() -> None:
    machine = b.node("n1", 1, shareable=True, max_jobs_per_gpu=2)
    half = Request(share=Share(gpu_milli=500))
    busy = [
        b.running(name, b.at("n1", 0), request=half, start=b.NOW, runtime_seconds=hours * 3_600)
        for name, hours in (("r", 2), ("s", 1))
    ]
    found = Answers(b.snapshot(machine, busy, b.job("a", request=half)))["a"]
    assert len(remedy(found, "stop").stop) == 1
    assert remedy(found, "wait").at == b.ago(-3_600)


def test_case_5_one_4g_takes_two_restarts() -> None:
    found = Answers(on_slices(*HOLES, wants="4g.20gb"))["a"]
    assert found.code == Reason.MIG_LAYOUT
    assert found.evidence["restarts"] == 2
    move = remedy(found, "move")
    assert sorted(entry.job for entry in move.move) == ["r", "s"]
    assert not move.cheapest


def test_case_6_what_geometry_forbids_goes_to_another_gpu() -> None:
    """{3g,3g,1g} needs two GPUs: for a second 3g the 1g leaves the first one."""
    machine = b.node("n1", 2, A100, mig=(0, 1))
    busy = [on_slice("x", "3g.20gb", 0), on_slice("y", "1g.5gb", 4)]
    other = TaskAllocation(node="n1", gpus=(1,), mig=(MigInstance(profile="4g.20gb", start=0),))
    busy.append(b.running("z", other, request=Request(mig=("4g.20gb",))))
    third = TaskAllocation(node="n1", gpus=(1,), mig=(MigInstance(profile="2g.10gb", start=4),))
    busy.append(b.running("w", third, request=Request(mig=("2g.10gb",))))
    found = Answers(b.snapshot(machine, busy, b.job("a", request=Request(mig=("3g.20gb",)))))["a"]
    assert found.code == Reason.MIG_LAYOUT
    (relocation,) = remedy(found, "move").move
    assert relocation.job == "y"
    assert relocation.to[0].gpus == (1,)
    assert relocation.to[0].mig[0].start == 6


def test_slices_do_not_move_where_layouts_are_fixed() -> None:
    layout = (("1g.5gb", 0), ("1g.5gb", 1), ("3g.20gb", 4))
    instances = tuple(MigInstance(profile=name, start=start) for name, start in layout)
    machine = b.node("n1", 1, A100, mig=(0,), mig_reconfigure="forbid")
    machine = machine.model_copy(update={"mig": (MigGpu(gpu=0, instances=instances),)})
    wants = b.job("a", request=Request(mig=("3g.20gb",)))
    found = Answers(b.snapshot(machine, on_slice("r", "3g.20gb", 4), wants))["a"]
    assert remedy(found, "stop").stop == ("r",)
    assert "no restarts" in found.no_remedy["move"]
