"""Decides what `nvidia-smi mig` lists: instances (-lgi), profiles (-lgip), placements (-lgipp)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from trencadis.adapters.nvidia_smi.topo import plain
from trencadis.models.cluster import MigInstance

_INSTANCE = re.compile(r"\|\s*(\d+)\s+(?:MIG\s+)?(\S+)\s+(\d+)\s+(\d+)\s+(\d+):(\d+)\s*\|")
_PROFILE = re.compile(
    r"\|\s*(\d+)\s+(?:MIG\s+)?(\S+)\s+(\d+)\s+(\d+)/(\d+)\s+([\d.]+)\s+\S+\s+(\d+)\s.*\|"
)
_PLACEMENT = re.compile(r"GPU\s+(\d+)\s+Profile ID\s+(\d+)\s+Placements?\s*:\s*\{([\d,]+)\}:(\d+)")


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile of one GPU."""

    name: str
    free: int
    total: int


@dataclass(slots=True)
class MigLists:
    """All that was listed, by GPU index."""

    instances: dict[int, dict[int, MigInstance]] = field(default_factory=dict)
    """By GPU and instance ID."""
    profiles: dict[int, dict[int, Profile]] = field(default_factory=dict)
    """By GPU and profile ID."""
    starts: dict[int, dict[int, tuple[int, tuple[int, ...]]]] = field(default_factory=dict)
    """Length and legal starts by GPU and profile ID."""
    profile_ids: dict[tuple[int, int], int] = field(default_factory=dict)
    """Profile ID by GPU and instance ID."""

    def gpus(self) -> set[int]:
        """GPUs that have MIG on."""
        return self.instances.keys() | self.profiles.keys() | self.starts.keys()

    def illegal(self) -> list[tuple[int, MigInstance]]:
        """Instances at starts that the placements don't have."""
        return [
            (gpu, instance)
            for gpu, table in self.instances.items()
            for number, instance in table.items()
            if (where := self.starts.get(gpu, {}).get(self.profile_ids[gpu, number])) is not None
            and instance.start not in where[1]
        ]


def read_instances(text: str, into: MigLists) -> bool:
    """Reads `mig -lgi`; whether it was one. A table without instances is one too."""
    lines = plain(text)
    if not any("GPU instances:" in line or "No GPU instances found" in line for line in lines):
        return False
    for line in lines:
        if found := _INSTANCE.fullmatch(line.strip()):
            gpu, profile, number, start = (int(found.group(i)) for i in (1, 3, 4, 5))
            if start <= 15:
                instance = MigInstance(profile=found.group(2), start=start)
                into.instances.setdefault(gpu, {})[number] = instance
                into.profile_ids[gpu, number] = profile
    return True


def read_profiles(text: str, into: MigLists) -> bool:
    """Reads `mig -lgip`; whether it was one."""
    lines = plain(text)
    if not any("GPU instance profiles:" in line for line in lines):
        return False
    for line in lines:
        if found := _PROFILE.fullmatch(line.strip()):
            gpu, number, free, total = (int(found.group(i)) for i in (1, 3, 4, 5))
            into.profiles.setdefault(gpu, {})[number] = Profile(found.group(2), free, total)
    return True


def read_placements(text: str, into: MigLists) -> bool:
    """Reads `mig -lgipp`; whether it was one."""
    found = [match for line in plain(text) if (match := _PLACEMENT.match(line.strip()))]
    for match in found:
        gpu, profile, length = (int(match.group(i)) for i in (1, 2, 4))
        starts = tuple(int(start) for start in match.group(3).split(",") if start)
        into.starts.setdefault(gpu, {})[profile] = (length, starts)
    return bool(found)
