import pytest

from deploy.cli.times import parse_time
from diem.errors import ConfigurationError
from learning.statistics.window import Window


@pytest.mark.parametrize(("start", "end"), [(-1, 5), (0, parse_time("9999-12-31T23:00:00-10:00"))])
def test_a_window_outside_the_calendar_is_refused(start: int, end: int) -> None:
    with pytest.raises(ConfigurationError, match="not within the years"):
        Window(start, end)


def test_an_empty_window_is_refused_and_the_name_is_the_end() -> None:
    with pytest.raises(ConfigurationError, match="is empty"):
        Window(5, 5)
    assert Window(0, parse_time("2026-01-31T14:05:06Z")).name == "20260131-140506"
    assert Window(10, 20).clip(5, 15) == (10, 15)


@pytest.mark.parametrize(
    ("recorded", "start"),
    [(None, 0), (-5, 0), (0, 0), (59_999, 0), (60_000, 60_000), (200_000, 180_000), (299_999, 240_000)],
)
def test_a_window_loses_the_whole_minutes_before_anything_was_recorded(recorded: int | None, start: int) -> None:
    begin = parse_time("2026-01-31T14:00:00Z")
    at = None if recorded is None else begin + recorded
    assert Window(begin, begin + 300_000).since(at) == Window(begin + start, begin + 300_000)
