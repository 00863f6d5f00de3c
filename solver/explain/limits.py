"""Which limits, licences, orders and guarantees forbid a start, wherever there may be room."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trencadis.models import Job
from trencadis.models.explanation import Raise, Reason
from trencadis.solver.accounts import Account
from trencadis.solver.explain.said import Said, gpus, names, some
from trencadis.solver.explain.scene import Scene
from trencadis.solver.model.lending import in_use, kept, kept_models
from trencadis.solver.model.order import in_line, pool_of, same_pool

CODES = {"array": Reason.THROTTLE, "licence": Reason.LICENCE}


@dataclass(frozen=True, slots=True)
class Reached:
    """A limit that a start would exceed, in the limit's own units."""

    account: Account
    started: int
    """By jobs that the plan starts."""
    asks: int
    never: bool
    """The job alone is more than the limit."""


def reached(scene: Scene, job: Job, model: str | None) -> list[Reached]:
    """The limits that forbid the job to start on a model, the hopeless ones first."""
    found = []
    for charge in scene.facts.books.charges[job.name]:
        account = scene.facts.books.accounts[charge.account]
        if account.limit is None or (charge.model and charge.model != model):
            continue
        started = scene.ledger.used[charge.account]
        never = charge.amount > account.limit
        if never or started + charge.amount > account.slack:
            found.append(Reached(account, started, charge.amount, never))
    return sorted(found, key=lambda entry: (not entry.never, entry.account.key))


def limited(scene: Scene, job: Job) -> Said | None:
    """The reason if limits forbid every model on which it could run."""
    models = sorted(scene.facts.can_run[job.name], key=lambda model: model or "")
    by_model = [reached(scene, job, model) for model in models]
    if not by_model or not all(by_model):
        return None
    hopeless = [entries for entries in by_model if entries[0].never]
    if len(hopeless) == len(by_model):
        return _never(scene, hopeless[0][0])
    entries = next(entries for entries in by_model if not entries[0].never)
    return _now(scene, entries[0])


def _never(scene: Scene, entry: Reached) -> Said:
    what, asks, limit = _figures(scene, entry, entry.asks), entry.asks, entry.account.limit or 0
    return Said(
        Reason.NEVER_UNDER_LIMIT,
        f"asks for {what}, more than {owner(entry.account)} may ever use: "
        f"{_figures(scene, entry, limit)}",
        {"account": owner(entry.account), "limit": limit, "asks": asks, **_scale(scene, entry)},
    )


def _now(scene: Scene, entry: Reached) -> Said:
    account = entry.account
    used, limit = account.used + entry.started, account.limit or 0
    text = (
        f"{owner(account)} may use {_figures(scene, entry, limit)} at once; "
        f"{_amount(scene, entry, used)} in use"
    )
    if entry.started:
        text += f" ({_amount(scene, entry, entry.started)} by jobs that start now)"
    return Said(
        CODES.get(account.key[0], Reason.LIMIT),
        f"{text}, and it asks for {_amount(scene, entry, entry.asks)}",
        {
            "account": owner(account),
            "limit": limit,
            "used": used,
            "used_by_starts": entry.started,
            "asks": entry.asks,
            **_scale(scene, entry),
        },
    )


def owner(account: Account) -> str:
    """Whose limit it is: `queue red`, `user ann in queue red`."""
    kind, name = account.key[0], account.key[1]
    who = account.key[-1] if kind in ("queue", "qos") else ""
    kind = {"qos": "QOS"}.get(kind, kind)
    return f"user {who} in {kind} {name}" if who else f"{kind} {name}"


