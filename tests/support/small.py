"""A small system within the test's own event loop: a feed in memory and a real WebSocket server on real sockets."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Origin, Subprotocol

from diem.fanout.change_map import ChangeMap
from diem.links.feed_server import FeedServer
from diem.links.internal import InternalListener
from diem.process.auth import SharedKey
from diem.process.lifecycle import Lifecycle
from diem.process.settings import from_environment
from diem.protocol import feed
from diem.protocol.update import Change, encode, next_version
from services.websocket import main as websocket
from services.websocket.settings import Settings
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port

START = 1_700_000_000_000


AS_SERIES = {"Content-Type": "application/vnd.diem.series+json"}
"""Header fields of a PUT of one series."""


class MemoryFeed:
    """A store in memory behind a real feed server."""

    def __init__(self, key: SharedKey) -> None:
        self.key = key
        self.port = free_port()
        self.source: str | None = "store-1"
        self.changes = ChangeMap()
        self.back: list[int] = []
        self.heartbeats = True
        self.clock = START
        self.server = FeedServer(self)
        self._tasks: list[asyncio.Task[None]] = []
        self._listener: InternalListener | None = None

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/feed"

    def went_back(self, position: int) -> None:
        self.back.append(position)

    async def start(self) -> None:
        self.server = FeedServer(self, heartbeats=self.heartbeats)
        self._listener = InternalListener(
            "127.0.0.1", self.port, key=self.key, ready=lambda: None, status=dict, channels={"/feed": self.server}
        )
        self._listener.start()
        self._tasks = [asyncio.create_task(self.server.run())]

    async def stop(self) -> None:
        self.server.stop()
        for task in self._tasks:
            task.cancel()
        if self._listener is not None:
            self._listener.stop()
        await asyncio.sleep(0)

    def put(self, *names: str, gone: bool = False, size: int | None = None, media_type: str = "") -> int:
        """Change endpoints, in one batch for the readers; return the last version.

        With ``size``, the updates carry data with the version and a text of so many bytes, and the media type if one is
        given.
        """
        version = 0
        for name in names:
            held = self.changes.get(name.encode())
            # Time goes on when the store is wiped, as the wall clock does.
            self.clock += 1
            version = next_version(held.version if held else 0, self.clock)
            data = None if size is None else b'{"version":%d,"text":"%b"}' % (version, b"x" * size)
            if data is not None and media_type:
                data += f',"media_type":"{media_type}"'.encode()
            value = encode(name, version, version, gone=gone, data=data)
            self.changes.apply(Change(self.changes.sequence + 1, name.encode(), version, int(gone), value))
        self.server.changed()
        return version

    def forget(self, name: str) -> None:
        """Remove an endpoint whose deletion was the last change."""
        store, _ = feed.split_source(self.source or "")
        self.source = feed.store_source(store, self.changes.sequence)
        self.changes.remove([name.encode()])
        self.server.changed()

    def wipe(self, source: str) -> None:
        self.source = source
        self.changes.clear()


class Client:
    """A client that sends raw messages and collects the replies."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    async def send(self, message: dict[str, Any] | str | bytes) -> None:
        await self.connection.send(orjson.dumps(message) if isinstance(message, dict) else message, text=True)

    async def receive(self, *, status: bool = False, within: float = PATIENCE_S) -> dict[str, Any]:
        """Return the next message; status messages are skipped unless wanted."""
        async with asyncio.timeout(within):
            while True:
                message: dict[str, Any] = orjson.loads(await self.connection.recv())
                if message["type"] != "status" or status:
                    return message

    async def ask(self, message: dict[str, Any] | str | bytes) -> dict[str, Any]:
        await self.send(message)
        return await self.receive()

    async def receives_nothing(self, seconds: float = 0.2) -> bool:
        try:
            await self.receive(within=seconds)
        except TimeoutError:
            return True
        return False


class System:
    """The feed and the server."""

    def __init__(self, feed: MemoryFeed, settings: Settings) -> None:
        self.feed = feed
        self.settings = settings
        self.life = Lifecycle(2.0)
        self.url = f"ws://127.0.0.1:{settings.port}/ws"
        self.page = f"http://localhost:{settings.page_port}"

    @contextlib.asynccontextmanager
    async def client(self, *, welcome: bool = True, **options: Any) -> AsyncIterator[Client]:
        options.setdefault("subprotocols", [Subprotocol("diem.v1.json")])
        options.setdefault("origin", Origin(self.page))
        async with connect(self.url, proxy=None, compression=None, **options) as connection:
            client = Client(connection)
            if welcome:
                assert (await client.receive())["type"] == "welcome"
            yield client

    async def listening(self) -> None:
        """Wait until the server accepts connections, ready or not."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                with contextlib.suppress(ConnectionRefusedError):
                    _, writer = await asyncio.open_connection("127.0.0.1", self.settings.port)
                    writer.close()
                    return
                await asyncio.sleep(0.02)

    async def ready(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                with contextlib.suppress(OSError, IndexError):
                    reader, writer = await asyncio.open_connection("127.0.0.1", self.settings.internal_port)
                    writer.write(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
                    status = (await reader.readline()).split()
                    writer.close()
                    if status[1] == b"200":
                        return
                await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def small_system(directory: Path, *, start_feed: bool = True, **settings: Any) -> AsyncIterator[System]:
    """Run a system; ``settings`` are those of the WebSocket server."""
    key = SharedKey.create(directory / "internal.key")
    feed = MemoryFeed(key)
    system = System(
        feed,
        Settings(
            internal_key_file=directory / "internal.key",
            port=free_port(),
            internal_port=free_port(),
            feed_url=[feed.url],
            drain_seconds=2.0,
            **from_environment(Settings),  # type: ignore[arg-type]  # texts, which the settings convert
            **settings,
        ),
    )
    if start_feed:
        await feed.start()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(websocket.main(system.settings, system.life))
        try:
            await (system.ready() if start_feed else system.listening())
            yield system
        finally:
            system.life.stop("test is over")
    await feed.stop()
