"""Datasets from JSON: canonical form, complete checks, errors with their place."""

import json
import tracemalloc
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.data.errors import InvalidDataset, MalformedBody, WrongUnit
from services.data.kinds import json_text, series
from services.data.kinds.json_text import _BRACKETS, _outside_strings, _remains
from services.data.kinds.series import json_form

HOURS = [f"2026-01-01T{hour:02d}:00:00Z" for hour in range(24)]


def document(**changes: Any) -> dict[str, Any]:
    points = [{"time": HOURS[0], "value": 81.2}, {"time": HOURS[1], "value": None}]
    return {"unit": "EUR/MWh", "resolution": "PT1H", "points": points} | changes


def encoded(value: object) -> bytes:
    return json.dumps(value).encode()


def refused(body: bytes) -> InvalidDataset:
    with pytest.raises(InvalidDataset) as caught:
        series.parse_single("/dam/prices/GR", body)
    return caught.value


def test_a_dataset_keeps_its_points_in_canonical_form() -> None:
    dataset = series.parse_single("/dam/prices/GR", encoded(document()))
    assert dataset.content == (
        b'{"unit":"EUR/MWh","resolution":"PT1H","points":[{"time":"2026-01-01T00:00:00Z","value":81.2},'
        b'{"time":"2026-01-01T01:00:00Z","value":null}]}'
    )


def test_equivalent_notations_make_the_same_dataset() -> None:
    one = document(points=[{"time": "2026-01-01T00:00:00Z", "value": 81}])
    same = {
        "points": [{"value": 81.0, "time": "2026-01-01T00:00+00:00"}],
        "resolution": "PT60M",
        "unit": "EUR/MWh",
    }
    first = series.parse_single("/a", encoded(one))
    assert first.digest == series.parse_single("/a", json.dumps(same, indent=2).encode()).digest


@pytest.mark.parametrize(
    ("changes", "where", "reason"),
    [
        ({"unit": ""}, "$.unit", "a unit is a text"),
        ({"unit": "x" * 33}, "$.unit", "at most 32 characters"),
        ({"unit": 7}, "$.unit", "a unit is a text"),
        ({"unit": ["MW"]}, "$.unit", "a unit is a text"),
        ({"resolution": "PT7H"}, "$.resolution", "not a whole number"),
        ({"resolution": "1h"}, "$.resolution", "not a resolution"),
        ({"resolution": None}, "$.resolution", "not a resolution"),
        ({"points": []}, "$.points", "at least one"),
        ({"points": {}}, "$.points", "array"),
        ({"points": [7]}, "$.points[0]", "object"),
        ({"points": ["time"]}, "$.points[0]", "object"),
        ({"points": [{"time": HOURS[0]}]}, "$.points[0]", '"time" and "value"'),
        ({"points": [{"time": 1767225600, "value": 1}]}, "$.points[0].time", "string"),
        ({"points": [{"time": [], "value": 1}]}, "$.points[0].time", "string"),
        ({"points": [{"time": HOURS[0], "value": 1, "unit": "MW"}]}, "$.points[0]", "no other"),
        ({"points": [{"time": HOURS[0], "value": "1"}]}, "$.points[0]", "number"),
        ({"points": [{"time": HOURS[0], "value": True}]}, "$.points[0]", "number"),
        ({"points": [{"time": HOURS[0], "value": 1e15}]}, "$.points[0]", "out of range"),
        ({"points": [{"time": HOURS[0], "value": 10**15}]}, "$.points[0]", "out of range"),
        ({"points": [{"time": "2026-01-01T00:30:00Z", "value": 1}]}, "$.points[0]", "grid"),
        ({"points": [{"time": "2026-01-01T00:00:00", "value": 1}]}, "$.points[0]", "zone"),
        ({"points": [{"time": "2026-01-01T00:30:00+02:00", "value": 1}]}, "$.points[0]", "grid"),
        ({"points": [{"time": "2026-02-30T00:00:00Z", "value": 1}]}, "$.points[0]", "not a time"),
        ({"points": [{"time": "2026-01-01T00:00:00.5Z", "value": 1}]}, "$.points[0]", "not a time like"),
        ({"points": [{"time": HOURS[0], "value": 1}] * 2}, "$.points[1]", "twice"),
        ({"points": [{"time": HOURS[1], "value": 1}, {"time": HOURS[0], "value": 1}]}, "$.points[1]", "earlier"),
        ({"title": "x"}, "$", "unknown field 'title'"),
    ],
)
def test_a_wrong_dataset_is_refused_with_the_place(changes: dict[str, Any], where: str, reason: str) -> None:
    error = refused(encoded(document(**changes)))
    assert error.where == where
    assert reason in error.reason


