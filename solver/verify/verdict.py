"""What a check of a plan says: which rules it breaks, and what its stages cost."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Violation:
    """One breach of one rule."""

    rule: str
    """The rule's name, such as `gang` or `work-conserving`."""
    message: str
    victim: str = ""
    """The running job that need not stop or shrink, where that is the breach."""

    def __str__(self) -> str:
        return f"{self.rule}: {self.message}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of `verify`.

    A plan that breaks a rule about its form (an unknown job, a missing task) is judged no further:
    then `stages` and `do_nothing` are empty.
    """

    violations: tuple[Violation, ...]
    stages: dict[str, int] = field(default_factory=dict)
    """Recomputed objective by stage name, in lexicographic order."""
    do_nothing: dict[str, int] = field(default_factory=dict)
    """The same if nothing starts."""

    @property
    def legal(self) -> bool:
        """Whether no rule is broken."""
        return not self.violations
