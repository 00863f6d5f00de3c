"""Which exit code a command ends with, and what it says on stderr when it fails."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path

import typer

import trencadis
from trencadis.models.faults import InvalidInputError, NoPlanError
from trencadis.views.io import BadSourceError, OutputError, clean, tell


class Code(IntEnum):
    """Exit codes."""

    DONE = 0
    DIFFERENT = 1
    """Two plans do not do the same, where that was asked."""
    USAGE = 2
    """Also: an output file that can't be written."""
    UNVERIFIED = 3
    """A plan breaks a rule."""
    NO_PLAN = 4
    """No plan keeps the hard rules."""
    INVALID_INPUT = 65
    UNAVAILABLE = 69
    """The native scheduler does not answer."""
    INTERNAL = 70
    INTERRUPTED = 130


class CommandError(Exception):
    """A command ends with this code, having said why."""

    def __init__(self, code: Code, message: str = "") -> None:
        self.code = code
        super().__init__(message)


def failed(error: BaseException, read: dict[str, str], arguments: list[str]) -> int:
    """Say what went wrong, in lines without a traceback; returns the exit code."""
    if isinstance(error, CommandError):
        if str(error):
            tell(f"trencadis: {clean(str(error))}")
        return error.code
    if isinstance(error, InvalidInputError):
        where = f"{error.source}: " if isinstance(error, BadSourceError) else ""
        many = "1 fault" if len(error.faults) == 1 else f"{len(error.faults)} faults"
        tell(f"trencadis: {where}invalid input, {many}; nothing was done")
        for line in error.lines():
            tell(clean(line))
        return Code.INVALID_INPUT
    if isinstance(error, NoPlanError):
        tell(f"trencadis: no plan keeps the hard rules: {clean(str(error))}")
        return Code.NO_PLAN
    if isinstance(error, OutputError):
        tell(f"trencadis: {error}")
        return Code.USAGE
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        tell("trencadis: interrupted")
        return Code.INTERRUPTED
    where_to = _reproduce(error, read, arguments)
    tell(f"trencadis: internal error: {type(error).__name__}: {clean(str(error))[:500]}")
    tell(f"trencadis: {where_to}")
    return Code.INTERNAL


def _reproduce(error: BaseException, read: dict[str, str], arguments: list[str]) -> str:
    """Write what is needed to see the error again; says where it is."""
    content = json.dumps(
        {
            "trencadis": trencadis.__version__,
            "python": sys.version,
            "arguments": arguments,
            "error": "".join(traceback.format_exception(error)),
            "input": read,
        },
        indent=2,
    )
    return _first_that_works([Path.cwd, lambda: Path(tempfile.gettempdir())], content)


def _first_that_works(directories: list[Callable[[], Path]], content: str) -> str:
    for directory in directories:
        try:
            handle, name = tempfile.mkstemp(
                prefix="trencadis-error-", suffix=".json", dir=directory()
            )
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(content)
        except OSError:
            continue
        return f"{name} reproduces it; please send it in (it contains the input)"
    return "the file that reproduces it could not be written"
