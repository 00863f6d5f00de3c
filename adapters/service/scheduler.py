"""Decides what kube-scheduler's extender answers: filter, prioritize, preempt, bind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from trencadis.adapters.kubernetes.fields import at, listed, mapping, quantity, text
from trencadis.adapters.service.binding import Binder
from trencadis.adapters.service.guard import parse
from trencadis.adapters.service.index import Said, Word
from trencadis.adapters.service.metrics import Metrics
from trencadis.adapters.service.openapi import body
from trencadis.adapters.service.shapes import Failure, answer
from trencadis.adapters.service.state import State

MAX_SCORE = 10
GPU_PREFIXES = ("nvidia.com/", "amd.com/gpu")


def field(record: Mapping[str, Any], key: str) -> Any:
    """The value of a Go field: keys come capitalised, but Go itself reads any case."""
    if key in record:
        return record[key]
    wanted = key.lower()
    return next((value for known, value in record.items() if str(known).lower() == wanted), None)


@dataclass(frozen=True, slots=True)
class Asked:
    """A pod, and the nodes in question."""

    pod: Mapping[str, Any]
    uid: str
    name: str
    nodes: list[Any] | None
    """Node objects, where the scheduler sends them."""
    names: list[str]


def asked(value: Any) -> Asked:
    """ExtenderArgs. Raises Failure."""
    if not isinstance(value, dict):
        raise Failure(400, "not an object")
    pod = field(value, "Pod")
    if not isinstance(pod, dict):
        raise Failure(400, "Pod: required object is missing")
    uid, name = pod_keys(pod)
    names = field(value, "NodeNames")
    nodes = field(value, "Nodes")
    if isinstance(names, list):
        if not all(isinstance(entry, str) for entry in names):
            raise Failure(400, "NodeNames: not a list of strings")
        return Asked(pod, uid, name, None, names)
    items = field(nodes, "Items") if isinstance(nodes, dict) else None
    if not isinstance(items, list):
        raise Failure(400, "NodeNames or Nodes: required list is missing")
    found = [text(at(item, "metadata", "name")) for item in items]
    return Asked(pod, uid, name, items, found)


def pod_keys(pod: Mapping[str, Any]) -> tuple[str, str]:
    """UID and namespace/name."""
    meta = mapping(pod.get("metadata"))
    name = text(meta.get("name"))
    return text(meta.get("uid")), f"{text(meta.get('namespace')) or 'default'}/{name}"


def wants_gpu(pod: Mapping[str, Any]) -> bool:
    """Whether a container asks for GPUs: such pods wait for the plan, others don't."""
    for container in listed(at(pod, "spec", "containers")):
        for table in mapping(container.get("resources")).values():
            for key, value in mapping(table).items():
                if str(key).startswith(GPU_PREFIXES) and quantity(value):
                    return True
    return bool(listed(at(pod, "spec", "resourceClaims")))


def word_on(pod: Mapping[str, Any], uid: str, name: str, state: State) -> Said:
    """The plan's word; pods that it doesn't know wait for the next state if they want GPUs."""
    said = state.pod(uid, name)
    if said.word is Word.UNKNOWN and not wants_gpu(pod):
        return Said(Word.ASIDE)
    return said


def why_not(said: Said) -> str:
    """Why a node is none for the pod, in a line for its events."""
    if said.word is Word.NODE:
        return f"the plan has {said.node} for it"
    if said.word is Word.WAIT:
        return said.reason
    return "not in the plan yet"


def filtered(question: Asked, said: Said) -> dict[str, Any]:
    """ExtenderFilterResult.

    Nodes fail by name only where none is left: then the reasons become the pod's events. With a
    thousand nodes they would be most of the answer, of each pod's.
    """
    kept: list[str] = []
    failed: dict[str, str] = {}
    if said.word is Word.ASIDE:
        kept = question.names
    elif said.word is Word.NODE and said.node in question.names:
        kept = [said.node]
    else:
        failed = dict.fromkeys(question.names, why_not(said))
    result: dict[str, Any] = {
        "Nodes": None,
        "NodeNames": kept,
        "FailedNodes": failed,
        "FailedAndUnresolvableNodes": {},
        "Error": "",
    }
    if question.nodes is not None:
        chosen = set(kept)
        pairs = zip(question.names, question.nodes, strict=True)
        result["Nodes"] = {"items": [item for name, item in pairs if name in chosen]}
        result["NodeNames"] = None
    return result


def prioritized(question: Asked, said: Said) -> list[dict[str, Any]]:
    """HostPriorityList: the node that the plan names; one that isn't listed scores 0."""
    if said.node not in question.names:
        return []
    return [{"Host": said.node, "Score": MAX_SCORE}]


