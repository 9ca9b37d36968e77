"""Pictures for the docs, as SVG: ranges on a logarithmic axis, and curves."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

_FONT: Final = "font-family='system-ui, sans-serif'"
_INK, _FAINT, _PAPER = "#24292f", "#d0d7de", "#ffffff"
_ROW, _TITLE, _LABELS, _AXIS = 20, 30, 290, 28


@dataclass(frozen=True)
class Bar:
    """A value and the range in which it lies."""

    label: str
    colour: str
    value: float
    low: float
    high: float
    text: str


@dataclass(frozen=True)
class Panel:
    """A title and its bars."""

    title: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class Line:
    """A title and points; both axes of its panel are made to fit."""

    title: str
    points: tuple[tuple[float, float], ...]


def bars(title: str, panels: Sequence[Panel], columns: int = 2, width: int = 620) -> str:
    """Panels beside and below each other, with one logarithmic axis for all: from 1 on."""
    top = max((bar.high for panel in panels for bar in panel.bars), default=10.0)
    decades = max(1, math.ceil(math.log10(top)))
    room = width - _LABELS - 120

    def at(value: float) -> float:
        return _LABELS + room * math.log10(max(value, 1.0)) / decades

    parts = []
    rows = [panels[i : i + columns] for i in range(0, len(panels), columns)]
    y = 44.0
    for row in rows:
        height = _TITLE + _ROW * max(len(panel.bars) for panel in row) + _AXIS
        for column, panel in enumerate(row):
            inside = [_text(16, 18, panel.title, weight="bold")]
            bottom = _TITLE + _ROW * len(panel.bars)
            for power in range(decades + 1):
                x = at(10.0**power)
                inside.append(_line([(x, _TITLE - 4), (x, bottom)], _FAINT))
                inside.append(_text(x, bottom + 14, f"×{10**power:,}", anchor="middle", size=11))
            for number, bar in enumerate(panel.bars):
                inside += _bar(bar, _TITLE + _ROW * number, at)
            parts.append(_moved(column * width, y, inside))
        y += height
    return _drawn(width * min(columns, len(panels)), y, [_text(16, 26, title, size=16), *parts])


def curves(title: str, lines: Sequence[Line], columns: int = 2) -> str:
    """A panel a line; the axis below is logarithmic, the other begins at 0."""
    width, height, left, above = 460, 250, 60, 34
    room, tall = width - left - 24, height - above - 40
    parts = []
    for number, line in enumerate(lines):
        first, last = line.points[0][0], line.points[-1][0]
        top = _round_up(max(y for _, y in line.points))
        span = math.log(last / first) or 1.0
        spots = [
            (left + room * math.log(x / first) / span, above + tall * (1 - max(y, 0.0) / top))
            for x, y in line.points
        ]
        inside = [_text(left, 20, line.title, weight="bold")]
        for part in range(5):
            y = above + tall * (1 - part / 4)
            inside.append(_line([(left, y), (left + room, y)], _FAINT))
            inside.append(_text(left - 6, y + 4, f"{top * part / 4:,.0f}", anchor="end", size=11))
        for (x, _), (value, _) in zip(spots, line.points, strict=True):
            inside.append(_text(x, above + tall + 16, f"{value:,.0f}", anchor="middle", size=11))
        inside.append(_line(spots, "#0969da", 2))
        inside += [f"<circle cx='{x:.1f}' cy='{y:.1f}' r='3' fill='#0969da'/>" for x, y in spots]
        place = (number % columns * width, 40.0 + number // columns * height)
        parts.append(_moved(*place, inside))
    rows = math.ceil(len(lines) / columns)
    return _drawn(width * columns, 48 + rows * height, [_text(16, 26, title, size=16), *parts])


def _bar(bar: Bar, y: float, at: Callable[[float], float]) -> list[str]:
    start, end, middle = at(1.0), at(bar.value), y + _ROW / 2
    return [
        _text(_LABELS - 8, middle + 4, bar.label, anchor="end"),
        f"<rect x='{start:.1f}' y='{y + 4:.1f}' width='{max(end - start, 1):.1f}' "
        f"height='{_ROW - 8}' fill='{bar.colour}'/>",
        _line([(at(bar.low), middle), (at(bar.high), middle)], _INK),
        _text(max(end, at(bar.high)) + 6, middle + 4, bar.text),
    ]


def _round_up(value: float) -> float:
    """The next one of 1, 2, 4, 8, 10, 20 and so on."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 4, 8, 10) if step * power >= value)


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", size: int = 12, weight: str = "normal"
) -> str:
    return (
        f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}' font-size='{size}' "
        f"font-weight='{weight}' fill='{_INK}'>{escape(text)}</text>"
    )


def _line(points: Sequence[tuple[float, float]], colour: str, width: int = 1) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f"<polyline points='{path}' fill='none' stroke='{colour}' stroke-width='{width}'/>"


def _moved(x: float, y: float, parts: Sequence[str]) -> str:
    return "\n".join([f"<g transform='translate({x:.0f} {y:.0f})'>", *parts, "</g>"])


def _drawn(width: float, height: float, parts: Sequence[str]) -> str:
    size = f"width='{width:.0f}' height='{height:.0f}' viewBox='0 0 {width:.0f} {height:.0f}'"
    head = f"<svg xmlns='http://www.w3.org/2000/svg' {size} {_FONT}>"
    paper = f"<rect width='100%' height='100%' fill='{_PAPER}'/>"
    return "\n".join([head, paper, *parts, "</svg>"]) + "\n"
