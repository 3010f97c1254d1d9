"""When a source comes back: times of day in its zone, and what a server asks for."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diem.process.backoff import retry_after_s
from services.data.sources.http import next_time

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC).timestamp()


def after(text: str, times: list[str], zone: str = "Europe/Athens") -> str:
    now = datetime.fromisoformat(text).timestamp()
    return datetime.fromtimestamp(next_time(times, zone, now), UTC).isoformat()


@pytest.mark.parametrize(
    ("now", "times", "expected"),
    [
        ("2026-06-01T02:59:59Z", ["06:00", "13:30"], "2026-06-01T03:00:00+00:00"),
        ("2026-06-01T03:00:00Z", ["06:00", "13:30"], "2026-06-01T10:30:00+00:00"),
        ("2026-06-01T10:30:00Z", ["13:30", "06:00"], "2026-06-02T03:00:00+00:00"),
        ("2026-06-01T21:30:00Z", ["00:15"], "2026-06-02T21:15:00+00:00"),
        ("2026-12-31T22:30:00Z", ["00:15"], "2027-01-01T22:15:00+00:00"),
        # The clocks pass over 03:30, and show it twice.
        ("2026-03-28T22:30:00Z", ["03:30"], "2026-03-29T01:30:00+00:00"),
        ("2026-10-24T23:30:00Z", ["03:30"], "2026-10-25T00:30:00+00:00"),
        ("2026-10-25T00:30:00Z", ["03:30"], "2026-10-26T01:30:00+00:00"),
    ],
)
def test_the_next_time_of_day_is_that_of_the_zone(now: str, times: list[str], expected: str) -> None:
    assert after(now, times) == expected


@given(
    st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1)),  # noqa: DTZ001
    st.sampled_from(["UTC", "Europe/Athens", "America/St_Johns", "Pacific/Apia"]),
    st.integers(0, 23),
    st.integers(0, 59),
)
def test_the_next_time_comes_within_a_day_and_shows_that_time(at: datetime, zone: str, hour: int, minute: int) -> None:
    now = at.replace(tzinfo=UTC).timestamp()
    found = next_time([f"{hour:02}:{minute:02}"], zone, now)
    assert 0 < found - now <= timedelta(hours=26).total_seconds()
    shown = datetime.fromtimestamp(found, UTC).astimezone(ZoneInfo(zone))
    late = (shown.hour * 60 + shown.minute - hour * 60 - minute) % 1440
    assert (
        late == 0
        or shown.utcoffset() != (shown - timedelta(hours=2)).astimezone(UTC).astimezone(ZoneInfo(zone)).utcoffset()
    )


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("120", 120),
        (" 0 ", 0),
        ("Mon, 01 Jun 2026 12:00:30 GMT", 30),
        ("Mon, 01 Jun 2026 11:00:00 GMT", 0),
        ("soon", 0),
        ("-5", 0),
        ("1e9", 0),
        ("٣", 0),
        ("Mon, 99 Jun 2026 12:00:30 GMT", 0),
        ("", 0),
    ],
)
def test_retry_after_is_seconds_or_a_date(header: str, expected: float) -> None:
    assert retry_after_s(header, NOW) == expected
