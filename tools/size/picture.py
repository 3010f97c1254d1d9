"""The bounds of a workload as a picture: SVG without scripts and fonts, to open everywhere. Pure."""

from html import escape
from math import ceil, floor, log10
from typing import Final

from learning.sizing.kafka import Bound, Side
from tools.size.sizing import Sizing

_WIDTH: Final = 900
_LEFT: Final = 190
_RIGHT: Final = 30
_TOP: Final = 90
_ROW: Final = 30
_COLOURS: Final = {Side.AT_LEAST: "#2f6db3", Side.AT_MOST: "#b3532f"}


def draw(sizing: Sizing) -> str:
    """Return the SVG: one row per bound over a logarithmic axis of partitions, the allowed range, and the counts."""
    solution = sizing.solution
    bounds = [*solution.lower, *solution.upper]
    scale = _Scale([float(bound.limit or 0) for bound in bounds] + [float(count.partitions) for count in sizing.counts])
    height = _TOP + _ROW * len(bounds) + 70
    bottom = _TOP + _ROW * len(bounds)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        _text(_LEFT, 28, _title(sizing), size=16),
    ]
    if solution.feasible:
        parts.append(_allowed(sizing, scale, bottom))
    parts += _counts(sizing, scale, bottom)
    for row, bound in enumerate(bounds):
        strictest = bound is solution.binding(bound.side)
        parts.append(_row(bound, scale, _TOP + _ROW * row, strictest=strictest))
    parts += _axis(scale, bottom)
    return "\n".join([*parts, "</svg>", ""])


class _Scale:
    """A logarithmic axis for all values, by powers of ten."""

    def __init__(self, values: list[float]) -> None:
        above = [value for value in values if value > 0]
        self.first = min(0, floor(log10(min(above))))
        self.last = max(self.first + 1, ceil(log10(max(above))))

    def x(self, value: float) -> float:
        """Return the position of a value, clamped to the axis' start."""
        share = (log10(value) - self.first) / (self.last - self.first) if value > 0 else 0.0
        return round(_LEFT + min(1.0, max(0.0, share)) * (_WIDTH - _LEFT - _RIGHT), 1)


def _title(sizing: Sizing) -> str:
    fits = f"{sizing.partitions} partitions" if sizing.solution.feasible else "nothing fits"
    return f"{fits} on {sizing.brokers} brokers, {sizing.figures.updates.value:,.1f} updates/s"


def _allowed(sizing: Sizing, scale: _Scale, bottom: int) -> str:
    left = scale.x(sizing.solution.fewest)
    right = _WIDTH - _RIGHT if sizing.solution.most is None else scale.x(sizing.solution.most)
    width = max(0.0, round(right - left, 1))
    return f'<rect x="{left}" y="{_TOP - 4}" width="{width}" height="{bottom - _TOP + 4}" fill="#e8f3e8"/>'


def _counts(sizing: Sizing, scale: _Scale, bottom: int) -> list[str]:
    parts = []
    for level, count in enumerate(sizing.counts):
        x, chosen = scale.x(count.partitions), count.partitions == sizing.partitions
        colour, width = ("#1b7a1b", 2.5) if chosen else ("#999999", 1.0)
        parts.append(
            f'<line x1="{x}" x2="{x}" y1="{_TOP - 8}" y2="{bottom}" stroke="{colour}" stroke-width="{width}"/>'
        )
        # Neighbouring counts are close: their labels are on three levels.
        parts.append(
            _text(x, _TOP - 14 - 13 * (level % 3), str(count.partitions), anchor="middle", size=11, fill=colour)
        )
    return parts


def _row(bound: Bound, scale: _Scale, y: int, *, strictest: bool) -> str:
    x, colour = scale.x(float(bound.limit or 0)), _COLOURS[bound.side]
    left, right = (_LEFT, x) if bound.side is Side.AT_LEAST else (x, _WIDTH - _RIGHT)
    opacity = 0.75 if strictest else 0.3
    width = max(1.0, round(right - left, 1))
    label = f"{bound.name}, {bound.whole:,}"
    return (
        f'<rect x="{left}" y="{y + 6}" width="{width}" height="{_ROW - 12}" fill="{colour}" opacity="{opacity}">'
        f"<title>{escape(f'{bound.side} {bound.whole:,} partitions by {bound.name} ({bound.source})')}</title></rect>"
        + _text(_LEFT - 8, y + 19, label, anchor="end", size=12)
    )


def _axis(scale: _Scale, bottom: int) -> list[str]:
    parts = [f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{bottom}" y2="{bottom}" stroke="black"/>']
    for power in range(scale.first, scale.last + 1):
        x = scale.x(10.0**power)
        parts.append(f'<line x1="{x}" x2="{x}" y1="{bottom}" y2="{bottom + 5}" stroke="black"/>')
        parts.append(_text(x, bottom + 20, f"{10**power:,}" if power >= 0 else f"{10.0**power:g}", anchor="middle"))
    ruled_out = "blue: too few; red: too many; green: allowed, with the chosen count"
    parts.append(_text(_LEFT, bottom + 48, f"partitions ({ruled_out})", size=12))
    return parts


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 13, fill: str = "#222222") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="{size}" fill="{fill}">{escape(text)}</text>'
