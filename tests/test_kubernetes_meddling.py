"""The loop while others meddle: between plan and apply, and between the patches of one start."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from kube_loop import context, loop
from kube_server import World, job, node
from live_fake import first_fit
from test_kubernetes_live import kubeconfig, put

from trencadis.models import Plan, Snapshot

__all__ = ["kubeconfig"]
Meddle = Callable[[World], None]
NODES = ("n1", "n2", "n3", "n4")


@pytest.fixture
def world() -> World:
    made = World()
    for name in NODES:
        made.put("nodes", node(name))
    made.put("namespaces", {"metadata": {"name": "ml"}})
    return made


def drop(world: World, *kinds: str, of: str = "") -> None:
    """Deletes at once, as `--force --grace-period=0` does."""
    world.objects = {
        key: record for key, record in world.objects.items()
        if key[1] not in kinds or (of and not key[3].startswith(of))
    }  # fmt: skip


def pod_deleted(world: World) -> None:
    if pods := world.pods("a"):
        world._drop(pods[0])
    world.sync()


def gate_removed(world: World) -> None:
    for pod in world.pods("a")[:1]:
        pod["spec"].pop("schedulingGates", None)
        world.touch(pod)


def all_gates_removed(world: World) -> None:
    for pod in world.pods():
        pod["spec"].pop("schedulingGates", None)
        world.touch(pod)


def node_cordoned(world: World) -> None:
    world.node("n1")["spec"]["unschedulable"] = True
    world.touch(world.node("n1"))


def node_deleted(world: World) -> None:
    drop(world, "nodes", of="n1")


def namespace_deleted(world: World) -> None:
    drop(world, "namespaces", "jobs", "pods")


def owner_made_anew(world: World) -> None:
    """The same name, another UID, and other pods."""
    record = copy.deepcopy(world.job("a"))
    for key in ("uid", "resourceVersion", "creationTimestamp"):
        del record["metadata"][key]
    drop(world, "jobs", "pods", of="a")
    world.put("jobs", {**record, "status": {}}, "batch")
    world.sync()


def all_touched(world: World) -> None:
    for pod in world.pods():
        world.touch(pod)


MEDDLERS: tuple[Meddle, ...] = (
    pod_deleted, gate_removed, all_gates_removed, node_cordoned, node_deleted,
    namespace_deleted, owner_made_anew, all_touched,
)  # fmt: skip


@pytest.mark.parametrize("moment", ["solve", 2])
@pytest.mark.parametrize("meddle", MEDDLERS, ids=lambda entry: entry.__name__)
def test_meddling(
    world: World, kubeconfig: Path, tmp_path: Path, meddle: Meddle, moment: int | str
) -> None:
    """No round fails, nothing is double, no node has more than it has room for, all ends."""
    put(world, job("a", gpus=2, pods=3), job("b", gpus=4))
    left = {"solve": moment == "solve", "writes": moment if isinstance(moment, int) else 0}

    def decided(snapshot: Snapshot) -> Plan:
        plan = first_fit(snapshot, None)
        if left["solve"]:
            left["solve"] = False
            meddle(world)
        return plan

    def before(method: str, _path: str) -> None:
        if method != "GET":
            left["writes"] -= 1
            if left["writes"] == 0:
                meddle(world)

    world.before = before
    live = context(world, kubeconfig, tmp_path / "state")
    running = loop(live, solve=decided)
    for _ in range(25):
        assert running.round()
        world.tick()
        for name in (record["metadata"]["name"] for record in world.of("nodes")):
            assert world.free(name) >= 0
        ended = all(entry["status"].get("conditions") for entry in world.of("jobs", "batch"))
        if ended and not live.store.intents():
            break
    assert ended
    assert live.store.intents() == []
    assert max(Counter(name for name, _ in world.runs).values(), default=1) == 1
    assert not [pod for pod in world.pods() if pod["status"]["phase"] != "Succeeded"]
