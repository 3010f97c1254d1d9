"""The command ``diem canary``: what it watches, and what it needs to know."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deploy.clients.data_service import DataService, DataServiceUnavailable
from deploy.clients.updates import ANONYMOUS
from deploy.system.state_dir import StateDir
from diem.errors import DiemError
from diem.process.auth import SharedKey
from tools.commands import canary as module
from tools.commands.canary import PartitionsUnknown, _System
from tools.load.edges import EdgeAddress

DATA = {"name": "data", "process": "data", "urls": {"public": "http://d", "internal": "http://d:1"}}


@pytest.fixture
def state(tmp_path: Path) -> StateDir:
    state = StateDir(tmp_path)
    SharedKey.create(state.internal_key_file)
    state.write_processes({"mode": "x", "processes": [DATA]})
    return state


def system(state: StateDir, *named: EdgeAddress, is_local: bool = True) -> _System:
    return _System(state, DataService("http://d"), named, None, is_local, ANONYMOUS, state.internal_key_file)


async def test_edges_are_clients_those_that_are_named_and_those_of_the_state_directory(state: StateDir) -> None:
    named = EdgeAddress("ws://e/ws", "ws://e/ws")
    clients = EdgeAddress("clients", "http://d")
    assert await system(state, named).edges() == [clients, named]  # the file of targets is not there yet
    target = {"targets": ["127.0.0.1:9101"], "labels": {"process": "websocket", "number": "1", "mode": "x"}}
    state.targets_file.write_text(json.dumps([target]))
    server = EdgeAddress("websocket-1", "ws://127.0.0.1:9101/ws", is_server=True)
    assert await system(state, named).edges() == [clients, named, server]
    assert await system(state, named, is_local=False).edges() == [clients, named]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"publisher": None}, 1),
        ({"publisher": {"partitions": 12}}, 12),
        # Not known yet.
        ({"publisher": {"partitions": None}}, PartitionsUnknown),
        (None, DataServiceUnavailable),
    ],
)
async def test_partitions_are_those_that_the_publisher_reports(
    state: StateDir, monkeypatch: pytest.MonkeyPatch, status: dict[str, Any] | None, expected: int | type[DiemError]
) -> None:
    async def fetch_status(_http: object, url: str) -> dict[str, Any] | None:
        assert url == "http://d:1"
        return status

    monkeypatch.setattr(module, "fetch_status", fetch_status)
    assert await system(state, is_local=False).partitions() == 1
    if isinstance(expected, int):
        assert await system(state).partitions() == expected
    else:
        with pytest.raises(expected):
            await system(state).partitions()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ((), "diem is not up in"),
        (("--url", "http://127.0.0.1:9"), "write.key: No such file"),
        (("--url", "http://127.0.0.1:9", "--server", "ws://127.0.0.1:9101/ws"), "--server is http(s)://host:port"),
        (("--url", "http://127.0.0.1:9", "--key-file", "k", "--token-file", "t"), "choose one of them"),
    ],
)
def test_what_is_missing_is_one_line(
    diem: Callable[..., int], capsys: pytest.CaptureFixture[str], options: tuple[str, ...], text: str
) -> None:
    assert diem("canary", "--state-dir", "none", *options) in {1, 2}
    error = capsys.readouterr().err
    assert text in error
    assert error.count("\n") == 1
