"""Decides what a node or pod table of the openb form says, row by row, or where it is wrong."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from trencadis.models.base import MAX_COUNT
from trencadis.models.faults import Fault, InvalidInputError

NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
POD_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
POD_EXTRAS = ("gpu_spec", "qos", "creation_time", "deletion_time", "scheduled_time")
"""Columns that some of the pod tables leave out."""

KNOWN_MODELS = frozenset({"A10", "G2", "G3", "P100", "T4", "V100M16", "V100M32"})
"""Models of the data set; pods may allow one that a node table happens not to have."""

QOS_CLASSES = frozenset({"LS", "Guaranteed", "Burstable", "BE"})
MAX_GPUS = 64


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A machine."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    model: str


@dataclass(frozen=True, slots=True)
class PodRow:
    """A pod; times are seconds since the trace began."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    gpu_milli: int
    """Of one GPU; below 1,000 it is a share of one."""
    models: tuple[str, ...]
    qos: str
    created: int | None
    runtime: int | None

    @property
    def share(self) -> int:
        """Milli-GPU of a share; 0 for whole GPUs and for none."""
        return self.gpu_milli if self.gpus == 1 and self.gpu_milli < 1_000 else 0


Row = TypeVar("Row", NodeRow, PodRow)


class _WrongRowError(ValueError):
    """A row says what it may not."""


def read_nodes(path: Path, faults: list[Fault]) -> list[NodeRow]:
    """The nodes; what is wrong is added to `faults`."""

    def row(cells: dict[str, str]) -> NodeRow:
        gpus = _number(cells, "gpu", MAX_GPUS)
        model = cells["model"]
        if gpus and model not in KNOWN_MODELS:
            raise _WrongRowError(f"model: {model!r} is not one of {_listed(KNOWN_MODELS)}")
        cpu, memory = _number(cells, "cpu_milli"), _number(cells, "memory_mib")
        return NodeRow(_name(cells, "sn"), cpu, memory, gpus, model)

    return _table(path, NODE_COLUMNS, (), row, faults)


def read_pods(path: Path, faults: list[Fault]) -> list[PodRow]:
    """The pods; what is wrong is added to `faults`."""
    return _table(path, POD_COLUMNS, POD_EXTRAS, _pod, faults)


def _pod(cells: dict[str, str]) -> PodRow:
    gpus = _number(cells, "num_gpu", MAX_GPUS)
    milli = _number(cells, "gpu_milli", 1_000)
    if gpus == 1 and milli == 0:
        raise _WrongRowError("gpu_milli: 0, yet num_gpu is 1")
    if gpus > 1 and milli != 1_000:
        raise _WrongRowError(
            f"gpu_milli: {milli} of each of {gpus} GPUs; only one GPU can be shared"
        )
    # The tables repeat a model now and then; once is enough.
    models = tuple(dict.fromkeys(filter(None, cells.get("gpu_spec", "").split("|"))))
    for model in models:
        if model not in KNOWN_MODELS:
            raise _WrongRowError(f"gpu_spec: {model!r} is not one of {_listed(KNOWN_MODELS)}")
    qos = cells.get("qos", "")
    if qos and qos not in QOS_CLASSES:
        raise _WrongRowError(f"qos: {qos!r} is not one of {_listed(QOS_CLASSES)}")
    begun, ended = _time(cells, "scheduled_time"), _time(cells, "deletion_time")
    runtime = ended - begun if begun is not None and ended is not None and ended > begun else None
    cpu, memory = _number(cells, "cpu_milli"), _number(cells, "memory_mib")
    created = _time(cells, "creation_time")
    return PodRow(_name(cells, "name"), cpu, memory, gpus, milli, models, qos, created, runtime)


def _table(
    path: Path,
    columns: tuple[str, ...],
    extras: tuple[str, ...],
    row: Callable[[dict[str, str]], Row],
    faults: list[Fault],
) -> list[Row]:
    rows: list[Row] = []
    seen: dict[str, int] = {}
    try:
        for line, cells in _lines(path, columns, extras):
            try:
                entry = row(cells)
                before = seen.setdefault(entry.name, line)
                if before != line:
                    raise _WrongRowError(f"{entry.name!r} is on line {before} already")
            except _WrongRowError as error:
                faults.append(Fault(f"{path}:{line}", str(error)))
            else:
                rows.append(entry)
    except InvalidInputError as error:
        faults.extend(error.faults)
    return rows


def _lines(
    path: Path, columns: tuple[str, ...], extras: tuple[str, ...]
) -> Iterator[tuple[int, dict[str, str]]]:
    """Line number and cells of each row. Raises InvalidInputError where there is no table."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise _stop(str(path), error.strerror or "cannot be read") from None
    except UnicodeDecodeError:
        raise _stop(f"{path}:1", "is not UTF-8 text") from None
    reader = csv.reader(io.StringIO(text), strict=True)
    try:
        header = next(reader, [])
        missing = [name for name in columns if name not in header]
        if missing:
            wanted = ",".join((*columns, *(f"[{name}]" for name in extras)))
            raise _stop(f"{path}:1", f"no column {', '.join(missing)}; the header is {wanted}")
        for cells in reader:
            if not cells:
                continue
            if len(cells) != len(header):
                message = f"{len(cells)} fields, the header has {len(header)}"
                raise _stop(f"{path}:{reader.line_num}", message)
            yield reader.line_num, dict(zip(header, (cell.strip() for cell in cells), strict=True))
    except csv.Error as error:
        raise _stop(f"{path}:{max(1, reader.line_num)}", f"not CSV: {error}") from None


def _stop(path: str, message: str) -> InvalidInputError:
    return InvalidInputError([Fault(path, " ".join(message.split()))])


def _name(cells: dict[str, str], column: str) -> str:
    name = cells[column]
    if not name or len(name) > 253 or any(c.isspace() or not c.isprintable() for c in name):
        raise _WrongRowError(f"{column}: {name[:60]!r} is not a name")
    return name


def _number(cells: dict[str, str], column: str, most: int = MAX_COUNT) -> int:
    text = cells[column]
    # isdecimal alone takes other scripts' digits; the length guards int() against huge input.
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise _WrongRowError(f"{column}: {text[:60]!r} is not a whole number")
    value = int(text)
    if value > most:
        raise _WrongRowError(f"{column}: {value} is more than {most}")
    return value


def _time(cells: dict[str, str], column: str) -> int | None:
    return _number(cells, column) if cells.get(column) else None


def _listed(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))
