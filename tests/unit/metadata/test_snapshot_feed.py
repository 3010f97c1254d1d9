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
from tests.support.internal import InternalConnect, http_client
from tests.support.patience import PATIENCE_S, until
from tests.unit.metadata.snapshots import a_map, clone, snapshot

KEY = SharedKey("0123456789abcdef0123456789abcdef")


class ServedFeed:
    def __init__(self) -> None:
        self.directory = Directory([1])
        self.feed = SnapshotFeed(self.directory)
        self.directory.on_changed.append(self.feed.changed)
        self.listener = InternalListener(
            "127.0.0.1",
            0,
            key=KEY,
            ready=lambda: None,
            status=dict,
            channels={"/watch": self.feed},
            pages={"/v1/partitions": self.feed.page},
        )

    def fill(self) -> None:
        self.directory.update_map(a_map())
        self.directory.update_group(1, clone(1), 0, 0.0)

    async def get(self) -> httpx.Response:
        async with http_client(KEY) as http:
            return await http.get(f"http://127.0.0.1:{self.listener.port}/v1/partitions")

    def watch(self, **more: Any) -> InternalConnect:
        url = f"ws://127.0.0.1:{self.listener.port}/watch"
        return InternalConnect(url, KEY, subprotocols=[Subprotocol(SUBPROTOCOL)], **{"max_size": None, **more})


@pytest.fixture
async def served() -> AsyncIterator[ServedFeed]:
    made = ServedFeed()
    made.listener.start()
    yield made
    made.feed.stop()
    made.listener.stop()


async def next_snapshot(socket: ClientConnection) -> Snapshot:
    async with asyncio.timeout(PATIENCE_S):
        data = await socket.recv()
        assert isinstance(data, str)
        return decode(data.encode())


async def test_the_snapshot_is_sent_at_once_and_after_every_change(served: ServedFeed) -> None:
    served.fill()
    async with served.watch() as socket:
        assert await next_snapshot(socket) == snapshot(c1=clone(1))
        served.directory.update_group(1, clone(1, 2), 0, 0.0)
        assert await next_snapshot(socket) == snapshot(c1=clone(1, 2))
        assert decode((await served.get()).content) == snapshot(c1=clone(1, 2))


async def test_without_a_snapshot_the_answer_is_503_with_retry_after(served: ServedFeed) -> None:
    answer = await served.get()
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    assert "partition map" in answer.text
    with pytest.raises(InvalidStatus) as refused:
        await served.watch()
    assert refused.value.response.status_code == 503


async def test_the_shared_key_is_required(served: ServedFeed) -> None:
    served.fill()
    address = f"127.0.0.1:{served.listener.port}"
    async with httpx.AsyncClient(trust_env=False) as http:
        assert (await http.get(f"http://{address}/v1/partitions")).status_code == 401
    with pytest.raises(InvalidStatus) as refused:
        await connect(f"ws://{address}/watch", proxy=None, subprotocols=[Subprotocol(SUBPROTOCOL)])
    assert refused.value.response.status_code == 401


async def test_the_number_of_links_is_bounded(served: ServedFeed, monkeypatch: pytest.MonkeyPatch) -> None:
    served.fill()
    monkeypatch.setattr(snapshot_feed, "MAX_WATCHES", 1)
    async with served.watch():
        with pytest.raises(InvalidStatus) as refused:
            await served.watch()
    assert refused.value.response.status_code == 503


async def test_a_link_that_sends_a_message_is_closed(served: ServedFeed) -> None:
    served.fill()
    async with served.watch() as socket:
        await next_snapshot(socket)
        await socket.send("hello")
        with pytest.raises(ConnectionClosed) as closed:
            await next_snapshot(socket)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 4500


async def test_a_slow_link_gets_only_the_latest_snapshot(served: ServedFeed) -> None:
    names = {f"/{'x' * 200}/{number}".encode(): entry for number in range(2000) for entry in a_map().entries.values()}
    served.fill()
    async with served.watch(max_queue=1) as socket:
        socket.transport.pause_reading()
        epoch = 0
        async with asyncio.timeout(PATIENCE_S):
            while not any(link.paused for link in served.feed._links):
                epoch += 1
                served.directory.update_map(a_map(epoch=epoch, entries=names))
                await asyncio.sleep(0.01)
        for later in (1, 2):
            served.directory.update_map(a_map(epoch=epoch + later, entries=names))
        socket.transport.resume_reading()
        epochs: list[int] = []
        while not epochs or epochs[-1] < epoch + 2:
            epochs.append((await next_snapshot(socket)).map.head.epoch)
        assert epoch + 1 not in epochs


async def test_closed_links_are_forgotten(served: ServedFeed) -> None:
    served.fill()
    async with served.watch() as socket:
        await next_snapshot(socket)
        assert len(served.feed) == 1
    with contextlib.suppress(TimeoutError):
        await until(lambda: not len(served.feed))
    assert len(served.feed) == 0
