"""The cluster as SVG: a drawing per fabric domain, nodes in rows, GPUs as boxes, parts inside."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from html import escape
from itertools import groupby

from trencadis.models import Job, Snapshot
from trencadis.whatif.report.palette import style
from trencadis.whatif.report.places import GpuPlace, NodePlace, Part, natural, places

DETAIL_NODES = 200
"""Up to so many nodes each GPU is a box of its own; above, a node is one bar."""
NAMED = 12
"""Jobs that a node's hint names before it folds."""

FEW_NODES = 24
"""Up to so many nodes boxes are large enough to tell MIG slices apart."""

LARGE, SMALL = 32, 20
GAP, LABEL = 3, 12
BAR, BAR_HEIGHT = 44, 12


@dataclass(frozen=True, slots=True)
class Legend:
    """Which number each queue and job has; styles follow from it."""

    queues: Mapping[str, int]
    jobs: Mapping[str, int]
    by_name: Mapping[str, Job]


@dataclass(frozen=True, slots=True)
class Domain:
    """One drawing."""

    label: str
    nodes: int
    svg: str


def legend_of(*snapshots: Snapshot) -> Legend:
    """Numbers for all queues, and for all jobs that are on nodes or hold some in any of them."""
    queues: set[str] = set()
    placed: set[str] = set()
    by_name: dict[str, Job] = {}
    for snapshot in snapshots:
        queues |= {queue.name for queue in snapshot.queues} | {job.queue for job in snapshot.jobs}
        placed |= {job.name for job in snapshot.jobs if job.on_nodes}
        placed |= {hold.job for hold in snapshot.holds}
        by_name |= {job.name: job for job in snapshot.jobs}
    leaves = {job.queue for job in by_name.values()}
    ordered = sorted(queues, key=lambda name: (name not in leaves, natural(name)))
    jobs = sorted(placed, key=natural)
    return Legend(
        {name: number for number, name in enumerate(ordered)},
        {name: number for number, name in enumerate(jobs)},
        by_name,
    )


def draw(snapshot: Snapshot, legend: Legend, fresh: Set[str] = frozenset()) -> list[Domain]:
    """Drawings of all domains of the finest level. `fresh`: jobs to set off, as just started."""
    found = places(snapshot)
    box = LARGE if len(found) <= FEW_NODES else SMALL
    return [
        Domain(
            "/".join(path) or "cluster",
            len(nodes),
            _detailed(nodes, legend, fresh, box)
            if len(found) <= DETAIL_NODES
            else _bars(nodes, legend, fresh),
        )
        for path, nodes in (
            (path, list(group)) for path, group in groupby(found, lambda node: node.path)
        )
    ]


def _svg(width: int, height: int, content: Sequence[str], hint: str, css: str = "boxes") -> str:
    return (
        f'<svg class="{css}" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(hint)}">{"".join(content)}</svg>'
    )


def _detailed(nodes: Sequence[NodePlace], legend: Legend, fresh: Set[str], box: int) -> str:
    most = max((len(node.gpus) for node in nodes), default=1)
    columns = min(8, max(1, most))
    rows = max(1, math.ceil(most / columns))
    width, height = columns * (box + GAP) + 8, LABEL + rows * (box + GAP) + 6
    across = 1 if len(nodes) <= 4 else 2 if len(nodes) <= 32 else 4
    drawn = []
    for number, node in enumerate(nodes):
        x, y = number % across * width, number // across * height
        boxes = [
            _box(
                node, gpu, i % columns * (box + GAP), LABEL + 2 + i // columns * (box + GAP),
                legend, fresh, box,
            )
            for i, gpu in enumerate(node.gpus)
        ]  # fmt: skip
        room = width // 6
        name = node.name if len(node.name) <= room else node.name[: room - 1] + "…"
        out = " out" if node.marks else ""
        drawn.append(
            f'<g transform="translate({x} {y})" class="node{out}"><g><title>'
            f"{escape(_node_hint(node))}</title>"
            f'<text y="{LABEL - 2}">{escape(name)}</text></g>{"".join(boxes)}</g>'
        )
    down = math.ceil(len(nodes) / across)
    return _svg(across * width, down * height, drawn, f"{len(nodes)} nodes")


