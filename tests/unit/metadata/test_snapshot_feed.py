"""The internal side: the snapshot by GET and pushed."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from diem.links.internal import InternalListener
from diem.process.auth import SharedKey
from diem.protocol.assignment import Snapshot, decode
from metadata import snapshot_feed
from metadata.directory import Directory
from metadata.snapshot_feed import SUBPROTOCOL, SnapshotFeed
from tests.support.patience import PATIENCE_S
from tests.unit.metadata.made import a_map, clone, snapshot

KEY = SharedKey("0123456789abcdef0123456789abcdef")


class Served:
    def __init__(self) -> None:
        self.directory = Directory([1])
        self.end = SnapshotFeed(self.directory)
        self.directory.on_changed.append(self.end.changed)
        self.listener = InternalListener(
            "127.0.0.1",
            0,
            key=KEY,
            ready=lambda: None,
            status=dict,
            ends={"/watch": self.end},
            pages={"/v1/partitions": self.end.page},
        )

    def fill(self) -> None:
        self.directory.update_map(a_map())
        self.directory.update_group(1, clone(1), 0, 0.0)

    async def get(self, key: SharedKey | None = KEY) -> httpx.Response:
        headers = {"Authorization": key.header} if key else {}
        async with httpx.AsyncClient(trust_env=False) as http:
            return await http.get(f"http://127.0.0.1:{self.listener.port}/v1/partitions", headers=headers)

    def watch(self, **more: Any) -> connect:
        more = {"additional_headers": {"Authorization": KEY.header}, "max_size": None, **more}
        url = f"ws://127.0.0.1:{self.listener.port}/watch"
        return connect(url, proxy=None, subprotocols=[Subprotocol(SUBPROTOCOL)], **more)


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    made = Served()
    await made.listener.start()
    yield made
    made.end.stop()
    made.listener.stop()


async def heard(socket: ClientConnection) -> Snapshot:
    async with asyncio.timeout(PATIENCE_S):
        data = await socket.recv()
        assert isinstance(data, str)
        return decode(data.encode())


async def test_the_snapshot_is_told_at_once_and_on_every_change(served: Served) -> None:
    served.fill()
    async with served.watch() as socket:
        assert await heard(socket) == snapshot(c1=clone(1))
        served.directory.update_group(1, clone(1, 2), 0, 0.0)
        assert await heard(socket) == snapshot(c1=clone(1, 2))
        assert decode((await served.get()).content) == snapshot(c1=clone(1, 2))


async def test_before_there_is_one_callers_are_told_to_come_back(served: Served) -> None:
    answer = await served.get()
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    assert "partition map" in answer.text
    with pytest.raises(InvalidStatus) as refused:
        await served.watch()
    assert refused.value.response.status_code == 503


async def test_it_needs_the_shared_key(served: Served) -> None:
    served.fill()
    assert (await served.get(None)).status_code == 401
    with pytest.raises(InvalidStatus) as refused:
        await served.watch(additional_headers={})
    assert refused.value.response.status_code == 401


async def test_links_are_bounded(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    served.fill()
    monkeypatch.setattr(snapshot_feed, "MAX_WATCHES", 1)
    async with served.watch():
        with pytest.raises(InvalidStatus) as refused:
            await served.watch()
    assert refused.value.response.status_code == 503


async def test_a_proxy_that_talks_is_sent_away(served: Served) -> None:
    served.fill()
    async with served.watch() as socket:
        await heard(socket)
        await socket.send("hello")
        with pytest.raises(ConnectionClosed) as closed:
            await heard(socket)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 4500


async def test_a_proxy_that_was_slow_gets_the_latest_only(served: Served) -> None:
    names = {f"/{'x' * 200}/{number}".encode(): entry for number in range(2000) for entry in a_map().entries.values()}
    served.fill()
    async with served.watch(max_queue=1) as socket:
        socket.transport.pause_reading()
        epoch = 0
        async with asyncio.timeout(PATIENCE_S):
            while not any(link.paused for link in served.end._links):
                epoch += 1
                served.directory.update_map(a_map(epoch=epoch, entries=names))
                await asyncio.sleep(0.01)
        for later in (1, 2):
            served.directory.update_map(a_map(epoch=epoch + later, entries=names))
        socket.transport.resume_reading()
        told: list[int] = []
        while not told or told[-1] < epoch + 2:
            told.append((await heard(socket)).map.head.epoch)
        assert epoch + 1 not in told


async def test_links_that_are_gone_are_forgotten(served: Served) -> None:
    served.fill()
    async with served.watch() as socket:
        await heard(socket)
        assert len(served.end) == 1
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE_S):
            while len(served.end):
                await asyncio.sleep(0.01)
    assert len(served.end) == 0
