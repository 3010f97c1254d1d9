"""Datasets from CSV, with the line of every fault, and back to CSV."""

import gzip
import re

import pytest

from services.data.errors import InvalidDataset, MalformedBody, WrongUnit
from services.data.kinds import series

GOOD = b"time,value\n2026-01-01T00:00:00Z,81.2\n2026-01-01T01:00:00Z,\n"


def parse(body: bytes, unit: str | None = "EUR/MWh", resolution: str | None = "PT1H", zone: str = "") -> series.Dataset:
    (dataset,) = series.rows_to_datasets(
        series.parse_csv(body), endpoint="/dam/prices/GR", unit_=unit, resolution=resolution, zone=zone
    )
    return dataset


def test_csv_and_json_of_the_same_data_are_the_same_dataset() -> None:
    points = [series.Point(1767225600, 81.2), series.Point(1767229200, None)]
    assert parse(GOOD) == series.build("/dam/prices/GR", "EUR/MWh", "PT1H", points)


@pytest.mark.parametrize(
    "body",
    [
        b"\xef\xbb\xbf" + GOOD,
        GOOD.replace(b"\n", b"\r\n"),
        GOOD.replace(b"\n", b"\n\n"),
        b"value,time\n81.2,2026-01-01T00:00:00Z\n,2026-01-01T01:00Z",
        b'"time","value"\n"2026-01-01T00:00:00Z", 81.20 \n2026-01-01T01:00:00Z,""\n',
        b"time,value,unit\n2026-01-01T00:00:00Z,81.2,EUR/MWh\n2026-01-01T01:00:00Z,,EUR/MWh\n",
    ],
    ids=["bom", "crlf", "empty lines", "other order", "quoted", "unit column"],
)
def test_equivalent_notations_make_the_same_table(body: bytes) -> None:
    assert parse(body) == parse(GOOD)


@pytest.mark.parametrize(
    ("body", "where", "reason"),
    [
        (b"", "line 1", "header"),
        (b"when,price\n", "line 1", "header"),
        (b"time,value,value\n", "line 1", "header"),
        (b"time,value\n", "line 2", "no points"),
        (b"time,value\n2026-01-01T00:00:00Z\n", "line 2", "1 columns instead of 2"),
        (GOOD + b"2026-01-01T02:00:00Z,1,2\n", "line 4", "3 columns"),
        (GOOD + b"2026-01-01T02:00:00Z,abc\n", "line 4", "not a number"),
        (GOOD + b"2026-01-01T02:00:00Z,nan\n", "line 4", "not a number"),
        (GOOD + b"2026-01-01T02:00:00Z,inf\n", "line 4", "not a number"),
        (GOOD + b"2026-01-01T02:00:00Z,1_000\n", "line 4", "not a number"),
        (GOOD + b'2026-01-01T02:00:00Z,"81,2"\n', "line 4", "decimal point"),
        (GOOD + b"2026-01-01T02:00:00Z,1e300\n", "line 4", "out of range"),
        (GOOD + b"01/02/2026,1\n", "line 4", "not a time like 2026-01-01T00:00:00Z"),
        (GOOD + b"2026-01-01T02:00,1\n", "line 4", "a local time needs its zone"),
        (GOOD + "2026-01-01T02:00:00Z,\u0663\n".encode(), "line 4", "not a number"),
        (b"<!DOCTYPE html><p>", "line 1", "this is an HTML page, not CSV"),
        (b"\n<html lang=en>", "line 2", "this is an HTML page, not CSV"),
        (b"<?xml version='1.0'?>", "line 1", "this is markup (HTML or XML), not CSV"),
        (GOOD + b"2026-01-01T01:00:00Z,1\n", "line 4", "twice"),
        (GOOD + b"2026-01-01T01:30:00Z,1\n", "line 4", "grid"),
        (GOOD + b'2026-01-01T02:00:00Z,"1\n', "line 4", "not CSV"),
        (GOOD + b"2026-01-01T02:00:00Z," + b"1" * 600, "line 4", "512 characters"),
    ],
)
def test_a_wrong_table_is_refused_with_the_line(body: bytes, where: str, reason: str) -> None:
    with pytest.raises(InvalidDataset) as caught:
        parse(body)
    assert caught.value.where == where
    assert reason in caught.value.reason


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"time,value\n\xff", "not UTF-8 (byte 11): save it as UTF-8"),
        (b"time,value\n\0", "perhaps it is UTF-16"),
        (gzip.compress(GOOD, mtime=0), "compressed with gzip: decompress it first"),
        (GOOD.decode().encode("utf-16"), "UTF-16: save it as UTF-8"),
        (b"PK\x03\x04\x14\0", "a zip archive or an Excel workbook: extract it"),
        (b"PAR1\x15\x04", "Parquet: a source of the type directory reads it"),
    ],
)
def test_a_body_that_is_not_text_is_malformed_and_named(body: bytes, reason: str) -> None:
    with pytest.raises(MalformedBody, match=re.escape(reason)):
        parse(body)


