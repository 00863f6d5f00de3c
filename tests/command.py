"""Runs the program: inside this process (fast), or as a process of its own (signals, terminals)."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from trencadis.cli import main

INSTANCES = Path(__file__).resolve().parent.parent / "instances"


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str


class Program:
    """`trencadis` with arguments, in a directory and an environment of its own."""

    def __init__(self, patch: pytest.MonkeyPatch, directory: Path) -> None:
        self.patch = patch
        self.directory = directory
        patch.chdir(directory)
        for name in os.environ:
            if name.startswith("TRENCADIS_") or name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
                patch.delenv(name)

    def __call__(self, *arguments: str | Path, stdin: str | bytes = b"") -> Outcome:
        """Run a command inside this process."""
        data = stdin.encode() if isinstance(stdin, str) else stdin
        out, err = io.BytesIO(), io.BytesIO()
        with self.patch.context() as patch:
            patch.setattr(sys, "argv", ["trencadis", *map(str, arguments)])
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), "utf-8"))
            patch.setattr(sys, "stdout", io.TextIOWrapper(out, "utf-8", write_through=True))
            patch.setattr(sys, "stderr", io.TextIOWrapper(err, "utf-8", write_through=True))
            with pytest.raises(SystemExit) as ended:
                main()
            code = ended.value.code
            sys.stdout.flush()
            sys.stderr.flush()
            texts = out.getvalue().decode(), err.getvalue().decode()
        assert isinstance(code, int)
        return Outcome(code, *texts)

    def files(self) -> set[str]:
        """What is in the directory."""
        return {str(path.relative_to(self.directory)) for path in self.directory.rglob("*")}


def process(code: str, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    """Python code as a process; `main` is at hand in it."""
    return subprocess.Popen(
        [sys.executable, "-c", f"from trencadis.cli import main\n{code}", *arguments],
        stdin=subprocess.PIPE,
        stdout=options.pop("stdout", subprocess.PIPE),
        stderr=options.pop("stderr", subprocess.PIPE),
        **options,
    )
