"""Curves as SVG, drawn by Vega-Lite through vl-convert: no script, no font, nothing to fetch.

Text and grid take the page's colours (`currentColor`, `--grid`): one drawing for light and dark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trencadis.whatif.report.palette import colour, dash

WIDTH, HEIGHT = 640, 190
SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"

PADDING = {"left": 28, "top": 6, "bottom": 4, "right": 40}
"""Readers' fonts may be wider than the one that the chart was measured with."""

BAR_COLOURS = (2, 0, 4, 1, 5, 3, 6, 7)
"""Green for what was useful, grey for what was idle."""

Points = Sequence[tuple[float, float]]
Spec = dict[str, Any]

CONFIG: Spec = {
    "font": "system-ui, sans-serif",
    "axis": {
        "labelColor": "currentColor",
        "titleColor": "currentColor",
        "domainColor": "currentColor",
        "tickColor": "currentColor",
        "gridColor": "var(--grid)",
        "labelFontSize": 11,
        "titleFontSize": 11,
        "titleFontWeight": "normal",
        "labelLimit": 160,
    },
    "legend": {
        "labelColor": "currentColor",
        "labelFontSize": 11,
        "labelLimit": 200,
        "symbolStrokeWidth": 3,
        "symbolSize": 140,
    },
    "view": {"stroke": None},
}


def curves(
    lines: Mapping[str, Points],
    x_title: str,
    y_title: str,
    *,
    percent: bool = False,
    log_x: bool = False,
    steps: bool = True,
) -> str:
    """Lines through points, in steps or straight; `percent` runs the y axis from 0 to 100 %.

    Raises ModuleNotFoundError without the extra `report`.
    """
    values = [
        {"line": name, "x": x, "y": y, "order": order}
        for name, points in lines.items()
        for order, (x, y) in enumerate(points)
    ]
    y_scale: Spec = {"domain": [0, 1]} if percent else {"zero": True}
    x: Spec = {"field": "x", "type": "quantitative", "title": x_title}
    x["scale"] = {"nice": False}
    if log_x:
        x["scale"] = {"type": "symlog", "constant": 0.1}
        x |= {"axis": {"values": [0, 0.1, 1, 10, 100, 1_000, 10_000], "format": ",~r"}}
    return render(
        {
            "width": WIDTH,
            "height": HEIGHT,
            "data": {"values": values},
            "mark": {
                "type": "line",
                "interpolate": "step-after" if steps else "linear",
                "strokeWidth": 1.8,
            },
            "encoding": {
                "x": x,
                "y": {
                    "field": "y",
                    "type": "quantitative",
                    "title": y_title,
                    "scale": y_scale,
                    "axis": {"format": ".0%"} if percent else {},
                },
                "order": {"field": "order"},
                **_by_line(list(lines)),
            },
        }
    )


def _by_line(names: Sequence[str]) -> Spec:
    numbers = range(len(names))
    legend = None if len(names) < 2 else {"title": None}
    return {
        "color": {
            "field": "line",
            "type": "nominal",
            "legend": legend,
            "scale": {"domain": list(names), "range": [colour(i) for i in numbers]},
        },
        "strokeDash": {
            "field": "line",
            "type": "nominal",
            "legend": legend,
            "scale": {"domain": list(names), "range": [dash(i) for i in numbers]},
        },
    }


def bands(rows: Sequence[Mapping[str, Any]], unit: str) -> str:
    """Bars of `after` by `name`; `before`, `guarantee`, `limit` as marks, where they are given."""
    names = [str(row["name"]) for row in rows]
    marks = {"before": "#8a8a8a", "guarantee": "#d55e00", "limit": "currentColor"}
    bars = [{"name": row["name"], "value": row["after"], "what": "after"} for row in rows]
    ticks = [
        {"name": row["name"], "value": row[what], "what": what}
        for row in rows
        for what in marks
        if row[what] is not None
    ]
    y = {"field": "name", "type": "nominal", "sort": names, "title": None}
    what = {
        "field": "what",
        "type": "nominal",
        "legend": {"title": None, "symbolStrokeWidth": 1},
        "scale": {"domain": ["after", *marks], "range": ["#56b4e9", *marks.values()]},
    }
    x = {"field": "value", "type": "quantitative", "title": unit, "stack": None}
    shape = {
        "field": "what",
        "type": "nominal",
        "legend": None,
        "scale": {"domain": list(marks), "range": ["circle", "triangle-right", "square"]},
    }
    return render(
        {
            "width": WIDTH,
            "height": {"step": 20},
            "layer": [
                {
                    "data": {"values": bars},
                    "mark": {"type": "bar", "height": 12},
                    "encoding": {"x": x, "y": y, "color": what},
                },
                {
                    "data": {"values": ticks},
                    "mark": {"type": "point", "filled": True, "size": 70, "opacity": 1},
                    "encoding": {"x": x, "y": y, "color": what, "shape": shape},
                },
            ],
        }
    )


