"""What is refused before anything is opened."""

from email.utils import formatdate

import pytest

from tools.load.preflight import (
    OTHER_FILES,
    TooFewOpenFiles,
    UnnamedHost,
    check_hosts,
    check_open_files,
    clock_difference_s,
)


@pytest.mark.parametrize(
    "url", ["ws://127.0.0.1:1/ws", "ws://[::1]:1/ws", "ws://localhost/ws", "wss://here.example/ws"]
)
def test_this_machine_and_the_named_host_may_be_loaded(url: str) -> None:
    check_hosts("https://here.example", [url], [])


def test_another_host_must_be_named() -> None:
    urls = ["ws://127.0.0.1/ws", "wss://there.example/ws"]
    with pytest.raises(UnnamedHost, match=r"add --host there\.example if you may load it"):
        check_hosts("https://here.example", urls, ["elsewhere.example"])
    check_hosts("https://here.example", urls, ["there.example"])


def test_clients_beyond_the_limit_of_open_files_are_refused_with_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    # Not by a limit of this process, which it could not raise again.
    monkeypatch.setattr("tools.load.preflight.raise_open_files", lambda wanted: min(wanted, 256))
    check_open_files(256 - OTHER_FILES, 1)
    with pytest.raises(TooFewOpenFiles, match=rf"100 clients need {300 + OTHER_FILES} open files, and 256 are allowed"):
        check_open_files(100, 3)


@pytest.mark.parametrize(
    ("date_s", "difference_s"),
    [(98, 0.0), (100, 0.0), (97, -0.5), (90, -7.5), (101, 0.25), (110, 9.25)],
)
def test_clocks_differ_by_no_less_than_the_date_proves(date_s: int, difference_s: float) -> None:
    # Sent at 99.5, received at 100.75; a Date of 98 is of any time before 100.
    assert clock_difference_s(formatdate(date_s, usegmt=True), 99.5, 100.75) == difference_s


@pytest.mark.parametrize("date", [None, "", "yesterday"])
def test_without_a_date_nothing_is_known_of_the_clock(date: str | None) -> None:
    assert clock_difference_s(date, 1.0, 2.0) == 0.0
