"""From text to a snapshot, a policy or a plan, or to a list of faults."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from typing import TypeVar

from pydantic import ValidationError

from trencadis.models.base import Record
from trencadis.models.check import check
from trencadis.models.collector import paused_collector
from trencadis.models.faults import Fault, InvalidInputError, from_pydantic, json_path
from trencadis.models.mig import MigTable, MigTables
from trencadis.models.plan import Plan
from trencadis.models.policy import Policy
from trencadis.models.snapshot import Snapshot

R = TypeVar("R", bound=Record)

LARGE = 1_000_000
"""Characters above which reading pauses the cycle collector."""


def parse(kind: type[R], text: str | bytes) -> R:
    """The record that the JSON text holds. Raises InvalidInputError with every fault found."""
    decoded = decode(text)
    try:
        with paused_collector(len(decoded) > LARGE):
            record = kind.model_validate_json(decoded)
    except ValidationError as error:
        faults = from_pydantic(error)
        if not any(fault.message.startswith("Invalid JSON") for fault in faults):
            faults += duplicate_keys(decoded)
        raise InvalidInputError(faults) from None
    if doubled := duplicate_keys(decoded):
        raise InvalidInputError(doubled)
    return record


def load_snapshot(
    text: str | bytes,
    policy: Policy | None = None,
    mig_tables: Mapping[str, MigTable] | None = None,
) -> tuple[Snapshot, list[Fault]]:
    """The snapshot, under `policy` if one is given, and what is odd but usable in it.

    `mig_tables` replace the policy's of the same GPU models. Raises InvalidInputError.
    """
    snapshot = parse(Snapshot, text)
    if policy is not None or mig_tables:
        rules = with_mig_tables(policy or snapshot.policy, mig_tables or {})
        snapshot = snapshot.model_copy(update={"policy": rules})
    with paused_collector(len(text) > LARGE):
        return snapshot, check(snapshot)


def load_policy(text: str | bytes, *, toml: bool = False) -> Policy:
    """A policy, from JSON or TOML. Raises InvalidInputError."""
    return _from_toml(Policy, text) if toml else parse(Policy, text)


def load_mig_tables(text: str | bytes, *, toml: bool = False) -> Mapping[str, MigTable]:
    """MIG geometry by GPU model, from JSON or TOML. Raises InvalidInputError."""
    read = _from_toml(MigTables, text) if toml else parse(MigTables, text)
    return read.tables


def with_mig_tables(policy: Policy, tables: Mapping[str, MigTable]) -> Policy:
    """The policy with these tables; those of other GPU models stay."""
    mig = policy.mig.model_copy(
        update={"tables": dict(sorted({**policy.mig.tables, **tables}.items()))}
    )
    return policy.model_copy(update={"mig": mig})


def _from_toml(kind: type[R], text: str | bytes) -> R:
    try:
        fields = tomllib.loads(decode(text))
    except (tomllib.TOMLDecodeError, ValueError) as error:
        raise InvalidInputError([Fault("$", f"Invalid TOML: {error}")]) from None
    except RecursionError:
        raise InvalidInputError([Fault("$", "Invalid TOML: nested too deeply")]) from None
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        raise InvalidInputError(from_pydantic(error)) from None


def load_plan(text: str | bytes) -> Plan:
    """A plan. Raises InvalidInputError."""
    return parse(Plan, text)


def decode(text: str | bytes) -> str:
    """The text without a byte order mark. Raises InvalidInputError if it is empty or not UTF-8."""
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as error:
            byte = error.object[error.start]
            message = f"not UTF-8 text: byte {byte:#04x} at position {error.start}"
            raise InvalidInputError([Fault("$", message)]) from None
    text = text.removeprefix("\ufeff")
    if not text or text.isspace():
        raise InvalidInputError([Fault("$", "the input is empty")])
    return text


class _Pairs(list[tuple[str, object]]):
    """A JSON object with its keys as they were written."""


def duplicate_keys(text: str) -> list[Fault]:
    """Keys that one object has twice; pydantic's parser would silently keep the last.

    The text must be JSON. Costs one more parse, without building anything (0.1 s for 10 MB); paths
    are worked out only if there is something to report.
    """
    found = False

    def look(pairs: list[tuple[str, object]]) -> None:
        nonlocal found
        if len(pairs) > 1 and len(dict(pairs)) != len(pairs):
            found = True

    try:
        json.loads(text, object_pairs_hook=look)
        if not found:
            return []
        document: object = json.loads(text, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError):
        return []
    faults: list[Fault] = []
    todo: list[tuple[tuple[str | int, ...], object]] = [((), document)]
    while todo:
        path, value = todo.pop()
        if isinstance(value, _Pairs):
            seen: set[str] = set()
            for key, inner in value:
                if key in seen:
                    message = "the object has this field twice; keep one"
                    faults.append(Fault(json_path((*path, key)), message))
                seen.add(key)
                todo.append(((*path, key), inner))
        elif isinstance(value, list):
            todo.extend(((*path, index), inner) for index, inner in enumerate(value))
    return faults
