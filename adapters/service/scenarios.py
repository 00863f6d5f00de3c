"""Decides what /v1/whatif answers; the comparison itself is a task that workers are given."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from trencadis.adapters.service.api import Gap, Seconds, Seed, work
from trencadis.adapters.service.config import Config
from trencadis.adapters.service.openapi import body
from trencadis.adapters.service.pool import Pool
from trencadis.adapters.service.shapes import JSON
from trencadis.adapters.service.state import State


def router(config: Config, state: State, pool: Pool) -> APIRouter:
    """The route /v1/whatif."""
    made = APIRouter(prefix="/v1", tags=["solver"])
    limits = config.limits

    @made.post("/whatif", **body("WhatIf", "Object", 422, 503))
    async def whatif(
        request: Request,
        time_limit: Seconds = None,
        gap: Gap = None,
        deterministic: bool = False,
        seed: Seed = 0,
    ) -> Response:
        """A snapshot, or the pushed state, as it is and with changes, each solved.

        `time_limit` is that of each round; together they take no more than one solve may.
        """
        planned = state.planned
        kept = b"" if planned is None else planned.state.snapshot
        plan = b"" if planned is None else planned.text
        header = {
            "task": "whatif",
            "time_limit": time_limit or config.round_seconds,
            "total_seconds": limits.solve_seconds,
            "gap": gap,
            "threads": config.threads,
            "deterministic": deterministic,
            "seed": seed,
            "viewer": request.scope.get("queue"),
            "prices": None if config.prices is None else str(config.prices),
            "snapshot_bytes": len(kept),
            "plan_bytes": len(plan),
        }
        most = limits.solve_seconds * 1.5 + limits.grace_seconds
        done = await work(pool, header, kept + plan + request.scope["body"], most)
        return Response(done.body, media_type=JSON)

    return made
