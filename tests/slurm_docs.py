"""Small Slurm documents in the shapes of three releases, from one description each.

    document("24.05", "jobs", job("24.05", 7, tres_per_node="gres/gpu:h100:4"))

Values are given plainly; each release wraps them its own way: 22.05 has plain numbers and one word
for a state, later releases {set, infinite, number} and lists.
"""

from __future__ import annotations

import json
from typing import Any

SHAPES = ("22.05", "24.05", "25.11")
NOW = 1_700_000_000

_NUMBERS = frozenset(
    {
        "array_job_id",
        "array_task_id",
        "array_max_tasks",
        "cpus",
        "node_count",
        "tasks",
        "time_limit",
        "priority",
        "cpus_per_task",
        "memory_per_node",
        "memory_per_cpu",
        "minimum_cpus_per_node",
        "max_nodes",
        "tasks_per_node",
        "start_time",
        "end_time",
        "submit_time",
        "eligible_time",
        "het_job_id",
        "sockets_per_node",
    }
)


def num(shape: str, value: int | None) -> Any:
    """A number as the release prints it; None for "not set"."""
    if shape == "22.05":
        return value
    return {"set": value is not None, "infinite": False, "number": value or 0}


def job(shape: str, number: int, state: str = "PENDING", **fields: Any) -> dict[str, Any]:
    """A job that waits on one node with one CPU, unless the fields say otherwise."""
    values: dict[str, Any] = {
        "account": "red",
        "partition": "gpu",
        "qos": "normal",
        "name": f"job-{number}",
        "user_name": "ada",
        "user_id": 1001,
        "array_job_id": 0,
        "array_task_id": None,
        "array_task_string": "",
        "cpus": 1,
        "node_count": 1,
        "tasks": 1,
        "time_limit": 60,
        "priority": 100,
        "submit_time": NOW - 3_600,
        "eligible_time": NOW - 3_600,
        "hold": False,
        "state_reason": "Priority" if state == "PENDING" else "None",
        "gres_detail": [],
        "dependency": "",
        "tres_req_str": "cpu=1,node=1,billing=1",
    }
    values |= fields
    wrapped = {k: num(shape, v) if k in _NUMBERS else v for k, v in values.items()}
    states = state if shape == "22.05" else state.split("+")
    return {"job_id": number, "job_state": states, **wrapped}


def running(
    shape: str,
    number: int,
    nodes: dict[str, str],
    cpus: int = 4,
    memory: int = 1_000,
    **fields: Any,
) -> dict[str, Any]:
    """A job that runs on the nodes, with the gres that each node's entry tells."""
    names = list(nodes)
    if shape == "22.05":
        resources: dict[str, Any] = {
            "nodes": ",".join(names),
            "allocated_nodes": {
                str(i): {"memory": memory, "cpus": cpus} for i in range(len(names))
            },
        }
    elif shape == "24.05":
        resources = {
            "nodes": ",".join(names),
            "allocated_nodes": [
                {"nodename": n, "cpus_used": cpus, "memory_allocated": memory} for n in names
            ],
        }
    else:
        rows = [
            {
                "name": n,
                "cpus": {"count": cpus, "used": 0},
                "memory": {"used": 0, "allocated": memory},
            }
            for n in names
        ]
        resources = {"nodes": {"list": ",".join(names), "whole": False, "allocation": rows}}
    values: dict[str, Any] = {
        "nodes": ",".join(names),
        "node_count": len(names),
        "job_resources": resources,
        "gres_detail": list(nodes.values()),
        "start_time": NOW - 600,
        "end_time": NOW + 3_000,
    }
    state = fields.pop("state", "RUNNING")
    return job(shape, number, state, **(values | fields))


def node(shape: str, name: str, gres: str = "gpu:h100:8(S:0-1)", **fields: Any) -> dict[str, Any]:
    """A node with 64 CPUs, 500,000 MiB and eight GPUs, idle."""
    state = fields.pop("state", "IDLE")
    words = state.split("+")
    values: dict[str, Any] = {
        "name": name,
        "cpus": 64,
        "real_memory": 500_000,
        "gres": gres,
        "gres_used": "",
        "gres_drained": "N/A",
        "partitions": ["gpu"],
    }
    if shape == "22.05":
        values |= {"state": words[0].lower(), "state_flags": words[1:], "features": ""}
    else:
        values |= {"state": words, "features": [], "active_features": []}
    return values | fields


def document(shape: str, key: str, *entries: dict[str, Any], **fields: Any) -> str:
    """A document with the entries under the key."""
    doc: dict[str, Any] = {"meta": {"Slurm": {"release": shape}}, "errors": [], key: list(entries)}
    if shape != "22.05":
        doc |= {"last_update": num(shape, NOW), "warnings": []}
    return json.dumps(doc | fields)
