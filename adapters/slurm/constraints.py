"""Decides where a waiting job may run: partitions, features, nodes, reservation, switches."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from trencadis.adapters.slurm.context import Context
from trencadis.adapters.slurm.features import ConstraintError, fulfils, plain
from trencadis.adapters.slurm.fields import Record, count, name, text, truth, words
from trencadis.adapters.slurm.hostlist import HostlistError, expand
from trencadis.adapters.slurm.nodes import SlurmNode
from trencadis.adapters.slurm.reservations import taint_key
from trencadis.adapters.slurm.topology import BLOCK, nodes_of_level
from trencadis.models.jobs import Segments, Toleration, Topology

ONE_NODE_ONLY = frozenset({"user", "mcs", "topo"})
"""Ways of not sharing nodes that are milder than `exclusive`."""


@dataclass(slots=True)
class Constraints:
    """Where a job may run."""

    selector: dict[str, str] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    not_before: datetime | None = None
    topology: Topology | None = None
    segments: Segments | None = None
    exclusive: bool = False
    blocked: list[str] = field(default_factory=list)
    """Reasons to hold the job: constraints that the schema can't keep."""


def read_constraints(
    path: str, record: Record, tasks: int, max_per_node: int | None, context: Context
) -> Constraints:
    """What the record asks of the place, for a job of so many tasks."""
    found = Constraints()
    _partitions(path, record, found, context)
    _features(record, found, context)
    _nodes(record, tasks if max_per_node == 1 else None, found, context)
    _reservation(path, record, found, context)
    found.exclusive = exclusive(path, record, context)
    if tasks > 1:
        _switches(path, record, found, context)
        _segments(path, record, tasks, found, context)
        _blocks(tasks, max_per_node, found, context)
    if truth(record.get("contiguous")):
        context.report.warn(f"{path}.contiguous", "contiguous nodes are not asked for")
    if text(record.get("prefer")):
        context.report.warn(f"{path}.prefer", "preferred features are not asked for")
    return found


def partitions_of(record: Record) -> list[str]:
    """The partitions that the job may use."""
    return [name(partition, "default") for partition in words(record.get("partition"))]


def _partitions(path: str, record: Record, found: Constraints, context: Context) -> None:
    asked = partitions_of(record)
    if not asked:
        return
    known = context.partitions
    usable = [p for p in asked if p not in known or known[p].open]
    if not usable:
        found.blocked.append("its partition is down or inactive")
    label = f"partition/{','.join(usable or asked)}"
    selector = context.mark(label, lambda node: not node.partitions.isdisjoint(usable))
    if usable and not context.anywhere(selector):
        context.report.warn(f"{path}.partition", f"no node is in partition {','.join(asked)}")
    found.selector |= selector


def _features(record: Record, found: Constraints, context: Context) -> None:
    expression = text(record.get("features"))
    if not expression:
        return
    wanted = plain(expression)
    if wanted is not None:
        found.selector |= {name(f"feature/{feature}", "feature"): "yes" for feature in wanted}
        return
    label = f"constraint/{expression}"
    try:
        fulfils(expression, ())
    except ConstraintError:
        found.blocked.append(f"constraint {expression[:60]!r} can't be kept node by node")
        found.selector |= context.mark(label, lambda _: False)
    else:
        found.selector |= context.mark(label, lambda node: fulfils(expression, node.features))


def _nodes(record: Record, nodes: int | None, found: Constraints, context: Context) -> None:
    try:
        found.required = tuple(expand(text(record.get("required_nodes"))))
        excluded = expand(text(record.get("excluded_nodes")))
    except HostlistError as error:
        found.blocked.append(f"required or excluded nodes: {error}")
        return
    found.excluded = tuple(node for node in excluded if node in context.nodes)
    # Slurm wants every listed node in the job, and lets it have others; the schema's list is the
    # whole choice. The two agree on one node, and where there are as many nodes as the list has.
    listed = len(found.required)
    if listed != (nodes or 1) and (listed > 1 or (listed == 1 and nodes)):
        found.blocked.append("a list of required nodes of another length than the job's nodes")


