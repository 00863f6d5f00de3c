"""The wheel has what pyproject.toml lists, that is what the folders hold; imports go one way."""

from __future__ import annotations

import ast
import importlib.metadata
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LISTED = set(PROJECT["tool"]["setuptools"]["packages"])
ROOMS = ("adapters", "commands", "instances", "models", "solver", "views", "whatif")
"""Folders of the root that are part of the package."""


def folders() -> dict[str, Path]:
    """Package -> folder, as they are on disk."""
    found = {"trencadis": ROOT}
    for room in ROOMS:
        for init in (ROOT / room).rglob("__init__.py"):
            found["trencadis." + ".".join(init.parent.relative_to(ROOT).parts)] = init.parent
    return found


def modules() -> dict[str, Path]:
    """Module -> file."""
    return {
        f"{package}.{file.stem}".removesuffix(".__init__"): file
        for package, folder in folders().items()
        for file in folder.glob("*.py")
    }


def test_the_list_of_packages_is_that_of_the_folders() -> None:
    assert set(folders()) == LISTED


def test_every_module_is_in_a_package() -> None:
    listed = set(modules().values())
    for room in ROOMS:
        for file in (ROOT / room).rglob("*.py"):
            assert file in listed, f"{file.relative_to(ROOT)}: its folder has no __init__.py"


def test_nothing_else_at_the_root_would_be_shipped() -> None:
    assert {file.name for file in ROOT.glob("*.py")} == {"__init__.py", "cli.py"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel, built from a copy so that no old build folder leaks into it."""
    source = tmp_path_factory.mktemp("source") / "trencadis"
    away = shutil.ignore_patterns(
        ".git", ".venv", "build", "dist", "out", "*.egg-info", "__pycache__", ".*_cache", "tests"
    )
    shutil.copytree(ROOT, source, ignore=away)
    target = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    if has_setuptools():
        command.append("--no-build-isolation")
    subprocess.run([*command, "--wheel-dir", target, source], check=True)
    (built,) = target.glob("*.whl")
    return built


def has_setuptools() -> bool:
    """Whether this environment can build by itself."""
    try:
        return int(importlib.metadata.version("setuptools").split(".")[0]) >= 77
    except importlib.metadata.PackageNotFoundError:
        return False


def test_the_wheel_has_the_packages_and_nothing_else(wheel: Path) -> None:
    data = PROJECT["tool"]["setuptools"]["package-data"]
    expected = {f"{name.replace('.', '/')}.py" for name in modules() if name not in LISTED}
    for package, folder in folders().items():
        place = package.replace(".", "/")
        expected.add(f"{place}/__init__.py")
        for pattern in data.get(package, ()):
            expected |= {f"{place}/{file.name}" for file in folder.glob(pattern)}
    names = set(zipfile.ZipFile(wheel).namelist())
    info = {name for name in names if name.split("/")[0].endswith(".dist-info")}
    assert names - info == expected
    assert "trencadis/py.typed" in names
    assert "trencadis/instances/team_node.json" in names
    assert any(name.endswith("licenses/LICENSE") for name in info)


def test_the_wheel_installs_one_name_and_one_program(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (top,) = [name for name in archive.namelist() if name.endswith("top_level.txt")]
    assert archive.read(top).split() == [b"trencadis"]
    (entries,) = [name for name in archive.namelist() if name.endswith("entry_points.txt")]
    assert b"trencadis = trencadis.cli:main" in archive.read(entries)


def test_versions_agree() -> None:
    import trencadis  # noqa: PLC0415

    assert PROJECT["project"]["version"] == trencadis.__version__


def test_dependencies_are_bounded() -> None:
    for requirement in PROJECT["project"]["dependencies"]:
        assert ">=" in requirement, requirement
        assert "<" in requirement, requirement
    (ortools,) = [text for text in PROJECT["project"]["dependencies"] if "ortools" in text]
    assert ortools == "ortools>=9.15,<9.16"


# Arrows

LAYERS = (
    {"models"},
    {"solver"},
    {"views", "adapters", "instances", "whatif"},
    {"commands"},
    {"cli"},
)


def imported(file: Path) -> set[str]:
    """What a module imports, at the top or inside functions."""
    names: set[str] = set()
    for entry in ast.walk(ast.parse(file.read_text())):
        if isinstance(entry, ast.Import):
            names |= {alias.name for alias in entry.names}
        elif isinstance(entry, ast.ImportFrom):
            assert entry.level == 0, f"{file}: a relative import"
            assert entry.module is not None
            names |= {f"{entry.module}.{alias.name}" for alias in entry.names}
    return names


def test_arrows_go_one_way() -> None:
    height = {room: number for number, layer in enumerate(LAYERS) for room in layer}
    for name, file in modules().items():
        parts = name.split(".")
        if len(parts) == 1:
            continue
        own = parts[1]
        for target in imported(file):
            if target.startswith("trencadis."):
                room = target.split(".")[1]
                if room in height and room != own:
                    assert height[room] < height[own], f"{name} imports {target}"


def test_the_verifier_imports_nothing_of_the_solver() -> None:
    for name, file in modules().items():
        if name.startswith("trencadis.solver.verify"):
            for target in imported(file):
                assert target.split(".")[0] not in ("ortools", "networkx"), f"{name}: {target}"
                if target.startswith("trencadis.solver"):
                    assert target.startswith("trencadis.solver.verify."), f"{name}: {target}"


def test_models_need_no_solver_library() -> None:
    for name, file in modules().items():
        if name.startswith("trencadis.models"):
            roots = {target.split(".")[0] for target in imported(file)}
            assert not roots & {"ortools", "numpy", "networkx", "typer", "rich"}, name


def test_modules_are_small_and_say_what_they_decide() -> None:
    for name, file in modules().items():
        text = file.read_text()
        assert len(text.splitlines()) < 300, f"{name} has 300 lines or more"
        assert ast.get_docstring(ast.parse(text)), f"{name} has no docstring"
