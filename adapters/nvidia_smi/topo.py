"""Decides which GPUs NVLink joins: reads `nvidia-smi topo -m`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from trencadis.models.cluster import NvLink
from trencadis.models.faults import Fault, InvalidInputError

_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_GPU = re.compile(r"GPU(\d{1,4})")
_RANGES = re.compile(r"\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*")


@dataclass(frozen=True, slots=True)
class Matrix:
    """The connection matrix of a node."""

    gpus: int
    nvlink: NvLink
    cpus: int
    """CPUs in the affinities of all GPUs; 0 where they aren't printed."""


def plain(text: str) -> list[str]:
    """Lines without escape codes (the header carries some even into a pipe) and comments."""
    lines = (_ESCAPES.sub("", line).rstrip() for line in text.splitlines())
    return [line for line in lines if line.strip() and not line.startswith("#")]


def read_topo(text: str, document: str) -> Matrix:
    """The matrix. Raises InvalidInputError where there is none."""
    lines = plain(text)
    rows = [line for line in lines if _GPU.match(line) and re.search(r"(^|\s)X(\s|$)", line)]
    header = next((line for line in lines if line not in rows and "GPU0" in line), "")
    columns = _GPU.findall(header)
    if not rows or len(rows) != len(columns):
        message = f"{len(rows)} rows of GPUs, {len(columns)} columns"
        raise InvalidInputError([Fault(f"{document}:$", message)])
    cells: dict[tuple[int, int], str] = {}
    cpus: set[int] = set()
    for number, line in enumerate(rows):
        words = line.split("\t") if "\t" in line else line.split()
        if len(words) <= len(columns):
            fault = Fault(f"{document}:line {lines.index(line) + 1}", "the row is cut short")
            raise InvalidInputError([fault])
        for column in range(len(columns)):
            cells[number, column] = words[1 + column].strip()
        for word in words[1 + len(columns) :]:
            # Affinities follow the network cards; the first list of ranges is that of the CPUs.
            if _RANGES.fullmatch(word.strip()) and ("-" in word or "," in word):
                cpus |= _expand(word.strip())
                break
    return Matrix(len(rows), _links(cells, len(rows)), len(cpus))


def _links(cells: dict[tuple[int, int], str], gpus: int) -> NvLink:
    """A pair is linked if either row says so."""
    pairs = tuple(
        (first, second)
        for first in range(gpus)
        for second in range(first + 1, gpus)
        if cells[first, second].startswith("NV") or cells[second, first].startswith("NV")
    )
    if not pairs:
        return NvLink()
    if len(pairs) == gpus * (gpus - 1) // 2 and gpus > 2:
        return NvLink(kind="nvswitch")
    return NvLink(kind="links", links=pairs)


def _expand(ranges: str) -> set[int]:
    found: set[int] = set()
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        low, high = int(first), int(last or first)
        if high - low <= 65_536:
            found.update(range(low, high + 1))
    return found
