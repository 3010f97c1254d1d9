"""The picture of the map of modes."""

from xml.etree import ElementTree as ET

from learning.modes.configuration import Configuration
from learning.recommend.mode_map import BOTTOM, COLOURS, HEIGHT, LEFT, NOTHING, RIGHT, TOP, WIDTH, draw, picture
from tests.unit.learning.recommend.test_advice import LOAD, advice

SVG = "{http://www.w3.org/2000/svg}"
SINGLE, X = Configuration.SINGLE, Configuration.X


def shapes(text: str, name: str) -> list[dict[str, str]]:
    return [each.attrib for each in ET.fromstring(text).iter(f"{SVG}{name}")]  # noqa: S314  # our own text


def test_every_mode_has_a_colour_of_its_own() -> None:
    assert COLOURS.keys() == set(Configuration)
    assert len({*COLOURS.values(), NOTHING}) == len(Configuration) + 1


def test_cells_of_a_mode_are_one_rectangle_and_lie_by_their_values() -> None:
    text = picture([[SINGLE, SINGLE, X], [X, None, None]], [10.0, 100.0, 1000.0], [1.0, 10.0], (100.0, 1.0))
    # The first is the background, then three of the legend.
    found = [each["fill"] for each in shapes(text, "rect")][1:]
    colours = [COLOURS[SINGLE], COLOURS[X], NOTHING]
    assert found == [*colours, COLOURS[SINGLE], COLOURS[X], COLOURS[X], NOTHING]
    (dot,) = shapes(text, "circle")
    assert float(dot["cx"]) == LEFT + (WIDTH - LEFT - RIGHT) / 2
    assert float(dot["cy"]) == HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) / 4
    assert "no mode holds" in text


def test_the_map_of_a_load_has_a_dot_in_the_region_of_the_chosen_mode() -> None:
    found = advice(LOAD)
    text = draw(found)
    (dot,) = shapes(text, "circle")
    assert found.chosen is not None
    regions = [
        each
        for each in shapes(text, "rect")
        if each["fill"] == COLOURS[found.chosen.configuration]
        and float(each.get("x", -1)) <= float(dot["cx"]) <= float(each.get("x", -1)) + float(each["width"])
        and float(each.get("y", -1)) <= float(dot["cy"]) <= float(each.get("y", -1)) + float(each["height"])
    ]
    assert regions
