"""A cluster as a person reads it: GPUs drawn, equal nodes and large domains folded."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from trencadis.views import words
from trencadis.views.cluster import (
    BROKEN,
    HELD,
    IDLE,
    MIG,
    SHARED,
    STATES,
    USED,
    ClusterFacts,
    DomainFacts,
    NodeFacts,
)
from trencadis.views.io import clean
from trencadis.views.parts_drawing import parts_view

if TYPE_CHECKING:
    from rich.console import RenderableType

SIGNS = {USED: "■", IDLE: "□", HELD: "▣", MIG: "◫", SHARED: "◩", BROKEN: "×"}
PLAIN_SIGNS = {USED: "#", IDLE: ".", HELD: "h", MIG: "m", SHARED: "s", BROKEN: "x"}
MAX_LINES = 48
"""Lines of nodes; with more, one line per domain."""
MAX_DOMAINS = 64
MAX_DIGITS = 64


def cluster_view(
    facts: ClusterFacts, queues: Sequence[Mapping[str, Any]]
) -> Iterator[RenderableType]:
    """The parts of the picture, from the top."""
    from rich.text import Text  # noqa: PLC0415

    signs = _signs()
    yield Text(_headline(facts), style="bold")
    yield from _figures(facts)
    yield "Signs: " + "  ".join(f"{signs[state]} {state}" for state in STATES)
    depth = len(facts.snapshot.fabric.levels)
    domains = facts.domains(depth)
    lines = [(domain, _alike(domain.nodes)) for domain in domains]
    if sum(len(groups) for _, groups in lines) <= MAX_LINES:
        yield from _node_table(lines, signs)
    else:
        while depth > 1 and len(domains) > MAX_DOMAINS:
            depth -= 1
            domains = facts.domains(depth)
        yield from _domain_table(domains)
    parts = [part for node in facts.nodes for part in node.parts]
    yield from parts_view(parts, plain=signs is PLAIN_SIGNS)
    yield from _queue_table(queues)


def _signs() -> Mapping[str, str]:
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    return SIGNS if encoding.startswith("utf") else PLAIN_SIGNS


def _headline(facts: ClusterFacts) -> str:
    nodes = len(facts.nodes)
    down = sum("down" in node.marks for node in facts.nodes)
    text = f"Cluster at {facts.snapshot.now:%Y-%m-%d %H:%M:%S} UTC: {words.count(nodes, 'node')}"
    return f"{text} ({down} down)" if down else text


def _figures(facts: ClusterFacts) -> Iterator[str]:
    counts = facts.counts
    parts = [f"{words.number(counts[state])} {state}" for state in STATES if counts[state]]
    total = sum(counts.values())
    yield f"{words.count(total, 'GPU')}: {', '.join(parts)}" if total else "No GPUs"
    if len(facts.by_model) > 1:
        models = (
            f"{clean(model)} {words.number(idle)} of {words.number(healthy)}"
            for model, (healthy, idle) in facts.by_model.items()
        )
        yield f"Idle by model: {', '.join(models)}"
    jobs = facts.snapshot.jobs
    running = sum(job.on_nodes for job in jobs)
    waiting = sum(job.state == "pending" for job in jobs)
    yield f"Fragmentation: {words.per_mille(facts.fragmentation_milli)} of the idle GPUs"
    yield f"Jobs: {words.number(running)} on nodes, {words.number(waiting)} waiting"


def _alike(nodes: Sequence[NodeFacts]) -> list[list[NodeFacts]]:
    """Neighbours that look the same."""

    def look(node: NodeFacts) -> tuple[object, ...]:
        return node.models, node.gpus, node.marks, node.counted

    return [list(group) for _, group in groupby(nodes, key=look)]


def _node_table(
    lines: Sequence[tuple[DomainFacts, list[list[NodeFacts]]]], signs: Mapping[str, str]
) -> Iterator[RenderableType]:
    columns = ("domain", "node", "model", "GPUs", "idle", "free CPUs", "free GiB", "jobs", "")
    table = words.table("Nodes", *columns, right=columns[4:8])
    for domain, groups in lines:
        label = clean(domain.label)
        for nodes in groups:
            first = nodes[0]
            drawing = "".join(signs[state] for state in first.gpus)
            table.add_row(
                label,
                _names(nodes),
                clean("+".join(first.models)) or "-",
                f"{drawing} (by count)" if first.counted and drawing else drawing,
                words.number(sum(node.number(IDLE) for node in nodes)),
                words.number(sum(node.cpu_milli for node in nodes) // 1_000),
                words.number(sum(node.memory_mib for node in nodes) // 1_024),
                words.number(sum(node.jobs for node in nodes)),
                clean(", ".join(first.marks)),
            )
            label = ""
    if lines:
        yield table


def _names(nodes: Sequence[NodeFacts]) -> str:
    if len(nodes) == 1:
        return clean(nodes[0].name)
    return f"{clean(nodes[0].name)} … {clean(nodes[-1].name)} ({len(nodes)} alike)"


def _domain_table(domains: Sequence[DomainFacts]) -> Iterator[RenderableType]:
    columns = ("domain", "nodes", "GPUs", *STATES[:3], BROKEN, "idle GPUs node by node")
    table = words.table("Domains", *columns, right=columns[1:7])
    for domain in domains[:MAX_DOMAINS]:
        table.add_row(
            clean(domain.label),
            words.number(len(domain.nodes)),
            words.number(sum(domain.counts.values())),
            *(words.number(domain.counts[state]) for state in (*STATES[:3], BROKEN)),
            _digits(domain.nodes),
        )
    yield table
    if left := words.fold(len(domains), MAX_DOMAINS):
        yield left
    yield "Idle GPUs node by node: a digit each, + for ten or more, - for a node that is down."


def _digits(nodes: Sequence[NodeFacts]) -> str:
    """How much of each node is idle; of many nodes, how many have how much."""

    def digit(node: NodeFacts) -> str:
        if "down" in node.marks:
            return "-"
        return str(node.number(IDLE)) if node.number(IDLE) < 10 else "+"

    digits = "".join(digit(node) for node in nodes)
    if len(digits) <= MAX_DIGITS:
        return digits
    kinds = sorted(set(digits), reverse=True)
    return ", ".join(f"{words.number(digits.count(kind))} with {kind}" for kind in kinds)


def _queue_table(queues: Sequence[Mapping[str, Any]]) -> Iterator[RenderableType]:
    if not queues:
        return
    columns = ("queue", "in use", "guarantee", "limit", "asked for", "running", "waiting", "")
    table = words.table("Queues, in GPUs", *columns, right=(columns[1], *columns[4:7]))
    for queue in queues[: words.MAX_ROWS]:
        table.add_row(
            "  " * queue["depth"] + clean(queue["name"]),
            words.gpus(queue["used_milli"]),
            queue["guarantee_text"],
            queue["limit_text"],
            words.gpus(queue["asked_milli"]),
            words.number(queue["running_jobs"]),
            words.number(queue["pending_jobs"]),
            queue["note"],
        )
    yield table
    if left := words.fold(len(queues)):
        yield left
