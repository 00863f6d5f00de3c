"""Decides who may use reserved nodes, and until when others may: taints and `free_until`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from trencadis.adapters.slurm.fields import Record, entries, instant, name, text, words
from trencadis.adapters.slurm.gres import parse_count
from trencadis.adapters.slurm.hostlist import HostlistError, expand
from trencadis.adapters.slurm.nodes import RESERVED, SlurmNode
from trencadis.adapters.slurm.report import Report
from trencadis.models.cluster import Taint


@dataclass(frozen=True, slots=True)
class Reservation:
    """Nodes, and licences, kept for some from one instant to another."""

    name: str
    start: datetime
    end: datetime | None
    nodes: tuple[str, ...]
    flags: frozenset[str]
    licences: dict[str, int]

    def active(self, now: datetime) -> bool:
        """Whether it has begun and not ended."""
        return self.start <= now and not self.over(now)

    def over(self, now: datetime) -> bool:
        """Whether it has ended."""
        return self.end is not None and self.end <= now

    @property
    def flexible(self) -> bool:
        """Whether its jobs may use other nodes and start before it begins."""
        return "FLEX" in self.flags


def taint_key(reservation: str) -> str:
    """What a job must tolerate to run on the nodes of an active reservation."""
    return f"reservation/{reservation}"[:253]


def read_reservations(
    doc: Record, document: str, now: datetime, report: Report
) -> dict[str, Reservation]:
    """The reservations by name, without those that are over."""
    found: dict[str, Reservation] = {}
    for index, record in enumerate(entries(doc, "reservations", document)):
        path = f"{document}:$.reservations[{index}]"
        reservation = name(record.get("name"), "")
        start = instant(record.get("start_time"))
        if not reservation or start is None:
            report.fault(path, "required field is missing: name or start_time")
            continue
        try:
            nodes = expand(text(record.get("node_list")))
        except HostlistError as error:
            report.fault(f"{path}.node_list", str(error))
            continue
        entry = Reservation(
            name=reservation,
            start=start,
            end=instant(record.get("end_time")),
            nodes=tuple(nodes),
            flags=frozenset(word.upper() for word in words(record.get("flags"))),
            licences=_licences(text(record.get("licenses"))),
        )
        if not entry.over(now):
            found[reservation] = entry
    return found


def apply_reservations(
    reservations: Iterable[Reservation],
    nodes: dict[str, SlurmNode],
    now: datetime,
    known: bool,
    report: Report,
) -> None:
    """Taints the nodes of active reservations, and ends work before the next one begins.

    Whole nodes are taken to be reserved, also where a reservation has only some of their cores.
    """
    covered: set[str] = set()
    for entry in reservations:
        active = entry.active(now)
        for member in entry.nodes:
            node = nodes.get(member)
            if node is None:
                continue
            if active:
                covered.add(member)
                _taint(node, entry.name)
            until = entry.end if active else entry.start
            if until is not None:
                before = node.node.free_until
                node.set(free_until=until if before is None else min(before, until))
    for node in nodes.values():
        if not node.states & RESERVED or node.name in covered:
            continue
        if node.reservation and not known:
            # Without the document, the node itself tells which reservation it is in.
            for entry_name in words(node.reservation):
                _taint(node, entry_name)
        else:
            node.set(cordoned=True)
            report.warn(
                f"{node.path}.state",
                "reserved or in maintenance, but no reservation is known: cordoned",
            )


def _taint(node: SlurmNode, reservation: str) -> None:
    node.set(
        taints=(*node.node.taints, Taint(key=taint_key(reservation))),
        labels={**node.node.labels, taint_key(reservation): "yes"},
    )


def _licences(listed: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for part in words(listed):
        licence, _, amount = part.replace("=", ":").partition(":")
        found[name(licence, "licence")] = (parse_count(amount) if amount else 1) or 0
    return found
