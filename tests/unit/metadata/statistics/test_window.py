import pytest

from diem.protocol.update import iso
from metadata.statistics.window import BadWindow, Window, parse_span, parse_time


def test_times_and_lengths_are_read_as_people_write_them() -> None:
    assert parse_time("2026-01-31T14:00:00Z") == parse_time("2026-01-31T14:00") == parse_time("2026-01-31T15:00+01:00")
    assert iso(parse_time("2026-01-31T14:00:00.123Z")) == "2026-01-31T14:00:00.123Z"
    assert [parse_span(text) for text in ("90s", "1.5m", "1h", "7d")] == [90_000, 90_000, 3_600_000, 604_800_000]


@pytest.mark.parametrize("text", ["", "1", "h", "-1h", "0s", "1w", "1h30m", "9" * 400 + "d"])
def test_what_is_no_length_is_refused(text: str) -> None:
    with pytest.raises(BadWindow, match="is no length of time"):
        parse_span(text)


def test_what_is_no_time_is_refused() -> None:
    with pytest.raises(BadWindow, match="is no time"):
        parse_time("yesterday")


@pytest.mark.parametrize(("start", "end"), [(-1, 5), (0, parse_time("9999-12-31T23:00:00-10:00"))])
def test_window_is_within_what_calendars_have(start: int, end: int) -> None:
    with pytest.raises(BadWindow, match="not within the years"):
        Window(start, end)


def test_window_is_not_empty_and_is_called_by_its_end() -> None:
    with pytest.raises(BadWindow, match="is empty"):
        Window(5, 5)
    assert Window(0, parse_time("2026-01-31T14:05:06Z")).name == "20260131-140506"
    assert Window(10, 20).clip(5, 15) == (10, 15)
