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


def read_repro(text: str | bytes) -> tuple[Snapshot, dict[str, Any], list[Fault]]:
    """The snapshot, the options of `solve`, and warnings. Raises InvalidInputError."""
    try:
        content = json.loads(text)
    except ValueError as error:
        raise InvalidInputError([Fault("$", f"Invalid JSON: {error}")]) from None
    if not isinstance(content, dict) or content.get("kind") != KIND:
        raise InvalidInputError([Fault("$.kind", f"not {KIND}: no file of a failing round")])
    options = content.get("options", {})
    known = {"time_limit_s", "gap", "workers", "deterministic", "seed"}
    if not isinstance(options, dict) or not options.keys() <= known:
        raise InvalidInputError([Fault("$.options", f"options are {', '.join(sorted(known))}")])
    snapshot, warnings = load_snapshot(json.dumps(content.get("snapshot")))
    return snapshot, options, warnings
