"""From text to a snapshot, a policy or a plan, or to a list of faults."""

from __future__ import annotations

from typing import TypeVar

from pydantic import ValidationError

from trencadis.models.base import Record
from trencadis.models.check import check
from trencadis.models.faults import Fault, InvalidInputError, from_pydantic
from trencadis.models.plan import Plan
from trencadis.models.policy import Policy
from trencadis.models.snapshot import Snapshot

R = TypeVar("R", bound=Record)


def parse(kind: type[R], text: str | bytes) -> R:
    """The record that the JSON text holds. Raises InvalidInputError with every fault found."""
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        raise InvalidInputError(from_pydantic(error)) from None


def load_snapshot(text: str | bytes) -> tuple[Snapshot, list[Fault]]:
    """The snapshot and what is odd but usable in it. Raises InvalidInputError."""
    snapshot = parse(Snapshot, text)
    return snapshot, check(snapshot)


def load_policy(text: str | bytes) -> Policy:
    """A policy. Raises InvalidInputError."""
    return parse(Policy, text)


def load_plan(text: str | bytes) -> Plan:
    """A plan. Raises InvalidInputError."""
    return parse(Plan, text)
