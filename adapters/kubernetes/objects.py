"""Decides which objects a set of documents holds: lists, single objects, streams, KAI snapshots."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from trencadis.adapters.kubernetes.fields import Json, at, instant, mapping, text, texts
from trencadis.models.faults import Fault, InvalidInputError
from trencadis.models.load import decode

MAX_UNPACKED = 1 << 30
"""Bytes: an archive that unpacks to more is refused."""

_KAI = {
    "pods": ("", "Pod"),
    "nodes": ("", "Node"),
    "queues": ("scheduling.run.ai", "Queue"),
    "podGroups": ("scheduling.run.ai", "PodGroup"),
    "bindRequests": ("scheduling.run.ai", "BindRequest"),
    "priorityClasses": ("scheduling.k8s.io", "PriorityClass"),
    "resourceClaims": ("resource.k8s.io", "ResourceClaim"),
    "resourceSlices": ("resource.k8s.io", "ResourceSlice"),
    "topologies": ("kai.scheduler", "Topology"),
}


@dataclass(frozen=True, slots=True)
class Object:
    """An object of the API, with the place where it was read."""

    path: str
    group: str
    kind: str
    record: Json

    @property
    def name(self) -> str:
        """`metadata.name`; the prefix of a name to be generated where there is none."""
        meta = mapping(self.record.get("metadata"))
        return text(meta.get("name")) or text(meta.get("generateName")).rstrip("-")

    @property
    def namespace(self) -> str:
        """The namespace; `default` where none is given."""
        return text(at(self.record, "metadata", "namespace")) or "default"

    @property
    def uid(self) -> str:
        """`metadata.uid`."""
        return text(at(self.record, "metadata", "uid"))

    @property
    def labels(self) -> dict[str, str]:
        """Labels."""
        return texts(at(self.record, "metadata", "labels"))

    @property
    def annotations(self) -> dict[str, str]:
        """Annotations."""
        return texts(at(self.record, "metadata", "annotations"))

    @property
    def spec(self) -> Json:
        """The spec; empty where there is none."""
        return mapping(self.record.get("spec"))

    @property
    def status(self) -> Json:
        """The status; empty where there is none."""
        return mapping(self.record.get("status"))

    @property
    def created(self) -> datetime | None:
        """`metadata.creationTimestamp`."""
        return instant(at(self.record, "metadata", "creationTimestamp"))

    @property
    def owner(self) -> Json:
        """The owner that controls it, else the first owner; empty where there is none."""
        owners = at(self.record, "metadata", "ownerReferences")
        found = [mapping(entry) for entry in owners] if isinstance(owners, list) else []
        return next((o for o in found if o.get("controller")), found[0] if found else {})


@dataclass(slots=True)
class Objects:
    """All objects of the documents, by group and kind, in the order of reading."""

    _by_kind: dict[tuple[str, str], dict[tuple[str, str], Object]] = field(default_factory=dict)
    kai: bool = False
    """Whether a KAI snapshot is among the documents."""

    def add(self, found: Object) -> None:
        """Adds an object; of two of one name the first stays."""
        key = found.namespace, found.name or found.path
        self._by_kind.setdefault((found.group, found.kind), {}).setdefault(key, found)

    def of(self, group: str, kind: str) -> list[Object]:
        """The objects of a kind."""
        return list(self._by_kind.get((group, kind), {}).values())

    def kinds(self) -> list[tuple[str, str]]:
        """What there is."""
        return sorted(self._by_kind)

    def __iter__(self) -> Iterator[Object]:
        for table in self._by_kind.values():
            yield from table.values()


def read_objects(documents: Iterable[tuple[str, str | bytes]]) -> Objects:
    """The objects of named documents. Raises InvalidInputError where one can't be read."""
    objects = Objects()
    faults: list[Fault] = []
    for document, content in documents:
        try:
            for path, value in _values(document, content):
                _read(path, value, objects, faults)
        except InvalidInputError as error:
            faults.extend(error.faults)
    if faults:
        raise InvalidInputError(faults)
    return objects


