"""Small deviations from ``time,value``: each is read, or refused with the key of the mapping that helps."""

import gzip
import io
import json
import re
import zipfile
from typing import Any

import pytest

from services.data.errors import DataError
from services.data.files.grid import InputFile
from tests.unit.services.data.files.as_source import converted
from tests.unit.services.data.files.publishers import HOUR, every, seconds

T = seconds("2026-01-01T00:00Z")
HOURLY: dict[str, Any] = {"unit": "MW", "resolution": "PT1H"}
TWO = [(T, 1), (T + HOUR, 2)]
PLAIN = "time,value\n2026-01-01T00:00:00Z,1\n2026-01-01T01:00:00Z,2\n"
ROWS = "2026-01-01T00:00Z{0}1\n2026-01-01T01:00Z{0}2\n"


def points(body: str | bytes, mapping: dict[str, Any], fields: dict[str, Any], file: str = "a.csv") -> object:
    """Return the points of one series, or those of several by their names."""
    content = body if isinstance(body, bytes) else body.encode()
    found = converted(InputFile(file, content), HOURLY | {"mapping": mapping} | fields)
    return found[""].points if list(found) == [""] else {name: each.points for name, each in found.items()}


def zipped(text: str) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("a.csv", text)
    return made.getvalue()


def at(*texts: str, header: str = "time,value") -> str:
    """Return rows with the values 1, 2, ... at these times."""
    return "\n".join([header, *(f"{text},{index}" for index, text in enumerate(texts, 1))])


def cell(text: str) -> str:
    return f'time,value\n2026-01-01T00:00Z,"{text}"\n2026-01-01T01:00Z,2\n'


