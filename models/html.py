"""How records show themselves in a notebook: a headline and small tables, all names as text."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

MAX_ROWS = 20


def heading(text: str) -> str:
    """A line in bold."""
    return f"<p><b>{escape(text)}</b></p>"


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """The first rows, and how many more there are; nothing where there are none."""
    if not rows:
        return ""
    head = "".join(f'<th style="text-align:left">{escape(name)}</th>' for name in columns)
    body = "".join(
        "<tr>"
        + "".join(f'<td style="text-align:left">{escape(str(value))}</td>' for value in row)
        + "</tr>"
        for row in rows[:MAX_ROWS]
    )
    left = len(rows) - MAX_ROWS
    more = f"<p>… and {left:,} more</p>" if left > 0 else ""
    return (
        f"<table><caption>{escape(title)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table>{more}"
    )
