"""Draws with odds, and knows which features of snapshots are wanted."""

from __future__ import annotations

from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

T = TypeVar("T")


class Pen:
    """A draw function with short names; every draw shrinks to its first option."""

    def __init__(self, draw: DrawFn, features: frozenset[str]) -> None:
        self.draw = draw
        self.features = features

    def has(self, feature: str) -> bool:
        return feature in self.features

    def some(self, feature: str, one_in: int = 2) -> bool:
        """True one time in so many where the feature is wanted, never elsewhere."""
        return feature in self.features and self.between(1, one_in) == one_in

    def of(self, *options: T) -> T:
        return self.draw(st.sampled_from(options))

    def between(self, least: int, most: int) -> int:
        return self.draw(st.integers(least, most))

    def subset(self, options: tuple[T, ...]) -> tuple[T, ...]:
        """Some of the options, in their order; at least one."""
        kept = tuple(option for option in options if self.draw(st.booleans()))
        return kept or options[:1]
