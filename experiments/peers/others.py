"""The servers of others: each keeps the newest update of an endpoint where it can, as DIEM does."""

import asyncio
import contextlib
import gzip
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Any, Final, Self

import orjson
from aiokafka import AIOKafkaProducer
from aiokafka.admin import NewTopic
from aiokafka.errors import KafkaError

from diem.errors import DiemError
from diem.kafka.client import admin_client
from experiments.modes import peers
from experiments.peers.contenders import BROKER, Absent, Contender, Http, Payloads, Refused, Update, listening
from tests.bench import native
from tests.load.processes import children
from tests.support.local_cluster import LocalCluster
from tests.support.ports import free_port

BUILD: Final = Path(__file__).parents[2] / "build" / "peers"
"""Where deploy/install/peers.sh installs."""
DEBIAN: Final = BUILD / "debian"
TOPIC: Final = "publications"
PARTITIONS: Final = 4
Start = Callable[[], AbstractAsyncContextManager[int]]


class Other(Contender):
    """A server that takes updates by HTTP, and that ``start`` runs; it yields the process id."""

    def __init__(self, name: str, port: int, start: Start) -> None:
        super().__init__(name, port)
        self.http = Http(port)
        self.payloads = Payloads()
        self.services: dict[str, int] = {}
        """Process ids of what it needs besides."""
        self._start = start
        self._running = AsyncExitStack()
        self._pid = 0
        self._cores: set[int] = set()

    async def __aenter__(self) -> Self:
        self._pid = await self._running.enter_async_context(self._start())
        self._cores = os.sched_getaffinity(self._pid)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.http.close()
        await self._running.aclose()

    def roots(self) -> Iterator[tuple[str, int]]:
        yield "server", self._pid
        yield from self.services.items()

    async def publish(self, updates: Sequence[Update]) -> None:
        await self.http.send("POST", [("/", orjson.dumps({"updates": [*map(self.payloads.of, updates)]}))])

    async def crash(self) -> None:
        for pid in (*children(self._pid), self._pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await self._running.aclose()
        own = os.sched_getaffinity(0)
        # Processes inherit the core on which they are started, and the clients have the other one.
        os.sched_setaffinity(0, self._cores)
        self._pid = await self._running.enter_async_context(self._start())
        os.sched_setaffinity(0, own)


class Nchan(Other):
    """nginx with nchan: subscriptions are those of the URL."""

    keeps = "the newest, in memory"

    def path(self, endpoints: Sequence[str]) -> str:
        return f"/sub?id={','.join(map(_channel, endpoints))}"

    def join(self, _endpoints: Sequence[str]) -> list[str]:
        return []

    async def publish(self, updates: Sequence[Update]) -> None:
        bodies = [(f"/pub?id={_channel(each.endpoint)}", orjson.dumps(self.payloads.of(each))) for each in updates]
        await self.http.send("POST", bodies)


class Centrifugo(Other):
    """Centrifugo with its JSON protocol."""

    dialect = "centrifugo"
    keeps = "the newest, in memory"

    def path(self, _endpoints: Sequence[str]) -> str:
        return "/connection/websocket"

    def join(self, endpoints: Sequence[str]) -> list[str]:
        # Line breaks divide commands: "\v" stands for them until the load client sends it.
        commands = [{"subscribe": {"channel": _channel(name), "recover": True}} for name in endpoints]
        lines = [orjson.dumps({"id": number, **each}).decode() for number, each in enumerate(commands, 2)]
        return ['{"id":1,"connect":{}}', "\v".join(lines)]

    def commands(self, updates: Sequence[Update]) -> list[dict[str, Any]]:
        return [{"channel": _channel(each.endpoint), "data": self.payloads.of(each)} for each in updates]

    async def publish(self, updates: Sequence[Update]) -> None:
        body = orjson.dumps({"commands": [{"publish": each} for each in self.commands(updates)]})
        await self.http.send("POST", [("/api/batch", body)])


class OnKafka(Centrifugo):
    """Centrifugo that consumes a topic of publications."""

    keeps = "the newest, in memory; the topic, on disk"

    def __init__(self, name: str, port: int, start: Start, producer: AIOKafkaProducer) -> None:
        super().__init__(name, port, start)
        self._producer = producer

    async def publish(self, updates: Sequence[Update]) -> None:
        try:
            sent = [
                await self._producer.send(
                    TOPIC, orjson.dumps({"method": "publish", "payload": each}), each["channel"].encode()
                )
                for each in self.commands(updates)
            ]
            await asyncio.gather(*sent)
        except KafkaError as error:
            raise Refused(repr(error)) from error


class Floor(Other):
    """The floor in C: it sends every update to every client, and does nothing else."""

    def join(self, _endpoints: Sequence[str]) -> list[str]:
        return []

    async def publish(self, updates: Sequence[Update]) -> None:
        self.lines.write(b"".join(orjson.dumps(self.payloads.of(each)) + b"\n" for each in updates))

    lines: asyncio.StreamWriter


def _channel(endpoint: str) -> str:
    return endpoint.strip("/").replace("/", "-")


@contextlib.asynccontextmanager
async def _process(
    name: str, port: int, *command: str | Path, **more: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a server until the block ends; it listens then."""
    if not Path(command[0]).exists():
        reason = BUILD / f"{name}.absent"
        raise Absent(reason.read_text(encoding="utf-8").strip() if reason.exists() else "not installed (make peers)")
    nowhere = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=nowhere, stderr=nowhere, env={**os.environ, **more}
    )
    try:
        await listening(port, process, name)
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _pid_of(open_process: Callable[[], AbstractAsyncContextManager[Any]]) -> Start:
    @contextlib.asynccontextmanager
    async def start() -> AsyncIterator[int]:
        try:
            async with open_process() as process:
                yield process.pid
        except peers.NoPeer as error:
            raise Absent(str(error)) from error

    return start


@contextlib.asynccontextmanager
async def floor() -> AsyncIterator[Contender]:
    """Run the floor."""
    port = free_port()
    async with _process("floor", port, native.program("floor"), str(port)) as process:
        assert process.stdin is not None
        async with Floor("C floor", port, _pid_of(lambda: contextlib.nullcontext(process))) as server:
            assert isinstance(server, Floor)
            server.lines = process.stdin
            yield server


@contextlib.asynccontextmanager
async def ws(_folder: Path) -> AsyncIterator[Contender]:
    """Run ``ws`` on Node.js."""
    port = free_port()
    async with Other("ws", port, _pid_of(lambda: peers.ws_peer(port))) as server:
        yield server


@contextlib.asynccontextmanager
async def uws(_folder: Path) -> AsyncIterator[Contender]:
    """Run uWebSockets through socketify."""
    port = free_port()
    command = (BUILD / "socketify" / "bin" / "python", Path(__file__).with_name("uws.py"), str(port))
    async with Other("uWebSockets", port, _pid_of(lambda: _process("uWebSockets", port, *command))) as server:
        yield server


@contextlib.asynccontextmanager
async def nchan(_folder: Path) -> AsyncIterator[Contender]:
    """Run nginx with nchan."""
    port = free_port()
    async with Nchan("nchan", port, _pid_of(lambda: peers.nchan_peer(port))) as server:
        yield server


def _centrifugo(folder: Path, port: int, **more: object) -> Start:
    config = {
        "http_server": {"port": port, "address": "127.0.0.1"},
        "http_api": {"insecure": True},
        "client": {"insecure": True, "allowed_origins": ["*"]},
        "channel": {
            "without_namespace": {
                "history_size": 1,
                "history_ttl": "1h",
                "force_recovery": True,
                "force_recovery_mode": "cache",
            }
        },
        **more,
    }
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "centrifugo.json"
    file.write_bytes(orjson.dumps(config))
    return _pid_of(lambda: _process("centrifugo", port, BUILD / "centrifugo", "--config", file, "--log.level", "error"))


@contextlib.asynccontextmanager
async def centrifugo(folder: Path) -> AsyncIterator[Contender]:
    """Run Centrifugo with its engine in memory."""
    port = free_port()
    async with Centrifugo("Centrifugo", port, _centrifugo(folder, port)) as server:
        yield server


@contextlib.asynccontextmanager
async def centrifugo_redis(folder: Path) -> AsyncIterator[Contender]:
    """Run Centrifugo with Redis, which writes nothing to a disk."""
    port, redis_port = free_port(), free_port()
    options = ("--port", str(redis_port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
    libraries = str(next((DEBIAN / "usr/lib").glob("*-linux-*"), DEBIAN))
    program = DEBIAN / "usr/bin/redis-server"
    engine = {"type": "redis", "redis": {"address": f"redis://127.0.0.1:{redis_port}"}}
    async with (
        _process("redis", redis_port, program, *options, LD_LIBRARY_PATH=libraries) as redis,
        Centrifugo("Centrifugo, Redis", port, _centrifugo(folder, port, engine=engine)) as server,
    ):
        server.services["redis"] = redis.pid
        server.keeps = "the newest, in Redis"
        yield server


@contextlib.asynccontextmanager
async def centrifugo_kafka(folder: Path) -> AsyncIterator[Contender]:
    """Run Centrifugo with its consumer of Kafka."""
    port, cluster = free_port(), LocalCluster(folder / "kafka")
    try:
        await cluster.start()
    except DiemError as error:
        raise Absent(str(error)) from error
    try:
        async with admin_client(cluster.options) as admin:
            await admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])
        kafka = {"brokers": [cluster.bootstrap_servers], "topics": [TOPIC], "consumer_group": "centrifugo"}
        start = _centrifugo(
            folder, port, consumers=[{"enabled": True, "name": "publications", "type": "kafka", "kafka": kafka}]
        )
        async with (
            AIOKafkaProducer(**cluster.options.client_arguments(), acks="all") as producer,
            OnKafka("Centrifugo, Kafka", port, start, producer) as server,
        ):
            server.services[BROKER] = cluster.pid(1)
            yield server
    finally:
        await cluster.stop()


OTHERS: Final = {
    "ws": ws,
    "uWebSockets": uws,
    "nchan": nchan,
    "Centrifugo": centrifugo,
    "Centrifugo, Redis": centrifugo_redis,
    "Centrifugo, Kafka": centrifugo_kafka,
}
ABSENT: Final = {"Mercure": "the load client speaks WebSocket, Mercure only event streams"}


def versions() -> dict[str, str]:
    """Return the versions of what is installed."""
    found = {"Centrifugo": (BUILD / "centrifugo").resolve().name.removeprefix("centrifugo-")}
    for name, package in (("nchan", "libnginx-mod-nchan"), ("Redis", "redis-server")):
        changes = DEBIAN / "usr/share/doc" / package / "changelog.Debian.gz"
        if changes.exists():
            found[name] = gzip.decompress(changes.read_bytes()).split(b")", 1)[0].decode().partition("(")[2]
    for folder in BUILD.glob("socketify/lib/*/site-packages/socketify-*.dist-info"):
        found["uWebSockets (socketify)"] = folder.name.split("-")[1].removesuffix(".dist")
    manifest = peers.CLIENT / "node_modules/ws/package.json"
    if manifest.exists():
        found["ws"] = orjson.loads(manifest.read_bytes())["version"]
    return found