def _values(document: str, content: str | bytes) -> list[tuple[str, Any]]:
    """The JSON values of a document; several may follow each other."""
    if isinstance(content, bytes) and content.startswith(b"PK\x03\x04"):
        content = _unpacked(document, content)
    try:
        written = decode(content)
    except InvalidInputError as error:
        raise InvalidInputError([Fault(f"{document}:$", f.message) for f in error.faults]) from None
    decoder = json.JSONDecoder()
    found: list[Any] = []
    position = 0
    try:
        while position < len(written):
            if written[position].isspace():
                position += 1
                continue
            value, position = decoder.raw_decode(written, position)
            found.append(value)
    except RecursionError:
        raise InvalidInputError([Fault(f"{document}:$", "nested too deeply")]) from None
    except ValueError as error:
        line = f"line {error.lineno}: " if isinstance(error, json.JSONDecodeError) else ""
        reason = f"not JSON: {line}{getattr(error, 'msg', error)}. Maybe kubectl get -o json?"
        raise InvalidInputError([Fault(f"{document}:$", reason)]) from None
    if len(found) == 1:
        return [(f"{document}:$", found[0])]
    return [(f"{document}:$[{index}]", value) for index, value in enumerate(found)]


def _unpacked(document: str, content: bytes) -> bytes:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entry = archive.getinfo("snapshot.json")
            with archive.open(entry) as member:
                data = member.read(MAX_UNPACKED + 1)
    except KeyError:
        message = "the archive has no snapshot.json: not a KAI snapshot"
        raise InvalidInputError([Fault(f"{document}:$", message)]) from None
    except (zipfile.BadZipFile, OSError, RuntimeError, NotImplementedError, EOFError) as error:
        message = f"the archive can't be read: {' '.join(str(error).split())}"
        raise InvalidInputError([Fault(f"{document}:$", message)]) from None
    if len(data) > MAX_UNPACKED:
        raise InvalidInputError([Fault(f"{document}:$", "unpacks to more than 1 GiB")])
    return data


def _read(
    path: str, value: Any, objects: Objects, faults: list[Fault], listed_as: str = ""
) -> None:
    if not isinstance(value, dict):
        faults.append(Fault(path, "not an object"))
        return
    if isinstance(value.get("rawObjects"), dict):
        _kai(path, value["rawObjects"], objects, faults)
        return
    kind = text(value.get("kind")) or listed_as
    if "items" in value and (kind in ("", "List") or kind.endswith("List")):
        items = value["items"]
        if not isinstance(items, list):
            faults.append(Fault(f"{path}.items", "not a list"))
            return
        version = text(value.get("apiVersion"))
        for index, item in enumerate(items):
            if isinstance(item, dict) and kind != "List" and "kind" not in item:
                item = {"apiVersion": version, **item}  # noqa: PLW2901
            _read(f"{path}.items[{index}]", item, objects, faults, kind.removesuffix("List"))
        return
    if not kind:
        faults.append(Fault(f"{path}.kind", "required field is missing"))
        return
    group, slash, _ = text(value.get("apiVersion")).partition("/")
    found = Object(path, group if slash else "", kind, value)
    if not found.name:
        faults.append(Fault(f"{path}.metadata.name", "required field is missing"))
        return
    objects.add(found)


def _kai(path: str, raw: Json, objects: Objects, faults: list[Fault]) -> None:
    objects.kai = True
    for key, (group, kind) in _KAI.items():
        items = raw.get(key)
        for index, item in enumerate(items if isinstance(items, list) else []):
            where = f"{path}.rawObjects.{key}[{index}]"
            found = Object(where, group, kind, mapping(item))
            if found.name:
                objects.add(found)
            else:
                faults.append(Fault(f"{where}.metadata.name", "required field is missing"))
