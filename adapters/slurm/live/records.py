"""Decides whose each job is, and what the import is to believe of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from trencadis.adapters.live.cluster import PREFIX, JobView, State, Terms
from trencadis.adapters.slurm.arrays import read_array
from trencadis.adapters.slurm.constraints import partitions_of, segment_size
from trencadis.adapters.slurm.dependencies import Settled
from trencadis.adapters.slurm.drafts import ENDED, LEAVING, RUNNING, WAITING
from trencadis.adapters.slurm.fields import (
    Record,
    count,
    instant,
    number,
    states,
    text,
    truth,
)
from trencadis.adapters.slurm.gres import SHARED, parse_gres
from trencadis.adapters.slurm.hostlist import HostlistError, expand
from trencadis.adapters.slurm.live.config import SlurmConfig

MAX_ARRAY = 1_000
"""Waiting tasks of one array that a round looks at."""


@dataclass(slots=True)
class Prepared:
    """The records for the import, and the views by job."""

    records: list[dict[str, Any]] = field(default_factory=list)
    views: dict[str, JobView] = field(default_factory=dict)
    partitions: dict[str, list[str]] = field(default_factory=dict)
    users: dict[str, str] = field(default_factory=dict)
    reserved: dict[str, str] = field(default_factory=dict)
    """The reservations that users have their jobs run in."""


def prepare(
    records: Iterable[Record],
    config: SlurmConfig,
    remembered: Mapping[str, Terms],
    now: datetime,
    *,
    blocks: bool = False,
) -> Prepared:
    """Reads all records. Whatever can't be read is left to the import, which says so.

    `blocks`: the topology is of blocks, where jobs may have segments.
    """
    prepared = Prepared()
    listed = [dict(record) for record in records]
    settled = _settled(listed)
    for record in listed:
        record["dependency"] = settled.left(text(record.get("dependency")))
        _prepare(record, config, remembered, now, prepared, blocks)
    return prepared


def _settled(records: Iterable[Record]) -> Settled:
    settled = Settled()
    for record in records:
        found = states(record.get("job_state"))
        for key in ("job_id", "array_job_id"):
            settled.add(count(record.get(key)), _state(found) == "ended", "COMPLETED" in found)
    return settled


def names_of(record: Record) -> list[str]:
    """The jobs that a record stands for, as the import names them."""
    tasks = read_array(record, MAX_ARRAY)
    if tasks is None:
        return [str(number(record.get("job_id")))]
    return [f"{tasks.array}_{task}" for task in tasks.tasks]


def _prepare(
    record: dict[str, Any],
    config: SlurmConfig,
    remembered: Mapping[str, Terms],
    now: datetime,
    prepared: Prepared,
    blocks: bool,
) -> None:
    found = states(record.get("job_state"))
    state = _state(found)
    names = names_of(record)
    reservation = text(record.get("resv_name"))
    if reservation.startswith(PREFIX):
        # A start inside of what we reserved for it: no wish of its user.
        record["resv_name"] = reservation = ""
    listed = partitions_of(record)
    runs_in = config.slurm.runs_in(listed)
    kept_back = _held(record, found)
    handed = kept_back or runs_in != listed
    ours = (
        config.live.scope.has_pools(runs_in)
        and not (config.slurm.opt_out and config.slurm.opt_out in text(record.get("comment")))
        and not count(record.get("het_job_id"))
    )
    if config.live.mode == "shadow":
        managed = ours and state == "released" and not kept_back
    else:
        managed = ours and state == "released" and handed and not _stuck(record, found)
        if handed and state == "released":
            state = "waiting"
    terms = {"ReqNodeList": text(record.get("required_nodes"))}
    if _in_segments(record, blocks):
        # Slurm never starts these on nodes that are required: all others are excluded instead.
        terms = {"ExcNodeList": text(record.get("excluded_nodes"))}
    if any(entry in config.slurm.held_partitions for entry in listed) or any(
        "Partition" in remembered.get(name, {}) for name in names
    ):
        terms["Partition"] = ",".join(listed)
    old = remembered.get(names[0]) if len(names) == 1 else None
    nodes = _nodes(record)
    view = JobView(
        name="",
        state=state,
        title=text(record.get("name")),
        managed=managed,
        stoppable=ours
        and truth(record.get("requeue", True))
        and truth(record.get("batch_flag", True)),
        nodes=nodes if state not in ("waiting", "released") else (),
        gpus=_gpus(record, nodes),
        submit=instant(record.get("submit_time")),
        start=instant(record.get("start_time")),
        end=instant(record.get("end_time")),
        reason=_reason(record, found, state),
        rejected=text(record.get("state_reason")) == "BadConstraints",
        finished="COMPLETED" in found,
        terms=terms,
        changed=old is not None and dict(old) != terms,
    )
    for name in names:
        # A job keeps its number when it is requeued; of two records the living one counts.
        if name not in prepared.views or state != "ended":
            prepared.views[name] = replace(view, name=name)
            prepared.partitions[name] = runs_in
            prepared.users[name] = text(record.get("user_name"))
            if reservation:
                prepared.reserved[name] = reservation
    if state == "ended":
        return
    if state in ("waiting", "released"):
        _waiting(record, view, runs_in, old, now)
    elif state == "leaving" and view.start is None:
        # While a requeued job leaves its nodes, Slurm has no start of it any more.
        record["start_time"] = record.get("submit_time")
    prepared.records.append(record)


def _in_segments(record: Record, blocks: bool) -> bool:
    """Whether it has segments, or may have: releases before 25.05 take them, and tell nowhere."""
    hidden = blocks and "segment_size" not in record and count(record.get("node_count")) > 1
    return hidden or segment_size(record) is not None


def _state(found: frozenset[str]) -> State:
    if found & LEAVING:
        return "leaving"
    if found & WAITING:
        return "released"
    if found & RUNNING:
        return "running"
    return "ended" if found & ENDED else "released"


def _held(record: Record, found: frozenset[str]) -> bool:
    """Whether somebody keeps it back: Slurm marks that by a priority of 0."""
    priority = record.get("priority")
    return (
        truth(record.get("hold"))
        or "REQUEUE_HOLD" in found
        or (priority is not None and number(priority) == 0)
    )


def _stuck(record: Record, found: frozenset[str]) -> bool:
    """Held because something is wrong with it: only a person may let it go."""
    told = f"{text(record.get('state_reason'))} {text(record.get('state_description'))}".lower()
    return "SPECIAL_EXIT" in found or any(
        word in told for word in ("launch", "maxrequeue", "max_requeue", "deadline", "never")
    )


def _waiting(
    record: dict[str, Any],
    view: JobView,
    partitions: list[str],
    old: Terms | None,
    now: datetime,
) -> None:
    record["partition"] = ",".join(partitions)
    if not view.managed:
        record["hold"], record["priority"] = True, 0
        return
    record["job_state"] = "PENDING"
    record["hold"], record["priority"] = False, 1
    waits = bool(text(record.get("dependency")))
    record["state_reason"] = "Dependency" if waits else "None"
    if old is not None:
        for key, term in (("required_nodes", "ReqNodeList"), ("excluded_nodes", "ExcNodeList")):
            if term in old:
                record[key] = old[term]
    eligible = instant(record.get("eligible_time"))
    if not waits and eligible is not None and eligible <= now:
        # When it was let go once is not when its wait began.
        record["eligible_time"] = 0


def _nodes(record: Record) -> tuple[str, ...]:
    try:
        return tuple(expand(text(record.get("nodes"))))
    except HostlistError:
        return ()


def _gpus(record: Record, nodes: tuple[str, ...]) -> dict[str, tuple[int, ...] | None]:
    details = record.get("gres_detail")
    if not isinstance(details, list) or len(details) != len(nodes):
        return {}
    found: dict[str, tuple[int, ...] | None] = {}
    for node, entry in zip(nodes, details, strict=True):
        try:
            gpus = [g for g in parse_gres(text(entry)) if g.name == "gpu" or g.name in SHARED]
        except ValueError:
            continue
        indices = [gres.indices for gres in gpus]
        if gpus:
            known = [i for listed in indices if listed is not None for i in listed]
            found[node] = tuple(known) if None not in indices else None
    return found


def _reason(record: Record, found: frozenset[str], state: State) -> str:
    if state in ("waiting", "released"):
        return text(record.get("state_reason"))
    return "+".join(sorted(found)) if state == "ended" else ""
