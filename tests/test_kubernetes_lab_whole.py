"""Loop and extender at once on a real cluster: gated gangs, others' pods, budgets, preemption."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path

import pytest
from kubernetes_lab.lab import Lab, gang, lab, missing
from loopback import free_ports
from test_kubernetes_lab import Desk, Service, submit_thirty, where

from trencadis.adapters.kubernetes.live import records

WHY = missing()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(WHY is not None, reason=WHY or "")]
KEPT, GOING, HIGH = ([f"{word}{i}" for i in range(n)] for word, n in
                     (("kept", 4), ("going", 4), ("high", 2)))  # fmt: skip
FREE = tuple(f"free{number}" for number in range(8))
GRACE_S = 3


def submit_full(cluster: Lab) -> None:
    """Eight gangs of a whole node each; half of them are under a disruption budget."""
    for name in (*KEPT, *GOING):
        covered = name in KEPT
        labels = {"app": "kept"} if covered else {}
        seconds = 45 if covered else 20
        cluster.submit("alpha", gang(name, 8, 1, seconds, labels=labels, grace=GRACE_S))
    selector = {"matchLabels": {"app": "kept"}}
    budget = {"metadata": {"name": "kept"}, "spec": {"minAvailable": 4, "selector": selector}}
    cluster.api.post("/apis/policy/v1/namespaces/alpha/poddisruptionbudgets", budget)


def test_everything_at_once(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with lab(tmp_path, extender=f"http://127.0.0.1:{port}/scheduler") as cluster:
        desk, service = Desk(cluster, tmp_path), Service(cluster, port, tmp_path)

        def tail() -> str:
            return f"{desk.tail()}\n{service.tail()}"

        def begun(name: str) -> int:
            return Counter(job for _, job, _ in cluster.runs)[name]

        process = service.begin()
        try:
            with service.fed(), desk.running("run", "--workers", "1"):
                cluster.wait(lambda: not service.fresh, tail, 60)
                began = time.monotonic()
                submit_full(cluster)
                cluster.wait(lambda: all(begun(name) for name in (*KEPT, *GOING)), tail, 60)
                for name in HIGH:
                    cluster.submit("beta", gang(name, 8, 1, 2, priority="high"))
                jobs = submit_thirty(cluster)
                for name in FREE:
                    cluster.submit("alpha", gang(name, 2, 2, 3, gated=False))
                cluster.wait(cluster.done, tail, 300)
                seconds = time.monotonic() - began
            desk("run", "--rounds", "1")
        finally:
            process.terminate()
            process.wait(30)

        assert [job for job in cluster.jobs() if "Failed" in records.conditions(job)] == []
        nodes, planned = where(cluster), desk.planned()
        gated = {f"alpha/{name}": 1 for name in (*KEPT, *GOING)}
        gated |= {f"beta/{name}": 1 for name in HIGH} | {job: n for job, (n, _) in jobs.items()}
        assert {name: len(nodes[name]) for name in gated} == gated
        assert {name: planned[name][-1] for name in gated} == {name: nodes[name] for name in gated}
        assert desk.events("started-elsewhere") == []
        # Those that nobody gated went where the service's plan said, each time they began.
        free = [run for run in cluster.runs if run[1].startswith("free")]
        assert all(service.has_named(*run) for run in free)
        # The budget was kept; who had to leave got the grace, and ran again through the same Job.
        victims = Counter(name.partition("/")[2] for name, _ in desk.events("preempted"))
        assert [begun(name) for name in KEPT] == [1, 1, 1, 1]
        assert victims
        assert [begun(name) for name in GOING] == [1 + victims[name] for name in GOING]
        # They are of the loop's namespaces, and so may be stopped without a gate as well.
        assert [begun(name) for name in FREE] == [2 + 2 * victims[name] for name in FREE]
        assert victims.keys() <= {*GOING, *FREE}
        figures = {"gated gangs": len(gated), "free pods": len(free), "preempted": len(victims)}
        print(json.dumps(figures | {"seconds": round(seconds)}))
