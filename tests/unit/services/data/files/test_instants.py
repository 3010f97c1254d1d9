"""Notations of times in cells."""

import pytest

from services.data.files.instants import CellTimes
from services.data.files.mapping import Mapping
from services.data.files.numbers import BadCell
from services.data.files.time_formats import check_format
from services.data.kinds.series import iso_seconds


def read(text: object, format_: str = "", zone: str = "Europe/Berlin", interval: str | None = None) -> str:
    """Return the instant of one cell, to the minute."""
    reader = CellTimes(Mapping(time_format=format_, interval=interval), zone)
    (found,) = reader.read([[text]])  # type: ignore[list-item]
    assert isinstance(found, int)
    return iso_seconds(found)[:16]


@pytest.mark.parametrize(
    ("text", "format_", "expected"),
    [
        ("2026-01-01T01:00", "", "2026-01-01T00:00"),
        ("2026-01-01 01:00:00.000+01:00", "", "2026-01-01T00:00"),
        ("2026-01-01T01:00+0100", "", "2026-01-01T00:00"),
        ("2026-01-01T00:00z", "", "2026-01-01T00:00"),
        ("2026-01-01 00:00:00 UTC", "", "2026-01-01T00:00"),
        ("2026-01-01", "", "2025-12-31T23:00"),
        ("2026-01-01T01", "", "2026-01-01T00:00"),
        ("2025-12-31T24:00", "", "2025-12-31T23:00"),
        ("1767225600", "epoch", "2026-01-01T00:00"),
        (1767225600000, "epoch_ms", "2026-01-01T00:00"),
        ("01.01.2026 1:00", "%d.%m.%Y %H:%M", "2026-01-01T00:00"),
        ("1/2/26 1:00 PM", "%m/%d/%y %I:%M %p", "2026-01-02T12:00"),
        ("12:30 am 2026-01-01", "%I:%M %p %Y-%m-%d", "2025-12-31T23:30"),
        ("2026010101", "%Y%m%d%H", "2026-01-01T00:00"),
        ("Thu, 1 Jan 2026 01:00 CET", "%a, %d %b %Y %H:%M %Z", "2026-01-01T00:00"),
        ("2026-10-25 02:00 CET", "%Y-%m-%d %H:%M %Z", "2026-10-25T01:00"),
        ("2026-10-25 02:00 CEST", "%Y-%m-%d %H:%M %Z", "2026-10-25T00:00"),
        ("25.10.2026 02:00 (CET)", "%d.%m.%Y %H:%M", "2026-10-25T01:00"),
        ("25.10.2026 02:00(CEST)", "%d.%m.%Y %H:%M", "2026-10-25T00:00"),
        ("2026-001", "%Y-%j", "2025-12-31T23:00"),
        ("July 2026", "%B %Y", "2026-06-30T22:00"),
    ],
)
def test_notations(text: object, format_: str, expected: str) -> None:
    assert read(text, format_) == expected


def test_of_an_interval_the_start_is_taken() -> None:
    assert read("01.01.2026 01:00 - 01.01.2026 02:00", "%d.%m.%Y %H:%M", interval=" - ") == "2026-01-01T00:00"
    assert read("01-01-2026 01 - 02", "%d-%m-%Y %H", interval=" - ") == "2026-01-01T00:00"


@pytest.mark.parametrize(
    ("text", "format_", "message"),
    [
        ("", "", "the time is empty"),
        ("2026-02-30", "", "'2026-02-30' is not a time: day is out of range"),
        ("2026-01-01T00:00:00.5Z", "", "has a fraction of a second"),
        ("2026-01-01 02:00 EST", "%Y-%m-%d %H:%M %Z", "EST is not the time of Europe/Berlin"),
        ("31.12.2026", "%m.%d.%Y", "is not a time: month must be in 1..12"),
        ("5", "%Y", "'5' is not like '%Y' (key: time_format)"),
        ("1.5", "epoch", "are not whole seconds"),
        ("Okt 2026", "%b %Y", "'Okt' is not an English month"),
    ],
)
def test_faults_name_the_text(text: str, format_: str, message: str) -> None:
    with pytest.raises(BadCell) as caught:
        read(text, format_)
    assert message in str(caught.value)


@pytest.mark.parametrize("format_", ["%Q", "%Y %Y"])
def test_formats_are_checked(format_: str) -> None:
    with pytest.raises(ValueError, match=r"%Q is none of|given twice"):
        check_format(format_)
