"""gres.conf of a lab: which file stands for which device."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def gres_conf(gres: Mapping[str, str], devices: Path) -> str:
    """A file for each GPU, or device of MIG; shards are parts of all GPUs of their node."""
    lines = []
    for node, listed in gres.items():
        first = 0
        for device in listed.split(","):
            name, *typed, count = device.split(":")
            line = f"NodeName={node} Name={name}"
            if name == "gpu":
                line += f" Type={typed[0]} File={devices}/nvidia[{first}-{first + int(count) - 1}]"
                first += int(count)
            else:
                line += f" Count={count}"
            lines.append(f"{line}\n")
    return "".join(lines)
