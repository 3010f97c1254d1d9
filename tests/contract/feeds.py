"""The feeds under test: each a real feed server at a real socket, and its source."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

from diem.kafka.config import KafkaOptions
from diem.links.feed_server import FeedServer
from diem.links.internal import InternalListener
from diem.process.auth import SharedKey
from diem.process.lifecycle import Lifecycle
from services.broadcast import main as broadcast
from services.broadcast.settings import Settings as BroadcastSettings
from services.data.kinds.series import Point, build
from services.data.store.store import Store
from tests.support.bridge import running_bridge, updates_topic
from tests.support.ports import free_port
from tests.support.small import MemoryFeed


class FeedUnderTest(Protocol):
    """Operations of a feed that the contract tests need."""

    url: str
    key: SharedKey

    async def put(self, *names: str) -> None:
        """Change endpoints at the source."""

    async def wipe(self) -> None:
        """Replace the source by an empty one with another id."""


Opener = Callable[[Path], AbstractAsyncContextManager[FeedUnderTest]]


class Memory:
    """A change map in memory."""

    def __init__(self, feed: MemoryFeed) -> None:
        self.feed = feed
        self.url, self.key = feed.url, feed.key
        self._stores = 1

    async def put(self, *names: str) -> None:
        self.feed.put(*names)

    async def wipe(self) -> None:
        await self.feed.stop()
        self._stores += 1
        self.feed.wipe(f"store-{self._stores}")
        await self.feed.start()


class StoreFeed:
    """The Data Service's store, on SQLite."""

    def __init__(self, directory: Path) -> None:
        self.key = SharedKey.create(directory / "internal.key")
        self._directory = directory
        self._port = free_port()
        self.url = f"ws://127.0.0.1:{self._port}/feed"
        self._stack = contextlib.AsyncExitStack()
        self._stores = 0
        self._values = 0
        self._store: Store | None = None

    async def open(self) -> None:
        self._stores += 1
        store = self._store = await Store.open(f"sqlite:///{self._directory}/store-{self._stores}.db")
        await self._stack.enter_async_context(store.serving())
        server = FeedServer(store)
        self._stack.callback(store.index.subscribe(server.changed))
        listener = InternalListener(
            "127.0.0.1", self._port, key=self.key, ready=lambda: None, status=dict, channels={"/feed": server}
        )
        listener.start()
        self._stack.callback(listener.stop)
        beating = asyncio.create_task(server.run())
        self._stack.callback(beating.cancel)
        self._stack.callback(server.stop)

    async def close(self) -> None:
        await self._stack.aclose()

    async def put(self, *names: str) -> None:
        assert self._store is not None
        for start in range(0, len(names), 50):
            self._values += 1
            points = [Point(0, self._values)]
            await self._store.writer.put([build(name, "MW", "PT1H", points) for name in names[start : start + 50]])

    async def wipe(self) -> None:
        await self.close()
        await self.open()


@contextlib.asynccontextmanager
async def memory(directory: Path) -> AsyncIterator[Memory]:
    feed = MemoryFeed(SharedKey.create(directory / "internal.key"))
    await feed.start()
    yield Memory(feed)
    await feed.stop()


@contextlib.asynccontextmanager
async def store(directory: Path) -> AsyncIterator[StoreFeed]:
    feed = StoreFeed(directory)
    await feed.open()
    yield feed
    await feed.close()


@contextlib.asynccontextmanager
async def node(directory: Path) -> AsyncIterator[FeedUnderTest]:
    """A Broadcast node that reads a store."""
    async with store(directory) as behind:
        port, life = free_port(), Lifecycle(1.0)
        settings = BroadcastSettings(
            internal_key_file=directory / "internal.key", internal_port=port, feed_url=[behind.url]
        )

        class Node:
            url, key = f"ws://127.0.0.1:{port}/feed", behind.key
            put, wipe = behind.put, behind.wipe

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(broadcast.main(settings, life))
            yield Node()
            life.stop("test is over")


@contextlib.asynccontextmanager
async def bridge(directory: Path, options: KafkaOptions) -> AsyncIterator[FeedUnderTest]:
    """A bridge that reads a topic of one partition, and the empty topic of hot updates."""
    async with updates_topic(options, partitions=1) as topic, running_bridge(directory, options) as running:

        class Bridge:
            url, key = running.url, running.key

            async def put(self, *names: str) -> None:
                await topic.put(*names)

            async def wipe(self) -> None:
                await topic.delete()
                await topic.create()

        yield Bridge()


FEEDS: dict[str, Opener] = {"memory": memory, "store": store, "broadcast": node}