def dots(
    groups: Mapping[str, Points],
    x_title: str,
    y_title: str,
    *,
    x_rule: float | None = None,
    y_rule: float | None = None,
) -> str:
    """Points by group, each with a shape and colour of its own; rules where they are given."""
    shapes = ("circle", "cross", "triangle-up", "diamond")
    names = list(groups)
    numbers = range(len(names))
    values = [
        {"group": name, "x": x, "y": y} for name, points in groups.items() for x, y in points
    ]
    x: Spec = {"field": "x", "type": "quantitative", "title": x_title, "scale": {"zero": False}}
    y: Spec = {"field": "y", "type": "quantitative", "title": y_title}
    layers: list[Spec] = [
        {
            "data": {"values": values},
            "mark": {"type": "point", "filled": True, "size": 70, "opacity": 1},
            "encoding": {
                "x": x,
                "y": y,
                "color": {
                    "field": "group",
                    "type": "nominal",
                    "legend": {"title": None},
                    "scale": {"domain": names, "range": [colour(BAR_COLOURS[i]) for i in numbers]},
                },
                "shape": {
                    "field": "group",
                    "type": "nominal",
                    "legend": {"title": None},
                    "scale": {"domain": names, "range": [shapes[i % 4] for i in numbers]},
                },
            },
        }
    ]
    for axis, at in (("x", x_rule), ("y", y_rule)):
        if at is not None:
            mark = {"type": "rule", "strokeDash": [6, 3], "color": "currentColor"}
            encoding = {axis: {"field": axis, "type": "quantitative"}}
            layers.append({"data": {"values": [{axis: at}]}, "mark": mark, "encoding": encoding})
    return render({"width": WIDTH, "height": HEIGHT, "layer": layers})


def stacks(
    rows: Sequence[Mapping[str, Any]],
    parts: Sequence[str],
    title: str,
    *,
    percent: bool = True,
    upright: str = "",
) -> str:
    """A bar per `name`, in parts: of a whole, or with `percent` off of any sum.

    `upright`: title of the names, which then stand side by side below their bars.
    """
    axis: Spec = {"axis": {"format": ".0%"}, "scale": {"domain": [0, 1]}} if percent else {
        "axis": {"tickMinStep": 1}
    }  # fmt: skip
    by_name: Spec = {"field": "name", "type": "nominal", "title": upright or None}
    by_name["sort"] = [str(row["name"]) for row in rows]
    if upright:
        by_name["axis"] = {"labelAngle": 0, "labelOverlap": True}
    value: Spec = {"field": "value", "type": "quantitative", "title": title, **axis}
    values = [
        {"name": row["name"], "part": part, "value": row[part], "order": order}
        for row in rows
        for order, part in enumerate(parts)
        if row[part] > 0
    ]
    colours = [colour(i) for i in BAR_COLOURS[: len(parts)]]
    return render(
        {
            "width": WIDTH,
            "height": HEIGHT if upright else {"step": 24},
            "data": {"values": values},
            "mark": {"type": "bar", "stroke": "var(--ground)", "strokeWidth": 1},
            "encoding": {
                "y": value if upright else by_name,
                "x": by_name if upright else value,
                "order": {"field": "order"},
                "color": {
                    "field": "part",
                    "type": "nominal",
                    "legend": {"title": None},
                    "scale": {"domain": list(parts), "range": colours},
                },
            },
        }
    )  # fmt: skip


def render(spec: Spec) -> str:
    """The chart as an SVG element."""
    import vl_convert  # noqa: PLC0415 - an extra, and 30 MB

    drawn: str = vl_convert.vegalite_to_svg(
        {"$schema": SCHEMA, "background": None, "padding": PADDING, "config": CONFIG, **spec}
    )
    return drawn
