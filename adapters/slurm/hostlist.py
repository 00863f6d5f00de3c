"""Decides which names a Slurm hostlist stands for, and the hostlist of a set of names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby

MAX_NAMES = 65_536
"""More than any cluster has: what expands to more is a mistake or an attack."""

_RANGE = re.compile(r"^(\d{1,9})(?:-(\d{1,9}))?$", re.ASCII)
_NUMBERED = re.compile(r"^(.*?)(\d{1,9})$", re.ASCII | re.DOTALL)


class HostlistError(ValueError):
    """The text is no hostlist."""


def expand(text: str | None) -> list[str]:
    """`g[01-03,7],h2` as g01 g02 g03 g7 h2, in order, each once; several brackets nest as loops.

    Raises HostlistError for brackets that don't match, ranges that run backwards, or more than
    65,536 names.
    """
    if text is None or text.strip() in ("", "(null)", "None"):
        return []
    names: dict[str, None] = {}
    for part in split_outside_brackets(text):
        names.update(dict.fromkeys(_expand_part(part)))
        if len(names) > MAX_NAMES:
            raise HostlistError(f"more than {MAX_NAMES} names")
    return list(names)


def split_outside_brackets(text: str, separators: str = ",") -> Iterator[str]:
    """The parts between separators that no bracket or parenthesis encloses; empty ones left out."""
    depth, begin = 0, 0
    for index, char in enumerate(text):
        depth += (char in "[(") - (char in "])")
        if depth < 0:
            raise HostlistError(f"{text[:60]!r}: a bracket closes that was not opened")
        if char in separators and depth == 0:
            if part := text[begin:index].strip():
                yield part
            begin = index + 1
    if depth:
        raise HostlistError(f"{text[:60]!r}: a bracket is not closed")
    if part := text[begin:].strip():
        yield part


def _expand_part(part: str) -> list[str]:
    names = [""]
    for index, piece in enumerate(re.split(r"\[([^\[\]]*)\]", part)):
        if index % 2 == 0:
            if "[" in piece or "]" in piece:
                raise HostlistError(f"{part[:60]!r}: brackets inside brackets")
            choices = [piece]
        else:
            choices = _choices(piece, part)
        if len(names) * len(choices) > MAX_NAMES:
            raise HostlistError(f"{part[:60]!r}: more than {MAX_NAMES} names")
        names = [name + choice for name in names for choice in choices]
    return names


def _choices(inside: str, part: str) -> list[str]:
    choices: list[str] = []
    for item in inside.split(","):
        match = _RANGE.match(item.strip())
        if match is None:
            raise HostlistError(f"{part[:60]!r}: {item.strip()[:20]!r} is not a number or a range")
        first, last = match[1], match[2] or match[1]
        if int(last) < int(first):
            raise HostlistError(f"{part[:60]!r}: the range {item.strip()} runs backwards")
        if int(last) - int(first) >= MAX_NAMES:
            raise HostlistError(f"{part[:60]!r}: more than {MAX_NAMES} names")
        # The first number's width is the padding, as in [08-12].
        choices += [f"{value:0{len(first)}d}" for value in range(int(first), int(last) + 1)]
    return choices


def compress(names: Iterable[str]) -> str:
    """A short hostlist for the names, sorted; `expand` gives them back.

    For names without brackets, parentheses and commas, which no host has.
    """
    keyed: list[tuple[str, int, int, str]] = []
    plain: list[str] = []
    for name in sorted(set(names)):
        match = _NUMBERED.match(name)
        if match is None:
            plain.append(name)
        else:
            keyed.append((match[1], len(match[2]), int(match[2]), match[2]))
    parts = list(plain)
    # Numbers of one width join, so that padding survives: 9 and 10 are two ranges.
    for (prefix, _), group in groupby(sorted(keyed), key=lambda entry: entry[:2]):
        runs: list[tuple[int, int, str, str]] = []
        for _, _, value, digits in group:
            if runs and runs[-1][1] + 1 == value:
                runs[-1] = (runs[-1][0], value, runs[-1][2], digits)
            else:
                runs.append((value, value, digits, digits))
        ranges = [first if low == high else f"{first}-{last}" for low, high, first, last in runs]
        single = len(runs) == 1 and runs[0][0] == runs[0][1]
        parts.append(prefix + (ranges[0] if single else f"[{','.join(ranges)}]"))
    return ",".join(parts)
