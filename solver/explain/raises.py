"""How larger limits read in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from trencadis.models.explanation import Raise


def raise_text(entry: Raise) -> str:
    """`queue red from 4 to 8 GPUs`."""
    if entry.owner == "budget":
        return f"the preemption budget from {entry.current} to {entry.needed} jobs"
    whose = {"qos": "QOS"}.get(entry.owner, entry.owner)
    who = f"{whose} {entry.name}" + (" for each user" if entry.per_user else "")
    what = {
        "jobs": "jobs",
        "throttle": "jobs at once",
        "total": "licences",
        "gpus": f"{entry.model} GPUs",
        "gpu_milli": "GPUs",
    }[entry.what]
    if entry.what == "gpu_milli":
        return f"{who} from {entry.current / 1_000:g} to {entry.needed / 1_000:g} {what}"
    return f"{who} from {entry.current} to {entry.needed} {what}"


def beside(raises: Sequence[Raise]) -> str:
    """Raises as the end of another remedy's sentence; empty if there are none."""
    texts = [raise_text(entry) for entry in raises]
    return f", and raise {', and '.join(texts)}" if texts else ""
