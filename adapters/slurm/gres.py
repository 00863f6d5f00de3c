"""Decides how many of which generic resource a string of Slurm's means, and at which indices."""

from __future__ import annotations

import re
from dataclasses import dataclass

from trencadis.adapters.slurm.hostlist import split_outside_brackets
from trencadis.models.base import MAX_COUNT

_ENTRY = re.compile(r"^(?P<body>[^()]*)(?:\((?P<inside>[^()]*)\))?$", re.DOTALL)
_COUNT = re.compile(r"^(\d{1,18})([KMGTP]?)B?$", re.ASCII | re.IGNORECASE)
_MIG_TYPE = re.compile(r"(?:^|[_.-])\d+g\.\d+gb", re.IGNORECASE)
_INDICES = re.compile(r"IDX:([0-9,\-]+)", re.ASCII)
_PER_GPU = re.compile(r"^\d+/\d+(?:,\d+/\d+)*$", re.ASCII)

SHARED = ("shard", "mps")
"""Resources that stand for a part of a GPU."""

MAX_INDEX = 1_023


@dataclass(frozen=True, slots=True)
class Gres:
    """One entry of a gres string."""

    name: str
    type: str = ""
    count: int = 1
    indices: tuple[int, ...] | None = None
    """None where the string does not tell them."""
    per_gpu: tuple[int, ...] = ()
    """Parts in use on each GPU, of `shard:4(2/8,2/8)`."""

    @property
    def is_gpu(self) -> bool:
        """A whole GPU: not a MIG device, which Slurm counts as one too."""
        return self.name == "gpu" and not self.is_mig

    @property
    def is_mig(self) -> bool:
        """A GPU entry whose type names a MIG profile, as in `a100_3g.20gb`."""
        return self.name == "gpu" and bool(_MIG_TYPE.search(self.type))

    @property
    def key(self) -> str:
        """As a countable resource of the schema: `gres/gpu:1g.10gb`, `gres/nic`."""
        return f"gres/{self.name}:{self.type}" if self.type else f"gres/{self.name}"


def parse_gres(text: str | None) -> list[Gres]:
    """`gpu:h100:4(S:0-1),shard:8`, also with `gres:` or `gres/` in front.

    Raises ValueError where an entry can't be read: better a fault than GPUs nobody counts.
    """
    if text is None or text.strip() in ("", "(null)", "N/A", "none"):
        return []
    return [_entry(part) for part in split_outside_brackets(text)]


def _entry(part: str) -> Gres:
    match = _ENTRY.match(part.replace("(null)", ""))
    if match is None:
        raise ValueError(f"{part[:60]!r} is not a generic resource")
    body = re.sub(r"^gres[:/]", "", match["body"].strip(), flags=re.IGNORECASE)
    # Trackable resources put the count behind an equals sign: gres/gpu:h100=4.
    body = body.replace("=", ":")
    name, *rest = body.split(":")
    amount = 1
    if rest and (number := parse_count(rest[-1])) is not None:
        amount = number
        rest.pop()
    if not name or len(rest) > 2:
        raise ValueError(f"{part[:60]!r} is not a generic resource")
    # `no_consume` in the middle means that jobs do not use it up; there is then no limit to share.
    kinds = [kind for kind in rest if kind not in ("", "no_consume")]
    inside = match["inside"] or ""
    per_gpu: tuple[int, ...] = ()
    if _PER_GPU.match(inside):
        per_gpu = tuple(int(pair.split("/")[0]) for pair in inside.split(","))
    return Gres(name.strip().lower(), kinds[0] if kinds else "", amount, _indices(inside), per_gpu)


def parse_count(text: str) -> int | None:
    """A count with K, M, G, T or P (powers of 1,024); None for anything else."""
    match = _COUNT.match(text.strip())
    if match is None:
        return None
    return int(match[1]) << (10 * " KMGTP".index(match[2].upper() or " "))


def _indices(inside: str) -> tuple[int, ...] | None:
    match = _INDICES.search(inside)
    if match is None:
        return None
    found: set[int] = set()
    for item in match[1].strip(",").split(","):
        low, _, high = item.partition("-")
        if not low.isdecimal() or (high and not high.isdecimal()):
            raise ValueError(f"{inside[:60]!r} has no list of indices")
        if max(int(low), int(high or low)) > MAX_INDEX:
            raise ValueError(f"{inside[:60]!r} has an index above {MAX_INDEX}")
        found.update(range(int(low), int(high or low) + 1))
    return tuple(sorted(found))


def parse_tres(text: str | None) -> dict[str, int]:
    """`cpu=64,mem=1.50T,gres/gpu:h100=16,gres/gpu=16`: memory in MiB, all else as counted.

    Without gres/gpumem and gres/gpuutil, which measure and do not count. Unreadable entries are
    left out: nothing essential is taken from these strings where another field tells it.
    """
    found: dict[str, int] = {}
    for part in (text or "").split(","):
        key, _, value = (piece.strip() for piece in part.partition("="))
        if key in ("gres/gpumem", "gres/gpuutil") or not value:
            continue
        amount = parse_memory(value) if key == "mem" else parse_count(value)
        if amount is not None:
            found[key] = min(amount, MAX_COUNT)
    return found


def parse_memory(text: str) -> int | None:
    """MiB of `500000M`, `62.50G`, `1T`; a bare number is MiB. Rounded up."""
    match = re.fullmatch(r"(\d{1,15})(?:\.(\d{1,6}))?([KMGTP]?)B?", text.strip(), re.ASCII)
    if match is None:
        return None
    decimals = match[2] or ""
    value = int(match[1] + decimals)
    # In steps of 1,024 from MiB, as a fraction: up for G, down for K.
    steps = " KMGTP".index(match[3] or "M") - 2
    over, under = (1 << 10 * steps, 1) if steps >= 0 else (1, 1 << -10 * steps)
    return -(-value * over // (int(f"1{'0' * len(decimals)}") * under))


def gpus_of_tres(tres: dict[str, int]) -> int:
    """GPUs in a trackable-resource string: the total, else the sum over types, never both."""
    typed = [value for key, value in tres.items() if key.startswith("gres/gpu:")]
    return tres.get("gres/gpu", sum(typed))
