import asyncio
import io
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import httpx
import pytest

from deploy.cli import data as module
from deploy.cli.data import printed, read_file, write_file
from deploy.cli.options import UnusableFile
from deploy.clients.data_service import StoredContent
from diem.process.auth import SharedKey
from diem.protocol.media_types import COLLECTION, DOCUMENT, JSON_PATCH, MERGE_PATCH, NOTICE, SERIES
from services.data.limits import MAX_DATASET_BYTES
from tests.unit.deploy.clients.test_data_service import Server

URL = ("--url", "http://h:1")
BODY = b'{"endpoint":"/a/b","version":5}'
PNG = b"\x89PNG\r\n\x1a\n"


def answer(media_type: str, content: bytes) -> httpx.Response:
    return httpx.Response(200, content=content, headers={"Content-Type": media_type, "Diem-Version": "5"})


@pytest.fixture
def write_key(tmp_path: Path) -> str:
    (tmp_path / ".diem").mkdir(0o700)
    return SharedKey.create(tmp_path / ".diem" / "write.key").header


def test_get_prints_json_with_anonymous_access(
    diem: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    server = Server(monkeypatch, answer(SERIES, BODY))
    assert diem("get", "/a/b", *URL) == 0
    assert capfdbinary.readouterr().out == BODY + b"\n"
    (request,) = server.requests
    assert (request.method, str(request.url)) == ("GET", "http://h:1/v1/data/a/b")
    assert request.headers["Accept"] == "*/*"
    assert "Authorization" not in request.headers


def test_old_version_is_written_to_a_file_as_csv_with_an_api_key(
    diem: Callable[..., int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Server(monkeypatch, answer("text/csv; charset=utf-8; header=present", b"time,value\n"))
    key = SharedKey.create(tmp_path / "key")
    assert diem("get", "/a", *URL, "--csv", "--version", "7", "-o", "a.csv", "--key-file", "key") == 0
    assert (tmp_path / "a.csv").read_bytes() == b"time,value\n"
    assert capsys.readouterr().out == ""
    (request,) = server.requests
    assert str(request.url) == "http://h:1/v1/data/a?version=7"
    assert request.headers["Accept"] == "text/csv"
    assert request.headers["Authorization"] == key.header


@pytest.mark.parametrize(
    ("media_type", "content", "shown"),
    [
        (DOCUMENT, b'{"home":2}', b'{"home":2}\n'),
        (SERIES, BODY, BODY + b"\n"),
        (NOTICE, BODY, BODY + b"\n"),
        ("image/png", PNG, PNG),
        ("text/plain;charset=utf-8", b"no end", b"no end"),
        (COLLECTION, b'{"endpoint":"/a/","version":5,"members":["/a/b","/a/c/"]}', b"/a/b\n/a/c/\n"),
    ],
)
def test_content_is_printed_as_it_is_and_members_one_a_line(media_type: str, content: bytes, shown: bytes) -> None:
    assert printed(StoredContent(content, {"Content-Type": media_type})) == shown


def test_csv_of_anything_but_a_series_is_an_error(
    diem: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    Server(monkeypatch, answer(DOCUMENT, b"{}"))
    assert diem("get", "/a", *URL, "--csv", "-o", "a.csv") == 2
    assert capsys.readouterr().err == "diem: --csv is for series, and /a is application/json\n"
    assert not (tmp_path / "a.csv").exists()


class Screen(io.TextIOWrapper):
    """Standard output at a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("content", "is_shown"),
    [
        ("héllo\tworld\r\n".encode(), True),
        (PNG, False),
        (b"\x1b]0;title\x07", False),
        (b'"\xc2\x9b31m"', False),
        (b"\0", False),
    ],
)
def test_terminal_is_sent_text_alone(monkeypatch: pytest.MonkeyPatch, content: bytes, *, is_shown: bool) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", Screen(written))
    if is_shown:
        write_file(content, "-")
        assert written.getvalue() == content
    else:
        with pytest.raises(UnusableFile, match="name a file with --output"):
            write_file(content, "-")
        assert written.getvalue() == b""


def test_failed_get_is_a_one_line_error_and_keeps_the_file(
    diem: Callable[..., int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a").write_text("before")
    Server(monkeypatch, httpx.Response(404, json={"detail": "there is no endpoint /a"}))
    assert diem("get", "/a", *URL, "-o", "a") == 1
    assert (tmp_path / "a").read_text() == "before"
    assert capsys.readouterr().err == "diem: /a was not read (404): there is no endpoint /a\n"


def test_unwritable_file_is_a_one_line_error(
    diem: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Server(monkeypatch, httpx.Response(200, content=BODY))
    assert diem("get", "/a", *URL, "-o", "none/a") == 2
    assert capsys.readouterr().err == "diem: none/a: No such file or directory\n"


def test_deletion_with_yes_is_not_confirmed(
    diem: Callable[..., int], write_key: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Server(monkeypatch, httpx.Response(200, json={"endpoint": "/a", "version": 6, "changed": True}))
    assert diem("delete", "/a", *URL, "--yes") == 0
    assert capsys.readouterr().out == "/a deleted as of version 6\n"
    (request,) = server.requests
    assert (request.method, str(request.url)) == ("DELETE", "http://h:1/v1/data/a")
    assert request.headers["Authorization"] == write_key


class Keyboard(io.StringIO):
    """Standard input of a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("typed", "code"), [("y\n", 0), ("n\n", 1), ("\n", 1), ("", 130)])
@pytest.mark.usefixtures("write_key")
def test_deletion_is_confirmed_at_a_terminal(
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
def test_deletion_without_a_terminal_needs_yes(
    diem: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Server(monkeypatch, httpx.Response(200, json={"version": 6}))
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert diem("delete", "/a", *URL) == 2
    assert capsys.readouterr().err == "diem: this needs confirmation, and there is no terminal: add --yes\n"
    assert not server.requests


@pytest.mark.usefixtures("write_key")
def test_refused_deletion_is_a_one_line_error(
    diem: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Server(monkeypatch, httpx.Response(409, json={"detail": "the source market keeps /a"}))
    assert diem("delete", "/a", *URL, "-y") == 1
    assert capsys.readouterr().err == "diem: /a was not deleted (409): the source market keeps /a\n"


def test_get_sends_a_token(diem: Callable[..., int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    server = Server(monkeypatch, httpx.Response(200, content=BODY))
    (tmp_path / "token").write_text("header.claims.signature")
    (tmp_path / "token").chmod(0o600)
    assert diem("get", "/a/b", *URL, "--token-file", "token") == 0
    assert server.requests[0].headers["Authorization"] == "Bearer header.claims.signature"


def test_a_key_and_a_token_are_one_too_many(diem: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert diem("get", "/a", *URL, "--key-file", "key", "--token-file", "token") == 2
    assert "choose one of them" in capsys.readouterr().err


def test_content_comes_from_file_or_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(b"x")
    assert read_file(str(tmp_path / "a")) == b"x"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"y")))
    assert read_file("-") == b"y"


def test_standard_input_can_be_interrupted(diem: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(file: str) -> bytes:
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        raise UnusableFile(file, "interrupted")

    monkeypatch.setattr(module, "read_file", interrupted)
    assert diem("put", "/a", "-", *URL) == 2


@pytest.mark.usefixtures("write_key")
def test_options_of_put_are_the_query(
    diem: Callable[..., int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("time,value\n2026-01-01T02:00,1\n")
    server = Server(monkeypatch, httpx.Response(200, json={"version": 6}))
    options = ("--unit", "MW", "--zone", "Europe/Athens", "--title", "Load", "--area", "GR", "--quantity", "load")
    assert diem("put", "/a", "a.csv", *URL, *options) == 0
    assert dict(server.requests[0].url.params) == {
        "unit": "MW", "zone": "Europe/Athens", "title": "Load", "area": "GR", "quantity": "load"
    }  # fmt: skip


@pytest.mark.usefixtures("write_key")
@pytest.mark.parametrize(
    ("words", "sent"),
    [
        ("put /a a.json", ("PUT", {}, {"Content-Type": DOCUMENT})),
        ("put /a a.json --area GR", ("PUT", {"area": "GR"}, {"Content-Type": SERIES})),
        ("put /a a.json --type text", ("PUT", {}, {"Content-Type": "text/plain;charset=utf-8"})),
        ("put /a a.json --ttl 60", ("PUT", {"ttl": "60"}, {"Content-Type": DOCUMENT})),
        ("put /a a.json --create", ("PUT", {}, {"Content-Type": DOCUMENT, "If-None-Match": "*"})),
        ("put /a a.json --if-match 7", ("PUT", {}, {"Content-Type": DOCUMENT, "If-Match": '"7-json"'})),
        ("patch /a a.json", ("PATCH", {}, {"Content-Type": MERGE_PATCH})),
        ("patch /a a.json --type json-patch --ttl 9", ("PATCH", {"ttl": "9"}, {"Content-Type": JSON_PATCH})),
        ("patch /a a.json --if-match 7", ("PATCH", {}, {"Content-Type": MERGE_PATCH, "If-Match": '"7-json"'})),
        ("notify /a", ("POST", {}, {})),
        ("notify /a --ttl 5 --title Orders", ("POST", {"ttl": "5", "title": "Orders"}, {})),
        ("delete /a --yes --if-match 7", ("DELETE", {}, {"If-Match": '"7-json"'})),
    ],
)
def test_changes_have_type_terms_and_conditions(
    diem: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    words: str,
    sent: tuple[str, Mapping[str, str], Mapping[str, str]],
) -> None:
    (tmp_path / "a.json").write_text("{}")
    server = Server(monkeypatch, httpx.Response(200, json={"version": 6, "changed": True}))
    assert diem(*words.split(), *URL) == 0
    (request,) = server.requests
    named = ("Content-Type", "If-Match", "If-None-Match")
    headers = {name: request.headers[name] for name in named if name in request.headers}
    assert (request.method, dict(request.url.params), headers) == sent
    assert request.url.path == "/v1/data/a"
    assert request.content == (b"{}" if "a.json" in words else b"")


@pytest.mark.usefixtures("write_key")
def test_patch_and_put_read_standard_input(
    diem: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Server(monkeypatch, httpx.Response(200, json={"version": 6, "changed": False}))
    for words in (("patch", "/a"), ("put", "/a", "-"), ("put", "/a")):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"home":2}')))
        assert diem(*words, *URL) == 0
    assert [request.content for request in server.requests] == [b'{"home":2}'] * 3
    assert server.requests[1].headers["Content-Type"] == DOCUMENT
    assert capsys.readouterr().out == "/a unchanged since version 6\n" * 3


@pytest.mark.usefixtures("write_key")
def test_standard_input_that_is_no_json_names_the_option(
    diem: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Server(monkeypatch, httpx.Response(400, json={"detail": "this is no JSON"}))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"time,value\n")))
    assert diem("put", "/a", "-", *URL, "--unit", "MW") == 1
    assert "this is no JSON; standard input is JSON: name another type with --type" in capsys.readouterr().err


@pytest.mark.usefixtures("write_key")
def test_a_table_of_another_layout_is_led_to_suggestions(
    diem: Callable[..., int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Server(monkeypatch, httpx.Response(400, json={"detail": "line 1: the header must be time,value"}))
    (tmp_path / "a b.csv").write_text("Zeit;Last\n")
    assert diem("put", "/a", str(tmp_path / "a b.csv"), *URL) == 1
    hint = f"time,value; `diem sources suggest '{tmp_path}/a b.csv'` finds the mapping of other layouts"
    assert hint in capsys.readouterr().err


def test_json_in_place_of_a_file_is_led_to_standard_input() -> None:
    with pytest.raises(UnusableFile, match=r"echo '\.\.\.' \| diem"):
        read_file('{"home": 2}')


def test_unreadable_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UnusableFile, match="No such file"):
        read_file(str(tmp_path / "none"))
    (tmp_path / "big").write_bytes(b"x" * (MAX_DATASET_BYTES + 1))
    with pytest.raises(UnusableFile, match="which no endpoint holds: split it"):
        read_file(str(tmp_path / "big"))


def test_file_of_another_layout_is_put_by_a_preset(
    diem: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    write_key: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "own.toml").write_text('resolution = "PT1H"\n[mapping]\ndelimiter = ";"\ntime = "t"\nvalue = "*"\n')
    (tmp_path / "data.txt").write_text("t;Wind [MW];Solar [GW]\n2026-01-01T00:00;1;2\n")
    server = Server(monkeypatch, httpx.Response(200, json={"version": 5, "changed": True}))
    assert diem("put", "/p", "data.txt", *URL, "--preset", "own.toml", "--zone", "Europe/Berlin", "--area", "DE") == 0
    wind, solar = server.requests
    assert str(wind.url) == "http://h:1/v1/data/p/Wind?area=DE&title=Wind"
    assert (wind.method, wind.headers["Content-Type"], wind.headers["Authorization"]) == ("PUT", SERIES, write_key)
    assert wind.content == b'{"unit":"MW","resolution":"PT1H","points":[{"time":"2025-12-31T23:00:00Z","value":1}]}'
    assert solar.url.path == "/v1/data/p/Solar"
    assert diem("put", "/p", "data.txt", *URL, "--preset", "smrad") == 2
    assert "there is no preset 'smrad' (did you mean `smard`?)" in capsys.readouterr().err
