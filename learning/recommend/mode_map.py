"""The map of modes as SVG: clients against updates a second, the cheapest mode of each region, a dot for the load."""

import math
from collections.abc import Sequence
from typing import Final
from xml.sax.saxutils import escape

from learning.modes.configuration import Configuration
from learning.modes.recommend import cheapest_on
from learning.recommend.advice import Advice

WIDTH: Final = 900
"""Of the picture, in pixels like all lengths."""
HEIGHT: Final = 560
LEFT: Final = 80
"""Margins of the map, like the next three."""
TOP: Final = 90
RIGHT: Final = 20
BOTTOM: Final = 60
COLOURS: Final = {
    Configuration.SINGLE: "#97bbf5",
    Configuration.ALL_TO_ALL: "#9498a0",
    Configuration.X_BROADCAST: "#efb118",
    Configuration.X: "#ff725c",
    Configuration.Z_CLIENT: "#3ca951",
    Configuration.Z_PROXY: "#a463f2",
    Configuration.Z_COMPOSITE: "#6cc5b0",
    Configuration.XZ: "#9c6b4e",
}
NOTHING: Final = "#e6e6e6"
"""Colour where no mode is suitable."""
_STYLE: Final = (
    "text{font:12px sans-serif;fill:#1b1e23}.title{font-size:16px;font-weight:600}.quiet{fill:#5b626c}"
    ".tick{stroke:#fff;stroke-opacity:.6}"
)


def draw(advice: Advice) -> str:
    """Return the picture."""
    clients, updates = advice.axes()
    rows = list(cheapest_on(advice.load, clients, updates, advice.costs, advice.needs))
    return picture(rows, clients, updates, (advice.load.clients, advice.load.updates))


def picture(
    rows: Sequence[Sequence[Configuration | None]],
    clients: Sequence[float],
    updates: Sequence[float],
    here: tuple[float, float],
) -> str:
    """Return the picture of a grid, whose cells are the same factor apart, with a dot ``here``."""
    width, height = (WIDTH - LEFT - RIGHT) / len(clients), (HEIGHT - TOP - BOTTOM) / len(updates)
    shapes = [_text(LEFT, 28, "Cheapest mode by clients and updates a second", "title"), *_legend(rows)]
    for at, row in enumerate(rows):
        y = HEIGHT - BOTTOM - (at + 1) * height
        shapes += _row(row, y, width, height)
    shapes += _ticks(clients, updates)
    x, y = _along(here[0], clients, LEFT, WIDTH - RIGHT), _along(here[1], updates, HEIGHT - BOTTOM, TOP)
    shapes.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" fill="#fff" stroke="#1b1e23" stroke-width="3"/>')
    shapes.append(_text(x + 12, y + 4, "you are here"))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" role="img">'
    title = "<title>Cheapest mode by clients and updates a second</title>"
    background = '<rect width="100%" height="100%" fill="#fff"/>'
    return "\n".join((head, title, f"<style>{_STYLE}</style>", background, *shapes, "</svg>\n"))


def _row(row: Sequence[Configuration | None], y: float, width: float, height: float) -> list[str]:
    """Return a rectangle for each run of equal cells."""
    shapes, first = [], 0
    for at in range(1, len(row) + 1):
        if at == len(row) or row[at] is not row[first]:
            colour = NOTHING if (mode := row[first]) is None else COLOURS[mode]
            x = LEFT + first * width
            # A little larger, so that no gap shows between them.
            size = f'width="{(at - first) * width + 0.5:.1f}" height="{height + 0.5:.1f}"'
            shapes.append(f'<rect x="{x:.1f}" y="{y:.1f}" {size} fill="{colour}"/>')
            first = at
    return shapes


def _legend(rows: Sequence[Sequence[Configuration | None]]) -> list[str]:
    there = {mode for row in rows for mode in row}
    named = [(COLOURS[mode], str(mode)) for mode in Configuration if mode in there]
    if None in there:
        named.append((NOTHING, "no mode holds"))
    shapes, x = [], float(LEFT)
    for colour, name in named:
        shapes.append(f'<rect x="{x:.1f}" y="46" width="13" height="13" fill="{colour}"/>')
        shapes.append(_text(x + 18, 57, name))
        x += 40 + 7 * len(name)
    return shapes


def _ticks(clients: Sequence[float], updates: Sequence[float]) -> list[str]:
    shapes = []
    for value in _powers(clients):
        x = _along(value, clients, LEFT, WIDTH - RIGHT)
        shapes.append(f'<line class="tick" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
        shapes.append(_text(x - 4, HEIGHT - BOTTOM + 18, f"{value:,g}"))
    for value in _powers(updates):
        y = _along(value, updates, HEIGHT - BOTTOM, TOP)
        shapes.append(f'<line class="tick" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        shapes.append(_text(LEFT - 50, y + 4, f"{value:,g}"))
    shapes.append(_text((LEFT + WIDTH) / 2 - 30, HEIGHT - 14, "clients", "quiet"))
    shapes.append(_text(8, TOP - 10, "updates/s", "quiet"))
    return shapes


def _powers(values: Sequence[float]) -> list[float]:
    """Return the powers of ten between the first and the last value."""
    first, last = math.ceil(math.log10(values[0])), math.floor(math.log10(values[-1]))
    return [10.0**power for power in range(first, last + 1)]


def _along(value: float, values: Sequence[float], start: float, end: float) -> float:
    """Return the place of a value on an axis, whose ``values`` are the middles of cells."""
    step = math.log(values[-1] / values[0]) / (len(values) - 1)
    share = (math.log(value / values[0]) / step + 0.5) / len(values)
    return start + share * (end - start)


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    style = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{style}>{escape(text)}</text>'
