"""What a snapshot's parts must agree on; raises every fault, returns what is odd but usable."""

from __future__ import annotations

from trencadis.models.faults import Fault, InvalidInputError
from trencadis.models.snapshot import Snapshot


def check(snapshot: Snapshot) -> list[Fault]:
    """Warnings. Raises InvalidInputError where the snapshot contradicts itself."""
    faults: list[Fault] = []
    warnings: list[Fault] = []
    if faults:
        raise InvalidInputError(faults)
    return warnings
