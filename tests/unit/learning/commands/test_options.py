import pytest
import typer

from diem.errors import ConfigurationError
from learning.commands.options import parse_capacity, parse_window
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


def test_a_capacity_is_a_number_of_clients_or_names_resources() -> None:
    assert (parse_capacity(None), parse_capacity("8000")) == ({}, {"clients": 8000.0})
    assert parse_capacity("memory=384M, network=50M,cpu=80%,clients=9") == {
        "memory_bytes": 384 * 2.0**20,
        "sent_bytes_per_s": 50e6,
        "cpu_us_per_s": 0.8e6,
        "clients": 9.0,
    }


@pytest.mark.parametrize("wrong", ["", "0", "many", "-1", "disks=2", "memory=", "cpu=x", "cpu=0%", "clients=1.5"])
def test_a_malformed_capacity_is_rejected(wrong: str) -> None:
    with pytest.raises(typer.BadParameter, match="--capacity"):
        parse_capacity(wrong)
