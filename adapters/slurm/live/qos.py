"""What `sacctmgr show qos` tells: limits, and whether Slurm preempts between QOS."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from trencadis.adapters.live.cluster import RefusedError, UnavailableError
from trencadis.adapters.slurm.fields import name
from trencadis.adapters.slurm.gres import gpus_of_tres, parse_tres
from trencadis.models import Fault, Limits, Qos, Quota

FORMAT = "Name,GrpTRES,MaxTRESPU,GrpJobs,MaxJobsPU,Preempt"


@dataclass(slots=True)
class QosLimits:
    """Asked at each reading, as administrators change them; what was told last counts meanwhile.

    The controller goes on where its accounting database is away, and so do the rounds.
    """

    run: Callable[..., str]
    known: tuple[Qos, ...] = ()
    """What was told last."""

    def read(self, settings: Mapping[str, str]) -> Sequence[Fault]:
        """Brings `known` up to date. Warns where the database doesn't tell."""
        kind = settings.get("AccountingStorageType", "")
        if kind in ("accounting_storage/none", "(null)"):
            self.known = ()
            return ()
        try:
            table = qos_table(self.run)
        except UnavailableError as error:
            since = "what it told last counts" if self.known else "there are none for now"
            return (Fault("sacctmgr", f"limits of QOS aren't told: {error}; {since}"),)
        self.known = () if table is None else read_qos(table)
        return ()


def qos_table(run: Callable[..., str]) -> str | None:
    """What the accounting database tells of QOS; None where there is none."""
    try:
        return run("sacctmgr", "-nP", "show", "qos", f"format={FORMAT}")
    except RefusedError:
        return None


def read_qos(text: str) -> tuple[Qos, ...]:
    """From `sacctmgr -nP show qos format=` with FORMAT: a QOS per line, fields split by `|`."""
    return tuple(
        Qos(
            name=name(fields[0], "qos"),
            limit=Limits(
                quota=_quota(fields[1]),
                quota_per_user=_quota(fields[2]),
                jobs=_count(fields[3]),
                jobs_per_user=_count(fields[4]),
            ),
        )
        for fields in _rows(text)
    )


def preempting(text: str) -> list[str]:
    """The QOS that may preempt others."""
    return [fields[0] for fields in _rows(text) if fields[5]]


def _rows(text: str) -> list[list[str]]:
    width = FORMAT.count(",") + 1
    rows = (line.split("|") for line in text.splitlines() if line.strip())
    return [fields for fields in rows if len(fields) >= width and fields[0]]


def _quota(tres: str) -> Quota:
    """GPUs in all, and by model; other resources have no limit in the schema."""
    limits = parse_tres(tres)
    typed = {
        key.split(":", 1)[1]: value for key, value in limits.items() if key.startswith("gres/gpu:")
    }
    total = gpus_of_tres(limits) if "gres/gpu" in limits else None
    return Quota(gpus=total, by_model=typed)


def _count(text: str) -> int | None:
    return int(text) if text.isdecimal() else None