def _box(
    node: NodePlace, gpu: GpuPlace, x: int, y: int, legend: Legend, fresh: Set[str], box: int
) -> str:
    hint = f"{node.name} GPU {gpu.index} ({gpu.model})"
    if gpu.broken:
        return (
            f'<g transform="translate({x} {y})"><title>{escape(hint)}: broken</title>'
            f'<rect width="{box}" height="{box}" class="none"/>'
            f'<path d="M4 4l{box - 8} {box - 8}M{box - 4} 4l-{box - 8} {box - 8}" class="x"/></g>'
        )
    idle = "" if gpu.parts else f"<title>{escape(hint)}: idle</title>"
    drawn = [f'<rect width="{box}" height="{box}" class="none">{idle}</rect>']
    for part in gpu.parts:
        drawn.append(
            f'<rect x="{part.start * box:g}" width="{part.width * box:g}" height="{box}" '
            f'class="{_classes(part, legend, fresh)}">'
            f"<title>{escape(f'{hint}: {_part_hint(part, legend)}')}</title></rect>"
        )
    return f'<g transform="translate({x} {y})">{"".join(drawn)}</g>'


def _bars(nodes: Sequence[NodePlace], legend: Legend, fresh: Set[str]) -> str:
    across = min(len(nodes), max(4, math.ceil(math.sqrt(len(nodes) / 3))))
    width, height = BAR + 4, BAR_HEIGHT + 4
    drawn = []
    for number, node in enumerate(nodes):
        x, y = number % across * width, number // across * height
        out = " out" if node.marks else ""
        drawn.append(
            f'<g transform="translate({x} {y})" class="node{out}">'
            f"<title>{escape(_node_hint(node))}</title>"
            f'<rect width="{BAR}" height="{BAR_HEIGHT}" class="none"/>'
            f"{_segments(node, legend, fresh)}</g>"
        )
    down = math.ceil(len(nodes) / across)
    return _svg(across * width, down * height, drawn, f"{len(nodes)} nodes", "bars")


def _segments(node: NodePlace, legend: Legend, fresh: Set[str]) -> str:
    """The GPUs of a node side by side; neighbours that look alike are one rectangle."""
    each = BAR / max(1, len(node.gpus))
    runs: list[tuple[float, float, str]] = []
    for number, gpu in enumerate(node.gpus):
        for part in gpu.parts if not gpu.broken else (Part(0.0, 1.0, None, "idle"),):
            look = "broken" if gpu.broken else _classes(part, legend, fresh)
            first = (number + part.start) * each
            last = first + part.width * each
            if runs and runs[-1][2] == look and abs(runs[-1][1] - first) < 1e-9:
                runs[-1] = (runs[-1][0], last, look)
            else:
                runs.append((first, last, look))
    return "".join(
        f'<rect x="{first:.4g}" width="{last - first:.4g}" height="{BAR_HEIGHT}" class="{look}"/>'
        for first, last, look in runs
    )


def _classes(part: Part, legend: Legend, fresh: Set[str]) -> str:
    if part.job is None:
        return "slice"
    queue = legend.queues[legend.by_name[part.job].queue]
    names = [f"q{style(queue)}", f"j{style(legend.jobs[part.job])}"]
    if part.state != "running":
        names.append(part.state)
    if part.job in fresh:
        names.append("new")
    return " ".join(names)


def _part_hint(part: Part, legend: Legend) -> str:
    label = f"{part.label}: " if part.label else ""
    if part.job is None:
        return f"{label}idle instance"
    job = legend.by_name[part.job]
    tier = f", priority {job.priority}" if job.priority else ""
    after = f"; then {part.promised}" if part.promised else ""
    return f"{label}{part.job}, queue {job.queue}{tier}, {part.state}{after}"


def _node_hint(node: NodePlace) -> str:
    idle = sum(1 for gpu in node.gpus if not gpu.parts and not gpu.broken)
    words = [f"{node.name}: {len(node.gpus)} GPUs, {idle} idle", *node.marks]
    if node.counted:
        words.append("GPU indices unknown")
    jobs = [part.job for gpu in node.gpus for part in gpu.parts if part.job is not None]
    names = list(dict.fromkeys([*jobs, *node.others]))
    if names:
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        words.append(f"jobs {', '.join(names[:NAMED])}{more}")
    return "; ".join(words)
