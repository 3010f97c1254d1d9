import pytest
import typer

from deploy.plans.asked import numbers_of_servers, share, window_of
from metadata.statistics.window import BadWindow, Window


@pytest.mark.parametrize(("text", "found"), [("0.5%", 0.005), (" 5 %", 0.05), ("100%", 1.0), ("0%", 0.0)])
def test_share_is_a_percentage(text: str, found: float) -> None:
    assert share(text, "--movement") == pytest.approx(found)


@pytest.mark.parametrize("text", ["5", "0.05", "101%", "-1%", "%", "many"])
def test_share_without_a_sign_could_be_anything(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="--movement is a percentage"):
        share(text, "--movement")


def test_numbers_of_servers_are_sorted_and_distinct() -> None:
    assert numbers_of_servers("8, 2,8,4") == (2, 4, 8)


@pytest.mark.parametrize("text", ["", "0", "2,", "1001", "a"])
def test_wrong_numbers_of_servers_are_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="--servers is numbers"):
        numbers_of_servers(text)


def test_window_is_a_length_or_two_times() -> None:
    assert window_of(None, None, None) is None
    assert window_of("90s", None, None) == 90_000
    assert window_of(None, "1970-01-01T00:00:01Z", "1970-01-01T00:00:03Z") == Window(1000, 3000)
    assert window_of("1s", None, "1970-01-01T00:00:03Z") == Window(2000, 3000)


def test_wrong_window_is_refused() -> None:
    with pytest.raises(typer.BadParameter, match="--from needs --to"):
        window_of(None, "2026-01-01", None)
    with pytest.raises(BadWindow, match="is no length of time"):
        window_of("soon", None, None)
