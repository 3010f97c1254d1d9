"""Texts that change are legible while they glow: 4.5 to one, as WCAG 2.2 (1.4.3) requires."""

import re
from pathlib import Path
from typing import Final

import pytest

STYLE: Final = (Path(__file__).parents[3] / "client/src/page/style.css").read_text()
Colour = tuple[float, float, float]


def names(theme: int) -> dict[str, str]:
    """Return the colours of the light (0) or the dark theme (1) by name."""
    pairs = re.findall(r"--([a-z0-9-]+): light-dark\((#\w+|rgb\([^)]+\)), (#\w+|rgb\([^)]+\))\)", STYLE)
    return {name: values[theme] for name, *values in pairs}


def of_hex(text: str) -> Colour:
    red, green, blue = (int(text[at : at + 2], 16) for at in (1, 3, 5))
    return red, green, blue


def over(background: Colour, text: str) -> Colour:
    """Return a translucent colour, rgb(red green blue / alpha), over a background."""
    *colour, alpha = (float(each) for each in re.findall(r"[\d.]+", text))
    red, green, blue = (old + (new - old) * alpha for old, new in zip(background, colour, strict=True))
    return red, green, blue


def luminance(colour: Colour) -> float:
    red, green, blue = (
        (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4) for c in (x / 255 for x in colour)
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("behind", ["panel", "pick"])
@pytest.mark.parametrize("text", ["ink", "now", "accent"])
def test_a_value_that_glows_is_legible(theme: int, behind: str, text: str) -> None:
    colours = names(theme)
    glowing = over(of_hex(colours[behind]), colours["glow"])
    low, high = sorted((luminance(glowing), luminance(of_hex(colours[text]))))
    assert (high + 0.05) / (low + 0.05) >= 4.5
