import pytest
import typer

from diem.errors import ConfigurationError
from learning.commands.options import parse_window
from learning.statistics.window import Window


def test_window_is_a_length_or_two_instants() -> None:
    assert parse_window("90s", None, None) == 90_000
    assert parse_window("1h", "1970-01-01T00:00:01Z", "1970-01-01T00:00:03Z") == Window(1000, 3000)
    assert parse_window("1s", None, "1970-01-01T00:00:03Z") == Window(2000, 3000)


def test_malformed_window_is_rejected() -> None:
    with pytest.raises(typer.BadParameter, match="--from needs --to"):
        parse_window("1h", "2026-01-01", None)
    with pytest.raises(ConfigurationError, match="is not a length of time"):
        parse_window("soon", None, None)
