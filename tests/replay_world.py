"""Small traces and clusters for replays, and a policy wrapper that has the verifier look on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from build import node, plan_of, queue, snapshot, start
from hypothesis import strategies as st

from trencadis.models import Checkpoint, Job, Node, Request, Share, Snapshot
from trencadis.models.base import seconds
from trencadis.models.trace import Trace, TraceJob, in_order
from trencadis.solver.verify import verify
from trencadis.whatif.decisions import Decision, SchedulingPolicy, View
from trencadis.whatif.engine import Engine, ReplayOptions
from trencadis.whatif.policies.registry import contender
from trencadis.whatif.policies.solver import Solver
from trencadis.whatif.support import check_replay, with_queues

BEGIN = datetime(2026, 1, 5, tzinfo=UTC)
ZERO = seconds(BEGIN)


def entry(name: str, at: int, lasts: int, gpus: int = 1, tasks: int = 1, **fields: Any) -> TraceJob:
    """A job submitted `at` seconds after the beginning that runs `lasts` seconds."""
    fields.setdefault("runtime_seconds", lasts)
    fields.setdefault("queue", "main")
    fields.setdefault("request", Request(gpus=gpus))
    job = Job(name=name, submit=BEGIN + timedelta(seconds=at), tasks=tasks, **fields)
    return TraceJob(job, lasts)


def trace(*entries: TraceJob) -> Trace:
    return Trace("test", in_order(entries))


def cluster(count: int = 1, gpus: int = 4, **policy: Any) -> Snapshot:
    """Equal nodes n1, n2, … joined by NVSwitch, on one leaf."""
    nodes = [node(f"n{i + 1}", gpus, nvswitch=True, fabric=("leaf",)) for i in range(count)]
    return snapshot(*nodes, queue("main"), levels=("leaf",), **policy)


def played(
    jobs: Trace,
    place: Snapshot,
    spec: str = "fifo",
    *,
    checked: bool = False,
    **options: Any,
) -> Engine:
    """The finished replay; rounds are a second apart unless it is said otherwise."""
    options.setdefault("round_seconds", 1)
    ready = contender(spec, jobs, place, 0.2, 0)
    place = with_queues(ready.trace, place)
    check_replay(ready.trace, place)
    policy: SchedulingPolicy = Verified(ready.policy) if checked else ready.policy
    engine = Engine(ready.trace, place, policy, ReplayOptions(gangs=ready.gangs, **options))
    engine.run()
    return engine


def first_starts(engine: Engine) -> dict[str, int]:
    """Seconds after the beginning, by job."""
    return {r.name: r.first_start - ZERO for r in engine.runs if r.first_start is not None}


NOT_ITS_BUSINESS = {"work-conserving", "objective", "bounds", "claims", "growth"}
"""Rules about how good a plan is, and what it says of itself."""


class Verified:
    """Each round's immediate starts must keep the rules as the verifier of plans knows them."""

    def __init__(self, policy: SchedulingPolicy) -> None:
        self.name = policy.name
        self._policy = policy
        self._eye = Solver()

    def decide(self, view: View) -> Decision:
        decision = self._policy.decide(view)
        now = [action for action in decision.starts if not action.waits_for]
        if now and not (decision.preempts or decision.resizes or view.holding):
            moment = self._eye.snapshot(view)
            # What an elastic job starts with beyond its minimum may use whatever is idle.
            sizes = {action.job: len(action.allocation) for action in now}
            jobs = (
                job.model_copy(update={"min_tasks": sizes[job.name]}) if job.name in sizes else job
                for job in moment.jobs
            )
            moment = moment.model_copy(update={"jobs": tuple(jobs)})
            starts = [start(a.job, *a.allocation, at=moment.now) for a in now]
            plan = plan_of(moment, *starts)
            broken = [
                violation
                for violation in verify(moment, plan).violations
                if violation.rule not in NOT_ITS_BUSINESS
            ]
            assert not broken, broken
        return decision


@st.composite
def worlds(draw: st.DrawFn, *, shares: bool = True) -> tuple[Trace, Snapshot]:
    """A small cluster with queues and limits, and a trace of up to a dozen jobs."""
    nodes = draw(st.lists(_nodes(), min_size=1, max_size=4))
    named = [
        n.model_copy(update={"name": f"n{i}", "fabric": (f"leaf{i % 2}",)})
        for i, n in enumerate(nodes)
    ]
    queues = [
        queue("red", guarantee=draw(st.integers(0, 4)), weight=2),
        queue("blue", limit=draw(st.none() | st.integers(1, 6))),
    ]
    preemption = {
        "grace_seconds": draw(st.sampled_from([0, 7, 60])),
        "restart_seconds": 5,
        "restart_seconds_multi_node": 9,
        "min_runtime_seconds": draw(st.sampled_from([0, 20])),
        "checkpoint_interval_seconds": draw(st.sampled_from([10, 1_000])),
    }
    place = snapshot(*named, *queues, levels=("leaf",), preemption=preemption)
    jobs = draw(st.lists(_jobs(shares), min_size=1, max_size=12))
    entries = [
        TraceJob(job.job.model_copy(update={"name": f"j{i}"}), job.seconds)
        for i, job in enumerate(jobs)
    ]
    return trace(*entries), place


@st.composite
def _nodes(draw: st.DrawFn) -> Node:
    return node(
        "n",
        draw(st.integers(1, 4)),
        draw(st.sampled_from(["A", "B"])),
        cpu_milli=draw(st.sampled_from([4_000, 100_000])),
        memory_mib=1_000,
        nvswitch=draw(st.booleans()),
        shareable=True,
        max_jobs_per_gpu=draw(st.integers(1, 3)),
    )


@st.composite
def _jobs(draw: st.DrawFn, shares: bool) -> TraceJob:
    gpus = draw(st.integers(0, 3))
    tasks = draw(st.integers(1, 4))
    share = shares and gpus == 0 and draw(st.booleans())
    signal = draw(st.booleans())
    return entry(
        "j",
        draw(st.integers(0, 200)),
        draw(st.integers(1, 150)),
        tasks=tasks,
        min_tasks=draw(st.none() | st.integers(1, tasks)),
        request=Request(
            gpus=gpus,
            share=Share(gpu_milli=draw(st.sampled_from([250, 500, 700]))) if share else None,
            cpu_milli=draw(st.sampled_from([0, 1_000, 3_000])),
            memory_mib=draw(st.sampled_from([0, 300])),
        ),
        gpu_models=draw(st.sampled_from([(), ("A",), ("B",)])) if gpus or share else (),
        queue=draw(st.sampled_from(["red", "blue"])),
        user=draw(st.sampled_from(["u", "v"])),
        priority=draw(st.sampled_from(["high", "normal", "low"])),
        runtime_seconds=draw(st.none() | st.integers(1, 200)),
        preemptible=draw(st.booleans()),
        checkpoint=Checkpoint(on_signal=signal),
        exclusive=draw(st.sampled_from([False, False, False, True])),
        max_tasks_per_node=draw(st.none() | st.integers(1, 2)),
    )
