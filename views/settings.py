"""Where the options of `solve` come from when no flag gives them: `trencadis.toml`."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import Any

from trencadis.models.faults import Fault, InvalidInputError
from trencadis.views.io import BadSourceError, read

FILE = "trencadis.toml"
MAX_SECONDS = 1e9


def from_file(path: str = FILE) -> dict[str, Any]:
    """The options in the table `[solve]` of the file; none where there is no file.

    Raises InvalidInputError if a name or a value makes no sense.
    """
    if not Path(path).is_file():
        return {}
    try:
        content = tomllib.loads(read(path).decode("utf-8"))
    except InvalidInputError as error:
        raise BadSourceError(path, error.faults) from None
    except (ValueError, RecursionError) as error:
        raise BadSourceError(path, [Fault("$", f"Invalid TOML: {error}")]) from None
    faults = [
        Fault(f"$.{key}", "unknown table; options stand in [solve]")
        for key in content
        if key != "solve"
    ]
    options = content.get("solve", {})
    if not isinstance(options, dict):
        faults.append(Fault("$.solve", "not a table"))
        options = {}
    for key, value in options.items():
        expected = _expected(key, value)
        if expected:
            faults.append(Fault(f"$.solve.{key}", f"{expected} (got {value!r})"))
    if faults:
        raise BadSourceError(path, faults)
    return dict(options)


def _expected(key: str, value: object) -> str:
    """What the option should have been; empty if it is right."""
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    match key:
        case "time_limit":
            return "" if 0 < number < MAX_SECONDS else "seconds, above 0"
        case "gap":
            return "" if 0 <= number <= 1 else "a fraction, 0 to 1"
        case "workers" | "seed":
            least, most = (1, 1_024) if key == "workers" else (0, 2**31 - 1)
            right = isinstance(number, int) and least <= number <= most
            return "" if right else f"a whole number, {least} to {most}"
        case "deterministic":
            return "" if isinstance(value, bool) else "true or false"
        case "policy" | "mig_tables":
            return "" if isinstance(value, str) else "a file name"
        case _:
            return (
                "unknown option; there are time_limit, gap, workers, deterministic, seed, policy "
                "and mig_tables"
            )
