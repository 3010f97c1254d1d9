from pathlib import Path

import pytest

from deploy.admin.sessions import MAX_SESSIONS, SESSION_S, WRONG_AT_ONCE, Sessions, TooManyAttempts, WrongKey
from diem.process.auth import BadKeyFile
from diem.process.clock import ManualClock

KEY = "a-key-of-the-operator-page"


class Page:
    def __init__(self, directory: Path) -> None:
        self.file = directory / "operator.key"
        self.write(KEY)
        self.clock = ManualClock()
        self.sessions = Sessions(self.file, self.clock)

    def write(self, text: str) -> None:
        self.file.unlink(missing_ok=True)
        self.file.write_text(f"{text}\n")
        self.file.chmod(0o600)


@pytest.fixture
def page(tmp_path: Path) -> Page:
    return Page(tmp_path)


def test_right_key_opens_a_session_for_a_shift(page: Page) -> None:
    token = page.sessions.open(KEY)
    assert page.sessions.is_open(token)
    page.clock.advance(SESSION_S - 1)
    assert page.sessions.is_open(token)
    page.clock.advance(1)
    assert not page.sessions.is_open(token)


@pytest.mark.parametrize("key", ["", "wrong", KEY + "x", KEY[:-1], "\udcff", "ä" * 40, "x" * 100_000], ids=range(7))
def test_any_other_key_opens_none(page: Page, key: str) -> None:
    with pytest.raises(WrongKey):
        page.sessions.open(key)


@pytest.mark.parametrize("token", ["", KEY, "\udcff", "x" * 10_000], ids=range(4))
def test_any_other_token_is_no_session(page: Page, token: str) -> None:
    page.sessions.open(KEY)
    assert not page.sessions.is_open(token)
    page.sessions.close(token)


def test_closed_session_stays_closed_and_others_open(page: Page) -> None:
    first, second = page.sessions.open(KEY), page.sessions.open(KEY)
    assert first != second
    page.sessions.close(first)
    assert (page.sessions.is_open(first), page.sessions.is_open(second)) == (False, True)


def test_sessions_are_bounded_and_the_oldest_ends(page: Page) -> None:
    tokens = [page.sessions.open(KEY) for _ in range(MAX_SESSIONS + 1)]
    assert [page.sessions.is_open(token) for token in tokens] == [False, *[True] * MAX_SESSIONS]


def test_many_wrong_keys_are_throttled_and_the_right_one_opens(page: Page) -> None:
    for _ in range(WRONG_AT_ONCE):
        with pytest.raises(WrongKey):
            page.sessions.open("wrong")
    with pytest.raises(TooManyAttempts):
        page.sessions.open("wrong")
    assert page.sessions.is_open(page.sessions.open(KEY))
    page.clock.advance(6)
    with pytest.raises(WrongKey):
        page.sessions.open("wrong")


def test_replaced_key_ends_all_sessions(page: Page) -> None:
    token = page.sessions.open(KEY)
    page.write("another-key-of-the-page")
    assert not page.sessions.is_open(token)
    with pytest.raises(WrongKey):
        page.sessions.open(KEY)
    assert page.sessions.is_open(page.sessions.open("another-key-of-the-page"))


def test_key_file_that_cannot_be_used_leaves_the_last_key(page: Page) -> None:
    token = page.sessions.open(KEY)
    page.file.chmod(0o644)
    page.file.write_text("short")
    assert page.sessions.is_open(token)
    assert page.sessions.open(KEY)


def test_there_is_no_page_without_a_key(tmp_path: Path) -> None:
    with pytest.raises(BadKeyFile):
        Sessions(tmp_path / "operator.key", ManualClock())
