"""Decides how a Binding or a wake-up reaches the API server, and what is said if it doesn't."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Mapping

import httpx

from trencadis.adapters.service.config import Config

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


class Binder:
    """A client of the API server; without an address it only refuses."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._client: httpx.AsyncClient | None = None

    async def close(self) -> None:
        """Closes the connections."""
        if self._client is not None:
            await self._client.aclose()

    async def bind(self, namespace: str, name: str, uid: str, node: str) -> str:
        """Binds the pod; the error, empty if there is none."""
        if not self._config.kube_api:
            return "this service doesn't bind: it was started without --kube-api"
        if not all(_NAME.fullmatch(part) for part in (namespace, name, node)):
            return "PodNamespace, PodName and Node must be names of Kubernetes"
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            # With the UID the API server refuses a pod that was made again under the same name.
            "metadata": {"name": name, "namespace": namespace, **({"uid": uid} if uid else {})},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/binding"
        return await self._send("POST", path, "application/json", binding)

    async def wake(self, node: str, word: str) -> str:
        """Annotates a node; the error, empty if there is none.

        kube-scheduler asks an extender that let no node pass again only when something in the
        cluster changes, or after five minutes. A plan is no such thing; a node's annotation is.
        """
        if not _NAME.fullmatch(node):
            return f"no name of a node: {node}"
        path = f"/api/v1/nodes/{node}"
        patch = {"metadata": {"annotations": {"trencadis.io/plan": word}}}
        return await self._send("PATCH", path, "application/merge-patch+json", patch)

    async def _send(self, method: str, path: str, content: str, body: Mapping[str, object]) -> str:
        try:
            response = await self._connected().request(
                method,
                path,
                content=json.dumps(body),
                headers={**self._headers(), "Content-Type": content},
            )
        except (httpx.HTTPError, OSError) as error:
            return f"the API server can't be reached: {type(error).__name__}"
        if response.is_success:
            return ""
        try:
            message = str(response.json().get("message", ""))
        except (ValueError, AttributeError):
            message = ""
        return f"the API server says {response.status_code}: {message[:500]}"

    def _connected(self) -> httpx.AsyncClient:
        if self._client is None:
            ca = self._config.kube_ca
            verify = ssl.create_default_context(cafile=None if ca is None else str(ca))
            self._client = httpx.AsyncClient(
                base_url=self._config.kube_api, timeout=5.0, verify=verify, trust_env=False
            )
        return self._client

    def _headers(self) -> dict[str, str]:
        """The token is read anew each time: the kubelet replaces the file."""
        if self._config.kube_token is None:
            return {}
        return {"Authorization": f"Bearer {self._config.kube_token.read_text().strip()}"}
