"""Decides what each GPU is: reads `nvidia-smi -q -x`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from xml.etree import ElementTree

from trencadis.adapters.mig_starts import slices_of
from trencadis.models.faults import Fault, InvalidInputError

_SM_PER_SLICE = {"ampere": 14, "hopper": 16, "blackwell": 18}
"""Streaming multiprocessors of one compute slice; larger instances have a few more."""

_SIZES = (24, 40, 80, 94, 96, 141, 180, 186)
"""Memory of GPUs that can be cut, GB as in their profiles' names; drivers say a bit less."""


@dataclass(frozen=True, slots=True)
class Slice:
    """A MIG instance as the query tells it: without profile and place."""

    instance_id: int
    profile: str
    busy: bool


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU."""

    model: str
    memory_mib: int
    broken: bool
    busy: bool
    """Whether a compute process runs on it."""
    mig: bool
    slices: tuple[Slice, ...]


@dataclass(frozen=True, slots=True)
class Query:
    """The whole document."""

    gpus: tuple[Gpu, ...]
    attached: int
    """GPUs that the node says it has."""
    at: datetime | None


def read_query(text: str, document: str) -> Query:
    """The GPUs in the order of their indices. Raises InvalidInputError."""
    try:
        root = ElementTree.fromstring(text.encode())
    except (ElementTree.ParseError, ValueError, RecursionError) as error:
        raise InvalidInputError([Fault(f"{document}:$", f"not XML: {error}")]) from None
    if root.tag != "nvidia_smi_log":
        message = f"the root is {root.tag[:40]}, not nvidia_smi_log"
        raise InvalidInputError([Fault(f"{document}:$", message)])
    faults: list[Fault] = []
    gpus = tuple(
        _gpu(entry, f"{document}:$.gpu[{index}]", faults)
        for index, entry in enumerate(root.findall("gpu"))
    )
    if not gpus:
        faults.append(Fault(f"{document}:$.gpu", "the document lists no GPU"))
    if faults:
        raise InvalidInputError(faults)
    attached = _text(root, "attached_gpus")
    number = int(attached) if attached.isdecimal() and len(attached) < 5 else len(gpus)
    return Query(gpus, number, _time(_text(root, "timestamp")))


def _gpu(entry: ElementTree.Element, path: str, faults: list[Fault]) -> Gpu:
    model = re.sub(r"\s+", "-", _text(entry, "product_name"))
    if not model:
        faults.append(Fault(f"{path}.product_name", "required field is missing"))
    memory = _mib(entry, "fb_memory_usage/total")
    if memory is None:
        faults.append(Fault(f"{path}.fb_memory_usage.total", "required field is missing"))
    mig = _text(entry, "mig_mode/current_mig") == "Enabled"
    busy = [
        _text(process, "gpu_instance_id")
        for process in entry.findall("processes/process_info")
        if _text(process, "type") != "G"
    ]
    architecture = _text(entry, "product_architecture").lower()
    slices: list[Slice] = []
    for index, device in enumerate(entry.findall("mig_devices/mig_device")):
        profile = _profile(device, architecture, model, memory or 0)
        number = _text(device, "gpu_instance_id")
        if profile is None or not number.isdecimal():
            where = f"{path}.mig_devices.mig_device[{index}]"
            faults.append(Fault(where, "gpu_instance_id or its sizes are missing"))
            continue
        if all(known.instance_id != int(number) for known in slices):
            # Several compute instances may share a GPU instance.
            slices.append(Slice(int(number), profile, number in busy))
    return Gpu(
        model=model or "gpu",
        memory_mib=memory or 0,
        broken=_text(entry, "gpu_reset_status/reset_required") == "Yes"
        or _text(entry, "remapped_rows/remapped_row_failure") == "Yes",
        busy=bool(busy) and not mig,
        mig=mig,
        slices=tuple(slices),
    )


def _profile(device: ElementTree.Element, architecture: str, model: str, memory: int) -> str | None:
    """The profile's name, from the instance's memory and multiprocessors."""
    size = _mib(device, "fb_memory_usage/total")
    count = _text(device, "device_attributes/shared/multiprocessor_count")
    if size is None or not memory or not count.isdecimal():
        return None
    total = slices_of(model)
    length = min(
        (n for n in (1, 2, 4, 8) if n <= total), key=lambda n: abs(n - size * total / memory)
    )
    per_slice = _SM_PER_SLICE.get(architecture)
    if total == 4 and architecture == "blackwell":
        per_slice = 46
    if per_slice is None:
        compute = {1: 1, 2: 2, 4: 3, 8: 7}[length]
    else:
        compute = max(1, min(4 if total == 4 else 7, int(count) // per_slice))
    gigabytes = min(_SIZES, key=lambda known: abs(known - memory / 1_024))
    # Halves are rounded up: 3g.71gb of 141.
    return f"{compute}g.{(2 * gigabytes * length + total) // (2 * total)}gb"


def _text(entry: ElementTree.Element, path: str) -> str:
    found = entry.find(path)
    return "" if found is None or found.text is None else found.text.strip()


def _mib(entry: ElementTree.Element, path: str) -> int | None:
    found = re.fullmatch(r"(\d{1,9}) MiB", _text(entry, path))
    return int(found.group(1)) if found else None


def _time(written: str) -> datetime | None:
    """The time of the query; the node's own clock, taken for UTC, as no zone is printed."""
    try:
        return datetime.strptime(written, "%a %b %d %H:%M:%S %Y").replace(tzinfo=UTC)
    except ValueError:
        return None