def _reservation(path: str, record: Record, found: Constraints, context: Context) -> None:
    asked = words(record.get("resv_name"))
    if not asked:
        return
    found.tolerations = tuple(Toleration(key=taint_key(entry)) for entry in asked)
    known = [context.reservations[entry] for entry in asked if entry in context.reservations]
    if context.knows_reservations and not known:
        found.blocked.append(f"reservation {','.join(asked)} is over or not there")
        return
    if any(entry.flexible for entry in known):
        return
    if known and not any(entry.active(context.now) for entry in known):
        found.not_before = min(entry.start for entry in known)
    members = {node for entry in known for node in entry.nodes}

    def belongs(node: SlurmNode) -> bool:
        # Without the document, the nodes themselves tell which reservation they are in.
        return node.name in members if known else node.is_reserved_for(asked)

    selector = context.mark(taint_key(",".join(asked)), belongs)
    if not context.anywhere(selector):
        context.report.warn(f"{path}.resv_name", "the nodes of its reservation are not known")
    found.selector |= selector


def exclusive(path: str, record: Record, context: Context) -> bool:
    """Whether the job shares its nodes with no other."""
    modes = {m.lower() for key in ("shared", "exclusive") for m in words(record.get(key))}
    if record.get("exclusive") is True or modes & {"true", "none", "exclusive"}:
        return True
    if any(
        context.partitions[p].exclusive for p in partitions_of(record) if p in context.partitions
    ):
        return True
    if modes & ONE_NODE_ONLY:
        context.report.warn(
            f"{path}.shared", "nodes not shared with other users: read as shared with no other job"
        )
        return True
    return False


def _switches(path: str, record: Record, found: Constraints, context: Context) -> None:
    raw = record.get("required_switches", record.get("minimum_switches"))
    wait: int | None = count(record.get("maximum_switch_wait_time")) or None
    if isinstance(raw, str) and "@" in raw:
        raw, _, clock = raw.partition("@")
        wait = _clock(clock)
    switches = count(raw)
    level = context.placement.finest
    if not switches:
        return
    if level is None:
        context.report.warn(
            f"{path}.required_switches", "switches asked for, but no topology given"
        )
    elif switches == 1:
        found.topology = Topology(
            level=level,
            mode="required",
            relax_after_seconds=wait or context.options.switch_wait_seconds,
        )
    else:
        context.report.warn(
            f"{path}.required_switches", "at most so many switches: read as one switch preferred"
        )
        found.topology = Topology(level=level, mode="preferred")


def segment_size(record: Record) -> int | None:
    """Nodes of a segment; None where the job asks for none."""
    size = count(record.get("segment_size"))
    return size if 0 < size < 65_534 else None  # 16 bits of "not set"


def _segments(path: str, record: Record, tasks: int, found: Constraints, context: Context) -> None:
    size = segment_size(record)
    level = context.placement.finest
    if size is None:
        return
    if level is None:
        context.report.warn(f"{path}.segment_size", "segments asked for, but no topology given")
    elif tasks % min(size, tasks):
        found.blocked.append(f"{tasks} nodes don't divide into segments of {size}")
    else:
        found.segments = Segments(tasks=min(size, tasks), level=level)


def _blocks(tasks: int, max_per_node: int | None, found: Constraints, context: Context) -> None:
    """What topology/block does unasked: a job goes to the smallest joined blocks that hold it, and
    there to as few blocks as can be; Slurm never starts it on other nodes (BadConstraints).

    Where the number of nodes is open, only what is certain. Segments of a job's own replace this.
    """
    size = context.placement.block_nodes
    if size is None or found.segments is not None:
        return
    for level, nodes in nodes_of_level(context.placement):
        if tasks <= nodes and (max_per_node == 1 or nodes == size):
            found.topology = Topology(level=level, mode="required")
            break
    if max_per_node == 1 and tasks > size and tasks % size == 0:
        found.segments = Segments(tasks=size, level=BLOCK)


def _clock(clock: str) -> int | None:
    """`2:00:00`, `1-0:30`, `45` (minutes) as seconds."""
    days, dash, rest = clock.strip().rpartition("-")
    parts = rest.split(":")
    if not all(part.isdecimal() and len(part) < 7 for part in parts) or len(parts) > 3:
        return None
    if dash and not (days.isdecimal() and len(days) < 6):
        return None
    numbers = [int(part) for part in parts]
    # Minutes, minutes and seconds, or all three; behind days, hours come first.
    if dash or len(numbers) == 3:
        hours, minutes, secs = (*numbers, 0, 0)[:3]
    else:
        hours, (minutes, secs) = 0, (*numbers, 0)[:2]
    span = timedelta(days=int(days or 0), hours=hours, minutes=minutes, seconds=secs)
    return int(span.total_seconds())
