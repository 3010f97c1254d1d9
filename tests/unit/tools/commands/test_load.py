"""The command ``diem load``: what is refused before anything is opened."""

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from diem.process.auth import SharedKey
from tests.unit.deploy.clients.test_data_service import Server

URL = "http://127.0.0.1:1"


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["load"], 1, "diem: diem is not up in "),
        (["load", "x"], 2, "diem: URL is http(s)://host[:port][/path], not 'x'"),
        (["load", URL], 1, f"the Data Service at {URL} does not answer"),
        (["load", URL, "--clients", "0"], 2, "diem: Invalid value for '--clients'"),
        (["load", URL, "--write", "5"], 2, "diem: key file "),
        (["load", URL, "--write", "5", "--endpoints", "/load/*"], 2, "--write has endpoints of its own"),
        (["load", URL, "--write", "5", "--endpoints", "0"], 2, "--write has endpoints of its own"),
        (["load", URL, "--key-file", "a", "--token-file", "b"], 2, "choose one of them"),
        (["load", URL, "--json", "none/result.json"], 2, "diem: none/result.json: No such file or directory"),
    ],
)
def test_what_is_wrong_is_one_line(
    diem: Callable[..., int], capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, expected: str
) -> None:
    assert diem(*arguments) == code
    captured = capsys.readouterr()
    assert expected in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"servers": []}, "it names no WebSocket server"),
        ({"servers": [{"url": "wss://there.example/ws"}]}, "add --host there.example"),
        ({"servers": [{"port": 1, "path": "/ws"}], "endpoints": []}, "has no endpoint at all"),
    ],
)
def test_nothing_is_opened_that_the_user_has_not_named(
    diem: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    config: dict[str, object],
    expected: str,
) -> None:
    Server(monkeypatch, httpx.Response(200, json=config))
    assert diem("load", URL) != 0
    err = capsys.readouterr().err
    assert expected in err
    assert err.count("\n") == 1


def test_a_write_key_that_is_refused_is_one_line(
    diem: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    SharedKey.create(tmp_path / "key")
    config = {"servers": [{"port": 1, "path": "/ws"}], "detail": "no"}
    replies = iter([httpx.Response(200, json=config), httpx.Response(403, json={"detail": "not your endpoints"})])
    real = httpx.AsyncClient
    transport = httpx.MockTransport(lambda _: next(replies))
    monkeypatch.setattr("httpx.AsyncClient", lambda **options: real(transport=transport, **options))
    assert diem("load", URL, "--write", "5", "--write-key-file", "key") == 1
    assert capsys.readouterr().err == "diem: the Data Service refuses: not your endpoints\n"
