"""Where the commands for API keys find the Data Service, and how they end."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from deploy import keys
from deploy.cli import commands, options
from deploy.cli.options import EXIT_INTERRUPTED
from deploy.found import DataService, DataServiceUnavailable, ServiceRefused
from deploy.keys import BadInternalUrl, key_service
from deploy.statedir import NotUp, StateDir
from diem.process import lifecycle
from diem.process.auth import SharedKey

SHARED = SharedKey("a-shared-key-of-the-tests")
PROCESSES = {
    "processes": [
        {"process": "websocket", "urls": {"internal": "http://127.0.0.1:9101"}},
        {"process": "data", "urls": {"internal": "http://127.0.0.1:9080"}},
    ]
}


def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, dict[str, Any]]]:
    """What a service that does not answer was asked."""
    requests: list[tuple[str, str, dict[str, Any]]] = []

    async def request(service: DataService, method: str, path: str, **options: Any) -> None:
        requests.append((method, service.base + path, options))
        raise DataServiceUnavailable(service.base, "refused")

    monkeypatch.setattr(DataService, "request", request)
    return requests


async def test_keys_are_those_of_what_is_up_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    requests = asked(monkeypatch)
    (tmp_path / "processes.json").write_text(json.dumps(PROCESSES))
    with pytest.raises(DataServiceUnavailable):
        await key_service(StateDir(tmp_path), None, SHARED).create("a", "free")
    with pytest.raises(DataServiceUnavailable):
        await key_service(StateDir(tmp_path), "http://10.0.0.1:9080/", SHARED).revoke("abcd1234")
    headers = {"Authorization": SHARED.header}
    assert requests == [
        ("POST", "http://127.0.0.1:9080/v1/keys", {"headers": headers, "json": {"name": "a", "plan": "free"}}),
        ("DELETE", "http://10.0.0.1:9080/v1/keys/abcd1234", {"headers": headers}),
    ]


async def test_nothing_is_asked_for_what_cannot_be_an_id(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    requests = asked(monkeypatch)
    for text in ("", "../x", "a b", "é"):
        with pytest.raises(ServiceRefused):
            await key_service(StateDir(tmp_path), "http://10.0.0.1:9080", SHARED).revoke(text)
    assert requests == []


@pytest.mark.parametrize("url", ["127.0.0.1:9080", "ftp://a", "http://", "http://a/v1/keys"])
def test_what_is_no_base_url_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(BadInternalUrl):
        key_service(StateDir(tmp_path), url, SHARED)


def test_nothing_up_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotUp):
        key_service(StateDir(tmp_path), None, SHARED)


@pytest.mark.parametrize(
    "command", ["keys create a --plan b", "keys revoke abcd1234", "backup f", "restore f", "put /a f"]
)
def test_who_was_interrupted_is_not_to_believe_that_it_was_done(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    monkeypatch.setattr(options, "attended", lambda _work: lifecycle.EXIT_OK)
    monkeypatch.setattr(sys, "argv", ["diem", *command.split(), "--state-dir", str(tmp_path)])
    assert commands.main() == EXIT_INTERRUPTED
    assert capsys.readouterr().out == ""


def test_the_path_is_the_one_that_the_service_has() -> None:
    from services.data.api.keys import PREFIX  # noqa: PLC0415  # for this comparison alone

    assert keys.PATH == PREFIX
