"""Trencadis: exact, proven and explained placement for shared GPU clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from trencadis.models import Delta, Plan, Snapshot
    from trencadis.solver.progress import Progress
    from trencadis.solver.round import Options, solve
    from trencadis.solver.session import Session
    from trencadis.whatif.report.show import show

_HOMES = {
    "Delta": "trencadis.models",
    "Plan": "trencadis.models",
    "Snapshot": "trencadis.models",
    "Options": "trencadis.solver.round",
    "Progress": "trencadis.solver.progress",
    "Session": "trencadis.solver.session",
    "show": "trencadis.whatif.report.show",
    "solve": "trencadis.solver.round",
}


def __getattr__(name: str) -> Any:
    """The library's names, loaded when first asked for: `trencadis --help` needs none of them."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    return getattr(import_module(_HOMES[name]), name)


__all__ = [
    "Delta",
    "Options",
    "Plan",
    "Progress",
    "Session",
    "Snapshot",
    "__version__",
    "show",
    "solve",
]
