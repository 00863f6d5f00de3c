"""The API server as a program calls it: an answer, a refusal, or silence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

from trencadis.adapters.kubernetes.live.config import KubernetesOptions
from trencadis.adapters.live.cluster import RefusedError, UnavailableError
from trencadis.models import Fault, InvalidInputError

PAGE = 500
"""Objects in one answer to a list."""

Json = dict[str, Any]


class MissingError(RefusedError):
    """The object, or its kind, is not there."""


class ConflictError(RefusedError):
    """The object is not as it was read: its resourceVersion is another."""


class Api(Protocol):
    """The verbs that the adapter uses. Each raises RefusedError or UnavailableError."""

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Json:
        """One object, or one page of a list."""

    def patch(self, path: str, body: Json) -> Json:
        """A merge patch; with `metadata.resourceVersion` in it, only if nothing has changed."""

    def post(self, path: str, body: Json) -> Json:
        """Creates an object, or a subresource."""

    def delete(self, path: str, body: Json) -> Json:
        """Deletes; `preconditions` in the DeleteOptions must hold."""


class HttpApi:
    """`Api` by the official client, which knows kubeconfigs, certificates and tokens."""

    def __init__(self, options: KubernetesOptions) -> None:
        try:
            from kubernetes import client, config  # noqa: PLC0415
        except ImportError:
            wanted = "the Kubernetes client is missing. Maybe pip install 'trencadis[kubernetes]'?"
            raise UnavailableError(wanted) from None
        settings = client.Configuration()
        try:
            if options.kubeconfig is None and options.context is None:
                config.load_config(client_configuration=settings)
            else:
                config.load_kube_config(options.kubeconfig, options.context, settings)
        except Exception as error:
            # Whatever the YAML parser, a plugin for credentials or a missing file has to say.
            fault = Fault("$.kubernetes.kubeconfig", " ".join(str(error).split()))
            raise InvalidInputError([fault]) from None
        # Whether to ask again is the loop's to decide: a write that timed out may have been done.
        settings.retries = False
        self._client = client.ApiClient(settings)
        self._timeout = options.request_timeout_seconds

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Json:
        """One object, or one page of a list."""
        return self._call("GET", path, query=query)

    def patch(self, path: str, body: Json) -> Json:
        """A merge patch."""
        return self._call("PATCH", path, body, "application/merge-patch+json")

    def post(self, path: str, body: Json) -> Json:
        """Creates."""
        return self._call("POST", path, body)

    def delete(self, path: str, body: Json) -> Json:
        """Deletes."""
        return self._call("DELETE", path, body)

    def _call(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        content: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> Json:
        from kubernetes.client.exceptions import ApiException  # noqa: PLC0415
        from urllib3.exceptions import HTTPError  # noqa: PLC0415

        request = self._client.param_serialize(
            method,
            path,
            query_params=list((query or {}).items()),
            header_params={"Accept": "application/json", "Content-Type": content},
            body=body,
            auth_settings=["BearerToken"],
        )
        try:
            answer = self._client.call_api(*request, _request_timeout=self._timeout)
            status, data = answer.status, answer.read()
        except ApiException as error:
            status, data = error.status or 0, (error.body or error.reason or "").encode()
        except (HTTPError, OSError) as error:
            said = " ".join(str(error).split())[:200]
            raise UnavailableError(f"the API server: {said}") from None
        return _answered(method, path, status, data)


def _answered(method: str, path: str, status: int, data: bytes) -> Json:
    """The object, or what its status says."""
    try:
        found = json.loads(data)
    except ValueError:
        found = {"message": " ".join(data.decode("utf-8", "replace").split())[:200]}
    if not isinstance(found, dict):
        found = {"message": "the answer is no object"}
        status = status if status >= 400 else 502
    if 200 <= status < 300:
        return found
    said = f"{method} {path}: {found.get('message') or status}"
    if status == 404:
        raise MissingError(said)
    if status == 409:
        raise ConflictError(said)
    # 429 on an eviction is a budget's word; elsewhere it is a server that has too much to do.
    if status in (401, 0) or status >= 500 or (status == 429 and not path.endswith("/eviction")):
        raise UnavailableError(said)
    raise RefusedError(said)


def listing(api: Api, path: str, query: Mapping[str, str] | None = None) -> Json:
    """A whole list, page after page."""
    asked = {"limit": str(PAGE), **(query or {})}
    whole = api.get(path, asked)
    items = list(whole.get("items") or [])
    while token := (whole.get("metadata") or {}).get("continue"):
        whole = api.get(path, {**asked, "continue": token})
        items.extend(whole.get("items") or [])
    return {**whole, "items": items}