_ACCEPTED: list[tuple[str, str | bytes, dict[str, Any], dict[str, Any], object]] = [
    # What was read before, too
    ("byte order mark", "\ufeff" + PLAIN, {}, {}, TWO),
    ("CRLF", PLAIN.replace("\n", "\r\n"), {}, {}, TWO),
    ("CR", PLAIN.replace("\n", "\r"), {}, {}, TWO),
    ("quoted header", PLAIN.replace("time,value", '"time","value"'), {}, {}, TWO),
    ("capital header", PLAIN.replace("time,value", "Time,VALUE"), {}, {}, TWO),
    ("blanks", PLAIN.replace(",", " , "), {}, {}, TWO),
    ("exponent", cell("1e3"), {}, {}, [(T, 1000), (T + HOUR, 2)]),
    ("no leading zero", cell(".1"), {}, {}, [(T, 0.1), (T + HOUR, 2)]),
    ("fraction of zeros", at("2026-01-01T00:00:00.000Z"), {}, {}, TWO[:1]),
    ("missing rows", at("2026-01-01T00:00Z", "2026-01-01T05:00Z"), {}, {}, [(T, 1), (T + 5 * HOUR, 2)]),
    ("one row", at("2026-01-01T00:00Z"), {}, {}, TWO[:1]),
    # Encodings and archives
    ("UTF-16 with a mark", PLAIN.encode("utf-16"), {}, {}, TWO),
    ("UTF-16 without one", PLAIN.encode("utf-16-le"), {"encoding": "utf-16-le"}, {}, TWO),
    ("gzip", gzip.compress(PLAIN.encode()), {}, {}, TWO),
    ("zip", zipped(PLAIN), {}, {}, TWO),
    # Marks
    ("semicolons", PLAIN.replace(",", ";"), {"delimiter": ";"}, {}, TWO),
    ("tabs", PLAIN.replace(",", "\t"), {"delimiter": "\t"}, {}, TWO),
    ("comment", "# exported today\n" + PLAIN, {"comment": "#"}, {}, TWO),
    ("lines above", "My plant\n\n" + PLAIN, {"header": 3}, {}, TWO),
    ("extra column", "time,value,note\n2026-01-01T00:00Z,1,ok\n2026-01-01T01:00Z,2,\n", {}, {}, TWO),
    ("comma at the end", PLAIN.replace("value", "value,").replace("Z,1", "Z,1,").replace("Z,2", "Z,2,"), {}, {}, TWO),
    ("other names", PLAIN.replace("time,value", "hour,price"), {"time": "hour", "value": "price"}, {}, TWO),
    ("no header", ROWS.format(","), {"header": 0, "time": "1", "value": "2"}, {}, TWO),
    # Numbers
    ("1,234.5", cell("1,234.5"), {"thousands": ","}, {}, [(T, 1234.5), (T + HOUR, 2)]),
    ("1.234,5", cell("1.234,5"), {"thousands": ".", "decimal": ","}, {}, [(T, 1234.5), (T + HOUR, 2)]),
    ("4,2", cell("4,2"), {"decimal": ","}, {}, [(T, 4.2), (T + HOUR, 2)]),
    *(
        (gap, cell(gap), {"gaps": [gap]}, {}, [(T, None), (T + HOUR, 2)])
        for gap in ("NaN", "-", "n/e", "null", "NA", "-999", "#N/A")
    ),
    # Times
    ("as pandas writes them", at("2026-01-01 00:00:00+00:00"), {}, {}, TWO[:1]),
    ("offset", at("2026-01-01T01:00:00+01:00"), {}, {}, TWO[:1]),
    ("local", at("2026-01-01 01:00"), {}, {"zone": "Europe/Berlin"}, TWO[:1]),
    ("offset without colon", at("2026-01-01T01:00+0100"), {}, {}, TWO[:1]),
    ("offset of hours", at("2026-01-01T01:00+01"), {}, {}, TWO[:1]),
    ("small z", at("2026-01-01T00:00z"), {}, {}, TWO[:1]),
    ("seconds of Unix", at(str(T), str(T + HOUR)), {"time_format": "epoch"}, {}, TWO),
    ("milliseconds of Unix", at(f"{T}000"), {"time_format": "epoch_ms"}, {}, TWO[:1]),
    ("01.01.2026", at("01.01.2026 00:00"), {"time_format": "%d.%m.%Y %H:%M"}, {}, TWO[:1]),
    ("01/01/2026", at("01/01/2026 12:00 AM"), {"time_format": "%m/%d/%Y %I:%M %p"}, {}, TWO[:1]),
    ("24:00", at("2025-12-31T24:00Z"), {}, {}, TWO[:1]),
    ("a date", at("2026-01-01", "2026-01-02"), {}, {"resolution": "P1D"}, [(T, 1), (T + 24 * HOUR, 2)]),
    ("descending", at("2026-01-01T01:00Z", "2026-01-01T00:00Z"), {}, {}, [(T, 2), (T + HOUR, 1)]),
    ("in no order", PLAIN + "2025-12-31T23:00Z,0\n", {}, {}, [(T - HOUR, 0), *TWO]),
    ("twice, the last one", at(*["2026-01-01T00:00Z"] * 2), {"duplicates": "last"}, {}, [(T, 2)]),
    ("twice, equal", PLAIN + PLAIN.partition("\n")[2], {}, {}, TWO),
    ("off the grid", at("2026-01-01T00:07Z"), {}, {"resolution": "irregular"}, [(T + 420, 1)]),
    ("interval", at("2026-01-01T00:00Z/2026-01-01T01:00Z"), {"interval": "/"}, {}, TWO[:1]),
    # Resolutions
    *(
        (step, at("2026-06-01T00:00Z"), {}, {"resolution": step}, [(seconds("2026-06-01T00:00Z"), 1)])
        for step in ("PT5S", "PT30S", "P1W", "P1M")
    ),
    # Several series
    (
        "long",
        "endpoint,time,value,unit\na/b,2026-01-01T00:00Z,1,MW\nc,2026-01-01T00:00Z,2,MW\n",
        {"name": "{endpoint}", "unit": "unit"},
        {},
        {"a-b": [(T, 1)], "c": [(T, 2)]},
    ),
    ("wide", "time,a,b\n2026-01-01T00:00Z,1,2\n", {"value": "*"}, {}, {"a": [(T, 1)], "b": [(T, 2)]}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "mapping", "fields", "expected"),
    [each[1:] for each in _ACCEPTED],
    ids=[each[0] for each in _ACCEPTED],
)
def test_a_deviation_is_read(
    body: str | bytes, mapping: dict[str, Any], fields: dict[str, Any], expected: object
) -> None:
    assert points(body, mapping, fields) == expected


@pytest.mark.parametrize(("resolution", "count"), [("PT1M", 1440), ("PT15M", 2976), ("PT1H", 8760)])
def test_a_day_by_the_minute_and_a_year_by_the_hour_are_read(resolution: str, count: int) -> None:
    times = every({"PT1M": 60, "PT15M": 900, "PT1H": HOUR}[resolution], ("2026-01-01T00:00Z", count))
    body = "time,value\n" + "".join(f"{each},{index / 100}\n" for index, each in enumerate(times))
    found = points(body, {"time_format": "epoch"}, {"resolution": resolution})
    assert found == [(each, index / 100) for index, each in enumerate(times)]


_UNITS = ["USD/MWh", "GBP/MWh", "SEK/MWh", "AUD/MWh", "MWh/h", "km/h", "hPa", "bar", "V", "A", "K", "ppm"]


@pytest.mark.parametrize("unit", _UNITS)
def test_any_unit_is_taken(unit: str) -> None:
    (found,) = converted(InputFile("a.csv", PLAIN.encode()), HOURLY | {"unit": unit}).values()
    assert found.unit == unit