def preempted(value: Any, state: State) -> tuple[dict[str, Any], Said]:
    """ExtenderPreemptionResult: the nodes and victims that the plan agrees with."""
    if not isinstance(value, dict) or not isinstance(field(value, "Pod"), dict):
        raise Failure(400, "Pod: required object is missing")
    pod = field(value, "Pod")
    uid, name = pod_keys(pod)
    said = word_on(pod, uid, name, state)
    offered = _offered(value)
    if said.word is not Word.ASIDE:
        chosen = state.victims(said.job)
        offered = {
            node: (
                [keys for keys in pods if not chosen.isdisjoint(keys)],
                violations,
            )
            for node, (pods, violations) in offered.items()
            if said.word is Word.NODE and node == said.node
        }
        offered = {node: entry for node, entry in offered.items() if entry[0]}
    result = {
        node: {"Pods": [{"UID": keys[0]} for keys in pods], "NumPDBViolations": violations}
        for node, (pods, violations) in offered.items()
    }
    return {"NodeNameToMetaVictims": result}, said


def _offered(value: Mapping[str, Any]) -> dict[str, tuple[list[tuple[str, str]], int]]:
    """Victims by node, as UID and name, from either of the two maps."""
    found: dict[str, tuple[list[tuple[str, str]], int]] = {}
    for key, full in (("NodeNameToMetaVictims", False), ("NodeNameToVictims", True)):
        table = field(value, key)
        for node, victims in mapping(table).items():
            if not isinstance(victims, dict):
                raise Failure(400, f"{key}: not a table of objects")
            pods = listed(field(victims, "Pods"))
            number = field(victims, "NumPDBViolations")
            violations = number if isinstance(number, int) else 0
            rows = [pod_keys(pod) if full else (text(field(pod, "UID")), "") for pod in pods]
            found.setdefault(str(node), (rows, violations))
    return found


class Extender:
    """The verbs that are asked for each pod and answered at once, from body to answer."""

    def __init__(self, state: State, metrics: Metrics, depth: int) -> None:
        self._state, self._depth = state, depth
        self.counters = {
            (verb, word): metrics.answers.labels(verb, word.value)
            for verb in ("filter", "prioritize", "preempt", "bind")
            for word in Word
        }

    def filter(self, given: bytes) -> Response:
        """Which of the nodes may take the pod."""
        question = asked(parse(given, self._depth))
        said = word_on(question.pod, question.uid, question.name, self._state)
        self.counters["filter", said.word].inc()
        return answer(filtered(question, said))

    def prioritize(self, given: bytes) -> Response:
        """Scores by node."""
        question = asked(parse(given, self._depth))
        said = word_on(question.pod, question.uid, question.name, self._state)
        self.counters["prioritize", said.word].inc()
        return answer(prioritized(question, said))


def router(state: State, extender: Extender, binder: Binder, depth: int) -> APIRouter:
    """The routes below /scheduler."""
    made = APIRouter(prefix="/scheduler", tags=["kube-scheduler extender"])
    counters = extender.counters

    @made.post("/filter", **body("ExtenderArgs", "ExtenderFilterResult"))
    async def filter_(request: Request) -> Response:
        """Which of the nodes may take the pod: the one that the plan names."""
        return extender.filter(request.scope["body"])

    @made.post("/prioritize", **body("ExtenderArgs", "HostPriorityList"))
    async def prioritize(request: Request) -> Response:
        """Scores from 0 to 10: 10 for the node that the plan names."""
        return extender.prioritize(request.scope["body"])

    @made.post("/preempt", **body("ExtenderPreemptionArgs", "ExtenderPreemptionResult"))
    async def preempt(request: Request) -> Response:
        """Which victims on which node the plan agrees with."""
        result, said = preempted(parse(request.scope["body"], depth), state)
        counters["preempt", said.word].inc()
        return answer(result)

    @made.post("/bind", **body("ExtenderBindingArgs", "ExtenderBindingResult"))
    async def bind(request: Request) -> Response:
        """Binds a pod to the node that the plan names, through the API server."""
        value = parse(request.scope["body"], depth)
        if not isinstance(value, dict):
            raise Failure(400, "not an object")
        keys = ("PodName", "PodNamespace", "PodUID", "Node")
        name, namespace, uid, node = (text(field(value, key)) for key in keys)
        if not name or not namespace or not node:
            raise Failure(400, "PodName, PodNamespace and Node are required")
        said = state.pod(uid, f"{namespace}/{name}")
        counters["bind", said.word].inc()
        if said.word is Word.WAIT or (said.word is Word.NODE and said.node != node):
            return answer({"Error": why_not(said)})
        return answer({"Error": await binder.bind(namespace, name, uid, node)})

    return made
