"""Decides how the service runs: uvicorn, TLS, log lines on stderr."""

from __future__ import annotations

import json
import logging
import ssl
import sys
from typing import Any

import uvicorn

from trencadis.adapters.service.app import create_app
from trencadis.adapters.service.config import Config


def server(config: Config) -> uvicorn.Server:
    """A server that isn't started yet. Raises InvalidInputError where the setting is unsafe."""
    tls: dict[str, Any] = {}
    if config.certificate is not None and config.key is not None:
        tls = {"ssl_certfile": str(config.certificate), "ssl_keyfile": str(config.key)}
    if config.client_ca is not None:
        tls |= {"ssl_ca_certs": str(config.client_ca), "ssl_cert_reqs": ssl.CERT_REQUIRED}
    return uvicorn.Server(
        uvicorn.Config(
            create_app(config),
            host=config.host,
            port=config.port,
            log_config=None,
            access_log=False,
            ws="none",
            server_header=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=10,
            h11_max_incomplete_event_size=64 * 1_024,
            **tls,
        )
    )


def run(config: Config, *, json_logs: bool = False) -> None:
    """Serves until it is told to stop by SIGINT or SIGTERM."""
    handler = logging.StreamHandler(sys.stderr)
    if json_logs:
        handler.setFormatter(_JsonLines())
    else:
        handler.setFormatter(logging.Formatter("trencadis: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    server(config).run()


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {"level": record.levelname.lower(), "message": record.getMessage()}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line)
