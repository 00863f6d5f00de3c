"""Decides what Volcano's extender plugin is answered; its sessions are the feed of the state."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from trencadis.adapters.kubernetes.fields import at, listed, mapping, text
from trencadis.adapters.service.guard import parse
from trencadis.adapters.service.index import Said, Word
from trencadis.adapters.service.metrics import Metrics
from trencadis.adapters.service.openapi import body
from trencadis.adapters.service.scheduler import wants_gpu, why_not
from trencadis.adapters.service.shapes import Failure, answer
from trencadis.adapters.service.state import State

PLANNED_SCORE = 100.0
UNSCHEDULABLE = 2
"""A predicate's code for a node that may do later."""
ABSTAIN, PERMIT, REJECT = 0, 1, -1

Verb = Callable[[Mapping[str, Any]], tuple[dict[str, Any], Said]]


class Volcano:
    """The verbs, each from its request to its answer."""

    def __init__(self, state: State) -> None:
        self._state = state

    def _word(self, request: Mapping[str, Any], key: str = "task") -> Said:
        task = request.get(key)
        if not isinstance(task, dict):
            raise Failure(400, f"{key}: required object is missing")
        name = f"{text(task.get('Namespace')) or 'default'}/{text(task.get('Name'))}"
        said = self._state.pod(text(task.get("UID")), name)
        if said.word is Word.UNKNOWN and not self._gpu(task):
            return Said(Word.ASIDE)
        return said

    def _gpu(self, task: Mapping[str, Any]) -> bool:
        scalars = mapping(at(task, "Resreq", "ScalarResources"))
        return any(str(key).startswith("nvidia.com/") for key in scalars) or wants_gpu(
            mapping(task.get("Pod"))
        )

    def _job(self, request: Mapping[str, Any]) -> Said:
        job = request.get("job")
        if not isinstance(job, dict):
            raise Failure(400, "job: required object is missing")
        return self._state.job(f"{text(job.get('Namespace')) or 'default'}/{text(job.get('Name'))}")

    def predicate(self, request: Mapping[str, Any]) -> tuple[dict[str, Any], Said]:
        """Whether the task may run on the node: an empty status if so."""
        said = self._word(request)
        node = text(at(request, "node", "Name"))
        if said.word is Word.ASIDE or (said.word is Word.NODE and said.node == node):
            return {"status": "", "code": 0}, said
        return {"status": why_not(said), "code": UNSCHEDULABLE}, said

    def prioritize(self, request: Mapping[str, Any]) -> tuple[dict[str, Any], Said]:
        """Scores by node."""
        said = self._word(request)
        names = [text(node.get("Name")) for node in listed(request.get("nodes"))]
        scores = {name: PLANNED_SCORE if name == said.node else 0.0 for name in names if name}
        return {"nodeScore": scores, "errorMessage": ""}, said

    def victims(self, request: Mapping[str, Any]) -> tuple[dict[str, Any], Said]:
        """Those of the tasks offered that the plan stops for the evictor."""
        said = self._word(request, "evictor")
        if said.word is Word.ASIDE:
            return {"status": ABSTAIN, "victims": []}, said
        chosen = self._state.victims(said.job)
        victims = [
            task
            for task in listed(request.get("evictees"))
            if text(task.get("UID")) in chosen
            or f"{text(task.get('Namespace'))}/{text(task.get('Name'))}" in chosen
        ]
        return {"status": PERMIT if victims else REJECT, "victims": victims}, said

    def overused(self, request: Mapping[str, Any]) -> tuple[dict[str, Any], Said]:
        """No queue is: who may start is told job by job."""
        if not isinstance(request.get("queue"), dict):
            raise Failure(400, "queue: required object is missing")
        return {"overused": False}, Said(Word.ASIDE)

    def enqueueable(self, request: Mapping[str, Any]) -> tuple[dict[str, Any], Said]:
        """Whether the pods of a job should be made: if the plan starts it."""
        said = self._job(request)
        status = {Word.NODE: PERMIT, Word.WAIT: REJECT}.get(said.word, ABSTAIN)
        return {"status": status}, said

    def ready(self, request: Mapping[str, Any]) -> tuple[dict[str, Any], Said]:
        """False only for a job that the plan lets wait."""
        said = self._job(request)
        return {"status": said.word is not Word.WAIT}, said

    def told(self, request: Mapping[str, Any]) -> tuple[dict[str, Any], Said]:
        """Noted: the next session's state has it."""
        if not isinstance(request.get("task"), dict):
            raise Failure(400, "task: required object is missing")
        return {"errorMessage": ""}, Said(Word.ASIDE)

    def enqueued(self, request: Mapping[str, Any]) -> tuple[dict[str, Any], Said]:
        """Noted."""
        return {}, self._job(request)


def router(state: State, metrics: Metrics, depth: int) -> APIRouter:
    """The routes below /volcano."""
    made = APIRouter(prefix="/volcano", tags=["Volcano extender"])
    verbs = Volcano(state)
    table: dict[str, tuple[Verb, str]] = {
        "predicate": (verbs.predicate, "VolcanoTaskNode"),
        "prioritize": (verbs.prioritize, "VolcanoTaskNodes"),
        "preemptable": (verbs.victims, "VolcanoEvictor"),
        "reclaimable": (verbs.victims, "VolcanoEvictor"),
        "queueOverused": (verbs.overused, "VolcanoQueue"),
        "jobEnqueueable": (verbs.enqueueable, "VolcanoJob"),
        "jobEnqueued": (verbs.enqueued, "VolcanoJob"),
        "jobReady": (verbs.ready, "VolcanoJob"),
        "allocateFunc": (verbs.told, "VolcanoTask"),
        "deallocateFunc": (verbs.told, "VolcanoTask"),
    }
    for name, (verb, schema) in table.items():
        made.post(f"/{name}", **body(schema, "Object"))(_route(name, verb, metrics, depth))

    @made.post("/onSessionOpen", **body("VolcanoSession", "Object"))
    async def on_session_open(request: Request) -> Response:
        """The whole cluster, every second or so: the next round is for the latest one."""
        given: bytes = request.scope["body"]
        if not given.lstrip().startswith(b"{"):
            raise Failure(400, "not an object")
        state.feed("volcano", given)
        return answer({})

    @made.post("/onSessionClose", **body("Object", "Object"))
    async def on_session_close(request: Request) -> Response:
        """Nothing to do."""
        parse(request.scope["body"] or b"{}", depth)
        return answer({})

    return made


def _route(
    name: str, verb: Verb, metrics: Metrics, depth: int
) -> Callable[[Request], Awaitable[Response]]:
    counters = {word: metrics.answers.labels(name, word.value) for word in Word}

    async def route(request: Request) -> Response:
        value = parse(request.scope["body"], depth)
        if not isinstance(value, dict):
            raise Failure(400, "not an object")
        result, said = verb(value)
        counters[said.word].inc()
        return answer(result)

    route.__name__ = name
    route.__doc__ = verb.__doc__
    return route
