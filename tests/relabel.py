"""The same snapshot in another order, or under other names: its optimum must not change."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from trencadis.models import Snapshot

ORDER_FREE = {
    "after",
    "allocation",
    "demand_profile",
    "excluded_nodes",
    "gpu_models",
    "holds",
    "instances",
    "jobs",
    "licences",
    "links",
    "mig",
    "nodes",
    "qos",
    "queues",
    "required_nodes",
    "taints",
    "tolerations",
    "unhealthy",
}
"""Lists whose order says nothing. Not: tiers, levels, fabric paths, groups of GPUs."""


def shuffled(snapshot: Snapshot, rng: Random) -> Snapshot:
    """The same facts with every order-free list and mapping in another order."""

    def stir(key: str, value: Any) -> Any:
        if isinstance(value, dict):
            entries = list(value.items())
            rng.shuffle(entries)
            return {name: stir(name, entry) for name, entry in entries}
        if isinstance(value, tuple | list):
            entries = [stir("pair" if key == "links" else key, entry) for entry in value]
            indices = bool(entries) and all(isinstance(entry, int) for entry in entries)
            if key in ORDER_FREE or key == "pair" or (key == "gpus" and indices):
                rng.shuffle(entries)
            return entries
        return value

    return Snapshot.model_validate(stir("", snapshot.model_dump()))


class _Names:
    """New names for old ones, in an order that is not that of the old ones."""

    def __init__(self, rng: Random, kind: str, old: Iterable[str]) -> None:
        names = sorted(set(old))
        numbers = list(range(len(names)))
        rng.shuffle(numbers)
        self._new = {
            name: f"{kind}{number:02d}" for name, number in zip(names, numbers, strict=True)
        }

    def __call__(self, name: str) -> str:
        return self._new[name]


def renamed(snapshot: Snapshot, seed: int) -> Snapshot:
    """The same facts with other names of nodes, jobs, queues, users, groups, domains and so on."""
    rng = Random(seed)
    jobs, nodes = snapshot.jobs, snapshot.nodes
    new_node = _Names(rng, "machine", (node.name for node in nodes))
    new_job = _Names(
        rng, "work", [job.name for job in jobs] + [name for job in jobs for name in job.after]
    )
    new_queue = _Names(rng, "team", (queue.name for queue in snapshot.queues))
    new_user = _Names(rng, "person", (job.user for job in jobs))
    new_group = _Names(rng, "bundle", (job.group for job in jobs if job.group is not None))
    new_array = _Names(rng, "sweep", (job.array.name for job in jobs if job.array is not None))
    new_qos = _Names(rng, "class", (qos.name for qos in snapshot.qos))
    new_licence = _Names(rng, "seat", (licence.name for licence in snapshot.licences))
    new_domain = _Names(rng, "site", (name for node in nodes for name in node.fabric))

    data = snapshot.model_dump()
    for node in data["nodes"]:
        node["name"] = new_node(node["name"])
        node["fabric"] = [new_domain(name) for name in node["fabric"]]
    for queue in data["queues"]:
        queue["name"] = new_queue(queue["name"])
        _replace(queue, "parent", new_queue)
    for qos in data["qos"]:
        qos["name"] = new_qos(qos["name"])
    for licence in data["licences"]:
        licence["name"] = new_licence(licence["name"])
    for job in data["jobs"]:
        for key, new in (
            ("name", new_job),
            ("queue", new_queue),
            ("user", new_user),
            ("group", new_group),
            ("qos", new_qos),
        ):
            _replace(job, key, new)
        job["after"] = [new_job(name) for name in job["after"]]
        job["licences"] = {new_licence(name): n for name, n in job["licences"].items()}
        for key in ("required_nodes", "excluded_nodes"):
            job[key] = [new_node(name) for name in job[key]]
        if job["array"] is not None:
            job["array"]["name"] = new_array(job["array"]["name"])
    for hold in data["holds"]:
        hold["job"] = new_job(hold["job"])
    for owner in (*data["jobs"], *data["holds"]):
        for task in owner["allocation"]:
            task["node"] = new_node(task["node"])
    return Snapshot.model_validate(data)


def _replace(record: dict[str, Any], key: str, new: Callable[[str], str]) -> None:
    if record[key] is not None:
        record[key] = new(record[key])
