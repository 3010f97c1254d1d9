"""Suggestions: right on most layouts without a question, and never wrong without one."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

import orjson
import pytest

from services.data.errors import DataError, InvalidDataset, MalformedBody
from services.data.files.grid import InputFile
from services.data.files.suggest import suggest
from services.data.files.suggestion import Note, Suggestion
from tests.unit.services.data.files import layouts, publishers
from tests.unit.services.data.files.publishers import Series
from tests.unit.services.data.files.workbooks import rows as workbook_rows
from tests.unit.services.data.files.workbooks import xlsx


class Outcome(NamedTuple):
    """What became of a layout; ``questions``: the keys which the file does not prove."""

    name: str
    is_right: bool
    questions: frozenset[str]
    suggestion: Suggestion


def published(made: Suggestion) -> list[Series]:
    """Return the series which would be published."""
    contents = [orjson.loads(each.content) for each in made.found]
    return [
        Series(
            each["unit"],
            each["resolution"],
            [(int(datetime.fromisoformat(point["time"]).timestamp()), point["value"]) for point in each["points"]],
        )
        for each in contents
        if isinstance(each, dict) and "points" in each
    ]


def outcome(name: str, file: InputFile, expected: Sequence[Series], known: Mapping[str, str] | None = None) -> Outcome:
    """Return what is suggested for a file, compared with what it means, whatever the names are."""
    made = suggest(file, known=known)
    right = sorted(published(made), key=repr) == sorted(map(_canonical, expected), key=repr)
    return Outcome(name, right, frozenset(each.key for each in made.questions), made)


def _canonical(each: Series) -> Series:
    points = [(at, int(v) if isinstance(v, float) and v.is_integer() else v) for at, v in each.points]
    return Series(each.unit, each.resolution, points)


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    found = []
    for make in publishers.ALL:
        layout = make()
        file = InputFile(layout.file, layout.body, layout.media_type)
        found.append(outcome(layout.publisher, file, [*layout.expected.values()]))
    for of in layouts.ALL:
        sample = of()
        found.append(outcome(sample.publisher, InputFile(sample.file, sample.body), sample.expected))
    return found


def test_most_layouts_are_right_without_a_question(outcomes: Sequence[Outcome]) -> None:
    right = [each for each in outcomes if each.is_right and not each.questions]
    for each in outcomes:
        print(f"{each.name:36} {'right' if each.is_right else 'not  '}  {', '.join(sorted(each.questions)) or '-'}")
    print(f"{len(right)} of {len(outcomes)} right without a question")
    assert len(right) >= 0.8 * len(outcomes)


def test_nothing_is_wrong_without_being_listed_as_unsure(outcomes: Sequence[Outcome]) -> None:
    assert [
        each.name for each in outcomes if not each.is_right and not each.questions and not each.suggestion.problem
    ] == []


def test_only_what_a_file_leaves_open_is_asked(outcomes: Sequence[Outcome]) -> None:
    unproven = {of().publisher: of().unproven for of in layouts.ALL} | {
        "AESO, wind forecast": frozenset({"unit", "zone"})
    }
    asked = {each.name: each.questions - unproven.get(each.name, frozenset()) for each in outcomes}
    assert {name: keys for name, keys in asked.items() if keys} == {}


@pytest.mark.parametrize(
    ("of", "known"),
    [
        (layouts.ercot, {"zone": "America/Chicago", "unit": "1"}),
        (layouts.omie, {"zone": "Europe/Madrid", "unit": "1"}),
        (layouts.knmi, {"zone": "UTC", "unit": "1"}),
        (layouts.pjm, {"unit": "1"}),
    ],
)
def test_answers_leave_no_question(of: Any, known: dict[str, str]) -> None:
    sample = of()
    found = outcome(sample.publisher, InputFile(sample.file, sample.body), sample.expected, known)
    assert (found.is_right, found.questions, found.suggestion.problem) == (True, frozenset(), "")


def rows(header: str, count: int, row: str) -> InputFile:
    """Return a file with numbered rows: ``{i}`` is the number, ``{j}`` the next."""
    lines = [header, *(row.format(i=index, j=index + 1, h=index // 2) for index in range(count))]
    return InputFile("file.csv", "\n".join(lines).encode())


@pytest.mark.parametrize(
    ("file", "asked"),
    [
        (rows("date;Load [MW]", 9, "0{j}/02/2025;{i}"), {"time_format"}),
        (rows("time;Load [MW]", 9, "03/04/2025 0{i}:00Z;{i}"), {"time_format"}),
        (rows("date;Load [MW]", 9, "0{j}/02/03;{i}"), {"time_format"}),
        (rows("time;Load [MW]", 9, "2025-01-01T0{i}:00Z;{j}.234"), {"decimal"}),
        (rows("time;Load [MW]", 9, "2025-01-01T0{i}:00Z;{j},234"), {"decimal"}),
        (rows("time;Load [MW]", 9, "2025-01-01T0{i}:00;{j}"), {"zone"}),
        (rows("time (CET);Load [MW]", 9, "2025-01-01T0{i}:00;{j}"), {"zone"}),
        (rows("time;Load", 9, "2025-01-01T0{i}:00Z;{j}"), {"unit"}),
        (rows("time;Load (forecast)", 9, "2025-01-01T0{i}:00Z;{j}"), {"unit"}),
        (rows("time;Load [MW];Price", 9, "2025-01-01T0{i}:00Z;{j};{i}"), {"unit"}),
        (rows("time;Load [MW]", 1, "2025-01-01T0{i}:00Z;{j}"), {"resolution"}),
        (rows("time;Load [MW]", 2, "2025-01-01T0{i}:00Z;{j}"), {"resolution"}),
        (
            rows("time;Load [MW]\n2025-01-01T08:00Z;9\n2025-01-01T08:05Z;9", 5, "2025-01-01T0{i}:00Z;{j}"),
            {"resolution"},
        ),
        (rows("time;Load [MW]\n2025-01-01T09:00Z;kaputt", 9, "2025-01-01T0{i}:00Z;{j}"), {"gaps"}),
        (rows("time;Load [MW]\n2025-01-01T09:00Z;9999", 9, "2025-01-01T0{i}:00Z;{j}"), {"gaps"}),
        (rows("time;Load [MW]", 18, "2025-01-01T0{h}:00Z;{j}"), {"duplicates"}),
        (rows("id;name", 4, "{i};n"), {"kind"}),
        (rows("Generated: 2025-01-02 12:00 UTC\ntime;Load [MW]", 9, "2025-01-01T0{i}:00;{j}"), {"zone"}),
        (
            rows("A\ntime;Load [MW]\n2025-01-01T09:00Z;9\n\nB\ntime;Load [kW]", 9, "2025-01-01T0{i}:00Z;{j}"),
            {"section"},
        ),
    ],
)
def test_what_no_value_decides_is_asked(file: InputFile, asked: set[str]) -> None:
    assert asked <= {each.key for each in suggest(file).questions}


def test_ends_of_periods_are_found_by_the_heading_and_otherwise_asked() -> None:
    hours = [f"2025-01-{1 + hour // 24:02}T{hour % 24:02}:00Z,{hour}" for hour in range(1, 25)]
    named, unnamed = (
        suggest(InputFile("file.csv", "\n".join([f"{heading},Load [MW]", *hours]).encode()))
        for heading in ("interval_end", "time")
    )
    assert (named.keys["stamp"], named.questions) == ("end", [])
    assert published(named)[0].points[0] == (1735689600, 1)
    assert [each.key for each in unnamed.questions] == ["stamp"]


def test_the_order_of_days_and_months_is_decided_by_gapless_days() -> None:
    hours = [f"0{1 + hour // 24}/02/2025 {hour % 24:02}:00Z;{hour}" for hour in range(72)]
    made = suggest(InputFile("file.csv", "\n".join(["time;Load [MW]", *hours]).encode()))
    assert (made.keys["time_format"], made.questions) == ("%d/%m/%Y %H:%M%z", [])


def test_a_zone_without_summer_time_is_not_taken_for_one_with_it() -> None:
    hours = [f"2025-03-{29 + hour // 24} {hour % 24:02}:00;{hour}" for hour in range(72)]
    made = suggest(InputFile("file.csv", "\n".join(["time (CET);Load [MW]", *hours]).encode()))
    assert (made.fields["zone"], made.questions) == ("Etc/GMT-1", [])


def test_another_file_with_a_column_of_a_preset_is_not_taken_for_it() -> None:
    made = suggest(rows("utc_timestamp,Temperature [°C]", 9, "2025-01-01T0{i}:00Z,{j}"))
    assert (made.preset, published(made)[0].unit) == ("", "°C")


@pytest.mark.parametrize(
    ("body", "name", "problem"),
    [
        (b"", "file.csv", "there is no table in it"),
        (b"hello world\nthis is prose\n", "file.txt", "there is no table in it"),
        (bytes(range(256)) * 20, "file.csv", "it is no text"),
        (b"5", "file.json", "there is no table in it"),
        (b"time,a\n2025-01-01T00:00:00.5Z,1\n2025-01-01T00:00:01.5Z,1\n", "file.csv", "round them to seconds"),
        (b"time,a\n2025-01-01T00:00Z,1 kW\n2025-01-01T01:00Z,2 kW\n", "file.csv", "no column but that of the time"),
        (
            b"time,a [MW],a [MW]\n2025-01-01T00:00Z,1,2\n2025-01-01T01:00Z,1,2\n",
            "file.csv",
            "two columns have the heading",
        ),
    ],
)
def test_a_file_that_cannot_be_read_has_one_reason(body: bytes, name: str, problem: str) -> None:
    made = suggest(InputFile(name, body))
    assert problem in made.problem
    assert made.found == ()


def test_markup_and_broken_json_are_named() -> None:
    with pytest.raises(InvalidDataset, match="HTML page"):
        suggest(InputFile("file.csv", b"<!DOCTYPE html><html></html>"))
    with pytest.raises(MalformedBody, match="not JSON"):
        suggest(InputFile("file.json", b"{"))


def test_a_workbook_has_its_header_below_a_title() -> None:
    table = [("Load of the zone", None, None), ("Time (UTC)", "Load [MW]", "Wind [MW]")]
    hours = [(f"2025-01-01 {hour:02}:00", hour + 0.5, hour) for hour in range(24)]
    made = suggest(InputFile("load.xlsx", xlsx({"S": workbook_rows(*table, *hours)})))
    assert (made.problem, made.questions) == ("", [])
    assert made.keys == {"header": 2, "time": "Time (UTC)", "value": "*"}
    assert [each.points[1] for each in published(made)] == [(1735693200, 1.5), (1735693200, 1)]


@pytest.mark.parametrize(
    "body",
    [
        b"," * 4_000_000,
        b"a,b\n" * 100_000,
        (b"1;" * 50_000 + b"\n") * 4,
        b"2025-01-01" * 300_000,
        b"time,"
        + b",".join(b"c%d" % index for index in range(9_000))
        + b"\n"
        + b"2025-01-01,".ljust(11)
        + b"1," * 8_999
        + b"2\n",
        b"(" * 100_000 + b"[unit" * 100_000,
    ],
    ids=["commas", "letters", "wide", "digits", "columns", "brackets"],
)
def test_a_hostile_text_takes_seconds_at_most(body: bytes) -> None:
    begin = time.process_time()
    with suppress(DataError):
        suggest(InputFile("file.csv", body))
    assert time.process_time() - begin < 10


def lines_of(header: str, *rows: str) -> InputFile:
    return InputFile("file.csv", "\n".join([header, *rows]).encode())


def test_the_hour_that_clocks_repeat_has_no_duplicates() -> None:
    hours = ["01:00", "02:00", "02:00", "03:00"]
    made = suggest(lines_of("Zeit;Last [MW]", *(f"25.10.2026 {hour};{index},5" for index, hour in enumerate(hours))))
    assert (made.fields["zone"], made.questions) == ("Europe/Berlin", [])
    assert [at for at, _ in published(made)[0].points] == [1792882800 + 3600 * hour for hour in range(4)]


def test_midnights_of_a_zone_are_days_there() -> None:
    days = [f"2025-{month:02}-01T00:00:00{'+02:00' if 3 < month < 11 else '+01:00'},{month}" for month in range(1, 13)]
    made = suggest(lines_of("time,Load [MWh]", *days))
    assert (made.fields["resolution"], made.fields["zone"], made.questions) == ("P1M", "Europe/Berlin", [])
    made = suggest(lines_of("time,Load [MWh]", *(f"2025-01-{day:02}T00:00:00+01:00,{day}" for day in range(1, 9))))
    assert (made.fields["resolution"], {each.key for each in made.questions}) == ("P1D", {"zone"})


def test_times_beside_a_grid_are_irregular_and_asked() -> None:
    made = suggest(lines_of("time,Load [MW]", *(f"2025-01-01T{hour:02}:59:59Z,{hour}" for hour in range(9))))
    assert (made.fields["resolution"], {each.key for each in made.questions}) == ("irregular", {"resolution"})
    made = suggest(lines_of("date,Load [MW]", *(f"2025-{month:02}-15,{month}" for month in range(1, 9))))
    assert (made.fields["resolution"], {each.key for each in made.questions}) == ("irregular", {"resolution"})


def test_series_are_named_by_identifiers_before_flags() -> None:
    rows_ = [
        f"2025-01-01T{hour:02}:00Z,{flag},{name},{hour}" for hour in range(9) for name, flag in (("A", "x"), ("B", "y"))
    ]
    made = suggest(lines_of("time,status,site,Load [MW]", *rows_))
    assert (made.keys["name"], made.questions) == ("{site}", [])
    assert Note("value", "not published: status") in made.notes


def test_positions_after_the_beginning_of_a_document_are_periods() -> None:
    def document(curve: str) -> InputFile:
        points = "".join(f"<Point><position>{at}</position><quantity>{100 + at}</quantity></Point>" for at in (1, 2, 4))
        period = "<timeInterval><start>2025-03-29T23:00Z</start><end>2025-03-30T00:15Z</end></timeInterval>"
        text = (
            "<GL_MarketDocument><mRID>7</mRID><createdDateTime>2025-04-01T08:00:00Z</createdDateTime><time_Period.timeInterval>"
            "<start>2025-03-28T23:00Z</start><end>2025-03-31T22:00Z</end></time_Period.timeInterval><TimeSeries><mRID>1</mRID>"
            f"<quantity_Measure_Unit.name>MAW</quantity_Measure_Unit.name>{curve}"
            f"<Period>{period}<resolution>PT15M</resolution>{points}</Period></TimeSeries></GL_MarketDocument>"
        )
        return InputFile("load.xml", text.encode())

    lasting, unsure = (suggest(document(each)) for each in ("<curveType>A03</curveType>", ""))
    assert (lasting.problem, lasting.questions) == ("", [])
    assert published(lasting) == [
        Series("MW", "PT15M", [(1743289200 + 900 * at, value) for at, value in enumerate((101, 102, 102, 104, 104))])
    ]
    assert [each.key for each in unsure.questions] == ["until"]
    assert len(published(unsure)[0].points) == 3


HOURS = [f"2025-01-14T{hour:02}:00:00Z" for hour in range(12)]


@pytest.mark.parametrize(
    ("value", "keys"),
    [
        (
            {"unit": "MW", "data": [[hour, at] for at, hour in enumerate(HOURS)]},
            {"rows": "data", "time": "1", "value": "2"},
        ),
        ({"mw": {"labels": HOURS, "load": [*range(12)]}}, {"rows": "mw", "time": "labels", "value": "load"}),
        (
            {"sites": {name: {"time": HOURS, "load": [*range(12)]} for name in ("A", "B")}},
            {"rows": "sites/*", "value": "load", "name": "{*}"},
        ),
        (
            {"rates": {f"2025-01-{day:02}": {"USD": day, "GBP": day + 1} for day in range(1, 20)}},
            {"rows": "rates/*", "time": "*", "value": "*", "name": None},
        ),
        (
            [{"page": 1, "pages": 1}, [{"date": str(2010 + at), "gdp": at + 0.5} for at in range(9)]],
            {"rows": "2", "time": "date", "time_format": "%Y", "value": "gdp"},
        ),
        (
            {
                "result": [
                    {"metric": {"at": name}, "values": [[1736812800 + 60 * at, str(at)] for at in range(9)]}
                    for name in "ab"
                ]
            },
            {"rows": "result/values", "time": "1", "time_format": "epoch", "value": "2", "name": "{result/metric/at}"},
        ),
    ],
    ids=["pairs", "arrays", "objects of arrays", "dates", "pages", "metrics"],
)
def test_rows_of_json_are_found_in_its_usual_forms(value: object, keys: dict[str, Any]) -> None:
    made = suggest(InputFile("file.json", orjson.dumps(value)))
    assert made.problem == ""
    assert {key: made.keys.get(key) for key in keys} == keys


@pytest.mark.parametrize(
    ("header", "row", "time_format"),
    [
        ("Date;Hour;Load [MW]", "2025-01-{day};{hour};{hour}", "%Y-%m-%d %H"),
        ("Date;Time;Load [MW]", "2025-01-{day};{hour}:00;{hour}", "%Y-%m-%d %H:%M"),
        ("Time;Load [MW]", "2025-01-{day} {hour}:00;{hour}", "%Y-%m-%d %H:%M"),
    ],
)
def test_hours_with_one_digit_are_read(header: str, row: str, time_format: str) -> None:
    rows_ = [row.format(day=day, hour=hour) for day in (14, 15) for hour in range(24)]
    made = suggest(lines_of(header, *rows_), known={"zone": "UTC"})
    assert (made.problem, made.questions, made.keys["time_format"]) == ("", [], time_format)
    assert [at for at, _ in published(made)[0].points] == [1736812800 + 3600 * index for index in range(48)]


def test_without_presets_nothing_is_wrong_without_a_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.data.files.suggest.presets", list)
    for make in publishers.ALL:
        layout = make()
        found = outcome(layout.publisher, InputFile(layout.file, layout.body), [*layout.expected.values()])
        assert found.is_right or found.questions or found.suggestion.problem, layout.publisher
