"""`trencadis solve --repro`: the same round again, from the one file that a failure left."""

from __future__ import annotations

import json
from typing import Any

import typer

from trencadis.adapters.live.repro import KIND, read_repro
from trencadis.models import Fault, InvalidInputError, Snapshot, load_policy, load_snapshot
from trencadis.solver.round import Options
from trencadis.views import io


def read(context: typer.Context, source: str) -> tuple[Snapshot, Options]:
    """What was solved, and how. The file is a failing round's of `slurm run`, or the one that
    `solve` wrote at an internal error. Raises InvalidInputError."""
    data = io.read(source)
    with io.source_named(source):
        try:
            content = json.loads(data)
        except ValueError as error:
            raise InvalidInputError([Fault("$", f"Invalid JSON: {error}")]) from None
        if isinstance(content, dict) and content.get("kind") == KIND:
            snapshot, options, warnings = read_repro(content)
            io.warn(source, warnings)
            return snapshot, Options(**options)
        return _of_an_error(context, content)


def _of_an_error(context: typer.Context, content: Any) -> tuple[Snapshot, Options]:
    arguments = content.get("arguments") if isinstance(content, dict) else None
    texts = content.get("input") if isinstance(content, dict) else None
    if not isinstance(arguments, list) or arguments[:1] != ["solve"] or not isinstance(texts, dict):
        raise InvalidInputError([Fault("$", "no file that a failing round or `solve` left")])
    given = context.command.make_context("solve", arguments[1:], resilient_parsing=True).params
    missing = [name for name in (given["snapshot"], given["policy"]) if name and name not in texts]
    if missing or given["snapshot"] is None:
        raise InvalidInputError([Fault("$.input", f"{missing or 'the snapshot'} is missing")])
    policy = given["policy"]
    snapshot, _ = load_snapshot(
        texts[given["snapshot"]],
        load_policy(texts[policy], toml=policy.endswith(".toml")) if policy else None,
    )
    rest = {key: given[key] for key in ("gap", "workers", "deterministic", "seed")}
    return snapshot, Options(time_limit_s=given["time_limit"], **rest)
