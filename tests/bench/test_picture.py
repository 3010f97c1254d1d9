from xml.etree import ElementTree as ET

from tests.bench.picture import COLOURS, Bar, Group, Row, draw

NS = "{http://www.w3.org/2000/svg}"
GROUPS = [
    Group(
        "a & b",
        [
            Row("short", (Bar({"x": 1.0, "y": 2.0}, goal=4.0), None)),
            Row("long", (Bar({"x": 6.0, "y": -1.0}, goal=5.0), Bar({"z": 2.0}))),
        ],
    ),
    Group("other", [Row("nothing", (Bar({"x": 0.0}), None))]),
]


def drawn() -> ET.Element:
    return ET.fromstring(draw("Title <1>", ("one", "two"), GROUPS))  # noqa: S314 - our own text


def test_a_bar_is_as_long_as_its_parts_on_the_scale_of_its_group_and_column() -> None:
    bars = [each for each in drawn().iter(f"{NS}rect") if each.get("height") == "13" and float(each.get("y", 0)) > 60]
    widths = [(each.get("fill"), float(each.get("width", 0))) for each in bars]
    colours = [colour for colour, _ in widths]
    assert colours == [COLOURS[0], COLOURS[1], COLOURS[0], COLOURS[2]]
    x, y, long, alone = (width for _, width in widths)
    assert (round(y / x, 1), round(long / x, 1), alone) == (2.0, 6.0, long)
    assert float(bars[1].get("x", 0)) == float(bars[0].get("x", 0)) + x


def test_a_bar_beyond_its_goal_is_marked() -> None:
    texts = {each.text: each.get("class") for each in drawn().iter(f"{NS}text")}
    assert {"Title <1>", "a & b", "one", "two", "short", "long"} <= {*texts}
    assert (texts["3"], texts["6"], texts["2"]) == (None, "missed", None)
    assert len([*drawn().iter(f"{NS}line")]) == 1 + 2


def test_without_goals_none_is_explained() -> None:
    assert "<line" not in draw("Title", ("one",), [Group("a", [Row("b", (Bar({"x": 1.0}),))])])
