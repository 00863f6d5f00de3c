"""One page of HTML that needs no network and no script: figures, tables, drawings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files

from trencadis.whatif.report.cluster_map import Domain
from trencadis.whatif.report.palette import fills, pattern_tiles

MAX_ROWS = 500
"""Rows of a table; the rest is told in a line."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A figure to see first."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of plain text; columns from `figures` on stand at the right."""

    columns: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    figures: int = 1
    caption: str = ""

    @property
    def shown(self) -> Sequence[Sequence[str]]:
        """Rows that a page holds."""
        return self.rows[:MAX_ROWS]

    @property
    def left(self) -> int:
        """Rows that it doesn't."""
        return max(0, len(self.rows) - MAX_ROWS)


@dataclass(frozen=True, slots=True)
class Drawing:
    """A chart: markup of our own or of the chart library, never of the input."""

    title: str
    svg: str
    says: str
    """What it shows, for who can't see it."""


@dataclass(frozen=True, slots=True)
class Group:
    """Something to fold out."""

    title: str
    table: Table
    open: bool = False


@dataclass(frozen=True, slots=True)
class Key:
    """A line of the map's legend."""

    css: str
    name: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Map:
    """The cluster, before and after; without `after` there is one moment only."""

    before: Sequence[Domain]
    after: Sequence[Domain] = ()
    queues: Sequence[Key] = ()
    jobs: Sequence[Key] = ()


Block = str | Table | Drawing | Group | Map
"""A string is a paragraph."""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page. Callers may add sections of their own."""

    title: str
    blocks: Sequence[Block]
    anchor: str = ""

    def parts(self) -> Iterator[tuple[str, Block]]:
        """Each block with the name of its kind, for the template."""
        for block in self.blocks:
            kind = "text" if isinstance(block, str) else type(block).__name__.lower()
            yield kind, block


@dataclass(frozen=True, slots=True)
class Report:
    """The whole page. In a notebook it shows itself."""

    title: str
    lead: str
    tiles: Sequence[Tile]
    sections: Sequence[Section]

    def html(self) -> str:
        """The page. Raises ModuleNotFoundError without the extra `report`."""
        from jinja2 import Environment, StrictUndefined  # noqa: PLC0415 - an extra
        from markupsafe import Markup  # noqa: PLC0415

        source = files("trencadis.whatif.report").joinpath("page.html.j2").read_text("utf-8")
        environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
        environment.globals["drawn"] = Markup
        css = "".join(
            fills(prefix, scope)
            for prefix, scope in (
                ("q", "#by-queue:checked~.maps"),
                ("j", "#by-job:checked~.maps"),
                ("q", ".keys"),
                ("j", ".keys"),
            )
        )
        return environment.from_string(source).render(report=self, fills=css, tiles=pattern_tiles())

    def _repr_html_(self) -> str:
        """For notebooks: in a frame, so that the page's style stays its own."""
        from html import escape  # noqa: PLC0415

        return (
            f'<iframe srcdoc="{escape(self.html())}" title="{escape(self.title)}" sandbox '
            'style="width:100%;height:640px;border:1px solid #8888"></iframe>'
        )
