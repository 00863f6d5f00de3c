"""Decides what a fault looks like to whoever asked: each interface has a shape of its own."""

from __future__ import annotations

from typing import Any

import orjson
from starlette.responses import Response

JSON = "application/json"
PROBLEM = "application/problem+json"


class Failure(Exception):  # noqa: N818 - it is an answer, not a fault of the program
    """A request can't be answered as it asks."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        faults: list[tuple[str, str]] | None = None,
        retry_after: int | None = None,
    ) -> None:
        self.status, self.detail, self.retry_after = status, detail[:2_000], retry_after
        self.faults = faults or []
        super().__init__(detail)


def answer(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """JSON."""
    return Response(orjson.dumps(content), status, headers, JSON)


# What Volcano reads where a verb failed: it takes no part. Anything but 200 ends its session early.
_VOLCANO: dict[str, Any] = {
    "prioritize": lambda text: {"nodeScore": {}, "errorMessage": text},
    "predicate": lambda text: {"status": text, "code": 1},
    "preemptable": lambda _: {"status": 0, "victims": []},
    "reclaimable": lambda _: {"status": 0, "victims": []},
    "queueOverused": lambda _: {"overused": False},
    "jobEnqueueable": lambda _: {"status": 0},
    "jobEnqueued": lambda text: {"errorMessage": text},
    "jobReady": lambda _: {"status": True},
    "allocateFunc": lambda text: {"errorMessage": text},
    "deallocateFunc": lambda text: {"errorMessage": text},
}


def failure_response(path: str, failure: Failure) -> Response:
    """The failure in the shape of the path's interface."""
    headers: dict[str, str] = {}
    if failure.retry_after is not None:
        headers["Retry-After"] = str(failure.retry_after)
    if failure.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    told = failure.status in (401, 403, 408, 413, 421, 429, 503)
    verb = path.rpartition("/")[2]
    if path.startswith("/scheduler/"):
        # Go's client looks at Error only behind a 200; overload and refusals keep their status.
        status = failure.status if told or verb in ("prioritize", "preempt") else 200
        content: Any = {"Error": failure.detail}
        if verb == "filter":
            empty: dict[str, Any] = {"Nodes": None, "NodeNames": None, "FailedNodes": {}}
            content = empty | {"FailedAndUnresolvableNodes": {}} | content
        return answer(content, status, headers)
    if path.startswith("/volcano/"):
        shape = _VOLCANO.get(verb)
        if shape is not None:
            return answer(shape(failure.detail), failure.status if told else 200, headers)
        return answer({"errorMessage": failure.detail}, failure.status, headers)
    content = {
        "type": "about:blank",
        "title": _TITLES.get(failure.status, "Error"),
        "status": failure.status,
        "detail": failure.detail,
    }
    if failure.faults:
        content["faults"] = [{"path": p, "message": m} for p, m in failure.faults]
    response = answer(content, failure.status, headers)
    response.headers["content-type"] = PROBLEM
    return response


_TITLES = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    409: "Conflict",
    413: "Content Too Large",
    421: "Misdirected Request",
    422: "Unprocessable Content",
    429: "Too Many Requests",
    503: "Service Unavailable",
}
