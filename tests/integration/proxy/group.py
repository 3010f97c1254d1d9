"""A group of real servers that divide the partitions, the watch of a metadata service, and a real proxy.

Bridges and metadata service are in memory; every socket is real, and everything runs on the event loop of the test.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Origin, Subprotocol

from diem.links.feed_server import read_resume
from diem.links.internal import InternalConnection, InternalListener
from diem.process.auth import SharedKey
from diem.process.lifecycle import Lifecycle
from diem.process.settings import from_environment
from diem.protocol import assignment, feed
from diem.protocol.assignment import STABLE, Clone, Owner, Snapshot
from diem.protocol.partition_map import HOT, Entry, Head, PartitionMap
from diem.protocol.update import Change, encode
from proxy import main as proxy
from proxy.settings import Settings as ProxySettings
from services.websocket import main as websocket
from services.websocket.settings import Settings as ServerSettings
from tests.support.maps import changes_of
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port
from tests.support.small import START, Client

MAP = "diem.partition-map/0"


def feed_name(partition: int) -> str:
    return "diem.updates.hot/0" if partition == HOT else f"diem.updates/{partition}"


class Bridge:
    """What one server reads (a ``ChannelHandler``): its partitions, the hot one, and the map."""

    subprotocol = feed.SUBPROTOCOL
    accepting = True

    def __init__(self, group: "Group", key: SharedKey) -> None:
        self.group = group
        self.partitions: set[int] = set()
        self.heartbeats = True
        self.links: dict[InternalConnection, None] = {}
        self.port = free_port()
        ready = lambda: None  # noqa: E731
        self.listener = InternalListener(
            "127.0.0.1", self.port, key=key, ready=ready, status=dict, channels={"/feed": self}, sockets=group.sockets
        )

    @property
    def names(self) -> list[str]:
        return [*(feed_name(partition) for partition in sorted(self.partitions)), feed_name(HOT), MAP]

    def opened(self, connection: InternalConnection) -> None:
        """Do nothing: the server sends first."""

    def received(self, connection: InternalConnection, data: bytes) -> None:
        assert read_resume(connection, data, first=True) is not None
        self.links[connection] = None
        connection.send_text(feed.encode(feed.Hello("source", self.names)))
        self.send_map(connection)
        connection.send_text(feed.encode(feed.CaughtUp(MAP)))
        for partition in (*sorted(self.partitions), HOT):
            self.replay(connection, partition)
        self.heartbeat()

    def replay(self, connection: InternalConnection, partition: int) -> None:
        found = [change for change in self.group.changes.values() if self.group.is_in(change.endpoint, partition)]
        name = feed_name(partition)
        if found:
            connection.send_binary(feed.encode_batch(name, self.group.offset, found))
        connection.send_text(feed.encode(feed.CaughtUp(name)))

    def send_map(self, connection: InternalConnection) -> None:
        changes = changes_of(self.group.map)
        connection.send_binary(feed.encode_batch(MAP, len(changes), changes))

    def assign(self, partitions: set[int]) -> None:
        gained = partitions - self.partitions
        self.partitions = set(partitions)
        for link in self.links:
            link.send_text(feed.encode(feed.Hello("source", self.names)))
            for partition in sorted(gained):
                self.replay(link, partition)

    def send_owners(self) -> None:
        owners = {feed_name(number): self.group.owner(number).public for number in self.group.assigned}
        for link in self.links:
            link.send_text(feed.encode(feed.Owners(owners)))

    def put(self, changes: list[Change]) -> None:
        for partition in (*self.partitions, HOT):
            mine = [change for change in changes if self.group.is_in(change.endpoint, partition)]
            for link in self.links if mine else ():
                link.send_binary(feed.encode_batch(feed_name(partition), self.group.offset, mine))

    def heartbeat(self) -> None:
        for link in self.links if self.heartbeats else ():
            link.send_text(feed.HEARTBEAT)

    def blocked(self, connection: InternalConnection) -> None: ...

    def resumed(self, connection: InternalConnection) -> None: ...

    def closed(self, connection: InternalConnection) -> None:
        self.links.pop(connection, None)


class WatchHandler:
    """The internal watch of a metadata service (a ``ChannelHandler``)."""

    subprotocol = "diem.watch.v1"
    accepting = True

    def __init__(self, key: SharedKey, sockets: Path | None) -> None:
        self.sockets = sockets
        self.links: dict[InternalConnection, None] = {}
        self.text = b""
        self.key = key
        self.port = free_port()
        self.listener: InternalListener | None = None

    async def start(self) -> None:
        self.listener = InternalListener(
            "127.0.0.1",
            self.port,
            key=self.key,
            ready=lambda: None,
            status=dict,
            channels={"/watch": self},
            sockets=self.sockets,
        )
        self.listener.start()

    def stop(self) -> None:
        if self.listener is not None:
            self.listener.stop()
        for link in list(self.links):
            link.abort()

    def publish(self, snapshot: Snapshot) -> None:
        self.text = assignment.encode(snapshot)
        for link in self.links:
            link.send_text(self.text)

    def opened(self, connection: InternalConnection) -> None:
        self.links[connection] = None
        if self.text:
            connection.send_text(self.text)

    def received(self, connection: InternalConnection, data: bytes) -> None: ...

    def blocked(self, connection: InternalConnection) -> None: ...

    def resumed(self, connection: InternalConnection) -> None: ...

    def closed(self, connection: InternalConnection) -> None:
        self.links.pop(connection, None)


class Group:
    """Servers from 0 on; :meth:`assign` divides the partitions among them."""

    def __init__(
        self, directory: Path, servers: int, hot: tuple[str, ...], partitions: int, sockets: Path | None
    ) -> None:
        self.sockets = sockets
        self.key_file = directory / "internal.key"
        self.key = SharedKey.create(self.key_file)
        self.map = PartitionMap(Head(partitions, 0), {name.encode(): Entry(HOT) for name in hot})
        self.changes: dict[bytes, Change] = {}
        self.offset = 0
        self.assigned = {number: number % servers for number in range(partitions)}
        self.bridges = [Bridge(self, self.key) for _ in range(servers)]
        self.watch = WatchHandler(self.key, sockets)
        self.owners = [self._owner(number) for number in range(1, servers + 1)]
        self.lives = [Lifecycle(1.0) for _ in self.owners]
        self.running: dict[int, asyncio.Task[None]] = {}
        self.tasks: asyncio.TaskGroup
        for number, server in self.assigned.items():
            self.bridges[server].partitions.add(number)

    @staticmethod
    def _owner(number: int) -> Owner:
        return Owner(f"b{number:03d}", f"ws://127.0.0.1:{free_port()}/ws", f"ws://127.0.0.1:{free_port()}/ws")

    def owner(self, partition: int) -> Owner:
        return self.owners[self.assigned[partition]]

    def is_in(self, endpoint: bytes, partition: int) -> bool:
        return partition in self.map.written_to(endpoint)

    def server_of(self, name: str) -> int:
        return self.assigned[self.map.home(name.encode())]

    def names(self, server: int, count: int = 1) -> list[str]:
        """Return endpoints that a server owns."""
        found = (f"/e/{n}" for n in range(1000))
        return [name for name in found if self.server_of(name) == server][:count]

    def put(self, *names: str, gone: bool = False) -> int:
        """Update endpoints, in one batch for each bridge; return the last version."""
        changes = []
        for name in names:
            self.offset += 1
            version = START + self.offset
            value = encode(name, version, version, gone=gone)
            changes.append(Change(self.offset, name.encode(), version, int(gone), value))
        self.changes.update({change.endpoint: change for change in changes})
        for bridge in self.bridges:
            bridge.put(changes)
        return changes[-1].version

    def resync(self, *names: str) -> None:
        for bridge in self.bridges:
            for link in bridge.links:
                link.send_text(feed.encode(feed.Resync(names)))

    def assign(self, assigned: dict[int, int]) -> None:
        """Partition -> server; bridges follow at once, the metadata service when :meth:`publish_snapshot` is called."""
        self.assigned = assigned
        for number, bridge in enumerate(self.bridges):
            bridge.assign({partition for partition, server in assigned.items() if server == number})
            bridge.send_owners()

    def snapshot(self) -> Snapshot:
        members = {owner.server: owner for owner in self.owners}
        owners = {number: self.owners[server].server for number, server in self.assigned.items()}
        return Snapshot(self.map, {1: Clone(STABLE, members, owners)})

    def publish_snapshot(self) -> None:
        self.watch.publish(self.snapshot())

    async def start_server(self, number: int) -> None:
        owner = self.owners[number]
        settings = ServerSettings(
            internal_key_file=self.key_file,
            internal_sockets=self.sockets,
            number=number + 1,
            mode="z-proxy",
            port=_port(owner.public),
            internal_port=_port(owner.internal),
            feed_url=[f"ws://127.0.0.1:{self.bridges[number].port}/feed"],
            drain_seconds=1.0,
            **from_environment(ServerSettings),  # type: ignore[arg-type]  # texts, which the settings convert
        )
        self.lives[number] = Lifecycle(1.0)
        self.running[number] = self.tasks.create_task(websocket.main(settings, self.lives[number]))
        await answers(_port(owner.internal))

    async def stop_server(self, number: int) -> None:
        """Stop a server, as SIGTERM does."""
        self.lives[number].stop("test")
        await self.running.pop(number)

    async def run(self, tasks: asyncio.TaskGroup) -> None:
        self.tasks = tasks
        for bridge in self.bridges:
            bridge.listener.start()
        await self.watch.start()
        for number in range(len(self.owners)):
            await self.start_server(number)
            self.bridges[number].send_owners()

    async def heartbeat(self) -> None:
        while True:
            for bridge in self.bridges:
                bridge.heartbeat()
            await asyncio.sleep(0.3)


class BufferedClient(Client):
    """A client whose received messages can be put back."""

    def __init__(self, connection: ClientConnection) -> None:
        super().__init__(connection)
        self.buffered: list[dict[str, Any]] = []

    async def receive(self, *, status: bool = False, within: float = PATIENCE_S) -> dict[str, Any]:
        return self.buffered.pop(0) if self.buffered else await super().receive(status=status, within=within)


class System:
    """The group and its proxy."""

    def __init__(self, group: Group, settings: ProxySettings) -> None:
        self.group = group
        self.settings = settings
        self.life = Lifecycle(1.0)
        self.url = f"ws://127.0.0.1:{settings.port}/ws"

    @contextlib.asynccontextmanager
    async def client(self, **options: Any) -> AsyncIterator[BufferedClient]:
        options.setdefault("subprotocols", [Subprotocol("diem.v1.json")])
        options.setdefault("origin", Origin(f"http://localhost:{self.settings.page_port}"))
        async with connect(self.url, proxy=None, compression=None, **options) as connection:
            client = BufferedClient(connection)
            assert (await client.receive())["type"] == "welcome"
            yield client

    async def status(self) -> dict[str, Any]:
        return await get_status(self.settings.internal_port, self.group.key)

    async def server_status(self, number: int) -> dict[str, Any]:
        return await get_status(_port(self.group.owners[number].internal), self.group.key)


@contextlib.asynccontextmanager
async def proxied(
    directory: Path,
    *,
    servers: int = 2,
    hot: tuple[str, ...] = (),
    partitions: int = 4,
    snapshot: bool = True,
    sockets: bool = True,
    **settings: Any,
) -> AsyncIterator[System]:
    """A running system, with Unix sockets for its internal links or without; ``settings`` are those of the proxy."""
    group = Group(directory, servers, hot, partitions, directory / "s" if sockets else None)
    system = System(
        group,
        ProxySettings(
            internal_key_file=group.key_file,
            internal_sockets=group.sockets,
            port=free_port(),
            internal_port=free_port(),
            metadata_urls=[f"ws://127.0.0.1:{group.watch.port}/watch"],
            drain_seconds=1.0,
            **from_environment(ProxySettings),  # type: ignore[arg-type]  # texts, which the settings convert
            **settings,
        ),
    )
    async with asyncio.TaskGroup() as tasks:
        await group.run(tasks)
        if snapshot:
            group.publish_snapshot()
        heartbeats = tasks.create_task(group.heartbeat())
        tasks.create_task(proxy.main(system.settings, system.life))
        try:
            await answers(system.settings.internal_port, "/livez")
            if snapshot:
                await answers(system.settings.internal_port)
                await asyncio.wait_for(_connected(system), PATIENCE_S)
            yield system
        finally:
            system.life.stop("test is over")
            for life in group.lives:
                life.stop("test is over")
            heartbeats.cancel()
            group.watch.stop()
            for bridge in group.bridges:
                bridge.listener.stop()
    for bridge in group.bridges:
        for link in list(bridge.links):
            link.abort()
    await asyncio.sleep(0)


async def _connected(system: System) -> None:
    while len((await system.status())["servers_open"]) < len(system.group.running):
        await asyncio.sleep(0.02)


async def answers(port: int, path: str = "/readyz", within: float = PATIENCE_S) -> None:
    """Wait until a process is ready."""
    async with asyncio.timeout(within):
        while True:
            with contextlib.suppress(OSError, IndexError):
                if (await _get(port, path, "")).split()[1] == b"200":
                    return
            await asyncio.sleep(0.02)


async def get_status(port: int, key: SharedKey) -> dict[str, Any]:
    answer = await _get(port, "/status", f"Authorization: {key.header}\r\n")
    status: dict[str, Any] = orjson.loads(answer.partition(b"\r\n\r\n")[2])
    return status


async def _get(port: int, path: str, header: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n{header}\r\n".encode())
    answer = await reader.read()
    writer.close()
    return answer


def _port(url: str) -> int:
    return int(url.split(":")[2].split("/", maxsplit=1)[0])
