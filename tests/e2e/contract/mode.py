"""One mode as its clients see it: where to dial for an endpoint, and a client that speaks raw messages."""

import asyncio
import contextlib
import itertools
import socket
from collections import deque
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import orjson
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from diem.client import BaseClient, PartitionedClient, UpdatesClient
from tests.support.patience import PATIENCE_S
from tests.support.running import Running

SMALL_BUFFER = 4096


class Raw:
    """A connection that says raw messages; what it hears of endpoints that it never named is passed over (as the
    baseline mode asks every client to do), and so are status messages.

    Where updates may precede the reply to their subscription (``early``), they are received after it.
    """

    def __init__(self, connection: ClientConnection, *, early: bool = False) -> None:
        self.connection = connection
        self.named: set[str] = set()
        self._early = early
        self._waiting: deque[dict[str, Any]] = deque()
        self._ids = itertools.count(1)

    async def send(self, kind: str, endpoints: Any) -> int:
        self.named |= set(endpoints)
        number = next(self._ids)
        await self.connection.send(orjson.dumps({"type": kind, "id": number, "endpoints": endpoints}), text=True)
        return number

    async def receive(self, within: float = PATIENCE_S) -> dict[str, Any]:
        if self._waiting:
            return self._waiting.popleft()
        async with asyncio.timeout(within):
            while True:
                message: dict[str, Any] = orjson.loads(await self.connection.recv())
                foreign = message["type"] == "update" and message["endpoint"] not in self.named
                if not foreign and message["type"] not in {"status", "welcome"}:
                    return message

    async def answer(self, number: int) -> dict[str, Any]:
        """The next message, which answers the request of that number."""
        message = await self.receive()
        early: list[dict[str, Any]] = []
        while self._early and message["type"] == "update":
            early.append(message)
            message = await self.receive()
        self._waiting.extendleft(reversed(early))
        assert message.get("id") == number, message
        return message

    async def update(self, endpoint: str, version: int, within: float = PATIENCE_S) -> dict[str, Any]:
        """The update of that version; older ones of the endpoint may come before it."""
        async with asyncio.timeout(within):
            while True:
                message = await self.receive(within)
                assert message["type"] == "update", message
                if message["endpoint"] == endpoint and message["version"] == version:
                    return message
                assert message["version"] < version

    async def receives_nothing(self, seconds: float = 0.3, but: int | None = None) -> bool:
        """Whether nothing comes for a while, except for repetitions of the version ``but``."""
        try:
            async with asyncio.timeout(seconds):
                while (await self.receive()).get("version") == but and but is not None:
                    pass
        except TimeoutError:
            return True
        return False

    async def closed(self) -> int:
        """The close code with which the server ends the connection."""
        async with asyncio.timeout(PATIENCE_S):
            with contextlib.suppress(ConnectionClosed):
                while True:
                    await self.connection.recv()
        assert self.connection.close_code is not None
        return self.connection.close_code


@contextlib.asynccontextmanager
async def _dial(url: str, *, slow: bool = False) -> AsyncIterator[ClientConnection]:
    async with asyncio.timeout(PATIENCE_S):
        while (connection := await _connected(url, slow=slow)) is None:
            # Tests of one server come from one address, and dial more often than clients do.
            await asyncio.sleep(1.0)
    async with connection:
        yield connection


async def _connected(url: str, *, slow: bool) -> ClientConnection | None:
    """A connection; None when the server has no room for another one of this address just now."""
    parts = urlsplit(url)
    sock = socket.socket()
    if slow:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, (parts.hostname, parts.port))
    protocol = [Subprotocol("diem.v1.json")]
    try:
        return await connect(
            url, sock=sock, subprotocols=protocol, proxy=None, compression=None, ping_interval=None, max_queue=4
        )
    except InvalidStatus as refused:
        if refused.response.status_code != 429:
            raise
        return None


class ModeUnderTest:
    """The system in one mode."""

    def __init__(self, mode: str, edges: tuple[str, ...], system: Running, *, early: bool) -> None:
        self.name = mode
        self.edges = edges
        self.early = early
        """Whether updates may precede the reply to their subscription."""
        self.system = system
        self._numbers = itertools.count(1)

    @property
    def partitioned_client(self) -> bool:
        """Whether clients themselves find out who has an endpoint."""
        return self.name == "z-client"

    def fresh(self, count: int = 1) -> list[str]:
        """Names that nobody has used."""
        return [f"/contract/{next(self._numbers)}" for _ in range(count)]

    async def owner(self, endpoint: str) -> str:
        """The URL at which a client that knows nothing of partitions finds ``endpoint``.

        Who is named may not have the partition yet, or no more (protocol.md section 3.1: a client locates again):
        right after the start the group still settles. So the one named is asked as well, by a connection of its own.
        """
        if not self.partitioned_client:
            return self.system.websocket_urls[0]
        base = self.system.described["urls"]["metadata"][0]
        async with asyncio.timeout(PATIENCE_S):
            while True:
                answer = await self.system.http.post(f"{base}/locate", json={"endpoints": [endpoint], "clone": 1})
                url = answer.json()["endpoints"][endpoint]["owner"]
                if url is not None and await self._takes(str(url), endpoint):
                    return str(url)
                await asyncio.sleep(0.1)

    @staticmethod
    async def _takes(url: str, endpoint: str) -> bool:
        async with _dial(url) as connection:
            asking = Raw(connection)
            answer = await asking.answer(await asking.send("subscribe", {endpoint: None}))
        return endpoint in answer["endpoints"]

    async def together(self, count: int) -> list[str]:
        """Fresh names that one server has."""
        first = self.fresh()[0]
        wanted, found = await self.owner(first), [first]
        while len(found) < count:
            candidate = self.fresh()[0]
            if await self.owner(candidate) == wanted:
                found.append(candidate)
        return found

    @contextlib.asynccontextmanager
    async def raw(self, endpoint: str, *, slow: bool = False) -> AsyncIterator[Raw]:
        """A client at the server that has ``endpoint``; a slow one has a small buffer."""
        async with _dial(await self.owner(endpoint), slow=slow) as connection:
            yield Raw(connection, early=self.early)

    def client(self) -> BaseClient:
        """The library's client, as an application would use it in this mode."""
        if self.partitioned_client:
            return PartitionedClient(self.system.websocket_urls, metadata=self.system.described["urls"]["metadata"])
        return UpdatesClient(self.system.websocket_urls)

    async def put(self, *names: str, value: float = 1.0) -> dict[str, int]:
        """Change endpoints; returns their versions."""
        versions: dict[str, int] = {}
        for start in range(0, len(names), 50):
            part = names[start : start + 50]
            answer = await self.system.put({name: value + next(self._numbers) for name in part})
            assert answer.status_code == 200, answer.text
            versions |= {entry["endpoint"]: entry["version"] for entry in answer.json()["accepted"]}
        return versions

    async def delete(self, name: str) -> int:
        answer = await self.system.http.delete(
            f"{self.system.page}v1/data{name}", headers={"Authorization": f"Bearer {self.system.write_key}"}
        )
        assert answer.status_code == 200, answer.text
        return int(answer.json()["version"])
