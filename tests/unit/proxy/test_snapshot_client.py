"""The snapshot client fails over between metadata services, and does not stay with one whose map is old."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from diem.links.internal import InternalConnection, InternalListener
from diem.process.auth import SharedKey
from diem.protocol.assignment import Snapshot, encode
from diem.protocol.partition_map import Head, PartitionMap
from proxy.snapshot_client import SUBPROTOCOL, SnapshotClient
from tests.support.patience import until
from tests.support.ports import free_port

KEY = SharedKey("0123456789abcdef0123456789abcdef")


class Service:
    """The watch of a metadata service whose map has this epoch (a ``ChannelHandler``)."""

    subprotocol = SUBPROTOCOL
    accepting = True

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.asked = 0
        self.links: dict[InternalConnection, None] = {}
        self.port = free_port()
        self.listener = InternalListener(
            "127.0.0.1", self.port, key=KEY, ready=lambda: None, status=dict, channels={"/watch": self}
        )

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/watch"

    def die(self) -> None:
        self.listener.stop()
        for link in list(self.links):
            link.abort()

    def opened(self, connection: InternalConnection) -> None:
        self.asked += 1
        self.links[connection] = None
        connection.send_text(encode(Snapshot(PartitionMap(Head(12, self.epoch)), {})))

    def received(self, connection: InternalConnection, data: bytes) -> None: ...

    def blocked(self, connection: InternalConnection) -> None: ...

    def resumed(self, connection: InternalConnection) -> None: ...

    def closed(self, connection: InternalConnection) -> None:
        self.links.pop(connection, None)


@contextlib.asynccontextmanager
async def snapshot_client(*services: Service) -> AsyncIterator[list[int]]:
    """Yield the applied epochs: a snapshot that is older than the last one is rejected."""
    applied: list[int] = []

    def apply(snapshot: Snapshot) -> bool:
        epoch = snapshot.map.head.epoch
        if applied and epoch < applied[-1]:
            return False
        applied.append(epoch)
        return True

    for service in services:
        service.listener.start()
    watch = asyncio.create_task(SnapshotClient([service.url for service in services], KEY, apply).run())
    try:
        yield applied
    finally:
        watch.cancel()
        await asyncio.wait([watch])
        for service in services:
            service.die()
        await asyncio.sleep(0)


async def test_service_with_an_older_map_is_left_for_the_next() -> None:
    first, behind, third = services = Service(7), Service(3), Service(8)
    async with snapshot_client(*services) as applied:
        await until(lambda: applied == [7])
        first.die()
        await until(lambda: applied == [7, 8])
        assert behind.asked == 1
        assert not behind.links
        assert len(third.links) == 1


async def test_only_service_is_retried_until_it_has_caught_up() -> None:
    only = Service(7)
    async with snapshot_client(only) as applied:
        await until(lambda: applied == [7])
        only.epoch = 3
        for link in list(only.links):
            link.abort()
        await until(lambda: only.asked >= 3)
        assert applied == [7]
        only.epoch = 7
        await until(lambda: applied == [7, 7])
