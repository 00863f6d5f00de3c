"""How a command reads and writes: stdin or files in, stdout or files out, nothing half written."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator, Sequence
from io import StringIO
from pathlib import Path
from typing import IO, TYPE_CHECKING

from trencadis.models.faults import Fault, InvalidInputError, fault_lines

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

STANDARD = "-"
WIDTH_OF_A_FILE = 120
"""Columns of a table that no terminal limits."""


class OutputError(Exception):
    """What was made can't be written where it should go."""


class BadSourceError(InvalidInputError):
    """The faults of one input, which has a name."""

    def __init__(self, source: str, faults: Sequence[Fault]) -> None:
        self.source = source
        super().__init__(faults)


def name_of(source: str) -> str:
    """The input's name in messages."""
    return "stdin" if source == STANDARD else clean(source)


def read(source: str) -> bytes:
    """The bytes of a file, or of stdin for `-`. Raises InvalidInputError where there are none."""
    try:
        if source == STANDARD:
            return sys.stdin.buffer.read()
        return Path(source).read_bytes()
    except FileNotFoundError:
        reason = "there is no such file"
    except IsADirectoryError:
        reason = "this is a directory, not a file"
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
    raise InvalidInputError([Fault("$", f"can't read {name_of(source)}: {reason}")])


@contextlib.contextmanager
def source_named(source: str) -> Iterator[None]:
    """Faults found inside belong to this input."""
    try:
        yield
    except BadSourceError:
        raise
    except InvalidInputError as error:
        raise BadSourceError(name_of(source), error.faults) from None


def writable(target: str | None) -> None:
    """Raises OutputError if the target could not be written: better now than after the work."""
    if target is None or target == STANDARD:
        return
    path = Path(target)
    if path.is_dir():
        raise OutputError(f"can't write {clean(target)}: it is a directory")
    parent = Path(os.path.realpath(path)).parent
    if not parent.is_dir():
        raise OutputError(f"can't write {clean(target)}: there is no directory {parent}")
    if not os.access(parent, os.W_OK) and not _special(path):
        raise OutputError(f"can't write {clean(target)}: {parent} is not writable")


def write(target: str, text: str) -> None:
    """The text as UTF-8 to stdout, or to a file that is replaced whole or left as it was."""
    data = text.encode()
    if target == STANDARD:
        _to_stdout(data)
        return
    try:
        path = Path(target)
        if _special(path):
            path.write_bytes(data)
        else:
            _replace(Path(os.path.realpath(path)), data)
    except OSError as error:
        raise OutputError(f"can't write {clean(target)}: {error.strerror}") from None


def show(*parts: RenderableType) -> None:
    """Tables and lines on stdout."""
    from rich.table import Table  # noqa: PLC0415

    drawn = StringIO()
    console = console_on(sys.stdout, drawn)
    for part in parts:
        if isinstance(part, Table):
            console.print()
        console.print(part)
    text = drawn.getvalue()
    if console.color_system is None:
        text = "".join(f"{line.rstrip()}\n" for line in text.splitlines())
    _to_stdout(text.encode(sys.stdout.encoding or "utf-8", "replace"))


def console_on(stream: IO[str], into: IO[str] | None = None) -> Console:
    """A console without markup; without any escape codes where no terminal or NO_COLOR says so.

    `into` gets what is made for `stream`.
    """
    from rich.console import Console  # noqa: PLC0415

    terminal = stream.isatty()
    plain = not terminal or bool(os.environ.get("NO_COLOR"))
    return Console(
        file=stream if into is None else into,
        force_terminal=terminal,
        color_system=None if plain else "auto",
        highlight=False,
        markup=False,
        emoji=False,
        width=shutil.get_terminal_size((WIDTH_OF_A_FILE, 24)).columns,
    )


def tell(message: str) -> None:
    """A line for the person at the terminal: on stderr."""
    with contextlib.suppress(OSError, ValueError):
        print(message, file=sys.stderr, flush=True)


def warn(source: str, warnings: Sequence[Fault]) -> None:
    """Warnings about one input."""
    if warnings:
        many = "1 warning" if len(warnings) == 1 else f"{len(warnings)} warnings"
        tell(f"trencadis: {name_of(source)}: {many}")
        for line in fault_lines(warnings, "warning"):
            tell(clean(line))


def clean(text: str) -> str:
    """The text without characters that would steer a terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def _to_stdout(data: bytes) -> None:
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        # The reader has seen enough. Python would complain once more when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise OutputError(f"can't write to stdout: {error.strerror}") from None


def _special(path: Path) -> bool:
    """Whether the path is a device or a pipe: written to, never replaced."""
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False


def _replace(path: Path, data: bytes) -> None:
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask()
    handle, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
