"""JSON and XML: rows by a path with what is around them, parallel arrays, and hostile documents in one line."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from services.data.errors import InvalidDataset, MalformedBody
from services.data.files.grid import CHUNK_ROWS, FileLimits, Grid
from services.data.files.mapping import Mapping
from services.data.files.trees import read_json, read_xml

LIMITS = FileLimits()


def of_json(given: object, rows: str = "", **mapping: Any) -> Grid:
    body = given if isinstance(given, bytes) else json.dumps(given).encode()
    return read_json(body, Mapping.model_validate({"rows": rows, **mapping}), LIMITS, "a.json")


def of_xml(text: str, rows: str = "", **mapping: Any) -> Grid:
    return read_xml(text.encode(), Mapping.model_validate({"rows": rows, **mapping}), LIMITS, "a.xml")


def table(grid: Grid) -> list[dict[str, Any]]:
    """Return the rows of a grid by column, without missing cells."""
    rows = [row for chunk in grid.chunks for row in chunk.rows]
    assert {len(row) for row in rows} <= {len(grid.columns)}
    return [{k: v for k, v in zip(grid.columns, row, strict=True) if v is not None} for row in rows]


def test_rows_are_the_elements_of_the_array_at_the_path() -> None:
    value = {
        "response": {"data": [{"period": "2025-01-02T01", "value": 2100, "is": True}, {"period": "x", "value": None}]}
    }
    grid = of_json(value, "response/data")
    assert (grid.columns, grid.place, grid.file) == (["period", "value", "is"], "row", "a.json")
    (chunk,) = grid.chunks
    assert list(map(list, chunk.rows)) == [["2025-01-02T01", 2100, True], ["x", None, None]]
    assert list(chunk.places) == [1, 2]


def test_scalars_around_the_rows_are_columns_below_the_name_of_their_member() -> None:
    value = {
        "zone": "GR",
        "meta": {"unit": "MW"},
        "series": [
            {"id": 1, "period": {"start": "a", "points": [{"v": 1, "price": {"amount": 2}}, {"v": 3}]}},
            {"id": 2, "period": {"start": "b", "points": {"v": 4}}},
        ],
    }
    around = {"zone": "GR", "meta/unit": "MW"}
    assert table(of_json(value, "series/period/points")) == [
        {"v": 1, "price/amount": 2, **around, "series/id": 1, "period/start": "a"},
        {"v": 3, **around, "series/id": 1, "period/start": "a"},
        {"v": 4, **around, "series/id": 2, "period/start": "b"},
    ]


def test_a_row_s_own_member_comes_before_one_around_it() -> None:
    assert table(of_json({"unit": "MW", "data": [{"v": 1, "unit": "kW"}, {"v": 2}]}, "data")) == [
        {"v": 1, "unit": "kW"},
        {"v": 2, "unit": "MW"},
    ]


def test_a_star_is_any_member_and_its_name_a_column() -> None:
    value = {"updated": "x", "areas": {"SE3": [{"v": 1}], "SE4": [{"v": 2}]}}
    assert table(of_json(value, "areas/*")) == [
        {"v": 1, "updated": "x", "*": "SE3"},
        {"v": 2, "updated": "x", "*": "SE4"},
    ]
    assert table(of_json({"2025-01-01": 5, "2025-01-02": 6}, "*")) == [
        {"value": 5, "*": "2025-01-01"},
        {"value": 6, "*": "2025-01-02"},
    ]
    nested = {"a": {"unit": "MW", "x": {"v": 1}, "y": {"v": 2}}, "b": {"unit": "kW", "x": {"v": 3}}}
    assert table(of_json(nested, "*/*")) == [
        {"v": 1, "*": "a", "**": "x", "*/unit": "MW"},
        {"v": 2, "*": "a", "**": "y", "*/unit": "MW"},
        {"v": 3, "*": "b", "**": "x", "*/unit": "kW"},
    ]


def test_an_object_of_arrays_is_a_table_of_columns() -> None:
    value = {"latitude": 48.2, "hourly_units": {"t": "°C"}, "hourly": {"time": ["a", "b"], "t": [8.4, None]}}
    assert table(of_json(value, "hourly")) == [
        {"time": "a", "t": 8.4, "latitude": 48.2, "hourly_units/t": "°C"},
        {"time": "b", "latitude": 48.2, "hourly_units/t": "°C"},
    ]
    prices = {"unix_seconds": [1, 2], "price": [3.5, 4], "unit": "EUR / MWh", "license": ["CC", "BY", "4.0"]}
    expected = [
        {"unix_seconds": 1, "price": 3.5, "unit": "EUR / MWh"},
        {"unix_seconds": 2, "price": 4, "unit": "EUR / MWh"},
    ]
    assert table(of_json(prices, time="unix_seconds", value="price")) == expected
    assert table(of_json(prices)) == expected


def test_the_arrays_of_each_series_follow_one_around_them() -> None:
    value = {"unix_seconds": [1, 2], "types": [{"name": "Wind", "data": [5, 6]}, {"name": "Solar", "data": [7, 8]}]}
    assert table(of_json(value, "types", time="unix_seconds", value="data")) == [
        {"unix_seconds": 1, "data": 5, "name": "Wind"},
        {"unix_seconds": 2, "data": 6, "name": "Wind"},
        {"unix_seconds": 1, "data": 7, "name": "Solar"},
        {"unix_seconds": 2, "data": 8, "name": "Solar"},
    ]
    value = {**value, "types": [{"name": "Solar", "data": [7, 8, 9]}]}
    with pytest.raises(InvalidDataset, match=r"^a.json: unix_seconds has 2 values, but data has 3 \(key: rows\)$"):
        of_json(value, "types", time="unix_seconds", value="data")


def test_arrays_that_the_mapping_does_not_name_leave_rows_as_they_are() -> None:
    rows = [{"time": "a", "value": 1, "tags": ["x", "y"]}, {"time": "b", "value": 2, "tags": []}]
    assert table(of_json(rows)) == [{"time": "a", "value": 1}, {"time": "b", "value": 2}]
    assert table(of_json(rows[0])) == [{"time": "a", "value": 1}]
    assert table(of_json({"id": 7, "tags": ["x"]}, kind="document", name="{id}")) == [{"id": 7}]


def test_rows_that_are_arrays_have_numbered_columns() -> None:
    assert table(of_json([["a", 1], ["b", 2, {"c": 3}]])) == [{"1": "a", "2": 1}, {"1": "b", "2": 2, "3/c": 3}]
    prometheus = {"result": [{"metric": {"area": "GR"}, "values": [[1, "5"], [2, "6"]]}]}
    assert table(of_json(prometheus, "result/values")) == [
        {"1": 1, "2": "5", "result/metric/area": "GR"},
        {"1": 2, "2": "6", "result/metric/area": "GR"},
    ]
    assert table(of_json([[["a", 1]], [["b", 2]]])) == [{"1": "a", "2": 1}, {"1": "b", "2": 2}]
    assert table(of_json([5, 6])) == [{"value": 5}, {"value": 6}]
    assert table(of_json([{"page": 1}, [{"v": 1}]], "2")) == [{"v": 1}]


def test_numbers_and_nan_keep_their_meaning() -> None:
    assert table(of_json(b'\xef\xbb\xbf[{"v": NaN, "w": -Infinity, "x": 1.50, "y": 1e3}]')) == [{"x": 1.5, "y": 1000.0}]
    assert table(of_json('[{"v": "ä"}]'.encode("utf-16"))) == [{"v": "ä"}]
    assert table(of_json('[{"v": "ä"}]'.encode("cp1252"), encoding="cp1252")) == [{"v": "ä"}]


def test_many_rows_come_in_chunks() -> None:
    grid = of_json([{"v": number} for number in range(CHUNK_ROWS + 1)])
    first, second = grid.chunks
    assert (len(first.rows), list(second.places)) == (CHUNK_ROWS, [CHUNK_ROWS + 1])


@pytest.mark.parametrize(
    ("value", "rows", "reason"),
    [
        ({"data": []}, "rows", "the outermost value has no 'rows', but data (key: rows)"),
        ({"a": [{}, {"b": {"c": 1, "d": 2}}]}, "a/b/x", "a/b has no 'x', but c, d (key: rows)"),
        ({"a": 5}, "a/b", "a is '5', without members (key: rows)"),
        ({"data": []}, "data", "data has no rows (key: rows)"),
        ([], "", "the outermost value has no rows (key: rows)"),
    ],
)
def test_a_path_that_leads_nowhere_names_the_members(value: object, rows: str, reason: str) -> None:
    with pytest.raises(InvalidDataset) as found:
        of_json(value, rows)
    assert str(found.value) == f"a.json: {reason}"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "the file is empty"),
        (b'{"a": 1', "not JSON: unexpected end of data"),
        (b"[1, NaN", "not JSON: "),
        ('["ä"]'.encode("cp1252"), "is not UTF-8: is it cp1252, latin-1 or utf-16? (key: encoding)"),
        (b"time,value", "(key: format)"),
    ],
)
def test_what_is_not_json_is_named(body: bytes, reason: str) -> None:
    with pytest.raises(MalformedBody) as found:
        of_json(body)
    assert str(found.value).startswith("a.json: ")
    assert reason in str(found.value)


MARKET = """<?xml version="1.0" encoding="UTF-8"?>
<ns0:Publication xmlns:ns0="urn:x" xmlns:xsi="urn:y" xsi:kind="z"><type>A44</type>
<TimeSeries><mRID>1</mRID><Period><timeInterval><start>2024-01-01T00:00Z</start></timeInterval><resolution>PT60M</resolution>
<Point><position>1</position><price.amount unit="EUR">10.5</price.amount></Point>
<ns0:Point><position>3</position><price.amount/></ns0:Point></Period></TimeSeries>
<TimeSeries><mRID>2</mRID><Period><resolution>PT15M</resolution><Point><position>1</position></Point></Period></TimeSeries>
</ns0:Publication>"""


@pytest.mark.parametrize("rows", ["TimeSeries/Period/Point", "Publication/TimeSeries/Period/Point"])
def test_xml_has_rows_below_its_root_element(rows: str) -> None:
    around = {"type": "A44", "@kind": "z"}
    first = {
        **around,
        "TimeSeries/mRID": "1",
        "Period/timeInterval/start": "2024-01-01T00:00Z",
        "Period/resolution": "PT60M",
    }
    assert table(of_xml(MARKET, rows)) == [
        {"position": "1", "price.amount": "10.5", "price.amount/@unit": "EUR", **first},
        {"position": "3", **first},
        {"position": "1", **around, "TimeSeries/mRID": "2", "Period/resolution": "PT15M"},
    ]


def test_xml_has_values_in_attributes_and_in_texts_beside_them() -> None:
    text = "<rates date='a'>mixed <rate c='USD'> 1.1 </rate><rate c='GBP'><![CDATA[0.9]]></rate><!-- x --></rates>"
    assert table(of_xml(text, "rate")) == [
        {"@c": "USD", "value": "1.1", "@date": "a"},
        {"@c": "GBP", "value": "0.9", "@date": "a"},
    ]
    assert table(of_xml("<a><b>1</b><b>2</b></a>", "b")) == [{"value": "1"}, {"value": "2"}]


def test_xml_states_its_encoding_unless_the_mapping_does() -> None:
    for encoding in ("iso-8859-1", "cp1252", "utf-16"):
        text = f"<?xml version='1.0' encoding='{encoding}'?><a><b>ä</b></a>"
        grid = read_xml(text.encode(encoding), Mapping(rows="b"), LIMITS, "a.xml")
        assert table(grid) == [{"value": "ä"}]
    wrong = "<?xml version='1.0' encoding='utf-8'?><a><b>ä</b></a>".encode("cp1252")
    assert table(read_xml(wrong, Mapping(rows="b", encoding="cp1252"), LIMITS)) == [{"value": "ä"}]


def test_long_texts_of_xml_are_no_long_tags() -> None:
    long = "x<![CDATA[y]]>" * 200_000
    assert table(of_xml(f"<a><b>{long}</b><b>1</b></a>", "b"))[0] == {"value": "xy" * 200_000}
    many = "".join(f"<b><c>{number}</c></b>" for number in range(50_000))
    assert len(table(of_xml(f"<a>{many}</a>", "b"))) == 50_000


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<a><b></a>", "a.xml, line 1: not XML: mismatched tag (key: format)"),
        ("", "a.xml, line 1: not XML: no element found (key: format)"),
        ("<?xml version='1.0' encoding='nonsense'?><a/>", "(key: encoding)"),
    ],
)
def test_what_is_not_xml_is_named(text: str, reason: str) -> None:
    with pytest.raises(MalformedBody) as found:
        of_xml(text)
    assert reason in str(found.value)


# Hostile documents.

LAUGHS = '<!DOCTYPE a [<!ENTITY b "ha">' + "".join(
    f'<!ENTITY b{n} "{f"&b{n - 1 or str()};" * 10}">' for n in range(1, 10)
)
ATTRIBUTES = " ".join(f"a{number}=''" for number in range(1_000_000))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"{LAUGHS}]><a>&b9;</a>", "a document type (<!DOCTYPE ...>) is not read, nor are its entities: remove it"),
        ("<!DOCTYPE a SYSTEM 'file:///etc/passwd'><a/>", "a document type (<!DOCTYPE ...>) is not read"),
        ("<!DOCTYPE a [<!ENTITY x SYSTEM 'file:///etc/passwd'>]><a>&x;</a>", "a document type"),
        ("<a>&x;</a>", "not XML: undefined entity"),
        ("<a>" * 1_000_000, "nested more than 64 deep"),
        (f"<a {ATTRIBUTES}/>", "a tag or comment has more than 1048576 bytes"),
        ("<b/>" * 16_100_000, "more than 8000000 elements"),
        ("<a>" + "".join(f"<b{number}/>" for number in range(20_000)) + "</a>", "more than 10000 names of elements"),
    ],
    ids=["laughs", "external", "entity", "undefined", "deep", "attributes", "elements", "names"],
)
def test_hostile_xml_is_refused_in_one_line(text: str, reason: str) -> None:
    refused(lambda: read_xml(text.encode(), Mapping(rows="b"), LIMITS, "a.xml"), reason)


DEEP = b'{"a":' * 100 + b"1" + b"}" * 100


@pytest.mark.parametrize(
    ("body", "rows", "reason"),
    [
        (b"[" * 1_000_000, "", "nested too deeply"),
        (b"[NaN," + b"[" * 1_000_000, "", "nested too deeply"),
        (b"[" * 500 + b"]" * 500, "", "nested more than 64 deep"),
        (DEEP, "", "nested more than 64 deep"),
        (b'{"b": [1], "x": ' + DEEP + b"}", "b", "nested more than 64 deep"),
        (b"[" + b"[]," * 8_100_000 + b"[]]", "", "more than 8000000 arrays and objects"),
        (b"[" + b"0," * 20_100_000 + b"0]", "", "or 20000000 values"),
        (b"[" + b",".join(b'{"c%d":0}' % number for number in range(20_000)) + b"]", "", "20000 columns"),
    ],
    ids=["deep", "nan", "arrays", "objects", "around", "brackets", "values", "columns"],
)
def test_hostile_json_is_refused_in_one_line(body: bytes, rows: str, reason: str) -> None:
    refused(lambda: read_json(body, Mapping(rows=rows), LIMITS, "a.json"), reason)


def refused(read: Callable[[], Grid], reason: str) -> None:
    with pytest.raises((InvalidDataset, MalformedBody)) as found:
        read()
    assert reason in str(found.value)
    assert "\n" not in str(found.value)
    assert len(str(found.value)) < 400
