"""What the record says of a job, weeks later: every decision about it, and what became of it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from trencadis.adapters.live.store import Store


def history(store: Store, job: str) -> list[dict[str, Any]]:
    """Events of the job and what the rounds' plans said of it, oldest first.

    Rounds that said the same as the one before are counted, not repeated.
    """
    entries = [
        {"at": at, "round": number, "event": kind, **json.loads(detail)}
        for at, number, kind, detail in store.rows(
            "SELECT at, round, kind, detail FROM events WHERE job = ? ORDER BY id", job
        )
    ]
    rounds = store.rows(
        "SELECT id, at, mode, snapshot, policy, plan FROM rounds WHERE instr(plan, ?) ORDER BY id",
        json.dumps(job),
    )
    before: dict[str, Any] | None = None
    for number, at, mode, snapshot, policy, text in rounds:
        said = _said(json.loads(text), job)
        if said is None:
            continue
        if before is not None and before["said"] == said:
            before["entry"]["until"] = at
            before["entry"]["rounds"] += 1
            continue
        entry = {
            "at": at,
            "round": number,
            "event": "decided",
            "mode": mode,
            "rounds": 1,
            "until": at,
            "snapshot": snapshot,
            "policy": policy,
            **said,
        }
        entries.append(entry)
        before = {"said": said, "entry": entry}
    return sorted(entries, key=lambda entry: (entry["at"], entry["event"] != "decided"))


def _said(plan: dict[str, Any], job: str) -> dict[str, Any] | None:
    """What a plan says of a job."""
    for start in plan.get("starts", ()):
        if start["job"] == job:
            nodes = sorted({task["node"] for task in start["allocation"]})
            return {"decision": "start", "nodes": nodes}
    for preempt in plan.get("preempts", ()):
        if preempt["job"] == job:
            return {"decision": "preempt", "room_for": preempt.get("makes_room_for", [])}
    for move in plan.get("moves", ()):
        if move["job"] == job:
            return {"decision": "move", "nodes": sorted({task["node"] for task in move["to"]})}
    for entry in plan.get("pending", ()):
        if entry["job"] == job:
            kept = [r for r in plan.get("reserves", ()) if r["job"] == job]
            nodes = sorted({task["node"] for reserve in kept for task in reserve["allocation"]})
            more = {"keeps": nodes} if kept else {}
            return {"decision": "wait", "code": entry["code"], "reason": entry["sentence"], **more}
    return None


def sentence(entry: dict[str, Any]) -> str:
    """An entry as a line."""
    at = datetime.fromisoformat(entry["at"]).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    rest = {k: v for k, v in entry.items() if k not in ("at", "event", "snapshot", "policy")}
    pairs = "  ".join(f"{key}: {_word(value)}" for key, value in rest.items() if value is not None)
    return f"{at}  {entry['event']}  {pairs}"


def _word(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    return value if isinstance(value, str) else json.dumps(value)
