"""The example snapshots: each loads cleanly, solves to proven optimality and shows its point."""

from __future__ import annotations

import subprocess
import sys
from functools import cache

import pytest

from trencadis.instances import catalog
from trencadis.models import Plan, Status, load_snapshot
from trencadis.solver.round import Options, solve
from trencadis.solver.verify import verify

EXPECTED = {
    "empty",
    "fabric3",
    "four_h100",
    "groups",
    "inference_training",
    "mig_1g",
    "nvl72",
    "nvlink_pairs",
    "team_node",
}


@cache
def plan_for(name: str) -> Plan:
    """A verified plan for the example."""
    snapshot = catalog.load(name)
    plan = solve(
        snapshot, Options(time_limit_s=20.0, gap=0.0, workers=1, deterministic=True, seed=0)
    )
    assert verify(snapshot, plan).violations == ()
    return plan


def started(name: str) -> dict[str, list[tuple[str, tuple[int, ...]]]]:
    """Node and GPU indices of each task, by job."""
    return {
        start.job: [(task.node, task.gpus or ()) for task in start.allocation]
        for start in plan_for(name).starts
    }


def nodes_of(name: str, job: str) -> set[str]:
    return {node for node, _ in started(name)[job]}


def paths_of(name: str, job: str, depth: int) -> set[tuple[str, ...]]:
    """The domains of a depth that the job touches."""
    nodes = {node.name: node for node in catalog.load(name).nodes}
    return {nodes[node].fabric[:depth] for node in nodes_of(name, job)}


def test_the_catalog_lists_every_example() -> None:
    assert set(catalog.names()) == EXPECTED
    assert list(catalog.names()) == sorted(catalog.names())


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_examples_load_without_warnings(name: str) -> None:
    snapshot, warnings = load_snapshot(catalog.text(name))
    assert warnings == []
    assert snapshot == catalog.load(name)
    again, _ = load_snapshot(snapshot.model_dump_json(exclude_defaults=True))
    assert again == snapshot


def test_an_unknown_example_is_named_with_the_known_ones() -> None:
    with pytest.raises(LookupError, match=r"no example named 'team'.*team_node"):
        catalog.load("team")


def test_the_catalog_needs_no_solver() -> None:
    program = (
        "import sys; from trencadis.instances import catalog; catalog.load('team_node');"
        "sys.exit('ortools' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_examples_are_solved_to_optimality(name: str) -> None:
    proof = plan_for(name).proof
    assert proof.status is Status.OPTIMAL
    assert proof.bound_scope == "full"
    assert all(stage.objective == stage.bound for stage in proof.stages)


def test_nothing_starts_on_an_empty_cluster() -> None:
    assert plan_for("empty").starts == ()


def test_idle_gpus_go_to_teams_below_their_guarantee() -> None:
    starts = started("team_node")
    queue_of = {job.name: job.queue for job in catalog.load("team_node").jobs}
    assert {"genomics", "language", "weather"} <= {queue_of[job] for job in starts}
    assert "speech-notebook" in starts
    assert sum(len(gpus) for tasks in starts.values() for _, gpus in tasks) == 4
    assert not {"robotics-policy", "genomics-report"} & set(starts)


def test_production_outranks_research_that_waited_longer() -> None:
    starts = started("four_h100")
    assert {"align", "chat-b", "distill"} <= set(starts)
    assert "pretrain" not in starts
    assert len(paths_of("four_h100", "align", 1)) == 1


def test_levels_segments_and_sites_are_kept() -> None:
    starts = started("fabric3")
    assert set(starts) == {"pretrain", "experts", "finetune", "reward", "sweep"}
    assert len(paths_of("fabric3", "pretrain", 2)) == 1
    assert len(paths_of("fabric3", "experts", 3)) == 2
    for job in starts:
        assert len(paths_of("fabric3", job, 1)) == 1, f"{job} crosses a site"


def test_one_rack_for_the_gang_that_requires_it() -> None:
    starts = started("nvl72")
    assert paths_of("nvl72", "foundation-long-context", 1) == {("rack-b",)}
    assert paths_of("nvl72", "applied-finetune", 1) == {("rack-a",)}
    assert len(nodes_of("nvl72", "applied-evaluate")) == 1
    assert "foundation-pretrain" not in starts


def test_single_gpus_go_where_the_partner_is_busy() -> None:
    """GPUs are paired (0,2) (1,3) (4,5) (6,7); 0 and 5 are busy."""
    starts = started("nvlink_pairs")
    single = {gpu for job in ("j2", "j3") for _, gpus in starts[job] for gpu in gpus}
    assert single == {2, 4}
    assert starts["j1"][0][1] in {(1, 3), (6, 7)}


def test_one_whole_group_starts() -> None:
    assert set(started("groups")) in ({"a", "b"}, {"c", "d"})
    assert (
        len(nodes_of("groups", "a") if "a" in started("groups") else nodes_of("groups", "c")) == 2
    )


def test_224_slices_are_cut_where_224_are_asked_for() -> None:
    plan = plan_for("mig_1g")
    slices = [
        (task.node, gpu, instance.start)
        for start in plan.starts
        for task in start.allocation
        for gpu, instance in zip(task.gpus or (), task.mig, strict=True)
    ]
    assert len(slices) == len(set(slices)) == 4 * 8 * 7
    assert {start.job for start in plan.starts}.isdisjoint({"evening-class", "capstone"})
    # The node that is cut into seven already stays as it is.
    assert {change.node for change in plan.reconfigures} == {"h100-2", "h100-3", "h100-4"}
    assert len(plan.reconfigures) == 24


def test_inference_and_training_share_nodes_in_three_ways() -> None:
    plan = plan_for("inference_training")
    where = {start.job: start.allocation for start in plan.starts}
    assert where.keys() == {
        "caption", "embed", "finetune", "ide-ana", "ide-lee", "moderate", "translate"
    }
    (caption,), (translate,) = where["caption"], where["translate"]
    assert translate.mig[0].start == 0
    assert caption.mig[0].start == 4
    (moderate,) = where["moderate"]
    assert moderate.mig[0].profile == "1g.20gb", "18 GiB fit no 10 GiB"
    assert {pending.job for pending in plan.pending} == {"ablation", "sharded"}
