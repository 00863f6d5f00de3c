"""Decides how findings are told: a line each, many alike as one with a count."""

from __future__ import annotations

from trencadis.models.faults import Fault, InvalidInputError


class Report:
    """Collects faults, which stop the import, and warnings, which don't."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self._warnings: dict[str, tuple[str, int]] = {}

    def fault(self, path: str, message: str) -> None:
        """Something essential is missing or can't be read."""
        self.faults.append(Fault(path, " ".join(message.split())))

    def warn(self, path: str, message: str) -> None:
        """Something is not carried over as it stands. The same message again adds to its count."""
        line = " ".join(message.split())
        first, number = self._warnings.get(line, (path, 0))
        self._warnings[line] = (first, number + 1)

    def stop(self) -> None:
        """Raises InvalidInputError if there are faults."""
        if self.faults:
            raise InvalidInputError(self.faults)

    def warnings(self) -> list[Fault]:
        """A line for each kind of finding, at the place where it was met first."""
        return [
            Fault(path, message if number == 1 else f"{message} (and {number - 1} more like it)")
            for message, (path, number) in self._warnings.items()
        ]
