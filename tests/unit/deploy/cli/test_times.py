import pytest

from deploy.cli.times import parse_span, parse_time
from diem.errors import ConfigurationError
from diem.protocol.update import iso


def test_times_and_lengths_are_parsed() -> None:
    assert parse_time("2026-01-31T14:00:00Z") == parse_time("2026-01-31T14:00") == parse_time("2026-01-31T15:00+01:00")
    assert iso(parse_time("2026-01-31T14:00:00.123Z")) == "2026-01-31T14:00:00.123Z"
    assert [parse_span(text) for text in ("90s", "1.5m", "1h", "7d")] == [90_000, 90_000, 3_600_000, 604_800_000]


@pytest.mark.parametrize("text", ["", "1", "h", "-1h", "0s", "1w", "1h30m", "9" * 400 + "d"])
def test_an_invalid_length_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is not a length of time"):
        parse_span(text)


def test_an_invalid_time_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="is not a time"):
        parse_time("yesterday")
