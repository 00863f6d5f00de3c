"""Where a reading's documents come from: Slurm's commands, or slurmrestd with them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from trencadis.adapters.live.cluster import RefusedError
from trencadis.adapters.slurm.fields import Record, document
from trencadis.adapters.slurm.hostlist import HostlistError, expand
from trencadis.adapters.slurm.live import show
from trencadis.adapters.slurm.live.commands import Commands
from trencadis.adapters.slurm.live.config import SlurmOptions
from trencadis.adapters.slurm.live.rest import Rest
from trencadis.models import Fault, InvalidInputError

SWITCHES = {"required_switches", "minimum_switches"}
"""What newer releases call the switches that a job asks for."""


@dataclass(frozen=True, slots=True)
class Documents:
    """What one reading needs."""

    jobs: Record
    nodes: Record
    partitions: Record
    reservations: Record
    licenses: Record
    topology: str | None
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def counts_memory(self) -> bool:
        """Whether memory is something that jobs use up; else what they ask for is only a wish."""
        return "MEMORY" in self.settings.get("SelectTypeParameters", "MEMORY").upper()


def read_documents(options: SlurmOptions, run: Commands, rest: Rest | None) -> Documents:
    """All documents, as of about one moment. Raises RefusedError or UnavailableError."""
    settings = show.settings(run("scontrol", "show", "config"))
    get = rest.document if rest is not None else None
    topology: str | None
    if options.topology_file is not None:
        topology = _file(options.topology_file)
    else:
        try:
            topology = run("scontrol", "show", "topology").strip() or None
        except RefusedError:
            topology = None
    if topology is not None and "Name=" not in topology:
        topology = None  # a sentence that there is none
    jobs = get("jobs") if get else document(run("squeue", "--json", "--states=all"), "jobs")
    return Documents(
        jobs=_with_switches(jobs, run),
        nodes=get("nodes") if get else _nodes(settings, run),
        partitions=show.partitions(run("scontrol", "-o", "show", "partitions")),
        reservations=show.reservations(run("scontrol", "-o", "show", "reservations")),
        licenses=show.licenses(run("scontrol", "-o", "show", "licenses")),
        topology=topology,
        settings=settings,
    )


def _file(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidInputError([Fault("$.slurm.topology_file", f"{path}: {reason}")]) from None


def _nodes(settings: Mapping[str, str], run: Commands) -> Record:
    """sinfo prints groups of nodes since 23.02; since then scontrol prints JSON as well."""
    numbers = settings.get("SLURM_VERSION", "").split(".")[:2]
    version = [int(part) for part in numbers if part.isdecimal()]
    if version >= [23, 2]:
        return document(run("scontrol", "show", "nodes", "--json"), "nodes")
    return document(run("sinfo", "--json"), "nodes")


def _with_switches(jobs: Record, run: Commands) -> Record:
    """The jobs, with the switches that they ask for: before 23.02 only scontrol tells."""
    records = jobs.get("jobs")
    if not isinstance(records, list):
        return jobs
    silent = [r for r in records if isinstance(r, dict) and not r.keys() & SWITCHES]
    if not silent:
        return jobs
    asked = show.switches(run("scontrol", "-o", "show", "jobs"))
    for record in silent:
        job = str(record.get("job_id"))
        entries = asked.get(job, [])
        several_lines = any(isinstance(v, str) and len(v.splitlines()) > 1 for v in record.values())
        if entries and (len(entries) > 1 or several_lines):
            with contextlib.suppress(RefusedError):  # gone meanwhile
                alone = run("scontrol", "-o", "show", "job", job)
                entries = [show.switches_of(" ".join(alone.splitlines()))]
        if len(entries) == 1 and entries[0] is not None:
            record["required_switches"] = entries[0]
    return jobs


def without_ours(
    documents: Documents, prefix: str, now: datetime
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Nodes and reservations without our own: what they keep, the plan keeps already."""
    mine: set[str] = set()
    theirs: set[str] = set()
    others = []
    for entry in documents.reservations.get("reservations", []):
        ours = str(entry["name"]).startswith(prefix)
        if not ours:
            others.append(entry)
        if ours or int(entry["start_time"]) <= now.timestamp():
            with contextlib.suppress(HostlistError):  # the import says so
                (mine if ours else theirs).update(expand(str(entry["node_list"] or "")))
    nodes = dict(documents.nodes)
    freed = mine - theirs
    if freed and isinstance(nodes.get("nodes"), list):
        nodes["nodes"] = [_freed(node, freed) for node in nodes["nodes"]]
    return nodes, {"reservations": others}


def _freed(node: Any, freed: set[str]) -> Any:
    # By its name: before 23.02 a node doesn't tell which reservation it is in.
    if not isinstance(node, dict) or str(node.get("name", "")) not in freed:
        return node
    state: Any = node.get("state")
    if isinstance(state, str):
        state = "+".join(part for part in state.split("+") if part.upper() != "RESERVED") or "IDLE"
    elif isinstance(state, list):
        state = [part for part in state if str(part).upper() != "RESERVED"] or ["IDLE"]
    flags = [flag for flag in node.get("state_flags", ()) if str(flag).upper() != "RESERVED"]
    return {**node, "state": state, "state_flags": flags, "reservation": ""}