@pytest.mark.parametrize("unit", ["€/MWh", "EUR / MWh"])
def test_a_unit_has_one_form(unit: str) -> None:
    (found,) = converted(InputFile("a.csv", PLAIN.encode()), HOURLY | {"unit": unit}).values()
    assert found.unit == "EUR/MWh"


_JSON: list[tuple[str, object, dict[str, Any]]] = [
    ("text as a number", [{"time": "2026-01-01T00:00Z", "value": "1"}, {"time": "2026-01-01T01:00Z", "value": 2}], {}),
    ("pairs", {"points": [["2026-01-01T00:00Z", 1], ["2026-01-01T01:00Z", 2]]},
     {"rows": "points", "time": "1", "value": "2"}),
    ("columns", {"time": ["2026-01-01T00:00Z", "2026-01-01T01:00Z"], "value": [1, 2]}, {}),
    ("bare array", [{"time": "2026-01-01T00:00Z", "value": 1}, {"time": "2026-01-01T01:00Z", "value": 2}], {}),
    ("more members", {"title": "a", "points": [{"time": "2026-01-01T00:00Z", "value": 1, "quality": "good"},
                                               {"time": "2026-01-01T01:00Z", "value": 2, "quality": "good"}]},
     {"rows": "points"}),
]  # fmt: skip


@pytest.mark.parametrize(("value", "mapping"), [each[1:] for each in _JSON], ids=[each[0] for each in _JSON])
def test_a_form_of_json_is_read(value: object, mapping: dict[str, Any]) -> None:
    assert points(json.dumps(value), mapping, {}, "a.json") == TWO


_REFUSED: list[tuple[str, str | bytes, dict[str, Any], str]] = [
    ("semicolons", PLAIN.replace(",", ";"), {}, "delimiter"),
    ("tabs", PLAIN.replace(",", "\t"), {}, "delimiter"),
    ("comment", "# exported today\n" + PLAIN, {}, "comment"),
    ("lines above", "My plant,\n\n" + PLAIN, {}, "header"),
    ("other name of the time", at("2026-01-01T00:00Z", header="timestamp,value"), {}, "key: time"),
    ("other name of the value", at("2026-01-01T00:00Z", header="time,price"), {}, "key: value"),
    ("no header", ROWS.format(","), {}, "header"),
    ("cells beyond the header", "time,value\n2026-01-01T00:00Z,1,2\n", {}, "delimiter"),
    ("not UTF-8", "time,value,größe\n".encode("latin-1"), {}, "encoding"),
    ("UTF-16 without a mark", PLAIN.encode("utf-16-le"), {}, "encoding"),
    ("1,234.5", cell("1,234.5"), {}, "thousands"),
    ("4,2", cell("4,2"), {}, "decimal"),
    ("4.2 beside decimal commas", cell("4.2"), {"decimal": ","}, "thousands"),
    *((gap, cell(gap), {}, "gaps") for gap in ("NaN", "-", "n/e", "null", "NA", "inf", "#N/A")),
    ("1_000", cell("1_000"), {}, "value"),
    ("digits of another script", cell("٣"), {}, "value"),
    ("01.01.2026", at("01.01.2026 00:00"), {}, "time_format"),
    ("seconds of Unix", at(str(T)), {}, "time_format"),
    ("another notation than the mapping's", at("2026-01-01T00:00Z"), {"time_format": "%d.%m.%Y"}, "time_format"),
    ("no interval", at("2026-01-01T00:00Z"), {"interval": " - "}, "interval"),
    ("twice", at(*["2026-01-01T00:00Z"] * 2), {}, "duplicates"),
    ("off the grid", at("2026-01-01T00:07Z"), {}, "resolution"),
    ("an HTML page", "<!DOCTYPE html>\n<html><body>Log in</body></html>", {}, "HTML"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "mapping", "key"), [each[1:] for each in _REFUSED], ids=[each[0] for each in _REFUSED]
)
def test_a_deviation_is_refused_with_the_key_that_helps(body: str | bytes, mapping: dict[str, Any], key: str) -> None:
    with pytest.raises(DataError) as found:
        points(body, mapping, {})
    text = str(found.value)
    assert "\n" not in text
    assert re.search(rf"\b{key}\b", text), text


@pytest.mark.parametrize("step", ["15min", "1h", "hourly"])
def test_a_resolution_in_other_words_is_refused_by_its_field(step: str) -> None:
    with pytest.raises(DataError, match=rf"^resolution: '{step}' is not a resolution"):
        points(PLAIN, {}, {"resolution": step})


def test_a_missing_unit_or_resolution_is_named() -> None:
    for field in ("unit", "resolution"):
        with pytest.raises(DataError, match=rf"\(key: {field}\b"):
            points(PLAIN, {}, {field: None})
