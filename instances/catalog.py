"""Which example snapshots ship with the package, and how to get one."""

from __future__ import annotations

from importlib.resources import files

from trencadis.models import Snapshot, load_snapshot

SUFFIX = ".json"


def names() -> tuple[str, ...]:
    """The examples, by name, in alphabetical order."""
    entries = files(__package__).iterdir()
    return tuple(
        sorted(entry.name.removesuffix(SUFFIX) for entry in entries if entry.name.endswith(SUFFIX))
    )


def text(name: str) -> str:
    """The example's JSON text, as it is in the file. LookupError where there is no such example."""
    known = names()
    if name not in known:
        raise LookupError(f"no example named {name!r}; there are {', '.join(known)}")
    return files(__package__).joinpath(name + SUFFIX).read_text(encoding="utf-8")


def load(name: str) -> Snapshot:
    """The example as a checked snapshot. LookupError where there is no such example."""
    snapshot, _ = load_snapshot(text(name))
    return snapshot