@pytest.mark.parametrize("unit", ["GBP/MWh", "SEK/MWh", "EUR/kWh", "km/h", "hPa", "ppm", "bpm", "goals", "µg/m³"])
def test_a_unit_is_any_short_text(unit: str) -> None:
    dataset = series.parse_single("/a", encoded(document(unit=unit)))
    assert dataset.unit == series.unit(unit)
    assert json.loads(dataset.content)["unit"] == dataset.unit


@pytest.mark.parametrize("unit", ["€/MWh", "EUR / MWh", " EUR/MWh"])
def test_notations_of_a_unit_make_the_same_dataset(unit: str) -> None:
    one, same = (series.parse_single("/a", encoded(document(unit=each))) for each in ("EUR/MWh", unit))
    assert one == same


def test_a_missing_field_is_named() -> None:
    assert refused(b'{"unit":"MW"}').reason == "missing points, resolution"


@pytest.mark.parametrize("body", [b"", b"{", b"[1,]", b'{"a":NaN}', b'{"a":Infinity}', b"\xff", b'{"a":1}x'])
def test_what_is_not_json_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedBody):
        series.parse_single("/a", body)


def test_a_page_instead_of_json_is_named() -> None:
    with pytest.raises(MalformedBody, match="not JSON: this is a page of HTML, or XML"):
        series.parse_single("/a", b"\n<!DOCTYPE html><html>")


@pytest.mark.parametrize("blank", ["", " "])
@pytest.mark.parametrize("name", ["unit", "points", "time", "value", "resolution"])
def test_a_repeated_field_is_refused(name: str, blank: str) -> None:
    one = document(points=[{"time": HOURS[0], "value": 1}])
    value = {"points": "[]", "value": "2"}.get(name, '":"')
    doubled = json.dumps(one).replace(f'"{name}":', f'"{name}"{blank}: {value}, "{name}":', 1)
    several = f'{{"datasets": [{{"endpoint": "/a", {doubled[1:]}]}}'
    with pytest.raises(InvalidDataset, match=f"'{name}' appears twice"):
        series.parse_single("/a", doubled.encode())
    with pytest.raises(InvalidDataset, match=f"'{name}' appears twice"):
        series.parse_bulk(several.encode(), json.loads(several))


def test_a_body_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_text, "json", None)
    one = document()
    several = {"datasets": [{"endpoint": name, **one} for name in ("/a", "/b")]}
    assert len(series.parse_bulk(encoded(several), several)) == 2
    assert series.parse_single("/a", encoded(one)).content


def test_the_times_of_refused_points_are_not_kept_in_memory() -> None:
    body = encoded(document(points=[{"time": "2026" * 25_000, "value": 1}]))
    tracemalloc.start()
    try:
        with suppress(InvalidDataset):  # no traceback, which would keep them
            series.parse_single("/a", body)
        assert tracemalloc.get_traced_memory()[0] < 50_000
    finally:
        tracemalloc.stop()


def test_a_field_repeated_with_escapes_is_refused() -> None:
    text = json.dumps(document()).replace('"unit":', '"un\\u0069t": "MW", "unit":', 1)
    with pytest.raises(InvalidDataset, match="'unit' appears twice"):
        series.parse_single("/a", text.encode())


def test_escapes_without_repeated_fields_are_accepted() -> None:
    text = json.dumps(document()).replace("EUR/MWh", "EUR\\/MWh")
    assert series.parse_single("/a", text.encode()).unit == "EUR/MWh"


def test_the_configuration_completes_the_data_of_a_source() -> None:
    points = document()["points"]
    for body in (encoded(points), encoded({"points": points, "updated": "yesterday"})):
        (dataset,) = series.parse_source(body, endpoint="/a", unit_="MW", resolution="PT1H", title="A")
        assert (dataset.endpoint, dataset.unit, dataset.title) == ("/a", "MW", "A")


def test_a_source_that_disagrees_with_its_configuration_is_refused() -> None:
    with pytest.raises(WrongUnit):
        series.parse_source(encoded(document()), endpoint="/a", unit_="MW", resolution=None)


def test_a_source_may_state_an_equivalent_resolution() -> None:
    points = document()["points"]
    for said, known in (("PT60M", "PT1H"), ("PT1H", "PT60M")):
        body = encoded({"points": points, "resolution": said})
        (dataset,) = series.parse_source(body, endpoint="/a", unit_="MW", resolution=known)
        assert dataset.resolution == "PT1H"
    for other, reason in (("PT30M", "is PT1H, not"), ("hourly", "is PT1H, not"), (60, "is a text")):
        with pytest.raises(InvalidDataset, match=f"the resolution {reason}"):
            series.parse_source(
                encoded({"points": points, "resolution": other}), endpoint="/a", unit_="MW", resolution="PT1H"
            )


