"""Decides what /v1 answers: solve, explain, the pushed state and its plan."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from pydantic import ValidationError
from starlette.responses import Response

from trencadis.adapters.service.config import Config
from trencadis.adapters.service.guard import parse
from trencadis.adapters.service.openapi import body, responses
from trencadis.adapters.service.pool import Done, OverloadedError, Pool, WorkerError
from trencadis.adapters.service.shapes import JSON, Failure, answer
from trencadis.adapters.service.state import Planned, Pushed, RejectedError, State, sound
from trencadis.models.base import Record
from trencadis.models.faults import from_pydantic

Seconds = Annotated[float | None, Query(gt=0, le=3_600, description="Time of the solve.")]
Gap = Annotated[float | None, Query(ge=0, le=1, description="Good enough at this gap.")]
Seed = Annotated[int, Query(ge=0, le=2**31 - 1)]
Wait = Annotated[float, Query(ge=0, le=600, description="Seconds to wait for its plan.")]
Format = Annotated[
    Literal["snapshot", "kubernetes"],
    Query(description="A snapshot, or what kubectl prints with -o json (or KAI's archive)."),
]


class Questions(Record):
    """What /v1/explain is asked."""

    jobs: tuple[str, ...] = ()
    """All that wait, in groups of the same reason, where empty."""
    remedies: bool | None = None
    """What would help; yes for named jobs, no for all, where absent."""


async def work(pool: Pool, header: dict[str, Any], content: bytes, seconds: float) -> Done:
    """A worker's answer. Raises Failure where there is none."""
    try:
        return sound(await pool.run(header, content, seconds))
    except OverloadedError:
        raise Failure(429, "all workers are busy", retry_after=5) from None
    except WorkerError as error:
        raise Failure(503, f"no answer: {error}", retry_after=10) from None
    except RejectedError as error:
        raise rejected(error) from None


def rejected(error: RejectedError) -> Failure:
    """What a worker refused, as an answer."""
    if error.status == "invalid":
        return Failure(422, "the input has faults; nothing was done", faults=error.faults)
    if error.status == "no-plan":
        return Failure(422, f"no plan keeps the hard rules: {error.detail}")
    return Failure(503, f"internal error: {error.detail}", retry_after=60)


def router(config: Config, state: State, pool: Pool) -> APIRouter:
    """The routes below /v1."""
    made = APIRouter(prefix="/v1", tags=["solver"])
    limits = config.limits

    @made.post("/solve", **body("Object", "Object", 422, 503))
    async def solve(
        request: Request,
        time_limit: Seconds = None,
        gap: Gap = None,
        deterministic: bool = False,
        seed: Seed = 0,
    ) -> Response:
        """A verified plan for the snapshot in the body; nothing is kept."""
        seconds = min(time_limit or config.round_seconds, limits.solve_seconds)
        header = {
            "task": "solve",
            "time_limit": seconds,
            "gap": gap,
            "threads": config.threads,
            "deterministic": deterministic,
            "seed": seed,
        }
        most = seconds * 1.5 + limits.grace_seconds
        done = await work(pool, header, request.scope["body"], most)
        return Response(done.body, media_type=JSON)

    @made.post("/snapshot", **body("Object", "Object", 403, 422, 503, form="application/zip"))
    async def push(request: Request, format: Format = "snapshot", wait: Wait = 0) -> Response:
        """Takes over the state that schedulers and /v1/explain are answered from."""
        pushed = await _push(request, state, format)
        planned = await state.wait_for(pushed.number, wait) if wait else None
        told = ("fingerprint", "now", "nodes", "jobs", "warnings")
        return answer({key: pushed.header[key] for key in told} | {"planned": planned is not None})

    @made.get("/snapshot", responses=responses("Object", 503))
    async def shown(request: Request) -> Response:
        """The state of the plan, as the token's queue may see it."""
        return await _shown(request, state, pool, limits.solve_seconds, "snapshot")

    @made.get("/plan", responses=responses("Object", 503))
    async def plan(request: Request) -> Response:
        """The latest plan, as the token's queue may see it."""
        return await _shown(request, state, pool, limits.solve_seconds, "plan")

    @made.post("/explain", **body("Object", "Object", 422, 503))
    async def explain(request: Request) -> Response:
        """Why jobs of the pushed state wait, what would help, and when they may start."""
        value = parse(request.scope["body"] or b"{}", limits.depth)
        try:
            asked = Questions.model_validate(value)
        except ValidationError as error:
            faults = [(fault.path, fault.message) for fault in from_pydantic(error)]
            raise Failure(422, "the question has faults", faults=faults) from None
        planned = _planned(state)
        header = {
            "task": "explain",
            "jobs": list(asked.jobs),
            "viewer": request.scope.get("queue"),
            "snapshot_bytes": len(planned.state.snapshot),
        }
        if asked.remedies is not None:
            header["remedies"] = asked.remedies
        content = planned.state.snapshot + planned.text
        done = await work(pool, header, content, limits.solve_seconds)
        return Response(done.body, media_type=JSON)

    return made


def _planned(state: State) -> Planned:
    if state.planned is None:
        why = f": {state.trouble}" if state.trouble else ""
        raise Failure(503, f"there is no plan yet{why}. Maybe push a snapshot", retry_after=5)
    return state.planned


async def _shown(request: Request, state: State, pool: Pool, seconds: float, what: str) -> Response:
    """The state or its plan; what a token bound to a queue may not know is hidden."""
    planned = _planned(state)
    queue = request.scope.get("queue")
    if queue is None:
        content = planned.text if what == "plan" else planned.state.snapshot
        return Response(content, media_type=JSON)
    header = {
        "task": "hide",
        "what": what,
        "viewer": queue,
        "snapshot_bytes": len(planned.state.snapshot),
    }
    done = await work(pool, header, planned.state.snapshot + planned.text, seconds)
    return Response(done.body, media_type=JSON)


async def _push(request: Request, state: State, form: str) -> Pushed:
    if request.scope.get("queue") is not None:
        raise Failure(403, "a token that is bound to a queue may not push the state")
    try:
        return await state.push(form, request.scope["body"])
    except OverloadedError:
        raise Failure(429, "all workers are busy", retry_after=5) from None
    except WorkerError as error:
        raise Failure(503, f"no answer: {error}", retry_after=10) from None
    except RejectedError as error:
        raise rejected(error) from None
