"""What each eligible job uses up: limits, licences, guarantees, lending. One account per rule."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from trencadis.models import Job, Limits, Missing, Snapshot
from trencadis.solver.capacity import running_model
from trencadis.solver.worth import Values

UNLIMITED = Limits()


class Charge(NamedTuple):
    """A job's amount on an account."""

    account: int
    amount: int
    model: str
    """Counts only on this GPU model; always where empty."""


@dataclass(slots=True)
class Account:
    """A sum over started jobs that some rule bounds."""

    key: tuple[str, ...]
    used: int = 0
    """By running and draining jobs."""
    limit: int | None = None
    """None: the account is only read, by guarantees or lending."""
    asked: int = 0
    """By all eligible jobs together."""

    @property
    def slack(self) -> int:
        """How much may start; the limit may be overdrawn already."""
        assert self.limit is not None
        return max(0, self.limit - self.used)


@dataclass(frozen=True, slots=True)
class Books:
    """All accounts, and the charges by job name."""

    accounts: tuple[Account, ...]
    charges: Mapping[str, tuple[Charge, ...]]
    index: Mapping[tuple[str, ...], int]
    held: Mapping[str, tuple[Charge, ...]]
    """What running and draining jobs have in use, by name."""


@dataclass(slots=True)
class _Ledger:
    accounts: dict[tuple[str, ...], Account] = field(default_factory=dict)
    lines: defaultdict[str, list[tuple[tuple[str, ...], int, str]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def charge(
        self,
        job: Job,
        running: bool,
        on: str | None,
        key: tuple[str, ...],
        amount: int,
        limit: int | None,
        model: str = "",
    ) -> None:
        if not amount:
            return
        account = self.accounts.setdefault(key, Account(key))
        if limit is not None:
            account.limit = limit if account.limit is None else min(account.limit, limit)
        if running:
            if model and model != on:
                return
            account.used += amount
        else:
            account.asked += amount
        self.lines[job.name].append((key, amount, model))


def books(snapshot: Snapshot, worths: Values, read: set[tuple[str, ...]]) -> Books:
    """Opens the accounts. `read`: keys ('use', queue, model) that guarantees or lending need."""
    ledger = _Ledger()
    nodes = {node.name: node for node in snapshot.nodes}
    qos = {entry.name: entry for entry in snapshot.qos}
    pools = {pool.name: max(0, pool.total - pool.used_elsewhere) for pool in snapshot.licences}
    watched: defaultdict[str, list[str]] = defaultdict(list)
    for _, queue, model in sorted(read):
        watched[queue].append(model)
    limits = {q.name: q.limit for q in snapshot.queues if q.limit != UNLIMITED}
    throttles: dict[str, int] = {}
    for job in snapshot.jobs:
        if job.array:
            known = throttles.get(job.array.name, job.array.throttle)
            throttles[job.array.name] = min(known, job.array.throttle)
    for job in snapshot.jobs:
        if not job.on_nodes and job.name not in worths.eligible:
            continue
        running = job.on_nodes
        on = running_model(job, nodes) if running else None
        units = worths.rates.sizes.job(job)
        if job.qos is not None:
            _limits(ledger, job, units, on, ("qos", job.qos), qos[job.qos].limit, worths)
        for name in worths.tree.chain(job.queue):
            for model in watched.get(name, ()):
                if not model or not job.gpu_models or model in job.gpu_models:
                    ledger.charge(job, running, on, ("use", name, model), units, None, model)
            if name in limits:
                _limits(ledger, job, units, on, ("queue", name), limits[name], worths)
        if job.array:
            key = ("array", job.array.name)
            ledger.charge(job, running, on, key, 1, throttles[job.array.name])
        for name, amount in job.licences.items():
            ledger.charge(job, running, on, ("licence", name), amount, pools[name])
    return _close(ledger, worths)


def _limits(
    ledger: _Ledger,
    job: Job,
    units: int,
    on: str | None,
    owner: tuple[str, str],
    limits: Limits,
    worths: Values,
) -> None:
    unit, running = worths.rates.unit, job.on_nodes
    for quota, who in ((limits.quota, ""), (limits.quota_per_user, job.user)):
        total = quota.total_milli()
        if total is not None:
            ledger.charge(job, running, on, (*owner, "gpus", who), units, total * unit // 1_000)
        for model, gpus in quota.by_model.items():
            if running or not job.gpu_models or model in job.gpu_models:
                where = (*owner, "model", model, who)
                ledger.charge(job, running, on, where, units, gpus * unit, model)
    for count, who in ((limits.jobs, ""), (limits.jobs_per_user, job.user)):
        # What a gang lacks is part of a job that counts already.
        if count is not None and not isinstance(job, Missing):
            ledger.charge(job, running, on, (*owner, "jobs", who), 1, count)


def _close(ledger: _Ledger, worths: Values) -> Books:
    """Leaves out limits that can't bind, so that they don't split classes."""
    kept = [
        account
        for account in ledger.accounts.values()
        if account.limit is None or account.asked > account.slack
    ]
    kept.sort(key=lambda account: account.key)
    index = {account.key: i for i, account in enumerate(kept)}
    charges = {
        name: tuple(
            sorted(
                Charge(index[key], amount, model) for key, amount, model in lines if key in index
            )
        )
        for name, lines in ledger.lines.items()
    }
    return Books(
        accounts=tuple(kept),
        charges={name: charges.get(name, ()) for name in worths.eligible},
        index=index,
        held={name: lines for name, lines in charges.items() if name not in worths.eligible},
    )
