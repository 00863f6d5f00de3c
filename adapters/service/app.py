"""Decides how the service is put together; `create_app(config)` is an ASGI application."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import AsyncIterator

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from trencadis import __version__
from trencadis.adapters.service import api, scenarios, scheduler, volcano
from trencadis.adapters.service.binding import Binder
from trencadis.adapters.service.config import Config
from trencadis.adapters.service.guard import Guard
from trencadis.adapters.service.metrics import Metrics
from trencadis.adapters.service.openapi import responses
from trencadis.adapters.service.pool import Pool
from trencadis.adapters.service.shapes import Failure, answer, failure_response
from trencadis.adapters.service.state import State


def create_app(config: Config) -> FastAPI:
    """The application. Raises InvalidInputError where the setting would let anyone in."""
    config.check()
    metrics, binder = Metrics(), Binder(config)
    pool = Pool(config.workers, config.limits.waiting, config.worker)
    state = State(config, pool, metrics, wake=binder.wake if config.kube_api else None)
    metrics.watch(
        state.age,
        lambda: state.fresh,
        lambda: pool.busy,
        lambda: pool.waiting,
        lambda: pool.killed,
    )

    @contextlib.asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        await pool.start()
        state.start()
        # The modules stay; walking through their objects takes longer than many an answer.
        gc.collect()
        gc.freeze()
        try:
            yield
        finally:
            await state.stop()
            await pool.close()
            await binder.close()

    app = FastAPI(
        title="Trencadis",
        version=__version__,
        description="Placement for shared GPU clusters: solve, explain, and answer schedulers.",
        lifespan=life,
        docs_url=None,
        redoc_url=None,
    )
    app.state.service = state
    app.state.pool = pool
    app.include_router(api.router(config, state, pool))
    if config.whatif:
        app.include_router(scenarios.router(config, state, pool))
    depth = config.limits.depth
    extender = scheduler.Extender(state, metrics, depth)
    app.include_router(scheduler.router(state, extender, binder, depth))
    app.include_router(volcano.router(state, metrics, depth))

    @app.head("/healthz", include_in_schema=False)
    @app.get("/healthz", tags=["health"], responses=responses("Object"))
    async def healthz() -> Response:
        """Whether the service answers at all."""
        return answer({"status": "ok"})

    @app.head("/readyz", include_in_schema=False)
    @app.get("/readyz", tags=["health"], responses=responses("Object", 503))
    async def readyz() -> Response:
        """Whether schedulers are answered from a plan."""
        if state.fresh:
            return answer({"status": "ok", "plan_age_seconds": round(state.age(), 3)})
        why = state.trouble or ("the plan is stale" if state.planned else "there is no plan yet")
        raise Failure(503, why)

    @app.head("/metrics", include_in_schema=False)
    @app.get("/metrics", tags=["health"], response_class=Response)
    async def show_metrics() -> Response:
        """Prometheus' text form."""
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.exception_handler(Failure)
    async def failed(request: Request, error: Exception) -> Response:
        assert isinstance(error, Failure)
        return failure_response(request.url.path, error)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        faults = [
            (".".join(str(part) for part in entry["loc"]), str(entry["msg"]))
            for entry in error.errors()
        ]
        return failure_response(
            request.url.path, Failure(422, "a parameter is wrong", faults=faults)
        )

    @app.exception_handler(HTTPException)
    async def unknown(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        made = failure_response("", Failure(error.status_code, str(error.detail)))
        for key, value in (error.headers or {}).items():
            made.headers[key] = value
        return made

    direct = {"/scheduler/filter": extender.filter, "/scheduler/prioritize": extender.prioritize}
    app.add_middleware(Guard, config=config, metrics=metrics, direct=direct)
    return app
