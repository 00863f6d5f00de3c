"""slurmrestd as a source of documents; it is read only."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from trencadis.adapters.live.cluster import RefusedError, UnavailableError

_VERSION = re.compile(r"^/slurm/v0\.0\.(\d+)/")


class _Unix(http.client.HTTPConnection):
    """HTTP over a socket in the file system."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """Opens the socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


@dataclass(slots=True)
class Rest:
    """One slurmrestd. Versions come and go: the newest that it offers is taken."""

    url: str
    token: str | None = None
    timeout: float = 60.0
    _version: str | None = field(default=None, init=False)

    def document(self, kind: str) -> dict[str, Any]:
        """`jobs`, `nodes`, `partitions`, `reservations` or `licenses`.

        Raises RefusedError or UnavailableError.
        """
        if self._version is None:
            paths = self._get("/openapi").get("paths", {})
            found = sorted({int(m[1]) for path in paths if (m := _VERSION.match(path))})
            if not found:
                raise RefusedError(f"{self.url} offers no /slurm/v0.0.N")
            self._version = f"v0.0.{found[-1]}"
        return self._get(f"/slurm/{self._version}/{kind}")

    def _get(self, path: str) -> dict[str, Any]:
        parts = urlsplit(self.url)
        prefix = "" if parts.scheme == "unix" else parts.path.rstrip("/")
        connection: http.client.HTTPConnection
        if parts.scheme == "unix":
            connection = _Unix(parts.path, self.timeout)
        elif parts.scheme == "https":
            connection = http.client.HTTPSConnection(parts.netloc, timeout=self.timeout)
        else:
            connection = http.client.HTTPConnection(parts.netloc, timeout=self.timeout)
        headers = {"Accept": "application/json"}
        token = self.token or os.environ.get("SLURM_JWT")
        if token:
            headers["X-SLURM-USER-TOKEN"] = token
        try:
            connection.request("GET", prefix + path, headers=headers)
            answer = connection.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise UnavailableError(f"slurmrestd: {error or type(error).__name__}") from None
        finally:
            connection.close()
        if answer.status >= 500:
            raise UnavailableError(f"slurmrestd: {path}: status {answer.status}")
        if answer.status != 200:
            raise RefusedError(f"slurmrestd: {path}: status {answer.status}")
        try:
            content = json.loads(body)
        except ValueError as error:
            raise RefusedError(f"slurmrestd: {path}: not JSON: {error}") from None
        if not isinstance(content, dict):
            raise RefusedError(f"slurmrestd: {path}: not an object")
        return content
