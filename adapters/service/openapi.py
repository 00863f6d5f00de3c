"""Decides what the OpenAPI document says of bodies that are read without pydantic, for speed."""

from __future__ import annotations

from typing import Any

STRING = {"type": "string"}
OBJECT: dict[str, Any] = {"type": "object"}
_META = {
    "type": "object",
    "properties": {"name": STRING, "namespace": STRING, "uid": STRING},
}
_POD = {
    "type": "object",
    "properties": {"metadata": _META, "spec": OBJECT, "status": OBJECT},
    "required": ["metadata"],
}
_NODE = {"type": "object", "properties": {"metadata": _META}, "required": ["metadata"]}
_TASK = {
    "type": "object",
    "properties": {"UID": STRING, "Name": STRING, "Namespace": STRING, "Pod": OBJECT},
    "required": ["Name"],
}
_NAMED = {"type": "object", "properties": {"Name": STRING, "Namespace": STRING}}
_VICTIMS = {
    "type": "object",
    "properties": {
        "Pods": {"type": "array", "items": {"type": "object", "properties": {"UID": STRING}}},
        "NumPDBViolations": {"type": "integer"},
    },
}


def _record(required: dict[str, Any], **optional: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": required | optional,
        "required": list(required),
    }


SCHEMAS: dict[str, dict[str, Any]] = {
    "Object": OBJECT,
    "ExtenderArgs": _record(
        {"Pod": _POD},
        NodeNames={"type": ["array", "null"], "items": STRING},
        Nodes={
            "type": ["object", "null"],
            "properties": {"items": {"type": "array", "items": _NODE}},
        },
    ),
    "ExtenderFilterResult": _record(
        {"Error": STRING},
        NodeNames={"type": ["array", "null"], "items": STRING},
        Nodes={"type": ["object", "null"]},
        FailedNodes={"type": "object", "additionalProperties": STRING},
        FailedAndUnresolvableNodes={"type": "object", "additionalProperties": STRING},
    ),
    "HostPriorityList": {
        "type": "array",
        "items": _record(
            {"Host": STRING, "Score": {"type": "integer", "minimum": 0, "maximum": 10}}
        ),
    },
    "ExtenderPreemptionArgs": _record(
        {"Pod": _POD},
        NodeNameToMetaVictims={"type": ["object", "null"], "additionalProperties": _VICTIMS},
        NodeNameToVictims={"type": ["object", "null"], "additionalProperties": _VICTIMS},
    ),
    "ExtenderPreemptionResult": _record(
        {"NodeNameToMetaVictims": {"type": "object", "additionalProperties": _VICTIMS}}
    ),
    "ExtenderBindingArgs": _record(
        {"PodName": STRING, "PodNamespace": STRING, "Node": STRING}, PodUID=STRING
    ),
    "ExtenderBindingResult": _record({"Error": STRING}),
    "VolcanoSession": _record({}, Jobs=OBJECT, Nodes=OBJECT, Queues=OBJECT),
    "VolcanoTaskNode": _record({"task": _TASK, "node": _NAMED}),
    "VolcanoTaskNodes": _record({"task": _TASK, "nodes": {"type": "array", "items": _NAMED}}),
    "VolcanoEvictor": _record({"evictor": _TASK, "evictees": {"type": "array", "items": _TASK}}),
    "VolcanoQueue": _record({"queue": _NAMED}),
    "VolcanoJob": _record({"job": _NAMED}),
    "VolcanoTask": _record({"task": _TASK}),
    "WhatIf": _record(
        {"scenarios": {"type": "array", "items": OBJECT, "minItems": 1, "maxItems": 16}},
        snapshot=OBJECT,
        fabric=STRING,
    ),
    "Problem": _record(
        {"type": STRING, "title": STRING, "status": {"type": "integer"}, "detail": STRING},
        faults={"type": "array", "items": _record({"path": STRING, "message": STRING})},
    ),
}

FAILURES = {
    400: "The request is malformed.",
    401: "A bearer token is needed.",
    403: "This token may not ask this.",
    408: "The body came too slowly.",
    413: "The body is too large.",
    421: "This host isn't served here.",
    422: "The snapshot, plan or objects have faults; each is listed.",
    429: "Too many requests at once; Retry-After tells when to come again.",
    503: "A worker died or was stopped, or there is no plan yet; it may be tried again.",
}


def body(schema: str, result: str, *codes: int, form: str = "") -> dict[str, Any]:
    """Options of a route: its request and its answers. `form`: a media type beside JSON."""
    content = {"application/json": {"schema": SCHEMAS[schema]}}
    if form:
        content[form] = {"schema": {"type": "string", "format": "binary"}}
    extra = {"requestBody": {"required": True, "content": content}}
    return {"openapi_extra": extra, "responses": responses(result, *codes)}


def responses(result: str, *codes: int) -> dict[int | str, dict[str, Any]]:
    """What a route may answer."""
    found: dict[int | str, dict[str, Any]] = {
        200: {
            "description": "Done.",
            "content": {"application/json": {"schema": SCHEMAS[result]}},
        }
    }
    for code in sorted({*codes, 400, 401, 403, 408, 413, 421, 429}):
        if code != 200:
            found[code] = {"description": FAILURES.get(code, "Done.")}
    return found
