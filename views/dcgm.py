"""Jobs that would fit a part of a GPU, as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trencadis.views import words
from trencadis.views.io import clean

if TYPE_CHECKING:
    from rich.console import RenderableType


def advice_view(
    jobs: Sequence[Mapping[str, Any]], freed: Sequence[Mapping[str, Any]]
) -> Iterator[RenderableType]:
    """The jobs, then what would be free by model of GPU. Records as `--json` prints them."""
    if not jobs:
        yield "No sample names a job."
        return
    columns = ("job", "GPU", "has", "busy", "MiB", "MIG profile", "share", "")
    table = words.table("Jobs, by the most that was seen", *columns, right=("busy", "MiB"))
    for entry in jobs[: words.MAX_ROWS]:
        share = entry["share_milli"]
        table.add_row(
            clean(entry["job"]),
            clean(entry["model"]),
            clean(entry["now"]),
            f"{100 * entry['activity']:.1f} %",
            words.number(entry["used_mib"]),
            clean(entry["profile"] or "-"),
            "-" if share is None else f"{words.gpus(share)}, {entry['share_mib']:,} MiB",
            "idle" if entry["idle"] else entry["why_not"],
        )
    yield table
    if left := words.fold(len(jobs)):
        yield left
    models = ("GPU", "jobs that fit less", "free by MIG", "free by shares", "idle")
    table = words.table("Whole GPUs that this would free", *models, right=models[1:])
    for entry in freed:
        by_mig = entry["by_mig"]
        table.add_row(
            clean(entry["model"]),
            words.number(entry["jobs"]),
            "-" if by_mig is None else f"{by_mig:,}{'' if entry['mig_proven'] else ' or more'}",
            words.number(entry["by_share"]),
            words.number(entry["idle"]),
        )
    if freed:
        yield table
