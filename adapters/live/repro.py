"""A round as one file: what was to be solved, how, by which versions, and what went wrong."""

from __future__ import annotations

import json
import os
import tempfile
import traceback
from importlib.metadata import version
from pathlib import Path
from typing import Any

from trencadis.models import Fault, InvalidInputError, Snapshot, load_snapshot

KIND = "trencadis-round"


def write_repro(
    directory: Path, snapshot: Snapshot, options: dict[str, object], error: BaseException
) -> Path:
    """Writes the file; returns where it is."""
    content = {
        "kind": KIND,
        "trencadis": version("trencadis"),
        "ortools": version("ortools"),
        "error": "".join(traceback.format_exception(error)),
        "options": options,
        "snapshot": json.loads(snapshot.model_dump_json(exclude_defaults=True)),
    }
    handle, name = tempfile.mkstemp(prefix="trencadis-round-", suffix=".json", dir=directory)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(content, file, indent=1)
    return Path(name)


def read_repro(content: dict[str, Any]) -> tuple[Snapshot, dict[str, Any], list[Fault]]:
    """The snapshot, the options of `solve`, and warnings, of a file of this kind.

    Raises InvalidInputError.
    """
    options = content.get("options", {})
    known = {"time_limit_s", "gap", "workers", "deterministic", "seed"}
    if not isinstance(options, dict) or not options.keys() <= known:
        raise InvalidInputError([Fault("$.options", f"options are {', '.join(sorted(known))}")])
    snapshot, warnings = load_snapshot(json.dumps(content.get("snapshot")))
    return snapshot, options, warnings