def raise_of(scene: Scene, entry: Reached) -> Raise:
    """The least limit under which the job may start."""
    key, account = entry.account.key, entry.account
    needed = account.used + entry.started + entry.asks
    limit = account.limit or 0
    if key[0] == "array":
        return Raise(owner="array", name=key[1], what="throttle", current=limit, needed=needed)
    if key[0] == "licence":
        pool = next(pool for pool in scene.snapshot.licences if pool.name == key[1])
        return Raise(
            owner="licence",
            name=key[1],
            what="total",
            current=pool.total,
            needed=needed + pool.used_elsewhere,
        )
    unit = scene.facts.values.rates.unit
    kind: Literal["queue", "qos"] = "queue" if key[0] == "queue" else "qos"
    if key[2] == "jobs":
        return Raise(
            owner=kind, name=key[1], what="jobs", per_user=bool(key[-1]), current=limit,
            needed=needed,
        )
    if key[2] == "model":
        return Raise(
            owner=kind, name=key[1], what="gpus", model=key[3], per_user=bool(key[-1]),
            current=limit // unit, needed=-(-needed // unit),
        )
    return Raise(
        owner=kind, name=key[1], what="gpu_milli", per_user=bool(key[-1]),
        current=limit * 1_000 // unit, needed=-(-needed * 1_000 // unit),
    )


def _in_gpus(entry: Reached) -> bool:
    return len(entry.account.key) > 2 and entry.account.key[2] in ("gpus", "model")


def _scale(scene: Scene, entry: Reached) -> dict[str, int | str]:
    return {"units_per_gpu": scene.facts.values.rates.unit} if _in_gpus(entry) else {}


def _figures(scene: Scene, entry: Reached, amount: int) -> str:
    """An amount with its noun."""
    key = entry.account.key
    if _in_gpus(entry):
        text = gpus(amount * 1_000 // scene.facts.values.rates.unit)
        return text.replace("GPU", f"{key[3]} GPU") if key[2] == "model" else text
    return some(amount, "licence" if key[0] == "licence" else "job")


def _amount(scene: Scene, entry: Reached, amount: int) -> str:
    """An amount without its noun."""
    return _figures(scene, entry, amount).split(" ")[0]


def order_or_lending(scene: Scene, job: Job) -> Said:
    """The reason of a job that limits allow, but not the rules between jobs and queues."""
    queue = scene.facts.values.tree.queues[job.queue]
    ahead = heads(scene, job)
    if queue.order == "strict_fifo" and ahead:
        return Said(
            Reason.STRICT_ORDER,
            f"queue {job.queue} is strict_fifo, and {names(ahead)} ahead of it "
            f"{'waits' if len(ahead) == 1 else 'wait'}",
            {"queue": job.queue, "ahead": len(ahead), "head": ahead[0]},
        )
    keeping: dict[str, int] = {}
    unit = scene.facts.values.rates.unit
    for model in kept_models(scene.facts):
        used = in_use(scene.facts, model)
        for name, entry in sorted(scene.facts.values.tree.queues.items()):
            index = scene.facts.books.index.get(("use", name, model))
            has = used.get(name, 0) + (0 if index is None else scene.ledger.used[index])
            rest = kept(entry, model, unit) - has
            if rest > 0 and name != job.queue:
                keeping[name] = max(keeping.get(name, 0), rest * 1_000 // unit)
    total = sum(keeping.values())
    return Said(
        Reason.LENDING,
        f"{gpus(total)} stay idle for guarantees that aren't lent: of {names(sorted(keeping))}",
        {"queues": ", ".join(sorted(keeping)), "kept_milli": total},
    )


def heads(scene: Scene, job: Job) -> list[str]:
    """Jobs of its strict_fifo queue that must start first, the foremost first."""
    values = scene.facts.values
    if not in_line(job, values.tree.queues[job.queue]):
        return []

    def rank(other: Job) -> tuple[int, object]:
        return values.worth[other.name].tier, other.submit

    return [
        other.name
        for other in sorted(
            values.eligible.values(), key=lambda other: (*rank(other), other.name)
        )
        if other.queue == job.queue
        and in_line(other, values.tree.queues[job.queue])
        and rank(other) < rank(job)
        and other.name not in scene.ledger.started
        and scene.facts.can_run[other.name]
        and same_pool(pool_of(other), pool_of(job))
    ]
