"""Decides what the service tells Prometheus."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from trencadis.models import Plan

LATENCIES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0)
SOLVES = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0)


class Metrics:
    """The service's own registry, so that two services of one process don't meet."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "trencadis_http_requests_total",
            "Requests answered, by route and status.",
            ("route", "status"),
            registry=self.registry,
        )
        self.latency = Histogram(
            "trencadis_http_request_seconds",
            "Time from the head of a request to the end of its answer.",
            ("route",),
            buckets=LATENCIES,
            registry=self.registry,
        )
        self.answers = Counter(
            "trencadis_extender_answers_total",
            "Answers to schedulers, by verb and what the plan said: node, wait, unknown, aside.",
            ("verb", "said"),
            registry=self.registry,
        )
        self.rounds = Counter(
            "trencadis_rounds_total",
            "Rounds of the pushed state, by outcome.",
            ("outcome",),
            registry=self.registry,
        )
        self.round_seconds = Histogram(
            "trencadis_round_seconds",
            "Wall time of a round.",
            buckets=SOLVES,
            registry=self.registry,
        )
        self._gap = self._gauge("gap_ratio", "Largest gap of the deciding stages.")
        self._gpus = self._gauge("gpus", "Healthy GPUs.")
        self._used = self._gauge("gpus_used", "Of those, after the plan.")
        self._fragments = self._gauge("fragmentation_ratio", "Fragmentation after the plan.")
        self._starts = self._gauge("plan_starts", "Jobs that the plan starts.")
        self._pending = Gauge(
            "trencadis_pending_jobs",
            "Jobs that wait, by reason.",
            ("reason",),
            registry=self.registry,
        )
        self._nodes = self._gauge("state_nodes", "Nodes of the last state.")
        self._jobs = self._gauge("state_jobs", "Jobs of the last state.")
        self._states = Counter("trencadis_states_total", "States received.", registry=self.registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"trencadis_{name}", text, registry=self.registry)

    def watch(
        self,
        age: Callable[[], float],
        fresh: Callable[[], bool],
        busy: Callable[[], int],
        waiting: Callable[[], int],
        killed: Callable[[], int],
    ) -> None:
        """Figures that are asked for when they are read."""
        self._gauge("plan_age_seconds", "Since the state of the plan was received.").set_function(
            age
        )
        self._gauge("plan_fresh", "1 while schedulers are answered from a plan.").set_function(
            fresh
        )
        self._gauge("workers_busy", "Worker processes at work.").set_function(busy)
        self._gauge("tasks_waiting", "Tasks without a worker.").set_function(waiting)
        self._gauge("workers_killed", "Workers killed or found dead.").set_function(killed)

    def state_received(self, header: Mapping[str, object]) -> None:
        """A state was read."""
        self._states.inc()
        for gauge, key in ((self._nodes, "nodes"), (self._jobs, "jobs")):
            value = header.get(key)
            if isinstance(value, int):
                gauge.set(value)

    def round_done(self, plan: Plan, seconds: float) -> None:
        """A round ended with a plan."""
        self.rounds.labels(plan.proof.status.value).inc()
        self.round_seconds.observe(seconds)
        self._gap.set(plan.proof.gap)
        self._gpus.set(plan.metrics.gpus)
        self._used.set(plan.metrics.used_after)
        self._fragments.set(plan.metrics.fragmentation_after_milli / 1_000)
        self._starts.set(len(plan.starts))
        self._pending.clear()
        for code, number in sorted(Tally(entry.code for entry in plan.pending).items()):
            self._pending.labels(code).set(number)

    def round_failed(self) -> None:
        """A round ended without a plan."""
        self.rounds.labels("failed").inc()

    def text(self) -> bytes:
        """The exposition."""
        return generate_latest(self.registry)
