"""What a change of the snapshot may do to its optimum, whatever the optimum is.

Without guarantees and fragmentation, and with weights that do not depend on what the cluster has:
then more room is never worse. Stages are compared lexicographically.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import strategies
from exact import EXACT, bounds, objectives
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from trencadis.models import (
    FabricLevel,
    Limits,
    Plan,
    Quota,
    Snapshot,
    Status,
    Toleration,
)
from trencadis.solver.round import solve
from trencadis.solver.verify import stage_values
from trencadis.solver.verify.growing import without_further

SETTINGS = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
# Not `cpu` and `resources`: sizes count CPU and memory against the cluster's. Not `fifo`: who may
# pass whom depends on who could run at all.
FEATURES = sorted(strategies.ALL - {"cpu", "fifo", "lending", "usage", "profile"})


def unguaranteed(snapshot: Snapshot) -> Snapshot:
    """The snapshot without guarantees and fragmentation; sizes are GPUs, and shares are all 1."""
    policy = snapshot.policy.model_copy(update={"fragmentation": "off", "share_floor_milli": 1_000})
    queues = tuple(
        queue.model_copy(update={"guarantee": Quota(), "lending_limit": None})
        for queue in snapshot.queues
    )
    return snapshot.model_copy(update={"policy": policy, "queues": queues})


SNAPSHOTS = strategies.snapshots(FEATURES).map(unguaranteed)


def solved(snapshot: Snapshot) -> Plan:
    """A plan that is proven best."""
    plan = solve(snapshot, EXACT)
    assert plan.proof.status is Status.OPTIMAL
    return plan


def optimum(snapshot: Snapshot) -> list[int]:
    """The stages' values of a best plan, in order: they compare lexicographically."""
    return list(objectives(solved(snapshot)).values())


# more nodes


@SETTINGS
@given(SNAPSHOTS, st.data())
def test_an_added_idle_node_never_costs_anything(snapshot: Snapshot, data: st.DataObject) -> None:
    # Speeds are relative to the models on nodes that are up: a like node adds none.
    like = [node for node in snapshot.nodes if not node.down and not node.mig]
    assume(like)
    added = data.draw(st.sampled_from(like)).model_copy(update={"name": "added"})
    more = snapshot.model_copy(update={"nodes": (*snapshot.nodes, added)})
    assert optimum(more) <= optimum(snapshot)


# looser constraints

FREE: dict[str, Any] = {
    "node_selector": {},
    "excluded_nodes": (),
    "required_nodes": (),
    "max_tasks_per_node": None,
    "exclusive": False,
    "nvlink_required": False,
    "topology": None,
    "segments": None,
    "tolerations": (Toleration(),),
}
"""Fields of a job at their loosest."""

OPEN: dict[str, Any] = {
    "taints": (),
    "cordoned": False,
    "free_until": None,
    "maintenance": (),
    "health_score_milli": 1_000,
}
"""Fields of a node at their loosest."""


def loosened(snapshot: Snapshot) -> Iterator[tuple[str, Snapshot]]:
    """All ways to loosen one constraint, with a name."""

    def swap(field: str, name: str, old: Any, change: dict[str, Any]) -> tuple[str, Snapshot]:
        new = old.model_copy(update=change)
        parts = tuple(new if part is old else part for part in getattr(snapshot, field))
        return name, snapshot.model_copy(update={field: parts})

    for job in snapshot.jobs:
        if job.state == "pending":
            for key, value in FREE.items():
                if getattr(job, key) != value:
                    yield swap("jobs", f"{key} of {job.name}", job, {key: value})
    for node in snapshot.nodes:
        for key, value in OPEN.items():
            if getattr(node, key) != value:
                yield swap("nodes", f"{key} of {node.name}", node, {key: value})
    for queue in snapshot.queues:
        if queue.limit != Limits():
            yield swap("queues", f"limit of {queue.name}", queue, {"limit": Limits()})
    for qos in snapshot.qos:
        yield swap("qos", f"limit of {qos.name}", qos, {"limit": Limits()})
    for licence in snapshot.licences:
        more = {"total": licence.total + 3}
        yield swap("licences", f"total of {licence.name}", licence, more)
    yield from _of_the_whole(snapshot)


def _of_the_whole(snapshot: Snapshot) -> Iterator[tuple[str, Snapshot]]:
    levels = snapshot.fabric.levels
    if any(level.boundary for level in levels):
        free = tuple(_without_boundary(level) for level in levels)
        fabric = snapshot.fabric.model_copy(update={"levels": free})
        yield "boundaries", snapshot.model_copy(update={"fabric": fabric})
    if any(job.array is not None for job in snapshot.jobs):
        jobs = tuple(job.model_copy(update={"array": None}) for job in snapshot.jobs)
        yield "throttles", snapshot.model_copy(update={"jobs": jobs})


def _without_boundary(level: FabricLevel) -> FabricLevel:
    return level.model_copy(update={"boundary": False})


@SETTINGS
@given(SNAPSHOTS, st.data())
def test_a_loosened_constraint_never_costs_anything(
    snapshot: Snapshot, data: st.DataObject
) -> None:
    ways = dict(loosened(snapshot))
    assume(ways)
    name = data.draw(st.sampled_from(sorted(ways)))
    assert optimum(ways[name]) <= optimum(snapshot)


# heavier jobs


@SETTINGS
@given(strategies.snapshots_all(), st.data())
def test_a_plan_stays_best_as_a_job_that_it_starts_gets_heavier(
    snapshot: Snapshot, data: st.DataObject
) -> None:
    plan = solved(snapshot)
    assume(plan.starts)
    name = data.draw(st.sampled_from([start.job for start in plan.starts]))
    factor = data.draw(st.sampled_from((2, 10)))
    heavier = snapshot.model_copy(
        update={
            "jobs": tuple(
                job.model_copy(update={"weight_milli": job.weight_milli * factor})
                if job.name == name
                else job
                for job in snapshot.jobs
            )
        }
    )
    assert stage_values(heavier, without_further(plan).starts) == objectives(solved(heavier))


# other names, another order


@SETTINGS
@given(strategies.snapshots_all(), st.integers(0, 9))
def test_names_say_nothing(snapshot: Snapshot, seed: int) -> None:
    one, other = solved(snapshot), solved(strategies.renamed(snapshot, seed))
    assert objectives(one) == objectives(other)
    assert bounds(one) == bounds(other)


@SETTINGS
@given(strategies.snapshots_all(), st.randoms(use_true_random=False))
def test_order_says_nothing(snapshot: Snapshot, rng: Random) -> None:
    one, other = solved(snapshot), solved(strategies.shuffled(snapshot, rng))
    assert objectives(one) == objectives(other)
    assert bounds(one) == bounds(other)
