"""A service on loopback, in a thread of this process, with its workers as processes."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
from fastapi import FastAPI

from trencadis.adapters.service.config import Config
from trencadis.adapters.service.run import server


@dataclass(frozen=True)
class Served:
    """A running service."""

    app: FastAPI
    client: httpx.Client
    url: str

    def post(self, path: str, content: Any = None, **options: Any) -> httpx.Response:
        if isinstance(content, str | bytes):
            return self.client.post(path, content=content, **options)
        return self.client.post(path, json=content, **options)

    def until_ready(self) -> None:
        """Waits for a plan."""
        ends = time.monotonic() + 60
        while (answer := self.client.get("/readyz")).status_code != 200:
            assert time.monotonic() < ends, answer.text
            time.sleep(0.02)

    def until_planned(self, content: Any, form: str) -> None:
        """Pushes a state until it has a plan, as clients do: where limits are tight, a worker that
        still loads its libraries may be too slow for them."""
        ends = time.monotonic() + 120
        params = {"format": form, "wait": "30"}
        while True:
            answer = self.post("/v1/snapshot", content, params=params)
            if answer.status_code == 200 and answer.json()["planned"]:
                return
            assert time.monotonic() < ends, answer.text

    def workers(self) -> list[int]:
        """Process IDs."""
        return [w.pid for w in self.app.state.pool._all if w.pid is not None]


@contextlib.contextmanager
def serving(config: Config, headers: dict[str, str] | None = None) -> Iterator[Served]:
    made = server(config)
    app = made.config.app
    assert isinstance(app, FastAPI)
    thread = threading.Thread(target=made.run)
    thread.start()
    try:
        ends = time.monotonic() + 60
        while not made.started:
            assert thread.is_alive(), "the server ended"
            assert time.monotonic() < ends, "the server didn't start"
            time.sleep(0.01)
        port = made.servers[0].sockets[0].getsockname()[1]
        url = f"http://127.0.0.1:{port}"
        with httpx.Client(base_url=url, timeout=60, headers=headers, trust_env=False) as client:
            yield Served(app, client, url)
    finally:
        made.should_exit = True
        thread.join()
