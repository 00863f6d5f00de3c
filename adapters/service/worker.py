"""One worker process: reads tasks from stdin, answers on stdout, until stdin ends.

A frame is eight bytes, big-endian, with the length of a JSON header, eight with that of a body,
then both. The first one that it writes, before any task, says that its libraries are loaded. The
parent may kill it at any time: it keeps nothing.
"""

from __future__ import annotations

import json
import os
import struct
import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import IO, Any

from trencadis.adapters.kubernetes import read_kubernetes
from trencadis.adapters.service.sessions import documents_of
from trencadis.models import (
    InvalidInputError,
    Plan,
    PlanMismatchError,
    Snapshot,
    load_plan,
    load_snapshot,
)
from trencadis.models.check import check
from trencadis.models.faults import Fault, NoPlanError
from trencadis.models.hidden import hidden
from trencadis.solver.explain.explain import explain
from trencadis.solver.round import Options, solve

LENGTHS = struct.Struct(">QQ")
Header = dict[str, Any]
Task = Callable[[Header, bytes], tuple[Header, bytes]]
"""What a worker can do: from a header and a body to those of the answer."""
NICE = 10
"""Solves yield to the process that answers schedulers."""


def read_frame(stream: IO[bytes]) -> tuple[Header, bytes] | None:
    """The next frame; None at the end."""
    lengths = stream.read(LENGTHS.size)
    if len(lengths) < LENGTHS.size:
        return None
    first, second = LENGTHS.unpack(lengths)
    return json.loads(stream.read(first)), stream.read(second)


def frame(header: Header, body: bytes = b"") -> bytes:
    """A frame."""
    text = json.dumps(header).encode()
    return LENGTHS.pack(len(text), len(body)) + text + body


def options_of(header: Header) -> Options:
    """How a request wants its rounds solved."""
    return Options(
        time_limit_s=header.get("time_limit"),
        gap=header.get("gap"),
        workers=header.get("threads", 1),
        deterministic=bool(header.get("deterministic")),
        seed=header.get("seed", 0),
    )


def _solve(header: Header, body: bytes) -> tuple[Header, bytes]:
    snapshot, _ = load_snapshot(body)
    plan = solve(snapshot, options_of(header))
    return {}, plan.model_dump_json(exclude_defaults=True).encode()


def _read(header: Header, body: bytes) -> tuple[Header, bytes]:
    """A state in one of three formats, as a snapshot."""
    pods: dict[str, list[list[str]]] = {}
    if header["format"] == "snapshot":
        snapshot, warnings = load_snapshot(body)
    else:
        documents: list[tuple[str, str | bytes]] = [("body", body)]
        if header["format"] == "volcano":
            documents = [("body", documents_of(body))]
        now = datetime.fromisoformat(header["now"])
        found = read_kubernetes(documents, now=now, gates=header.get("gates", ()))
        snapshot = found.snapshot
        warnings = [*found.warnings, *check(snapshot)]
        pods = {
            job: [[pod.uid, f"{pod.namespace}/{pod.name}", pod.node] for pod in members]
            for job, members in found.pods.items()
        }
    answer = {
        "fingerprint": snapshot.fingerprint(),
        "now": snapshot.now.isoformat(),
        "jobs": len(snapshot.jobs),
        "nodes": len(snapshot.nodes),
        "pods": pods,
        "gangs": {job.name: job.tasks for job in snapshot.jobs},
        "running": [job.name for job in snapshot.jobs if job.on_nodes],
        "queues": [queue.name for queue in snapshot.queues],
        "warnings": [str(warning) for warning in warnings],
    }
    return answer, snapshot.model_dump_json(exclude_defaults=True).encode()


def _both(header: Header, body: bytes) -> tuple[Snapshot, Plan]:
    first = header["snapshot_bytes"]
    snapshot, _ = load_snapshot(body[:first])
    plan = body[first:]
    if plan:
        return snapshot, load_plan(plan)
    return snapshot, solve(snapshot, options_of(header))


def _explain(header: Header, body: bytes) -> tuple[Header, bytes]:
    snapshot, plan = _both(header, body)
    names, viewer = header["jobs"], header.get("viewer")
    if viewer is not None:
        snapshot, plan = seen_by(snapshot, plan, viewer)
    known = {job.name for job in snapshot.jobs}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InvalidInputError([Fault("$.jobs", f"there is no job {n}") for n in unknown])
    report = explain(
        snapshot, plan, names, everyone=not names, help_=bool(header.get("remedies", bool(names)))
    )
    return {}, report.model_dump_json().encode()


def _hide(header: Header, body: bytes) -> tuple[Header, bytes]:
    """Snapshot or plan as one queue may see it."""
    snapshot, plan = _both(header, body)
    snapshot, plan = seen_by(snapshot, plan, header["viewer"])
    shown: Snapshot | Plan = plan if header["what"] == "plan" else snapshot
    return {}, shown.model_dump_json(exclude_defaults=True).encode()


def seen_by(snapshot: Snapshot, plan: Plan, viewer: str) -> tuple[Snapshot, Plan]:
    """Both as a token's queue may see them. Raises InvalidInputError."""
    try:
        return hidden(snapshot, plan, viewer)
    except KeyError:
        fault = Fault("$.queues", f"the token's queue {viewer} isn't there")
        raise InvalidInputError([fault]) from None


TASKS: dict[str, Task] = {
    "solve": _solve,
    "read": _read,
    "explain": _explain,
    "hide": _hide,
}


def answer(header: Header, body: bytes, tasks: Mapping[str, Task] = TASKS) -> bytes:
    """The frame that answers a task; whatever goes wrong is a frame too."""
    try:
        found, result = tasks[header["task"]](header, body)
        return frame({"status": "done", **found}, result)
    except InvalidInputError as error:
        faults = [[fault.path, fault.message] for fault in error.faults[:20]]
        return frame({"status": "invalid", "faults": faults})
    except PlanMismatchError as error:
        return frame({"status": "invalid", "faults": [["$.plan", str(error)]]})
    except NoPlanError as error:
        return frame({"status": "no-plan", "detail": str(error)})
    except Exception as error:
        return frame({"status": "internal", "detail": f"{type(error).__name__}: {error}"[:500]})


def main(further: Mapping[str, Task] | None = None) -> None:
    """Answers until stdin ends. `further`: tasks of other layers, which this one can't import."""
    tasks = {**TASKS, **(further or {})}
    if hasattr(os, "nice"):
        os.nice(NICE)
    # What libraries print must not come between the frames.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    out.write(frame({"status": "ready"}))
    out.flush()
    while (read := read_frame(sys.stdin.buffer)) is not None:
        out.write(answer(*read, tasks))
        out.flush()


if __name__ == "__main__":
    main()
