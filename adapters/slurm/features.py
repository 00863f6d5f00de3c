"""Decides which nodes fulfil a --constraint: features joined by & and |, with parentheses."""

from __future__ import annotations

import re
from collections.abc import Iterable

_TOKEN = re.compile(r"\s*([&|,()]|[A-Za-z0-9_.:=/+\-]+)")


class ConstraintError(ValueError):
    """A constraint that is about more than one node at a time, or that can't be read."""


def plain(expression: str) -> list[str] | None:
    """The features, where all of them are needed and nothing else is said; else None."""
    parts = [part.strip() for part in re.split(r"[&,]", expression)]
    if all(re.fullmatch(r"[A-Za-z0-9_.:=/+\-]+", part) for part in parts):
        return parts
    return None


def fulfils(expression: str, features: Iterable[str]) -> bool:
    """Whether a node with these features fulfils it; & and | from left to right, as in Slurm.

    Raises ConstraintError for counts (`a*2`) and for brackets (`[a|b]`: the same one on all nodes).
    """
    tokens = _tokens(expression)
    have = frozenset(features)
    value, rest = _any(tokens, 0, have, 0)
    if rest != len(tokens):
        raise ConstraintError(f"{expression[:60]!r} is not understood")
    return value


def _tokens(expression: str) -> list[str]:
    tokens: list[str] = []
    at = 0
    while at < len(expression.rstrip()):
        match = _TOKEN.match(expression, at)
        if match is None:
            raise ConstraintError(f"{expression[:60]!r} is not understood")
        tokens.append(match[1])
        at = match.end()
    return tokens


def _any(tokens: list[str], at: int, have: frozenset[str], depth: int) -> tuple[bool, int]:
    if depth > 50:
        raise ConstraintError("parentheses too deep")
    value, at = _one(tokens, at, have, depth)
    while at < len(tokens) and tokens[at] in "&|,":
        operator = tokens[at]
        other, at = _one(tokens, at + 1, have, depth)
        value = (value or other) if operator == "|" else (value and other)
    return value, at


def _one(tokens: list[str], at: int, have: frozenset[str], depth: int) -> tuple[bool, int]:
    if at >= len(tokens):
        raise ConstraintError("the constraint ends too early")
    if tokens[at] == "(":
        value, at = _any(tokens, at + 1, have, depth + 1)
        if at >= len(tokens) or tokens[at] != ")":
            raise ConstraintError("a parenthesis is not closed")
        return value, at + 1
    if tokens[at] in "&|,)":
        raise ConstraintError(f"{tokens[at]!r} where a feature belongs")
    return tokens[at] in have, at + 1