def test_a_source_can_return_several_datasets() -> None:
    body = encoded({"datasets": [{"endpoint": f"/m/{name}", **document()} for name in "xy"]})
    found = series.parse_source(body, endpoint=None, unit_=None, resolution=None)
    assert [dataset.endpoint for dataset in found] == ["/m/x", "/m/y"]


def test_data_without_a_unit_anywhere_is_refused() -> None:
    with pytest.raises(InvalidDataset, match="neither the data nor the configuration says the unit"):
        series.parse_source(encoded(document()["points"]), endpoint="/a", unit_=None, resolution="PT1H")


def deeper_than(text: bytes, limit: int) -> bool:
    return _remains(_outside_strings(text, _BRACKETS), limit)


def _nested(depth: int, inner: str = "") -> bytes:
    return ("[" * depth + inner + "]" * depth).encode()


@pytest.mark.parametrize("inner", ["", '"]]]]"', r'"\"]"', '{"a":[]}'])
def test_nesting_beyond_the_limit_is_found_before_parsing(inner: str) -> None:
    extra = 2 if inner.startswith("{") else 0
    assert not deeper_than(_nested(32 - extra, inner), 32)
    assert deeper_than(_nested(33 - extra, inner), 32)


def test_brackets_in_strings_cannot_hide_nesting() -> None:
    hidden = '[["]",' * 40 + "1" + ',"["]]' * 40
    json.loads(hidden)
    assert deeper_than(hidden.encode(), 32)


def test_a_body_nested_too_deeply_is_malformed() -> None:
    with pytest.raises(MalformedBody, match="32 deep"):
        series.parse_single("/a", _nested(20_000))


_JSON = st.recursive(
    st.none() | st.integers() | st.text(alphabet='[]{}"\\a,:', max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('[]{}"\\', max_size=3), inner, max_size=3),
    max_leaves=25,
)


def _depth(value: object) -> int:
    if isinstance(value, list | dict):
        inner = value.values() if isinstance(value, dict) else value
        return 1 + max(map(_depth, inner), default=0)
    return 0


@given(_JSON, st.integers(1, 6))
def test_depth_is_counted_exactly(value: object, limit: int) -> None:
    assert deeper_than(json.dumps(value).encode(), limit) == (_depth(value) > limit)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 200_000),
            st.none() | st.integers(-(10**15) + 1, 10**15 - 1) | st.floats(-1e14, 1e14),
        ),
        min_size=1,
        max_size=30,
        unique_by=lambda point: point[0],
    )
)
def test_what_was_stored_is_read_back_as_the_same_dataset(raw: list[tuple[int, float | None]]) -> None:
    points = [series.Point(hour * 3600, value) for hour, value in sorted(raw)]
    built = series.build("/a", "MW", "PT1H", points)
    again = series.parse_single("/a", built.content)
    assert again.content == built.content
    read = json.loads(built.content)["points"]
    assert [point["value"] for point in read] == [point.value for point in points]


VALUES: st.SearchStrategy[Any] = st.sampled_from(
    [1, 81.2, -0.5, 81.0, None, 0, 10**15, -1e15, 1e14, True, "1", [1], {}]
)
POINTS = st.one_of(
    st.fixed_dictionaries({"time": st.sampled_from(HOURS), "value": VALUES}),
    st.fixed_dictionaries({"value": VALUES, "time": st.sampled_from([*HOURS, "2026-01-01T00:30:00Z", 7])}),
    st.dictionaries(st.sampled_from(["time", "value", "unit"]), st.just(HOURS[0])),
    st.sampled_from([7, None, ["time", "value"], "time"]),
)
SERIES = st.lists(POINTS, min_size=1, max_size=5) | st.lists(VALUES, min_size=1, max_size=24).map(
    lambda values: [{"time": time, "value": value} for time, value in zip(HOURS, values, strict=False)]
)


@given(raw=SERIES)
def test_points_are_judged_together_as_they_are_one_by_one(raw: list[object]) -> None:
    def outcome(points: list[object]) -> object:
        try:
            return series.parse_single("/a", encoded(document(points=points))).content
        except InvalidDataset as error:
            return str(error)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_form, "MAX_SHARED", 0)
        one_by_one = outcome(raw)
    assert outcome(raw) == one_by_one
