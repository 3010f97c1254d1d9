"""A picture of horizontal bars, as SVG: people look at pictures before tables."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

WIDTH: Final = 1000
LABELS: Final = 210
"""Width of the column of labels, in pixels like all lengths."""
VALUES: Final = 70
"""Room for the number behind the longest bar."""
GAP: Final = 20
ROW: Final = 20
BAR: Final = 13
COLOURS: Final = (
    *("#4269d0", "#efb118", "#3ca951", "#ff725c", "#a463f2"),
    *("#9c6b4e", "#6cc5b0", "#97bbf5", "#ff8ab7", "#9498a0"),
)
"""Of the parts, in the order of their first bars; further ones repeat them."""
_STYLE: Final = (
    "text{font:12px sans-serif;fill:#1b1e23}.title{font-size:16px;font-weight:600}.group{font-weight:600}"
    ".quiet{fill:#5b626c}.goal{stroke:#1b1e23;stroke-width:2}.missed{fill:#c0262d;font-weight:600}"
)


class Bar(NamedTuple):
    """One bar: parts side by side, by name."""

    parts: Mapping[str, float]
    goal: float | None = None
    """Drawn as a line."""

    @property
    def end(self) -> float:
        return sum(max(0.0, part) for part in self.parts.values())


class Row(NamedTuple):
    """A bar in each column; None where there is nothing to show."""

    label: str
    bars: Sequence[Bar | None]


class Group(NamedTuple):
    """Rows below a heading, on scales of their own."""

    title: str
    rows: Sequence[Row]


def draw(title: str, columns: Sequence[str], groups: Sequence[Group]) -> str:
    """Return the picture; ``columns`` are the headings of the bars, with their units."""
    names = list(
        dict.fromkeys(
            name for group in groups for row in group.rows for bar in row.bars if bar is not None for name in bar.parts
        )
    )
    colours = {name: COLOURS[at % len(COLOURS)] for at, name in enumerate(names)}
    width = (WIDTH - LABELS - GAP) / len(columns)
    bounded = any(
        bar is not None and bar.goal is not None for group in groups for row in group.rows for bar in row.bars
    )
    body = [_text(GAP, 28, title, "title"), *_legend(colours, bounded=bounded)]
    y = 80
    for at, column in enumerate(columns):
        body.append(_text(LABELS + at * width, y, column, "quiet"))
    y += 10
    for group in groups:
        y += ROW
        body.append(_text(GAP, y, group.title, "group"))
        y += 8
        longest = [_longest(group, at) for at in range(len(columns))]
        for row in group.rows:
            body.append(_text(GAP, y + BAR - 2, row.label))
            for at, bar in enumerate(row.bars):
                if bar is not None:
                    scale = (width - GAP - VALUES) / longest[at]
                    body += _bar(bar, LABELS + at * width, y, scale, colours)
            y += ROW
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + GAP}" width="{WIDTH}" role="img">'
    parts = (
        head,
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
        '<rect width="100%" height="100%" fill="#fff"/>',
    )
    return "\n".join((*parts, *body, "</svg>\n"))


def _longest(group: Group, column: int) -> float:
    bars = [bar for row in group.rows if (bar := row.bars[column]) is not None]
    return max((max(bar.end, bar.goal or 0.0) for bar in bars), default=0.0) or 1.0


def _legend(colours: Mapping[str, str], *, bounded: bool) -> list[str]:
    shapes, x = [], float(GAP)
    for name, colour in colours.items():
        shapes += [_rect(x, 42, BAR, colour), _text(x + BAR + 5, 53, name)]
        x += BAR + 22 + 7 * len(name)
    return [*shapes, _line(x + 4, 42), _text(x + 12, 53, "goal: at most")] if bounded else shapes


def _bar(bar: Bar, x: float, y: float, scale: float, colours: Mapping[str, str]) -> list[str]:
    shapes, end = [], x
    for name, part in bar.parts.items():
        if part > 0:
            shapes.append(_rect(end, y, part * scale, colours[name]))
            end += part * scale
    number = f"{bar.end:.3g}" if bar.end < 1000 else f"{bar.end:,.0f}"
    if bar.goal is not None:
        shapes.append(_line(x + bar.goal * scale, y))
    behind = max(end, x + (bar.goal or 0.0) * scale)
    shapes.append(
        _text(behind + 6, y + BAR - 2, number, "missed" if bar.goal is not None and bar.end > bar.goal else "")
    )
    return shapes


def _rect(x: float, y: float, width: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{BAR}" fill="{colour}"/>'


def _line(x: float, y: float) -> str:
    return f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y - 2:.1f}" y2="{y + BAR + 2:.1f}" class="goal"/>'


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    style = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{style}>{escape(text)}</text>'
