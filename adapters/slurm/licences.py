"""Decides how many licences there are, and how many a job needs."""

from __future__ import annotations

from collections.abc import Iterable

from trencadis.adapters.slurm.fields import Record, count, entries, name, text
from trencadis.adapters.slurm.gres import parse_count
from trencadis.adapters.slurm.report import Report
from trencadis.adapters.slurm.reservations import Reservation
from trencadis.models.base import MAX_COUNT
from trencadis.models.cluster import Licence
from trencadis.models.jobs import Job


class LicenceError(ValueError):
    """A request for licences that the schema can't say."""


def read_request(listed: str) -> dict[str, int]:
    """`ansys@db:2,matlab` by name; without a number it is one.

    Raises LicenceError for alternatives (`a|b`) and for numbers that can't be read.
    """
    if "|" in listed:
        raise LicenceError("alternative licences can't be kept")
    found: dict[str, int] = {}
    for part in filter(None, (piece.strip() for piece in listed.replace(";", ",").split(","))):
        licence, _, amount = part.replace("=", ":").partition(":")
        number = parse_count(amount) if amount else 1
        if number is None:
            raise LicenceError(f"licences {part[:60]!r} are not understood")
        key = name(licence, "licence")
        if number:
            found[key] = min(found.get(key, 0) + number, MAX_COUNT)
    return found


def read_pools(doc: Record, document: str, report: Report) -> dict[str, tuple[int, int]]:
    """Total and in use, by name, from `scontrol show licenses --json`."""
    found: dict[str, tuple[int, int]] = {}
    for index, record in enumerate(entries(doc, "licenses", document)):
        path = f"{document}:$.licenses[{index}]"
        licence = name(record.get("LicenseName", record.get("name")), "")
        if not licence:
            report.fault(f"{path}.LicenseName", "required field is missing")
            continue
        total = count(record.get("Total", record.get("total")))
        used = count(record.get("Used", record.get("used")))
        found[licence] = (total, used)
    return found


def licences_of(
    pools: dict[str, tuple[int, int]],
    jobs: Iterable[Job],
    reservations: Iterable[Reservation],
    document: str,
    report: Report,
) -> tuple[Licence, ...]:
    """The pools. One that no document describes has what runs with it and no more, so that no
    waiting job gets a licence that may not be there."""
    in_use: dict[str, int] = {}
    for job in jobs:
        for licence, number in job.licences.items():
            in_use.setdefault(licence, 0)
            in_use[licence] += number if job.on_nodes else 0
    unknown = sorted(in_use.keys() - pools.keys())
    if unknown:
        report.warn(
            f"{document}:$.jobs",
            f"how many licences there are of {', '.join(unknown)[:200]} is not told: "
            "no waiting job gets one. Maybe give scontrol show licenses --json",
        )
    kept: dict[str, int] = {}
    for entry in reservations:
        for licence, number in entry.licences.items():
            kept[licence] = kept.get(licence, 0) + number
    found = []
    for licence in sorted(in_use.keys() | pools.keys()):
        mine = in_use.get(licence, 0)
        total, used = pools.get(licence, (mine, mine))
        elsewhere = min(MAX_COUNT, max(0, used - mine) + kept.get(licence, 0))
        found.append(Licence(name=licence, total=min(total, MAX_COUNT), used_elsewhere=elsewhere))
    return tuple(found)


def licences_in(record: Record) -> str:
    """What the job has, where it runs, else what it asks for."""
    return text(record.get("licenses_allocated")) or text(record.get("licenses"))