@pytest.mark.parametrize(
    "times",
    [
        ("2026-01-01T01:00:00+01:00", "2026-01-01T02:00:00+01:00"),
        ("2026-01-01 00:00:00+00:00", "2026-01-01 01:00:00+00:00"),
        ("2025-12-31T19:00:00-0500", "2025-12-31T20:00:00-0500"),
        ("2026-01-01T00:00z", "2026-01-01T01:00z"),
    ],
)
def test_times_may_have_any_offset(times: tuple[str, str]) -> None:
    assert parse("time,value\n{},81.2\n{},\n".format(*times).encode()) == parse(GOOD)


@pytest.mark.parametrize(
    ("known", "where", "reason"),
    [
        ({"resolution": "PT7S"}, "resolution", "the day is not a whole number of PT7S"),
        ({"resolution": "hourly"}, "resolution", "'hourly' is not a resolution"),
        ({"unit": "GBP per megawatt hour, day-ahead auction"}, "unit", "at most 32 characters"),
        ({"zone": "Athens"}, "zone", "'Athens' is not a time zone like Europe/Athens"),
    ],
)
def test_a_fault_of_an_option_names_the_option_and_no_line(known: dict[str, str], where: str, reason: str) -> None:
    with pytest.raises(InvalidDataset) as caught:
        parse(GOOD, **known)
    assert (caught.value.where, reason in caught.value.reason) == (where, True)


def test_local_times_are_those_of_the_zone() -> None:
    local = b"time,value\n2026-01-01T02:00,81.2\n2026-01-01T03:00,\n"
    assert parse(local, zone="Europe/Athens") == parse(GOOD)


def test_another_unit_than_the_known_one_is_refused_with_the_line() -> None:
    with pytest.raises(WrongUnit) as caught:
        parse(b"time,value,unit\n2026-01-01T00:00:00Z,1,MW\n")
    assert caught.value.where == "line 2"


def test_the_unit_may_be_written_differently_in_a_row() -> None:
    rows = "time,value,unit\n2026-01-01T00:00:00Z,81.2,EUR / MWh\n2026-01-01T01:00:00Z,,€/MWh\n".encode()
    assert parse(rows) == parse(GOOD) == parse(rows, unit=None)


def test_a_table_without_unit_or_resolution_is_refused() -> None:
    with pytest.raises(InvalidDataset, match="unit is missing"):
        parse(GOOD, unit=None)
    with pytest.raises(InvalidDataset, match="resolution is missing"):
        parse(GOOD, resolution=None)


def test_a_table_with_an_endpoint_column_is_several_datasets() -> None:
    body = (
        b"endpoint,time,value\n/m/x,2026-01-01T00:00:00Z,1\n/m/y,2026-01-01T00:00:00Z,2\n/m/x,2026-01-01T01:00:00Z,3\n"
    )
    table = series.parse_csv(body)
    found = series.rows_to_datasets(table, endpoint=None, unit_="MW", resolution="PT1H")
    assert [(one.endpoint, one.content.count(b"time")) for one in found] == [("/m/x", 2), ("/m/y", 1)]


def test_an_endpoint_column_is_refused_where_the_endpoint_is_known() -> None:
    with pytest.raises(InvalidDataset, match="unexpected column endpoint"):
        parse(b"endpoint,time,value\n/m/x,2026-01-01T00:00:00Z,1\n")


def test_a_bad_name_in_the_endpoint_column_is_refused_with_the_line() -> None:
    table = series.parse_csv(b"endpoint,time,value\n/a/../b,2026-01-01T00:00:00Z,1\n")
    with pytest.raises(InvalidDataset, match="line 2"):
        series.rows_to_datasets(table, endpoint=None, unit_="MW", resolution="PT1H")


def test_lines_are_bounded() -> None:
    with pytest.raises(InvalidDataset, match="more than 1 lines"):
        series.parse_csv(GOOD, max_rows=1)


def test_csv_is_rendered_with_gaps_and_can_be_put_back() -> None:
    for number in ("81.2", "-5", "1e-7", "-123456789.125"):
        dataset = parse(GOOD.replace(b"81.2", number.encode()))
        rendered = series.render_csv(dataset.content)
        assert rendered == f"time,value\r\n2026-01-01T00:00:00Z,{number}\r\n2026-01-01T01:00:00Z,\r\n".encode()
        assert parse(rendered) == dataset
