"""Builds the lab's program, once: python tests/kubernetes_lab/build.py

Takes a Go toolchain, its module proxy, and some ten minutes of two cores. What is built is kept in
~/.cache/trencadis/kubernetes-lab (or TRENCADIS_LAB_CACHE), under a name of its sources.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = ("main.go", "go.mod", "go.sum")


def program() -> Path:
    """Where the built program is, or would be."""
    digest = hashlib.sha256()
    for name in SOURCES:
        digest.update((HERE / name).read_bytes())
    named = os.environ.get("TRENCADIS_LAB_CACHE")
    cache = Path(named) if named else Path.home() / ".cache" / "trencadis" / "kubernetes-lab"
    return cache / digest.hexdigest()[:16] / "lab"


def version() -> str:
    """Kubernetes' version, as go.mod has it."""
    found = re.search(r"k8s\.io/kubernetes (v[\d.]+)", (HERE / "go.mod").read_text())
    assert found is not None
    return found[1]


def build() -> Path:
    """Builds it unless it is there."""
    wanted = program()
    if wanted.is_file():
        return wanted
    wanted.parent.mkdir(parents=True, exist_ok=True)
    said = "k8s.io/component-base/version"
    major, minor, _ = version().removeprefix("v").split(".")
    told = {"gitVersion": version(), "gitMajor": major, "gitMinor": minor}
    flags = " ".join(["-s", "-w", *(f"-X {said}.{key}={value}" for key, value in told.items())])
    made = wanted.with_suffix(".new")
    subprocess.run(
        ["go", "build", "-p", "2", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", made],
        cwd=HERE,
        check=True,
    )
    # An unfinished program never has the name.
    made.rename(wanted)
    return wanted


if __name__ == "__main__":
    if shutil.which("go") is None:
        sys.exit("there is no Go toolchain")
    print(build())
