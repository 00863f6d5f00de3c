"""What `scontrol -o show` prints, as the documents that the import reads.

Releases before 23.02 have no `--json` there; the lines are the same in all of them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

_WORD = re.compile(r"(?:^|\s)([A-Za-z][A-Za-z0-9_:/]*)=(.*?)(?=\s+[A-Za-z][A-Za-z0-9_:/]*=|$)")
_NUMBER = re.compile(r"JobId=(\d+)\s", re.ASCII)
_SWITCHES = re.compile(r"(?:^|\s)Switches=(\d+(?:@\S+)?)", re.ASCII)
_SPAN = re.compile(r"^(?:(\d+)-)?(\d+):(\d+):(\d+)$", re.ASCII)


def lines(text: str) -> list[dict[str, str]]:
    """A record per line: `Key=value Key=value`, values possibly with blanks."""
    found = []
    for line in text.splitlines():
        pairs = {key: value.strip() for key, value in _WORD.findall(line)}
        if pairs:
            found.append(pairs)
    return found


def settings(text: str) -> dict[str, str]:
    """`scontrol show config`: `Name = value` lines."""
    pairs = (line.partition("=") for line in text.splitlines())
    return {key.strip(): value.strip() for key, sign, value in pairs if sign}


def partitions(text: str) -> dict[str, Any]:
    """As `scontrol show partitions --json`."""
    return {
        "partitions": [
            {
                "name": record["PartitionName"],
                "nodes": {"configured": record.get("Nodes")},
                "partition": {"state": [record.get("State", "UP")]},
                "defaults": {"time": minutes(record.get("DefaultTime"))},
                "maximums": {
                    "time": minutes(record.get("MaxTime")),
                    "shares": 0 if record.get("OverSubscribe") == "EXCLUSIVE" else 1,
                },
                "grace_time": int(record.get("GraceTime", "0") or 0),
            }
            for record in lines(text)
            if "PartitionName" in record
        ]
    }


def reservations(text: str) -> dict[str, Any]:
    """As `scontrol show reservations --json`; instants must be printed as seconds."""
    return {
        "reservations": [
            {
                "name": record["ReservationName"],
                "start_time": int(record["StartTime"]),
                "end_time": int(record["EndTime"]) if record["EndTime"].isdecimal() else None,
                "node_list": record.get("Nodes"),
                "flags": record.get("Flags", "").split(","),
                "licenses": record.get("Licenses"),
            }
            for record in lines(text)
            if "ReservationName" in record
        ]
    }


def licenses(text: str) -> dict[str, Any]:
    """As `scontrol show licenses --json`."""
    return {
        "licenses": [
            {
                "LicenseName": record["LicenseName"],
                "Total": int(record.get("Total", "0")),
                "Used": int(record.get("Used", "0")),
            }
            for record in lines(text)
            if "LicenseName" in record
        ]
    }


def switches(text: str) -> dict[str, list[str | None]]:
    """`scontrol show jobs`: by number of job, the switches it asks for and how long it waits for
    them, as `1@02:00:00`, or None.

    Names and comments are printed as their owners gave them, with line ends: a line may pose as
    another job's, which has several entries then.
    """
    found: defaultdict[str, list[str | None]] = defaultdict(list)
    for line in text.splitlines():
        number = _NUMBER.match(line)
        if number is not None:
            found[number[1]].append(switches_of(line))
    return dict(found)


def switches_of(text: str) -> str | None:
    """Of one job: what its owner wrote comes before it."""
    found = _SWITCHES.findall(text)
    return str(found[-1]) if found else None


def minutes(text: str | None) -> int | None:
    """`1-00:00:00` in minutes, rounded up; None for no limit and no default."""
    match = _SPAN.match(text or "")
    if match is None:
        return None
    days, hours, mins, secs = (int(part or 0) for part in match.groups())
    return days * 1_440 + hours * 60 + mins + (secs > 0)
