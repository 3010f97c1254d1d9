"""Clients of a deployment, and the credentials of a command."""

import json
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import cast

import httpx
import pytest

from deploy.clients.data_service import DataService
from deploy.clients.updates import client_of, credentials_of
from diem.client import PartitionedClient, UpdatesClient
from diem.process.auth import SharedKey
from diem.protocol.page_config import Edges
from tests.unit.deploy.clients.test_data_service import Server


@pytest.mark.parametrize("metadata", [["http://h:8400/v1"], []])
def test_clients_follow_owners_where_there_are_metadata_services(metadata: Sequence[str]) -> None:
    client = client_of(Edges(["ws://h:1/ws"], list(metadata)), "http://h:2")
    assert type(client) is (PartitionedClient if metadata else UpdatesClient)
    assert client.received_bytes == 0


async def test_a_token_can_name_a_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    SharedKey.create(tmp_path / "key")
    credentials, service = credentials_of(tmp_path / "key", None), DataService("http://h:1")
    server = Server(monkeypatch, httpx.Response(200, json={"token": "a.b.c"}))
    for subject in ("load-1", None):
        function = credentials.token_function(service, subject)
        assert function is not None
        assert await cast("Awaitable[str]", function()) == "a.b.c"
    named, own = server.requests
    assert json.loads(named.content) == {"subject": "load-1"}
    assert own.content == b""


async def test_the_catalogue_has_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    Server(monkeypatch, httpx.Response(200, json={"endpoints": [{"endpoint": "/a", "version": 5}]}))
    service = DataService("http://h:1")
    assert (await service.versions(), await service.endpoints()) == ({"/a": 5}, {"/a"})
