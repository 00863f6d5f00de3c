"""Which colour and pattern stands for the n-th queue, job or policy, by day and by night.

Colours are Okabe and Ito's ("Color Universal Design", 2008), which people with any common colour
vision tell apart; black is left out, for it is the ground at night. After eight colours a pattern
joins in, so 32 things differ; from then on styles repeat, and labels tell.
"""

from __future__ import annotations

COLOURS = (
    "#0072b2",  # blue
    "#e69f00",  # orange
    "#009e73",  # bluish green
    "#cc79a7",  # reddish purple
    "#56b4e9",  # sky blue
    "#d55e00",  # vermillion
    "#f0e442",  # yellow
    "#8a8a8a",  # grey, for black
)
MARKS = (
    "",
    '<path d="M-1 1l2-2M0 6l6-6M5 7l2-2" class="mark"/>',
    '<circle cx="3" cy="3" r="1.4" class="dot"/>',
    '<path d="M3 0v6M0 3h6" class="mark"/>',
)
"""What is drawn over the colour, on tiles of 6 by 6."""

STYLES = len(COLOURS) * len(MARKS)
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3])
"""Of lines, by the same number as patterns."""


def style(index: int) -> int:
    """The style of the n-th thing."""
    return index % STYLES


def colour(index: int) -> str:
    """The colour of the n-th thing."""
    return COLOURS[index % len(COLOURS)]


def dash(index: int) -> list[int]:
    """The dashes of the n-th line: a line's own even among the first eight, for those who see no
    colours."""
    return list(DASHES[(index + index // len(COLOURS)) % len(DASHES)])


def pattern_tiles() -> str:
    """SVG definitions `s0` to `s31`, one per style."""
    tiles = []
    for index in range(STYLES):
        mark = MARKS[index // len(COLOURS)]
        tiles.append(
            f'<pattern id="s{index}" width="6" height="6" patternUnits="userSpaceOnUse">'
            f'<rect width="6" height="6" fill="{colour(index)}"/>{mark}</pattern>'
        )
    return "".join(tiles)


def fills(prefix: str, scope: str) -> str:
    """CSS rules that give class `q7`, say, the seventh style wherever `scope` matches."""
    return "".join(f"{scope} .{prefix}{i}{{fill:url(#s{i})}}" for i in range(STYLES))
