"""How the loop's log looks: a line per decision, for people at a terminal, else JSON."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import IO, Any

NAME = "trencadis.live"


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": _at(record),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "detail", {}),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        detail = getattr(record, "detail", {})
        pairs = " ".join(f"{key}={_word(value)}" for key, value in detail.items())
        line = f"{_at(record)} {record.levelname.lower():7} {record.getMessage():16} {pairs}"
        clean = "".join(c if c.isprintable() else "?" for c in line).rstrip()
        return f"{clean}\n{self.formatException(record.exc_info)}" if record.exc_info else clean


def _at(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def _word(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return json.dumps(text) if " " in text else text


def setup(level: str, stream: IO[str] | None = None) -> logging.Logger:
    """The logger; lines go to stderr. JSON where that is no terminal."""
    stream = sys.stderr if stream is None else stream
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_Text() if stream.isatty() else _Json())
    log = logging.getLogger(NAME)
    log.handlers = [handler]
    log.propagate = False
    log.setLevel(level.upper())
    return log


def decision(
    log: logging.Logger, event: str, job: str = "", *, level: int = logging.INFO, **detail: Any
) -> None:
    """One line: what happened, to which job, and why."""
    content = {"job": job, **detail} if job else detail
    log.log(level, event, extra={"detail": content})
