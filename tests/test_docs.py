"""What README.md and docs/ show works: code runs, commands end well, JSON and TOML are valid."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import tomllib
from pathlib import Path

import pytest
from command import INSTANCES, Program

from trencadis.models import load_snapshot
from trencadis.views.settings import from_file

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[tuple[Path, str]]:
    """Page and content of all blocks in this language."""
    return [
        (page, content)
        for page in PAGES
        for found, content in BLOCK.findall(page.read_text())
        if found == language
    ]


def named(values: list[tuple[Path, str]]) -> list[str]:
    return [f"{page.name}-{number}" for number, (page, _) in enumerate(values)]


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Program:
    """The program where README.md supposes it: beside the instances."""
    shutil.copytree(INSTANCES, tmp_path / "instances", ignore=shutil.ignore_patterns("*.py"))
    return Program(monkeypatch, tmp_path)


PYTHON = blocks("python")
CONSOLE = blocks("console")


@pytest.mark.usefixtures("program")
@pytest.mark.parametrize(("page", "code"), PYTHON, ids=named(PYTHON))
def test_python(page: Path, code: str) -> None:
    exec(compile(code, str(page), "exec"), {"__name__": page.stem})


@pytest.mark.parametrize(("page", "text"), CONSOLE, ids=named(CONSOLE))
def test_console(program: Program, page: Path, text: str) -> None:
    """Commands after `$`; what follows one is its output, if it is shown."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        line, _, output = part.partition("\n")
        words = shlex.split(line)
        if words[0] == "make":
            assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
            continue
        assert words[0] == "trencadis", f"{page.name}: {line}"
        done = program(*words[1:])
        assert done.code == 0, f"{page.name}: {line}\n{done.err}"
        if output.strip():
            assert done.out.strip() == output.strip(), f"{page.name}: {line}"


def test_json() -> None:
    for _, text in blocks("json"):
        content = json.loads(text)
        if "now" in content:
            assert load_snapshot(text)[1] == []


def test_toml(program: Program) -> None:
    for _, text in blocks("toml"):
        if "solve" in tomllib.loads(text):
            (program.directory / "trencadis.toml").write_text(text)
            assert from_file()


def test_readme_tells_every_command_and_exit_code(program: Program) -> None:
    readme = (ROOT / "README.md").read_text()
    listing = program("--help").out.partition("Commands:")[2]
    commands = re.findall(r"^  (\w+)", listing, re.MULTILINE)
    assert len(commands) >= 8
    for command in commands:
        assert re.search(rf"^\| `{command}\b", readme, re.MULTILINE), command
    from trencadis.views.outcome import Code  # noqa: PLC0415

    assert {int(code) for code in re.findall(r"^\| (\d+) \|", readme, re.MULTILINE)} == set(Code)
    for name in re.findall(r"TRENCADIS_\w+", program("solve", "--help").out):
        assert name in readme, name
