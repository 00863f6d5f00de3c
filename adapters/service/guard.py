"""Decides which requests get in: token, host, size, and how many at once. Wraps the application."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

import orjson
from starlette.responses import Response

from trencadis.adapters.service.config import Config
from trencadis.adapters.service.metrics import Metrics
from trencadis.adapters.service.shapes import Failure, failure_response

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
Direct = Callable[[bytes], Response]
"""From a body to its answer, without waiting for anything. Raises Failure."""

OPEN = ("/healthz", "/readyz")
"""Answered to anyone: a kubelet's probes bring no token."""
SCHEDULERS = ("/scheduler/", "/volcano/")
LARGE = ("/v1/", "/volcano/onSessionOpen")
log = logging.getLogger("trencadis.service")


class Guard:
    """Middleware."""

    def __init__(
        self, inner: Application, config: Config, metrics: Metrics, direct: Mapping[str, Direct]
    ) -> None:
        """`direct`: what is answered without the framework, as it is asked for each pod."""
        self._inner, self._config, self._metrics = inner, config, metrics
        self._direct = direct
        self._open = 0
        self._observe: dict[str, Any] = {}
        self._count: dict[tuple[str, int], Any] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Lets a request through, or answers it."""
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        started = time.perf_counter()
        status = 500

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self._open += 1
        try:
            await self._answer(scope, receive, noted)
        finally:
            self._open -= 1
            self._note(scope, status, time.perf_counter() - started)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        failure = self._refused(scope, path)
        if failure is None:
            try:
                scope["body"] = await self._body(scope, path, receive)
            except Failure as error:
                failure = error
        if failure is not None:
            await failure_response(path, failure)(scope, receive, send)
            return
        direct = self._direct.get(path)
        if direct is not None and scope["method"] == "POST":
            await self._directly(direct, scope, receive, send)
            return
        body: bytes | None = scope["body"]

        async def replay() -> Message:
            nonlocal body
            if body is None:
                return await receive()
            given, body = body, None
            return {"type": "http.request", "body": given, "more_body": False}

        try:
            await self._inner(scope, replay, send)
        except Exception as error:
            await failure_response(path, internal(error, scope))(scope, receive, send)

    async def _directly(self, direct: Direct, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        scope["direct"] = path
        try:
            response = direct(scope["body"])
        except Failure as error:
            response = failure_response(path, error)
        except Exception as error:
            response = failure_response(path, internal(error, scope))
        await response(scope, receive, send)

    def _refused(self, scope: Scope, path: str) -> Failure | None:
        limits = self._config.limits
        if path in OPEN:
            return None
        if self._open > limits.open_requests:
            return Failure(429, "too many requests at once", retry_after=1)
        headers = dict(scope["headers"])
        tokens = self._config.tokens
        if not tokens.queues:
            return None if self._own_host(headers) else Failure(421, "this host isn't served here")
        if self._config.client_ca is not None and path.startswith(SCHEDULERS):
            return None  # the certificate has told who it is; schedulers send no tokens
        kind, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        known, queue = tokens.find(token.strip())
        if kind.lower() != "bearer" or not known:
            return Failure(401, "a bearer token is needed")
        scope["queue"] = queue
        if queue is not None and path.startswith((*SCHEDULERS, "/metrics")):
            return Failure(403, "a token that is bound to a queue may not ask this")
        return None

    def _own_host(self, headers: dict[bytes, bytes]) -> bool:
        """Without tokens: no web page may talk to us by giving its own name our address."""
        if not self._config.loopback:
            return True
        host = headers.get(b"host", b"").decode("latin-1").rpartition("@")[2]
        name = host[: host.index("]") + 1] if host.startswith("[") and "]" in host else host
        name = name if name.startswith("[") else name.partition(":")[0]
        return name in ("", "localhost", "[::1]") or name.startswith("127.")

    async def _body(self, scope: Scope, path: str, receive: Receive) -> bytes:
        limits = self._config.limits
        most = limits.body_bytes if path.startswith(LARGE) else limits.small_body_bytes
        length = dict(scope["headers"]).get(b"content-length", b"")
        if length.isdigit() and int(length) > most:
            raise Failure(413, f"the body has more than {most} bytes")
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(limits.read_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Failure(400, "the request was cut short")
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > most:
                        raise Failure(413, f"the body has more than {most} bytes")
                    if not message.get("more_body", False):
                        return parts[0] if len(parts) == 1 else b"".join(parts)
        except TimeoutError:
            raise Failure(408, "the body came too slowly") from None

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        path = str(scope.get("direct") or getattr(scope.get("route"), "path", "other"))
        observe = self._observe.get(path)
        if observe is None:
            observe = self._observe[path] = self._metrics.latency.labels(path)
        observe.observe(seconds)
        count = self._count.get((path, status))
        if count is None:
            count = self._count[path, status] = self._metrics.requests.labels(path, str(status))
        count.inc()


def internal(error: Exception, scope: Scope) -> Failure:
    """What is told of a fault of ours; the log gets the rest."""
    log.error("%s %s", scope["method"], scope["path"], exc_info=error)
    detail = f"internal error: {type(error).__name__}; the log has more"
    return Failure(503, detail, retry_after=60)


def parse(body: bytes, depth: int) -> Any:
    """The JSON value. Raises Failure where it is none, or nested too deeply."""
    try:
        value = orjson.loads(body)
    except ValueError as error:
        raise Failure(400, f"not JSON: {error}") from None
    # So few brackets can't nest more deeply; counting is much cheaper than walking.
    if body.count(b"[") + body.count(b"{") > depth and _deeper(value, depth):
        raise Failure(400, f"nested more than {depth} levels deep")
    return value


def _deeper(value: Any, depth: int) -> bool:
    level = [value]
    for _ in range(depth):
        level = (
            [
                inner
                for entry in level
                for inner in (entry.values() if isinstance(entry, dict) else entry)
                if isinstance(inner, dict | list)
            ]
            if level and isinstance(level[0], dict | list)
            else []
        )
        if not level:
            return False
    return True
