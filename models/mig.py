"""MIG geometry: which instances a GPU model can be cut into, at which start positions.

A layout is legal if the memory slices of its instances don't overlap, each starts where its
profile may, no profile occurs more often than it may, and the engines suffice. Start positions
and lengths are in memory slices (`nvidia-smi mig -lgipp`). Package data `mig_tables.json` states
the source and the confidence of each entry; `policy.mig.tables` overrides entries by GPU model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib.resources import files
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from trencadis.models.base import ByName, Count, Name, Positive, Record

Start = Annotated[int, Field(strict=True, ge=0, le=15)]
Slices = Annotated[int, Field(strict=True, ge=1, le=16)]


class MigProfile(Record):
    """A kind of GPU instance."""

    name: Name
    """As `nvidia-smi mig -lgip` calls it, without the word MIG."""
    compute_slices: Slices
    memory_slices: Slices
    """Its length from its start."""
    starts: Annotated[tuple[Start, ...], Field(min_length=1)]
    most: Positive
    """The most of it on one GPU."""
    memory_mib: Count
    """By its name, a GB read as a GiB: what a request for memory is compared with."""
    engines: ByName[Positive] = Field(default_factory=dict)
    """Video, JPEG and optical-flow engines that it takes."""

    @property
    def plain(self) -> bool:
        """Whether it is no variant with more or fewer engines."""
        return not any(mark in self.name for mark in "+-")


class MigTable(Record):
    """What a GPU model can be cut into."""

    memory_slices: Slices
    compute_slices: Slices
    profiles: Annotated[tuple[MigProfile, ...], Field(min_length=1)]
    engines: ByName[Count] = Field(default_factory=dict)
    """Engines of the whole GPU; those not listed don't limit."""
    mode_change: Literal["live", "reset"] = "reset"
    """`reset`: turning MIG on or off takes an idle node; `live`: an idle GPU is enough."""
    source: str = ""
    confidence: Literal["captured", "inferred", "unconfirmed", "given"] = "given"
    """`captured`: placements seen on hardware; `inferred`: from related GPUs or mocks;
    `unconfirmed`: sources disagree; `given`: by the user."""

    @model_validator(mode="after")
    def _fits(self) -> MigTable:
        faults = list(self._faults())
        if faults:
            raise ValueError("\n".join(faults))
        return self

    def _faults(self) -> Iterator[str]:
        """What contradicts itself, a line each."""
        names = [profile.name for profile in self.profiles]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            yield f"profiles given twice: {', '.join(twice)}"
        for profile in self.profiles:
            last = max(profile.starts)
            if last + profile.memory_slices > self.memory_slices:
                yield (
                    f"profile {profile.name} at start {last} reaches beyond the "
                    f"{self.memory_slices} memory slices"
                )
            if profile.compute_slices > self.compute_slices:
                most = self.compute_slices
                yield f"profile {profile.name} has more than the {most} compute slices"
            if len(set(profile.starts)) < len(profile.starts):
                yield f"profile {profile.name} has a start twice"
            for engine, amount in profile.engines.items():
                if amount > self.engines.get(engine, amount):
                    yield (
                        f"profile {profile.name} takes {amount} {engine} engines; "
                        f"the GPU has {self.engines[engine]}"
                    )

    def profile(self, name: str) -> MigProfile | None:
        """The profile of that name."""
        return next((entry for entry in self.profiles if entry.name == name), None)

    def smallest(self, memory_mib: int, compute_milli: int) -> MigProfile | None:
        """The plain profile with the fewest compute, then memory slices that holds a request.

        An exact fit is a fit.
        """
        fitting = [
            entry
            for entry in self.profiles
            if entry.plain
            and entry.memory_mib >= memory_mib
            and entry.compute_slices * 1_000 >= compute_milli * self.compute_slices
        ]
        return min(
            fitting,
            key=lambda entry: (entry.compute_slices, entry.memory_slices, entry.name),
            default=None,
        )


class MigTables(Record):
    """A file of tables, which outrank those of the policy and the built-in ones."""

    tables: ByName[MigTable]
    """By GPU model, as nodes name it."""


class BuiltIn(Record):
    """An entry of the package's data."""

    gpu: Name
    names: tuple[str, ...]
    """Words of a GPU model's name that mean this GPU, all of an entry's at once."""
    memory_gib: Positive
    table: MigTable


@lru_cache(maxsize=1)
def built_in() -> tuple[BuiltIn, ...]:
    """The package's tables, in their order."""
    text = files("trencadis.models").joinpath("mig_tables.json").read_text(encoding="utf-8")
    data = json.loads(text)
    return tuple(_entry(data, entry) for entry in data["gpus"])


def _entry(data: dict[str, Any], entry: dict[str, Any]) -> BuiltIn:
    axis, engines = data["axes"][entry["axis"]], data["engines"][entry["engines"]]
    profiles = []
    for key, gigabytes in entry["gb"].items():
        slices, _, rest = key.partition("g")
        where = axis["profiles"][key]
        profiles.append(
            MigProfile(
                # "1g*2" is one compute slice with the memory of two.
                name=f"{slices}g.{gigabytes}gb{rest.removeprefix('*2')}",
                compute_slices=where["compute"],
                memory_slices=where["memory"],
                starts=tuple(where["starts"]),
                most=where["most"],
                memory_mib=gigabytes * 1_024,
                engines=engines.get(key, {}),
            )
        )
    return BuiltIn(
        gpu=entry["gpu"],
        names=tuple(entry["names"]),
        memory_gib=entry["memory_gib"],
        table=MigTable(
            memory_slices=axis["memory_slices"],
            compute_slices=axis["compute_slices"],
            profiles=tuple(profiles),
            engines=engines["all"],
            mode_change=entry["mode_change"],
            source=entry["source"],
            confidence=entry["confidence"],
        ),
    )


def find_table(model: str, memory_mib: int = 0, profiles: Iterable[str] = ()) -> MigTable | None:
    """The built-in table of a GPU model; None if there is none, or more than one could be meant.

    Where the name tells no memory, `memory_mib` of the GPU decides; where that is 0, the profiles
    seen on such GPUs; else an entry that is the only one of its name.
    """
    words = re.findall(r"[a-z0-9]+", model.lower())
    best: list[BuiltIn] = []
    longest = 0
    for entry in built_in():
        length = max((_length(words, name) for name in entry.names), default=0)
        if length > longest:
            best, longest = [], length
        if length and length == longest:
            best.append(entry)
    told = [int(m.group(1)) for word in words if (m := re.fullmatch(r"(\d+)gb?", word))]
    gib = told[0] if told else memory_mib / 1_024
    if gib:
        near = min((abs(entry.memory_gib - gib) for entry in best), default=0)
        if near > max(2.0, 0.06 * gib):
            return None
        best = [entry for entry in best if abs(entry.memory_gib - gib) == near]
    seen = set(profiles)
    if len(best) > 1 and seen:
        best = [e for e in best if seen <= {profile.name for profile in e.table.profiles}]
    return best[0].table if len(best) == 1 else None


def _length(words: list[str], name: str) -> int:
    """How many words of a name occur in the words, if all of them do; else 0."""
    wanted = name.split()
    return len(wanted) if all(word in words for word in wanted) else 0
