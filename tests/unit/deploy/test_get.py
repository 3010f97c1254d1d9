import io
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from diem.process.auth import SharedKey
from tests.unit.deploy.test_put import Server

URL = ("--url", "http://h:1")
BODY = b'{"endpoint":"/a/b","version":5}'


@pytest.fixture
def write_key(tmp_path: Path) -> str:
    (tmp_path / ".diem").mkdir(0o700)
    return SharedKey.create(tmp_path / ".diem" / "write.key").header


def test_dataset_is_printed_as_json_and_read_as_everybody_may(
    diem: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    server = Server(monkeypatch, httpx.Response(200, content=BODY))
    assert diem("get", "/a/b", *URL) == 0
    assert capfdbinary.readouterr().out == BODY + b"\n"
    (request,) = server.requests
    assert (request.method, str(request.url)) == ("GET", "http://h:1/v1/data/a/b")
    assert request.headers["Accept"] == "application/json"
    assert "Authorization" not in request.headers


def test_old_version_is_written_to_a_file_as_csv_with_an_api_key(
    diem: Callable[..., int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Server(monkeypatch, httpx.Response(200, content=b"time,value\n"))
    key = SharedKey.create(tmp_path / "key")
    assert diem("get", "/a", *URL, "--csv", "--version", "7", "-o", "a.csv", "--key-file", "key") == 0
    assert (tmp_path / "a.csv").read_bytes() == b"time,value\n"
    assert capsys.readouterr().out == ""
    (request,) = server.requests
    assert str(request.url) == "http://h:1/v1/data/a?version=7"
    assert request.headers["Accept"] == "text/csv"
    assert request.headers["Authorization"] == key.header


def test_what_cannot_be_read_is_one_line_and_leaves_the_file_alone(
    diem: Callable[..., int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a").write_text("before")
    Server(monkeypatch, httpx.Response(404, json={"detail": "there is no endpoint /a"}))
    assert diem("get", "/a", *URL, "-o", "a") == 1
    assert (tmp_path / "a").read_text() == "before"
    assert capsys.readouterr().err == "diem: /a was not read (404): there is no endpoint /a\n"


def test_file_that_cannot_be_written_is_one_line(
    diem: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Server(monkeypatch, httpx.Response(200, content=BODY))
    assert diem("get", "/a", *URL, "-o", "none/a") == 2
    assert capsys.readouterr().err == "diem: none/a: No such file or directory\n"


def test_deletion_needs_no_question_with_yes_and_the_write_key(
    diem: Callable[..., int], write_key: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Server(monkeypatch, httpx.Response(200, json={"endpoint": "/a", "version": 6, "changed": True}))
    assert diem("delete", "/a", *URL, "--yes") == 0
    assert capsys.readouterr().out == "/a is gone as of version 6\n"
    (request,) = server.requests
    assert (request.method, str(request.url)) == ("DELETE", "http://h:1/v1/data/a")
    assert request.headers["Authorization"] == write_key


class Keyboard(io.StringIO):
    """Standard input with a person at its other end."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("typed", "code"), [("y\n", 0), ("n\n", 1), ("\n", 1), ("", 130)])
@pytest.mark.usefixtures("write_key")
def test_deletion_is_asked_for_at_a_terminal(
    diem: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], typed: str, code: int
) -> None:
    server = Server(monkeypatch, httpx.Response(200, json={"version": 6}))
    monkeypatch.setattr(sys, "stdin", Keyboard(typed))
    assert diem("delete", "/a", *URL) == code
    err = capsys.readouterr().err
    assert "Delete /a at http://h:1? [y/N]" in err
    assert ("/a was not deleted" in err) == (code == 1)
    assert len(server.requests) == (code == 0)


@pytest.mark.usefixtures("write_key")
def test_deletion_without_a_terminal_says_how_to_confirm_it(
    diem: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Server(monkeypatch, httpx.Response(200, json={"version": 6}))
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert diem("delete", "/a", *URL) == 2
    assert capsys.readouterr().err == "diem: there is no terminal to ask at: confirm the deletion with --yes\n"
    assert not server.requests


@pytest.mark.usefixtures("write_key")
def test_deletion_that_is_refused_is_one_line(
    diem: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Server(monkeypatch, httpx.Response(409, json={"detail": "the source market keeps /a"}))
    assert diem("delete", "/a", *URL, "-y") == 1
    assert capsys.readouterr().err == "diem: /a was not deleted (409): the source market keeps /a\n"
