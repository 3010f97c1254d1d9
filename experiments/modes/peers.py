"""Other servers on the trace of R1: the CPU that they take for each frame that reaches a client.

Every peer gets the same connections, subscriptions and updates. ``ws``, a server on Node.js, and nginx with nchan are
started here if they are installed; Centrifugo is reached by URL where somebody runs it (``--peer``). What each one
speaks is its ``Dialect``. The CPU of a peer includes that of taking updates by HTTP; servers of DIEM read a feed.
"""

import asyncio
import contextlib
import os
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import httpx
import orjson
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from diem.protocol.update import iso
from experiments.modes.regimes import START_MS
from tests.bench.procfs import cpu_seconds
from tests.load.processes import children
from tests.load.trace import Trace, Visit
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port

CLIENT: Final = Path(__file__).parents[2] / "client"
SCRIPT: Final = Path(__file__).with_name("peer_ws.mjs")
AT_ONCE: Final = 16
"""Most clients that connect, and requests that publish, at a time."""
REST_S: Final = 1.0
"""Before and after the trace: for subscriptions to take effect, and for the last frames."""
POLL_S: Final = 0.02
NCHAN: Final = Path("ngx_nchan_module.so")
_BUILD: Final = Path(__file__).parents[2] / "build"
NCHAN_FOLDERS: Final = tuple(
    root / "usr/lib/nginx/modules" for root in (Path("/"), _BUILD / "bench/nchan", _BUILD / "peers/debian")
)
"""Where the package has its module, installed or unpacked beside (``dpkg -x``, deploy/install/peers.sh)."""
_NCHAN_CONFIG: Final = """load_module {module};
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
events {{ worker_connections 16384; }}
http {{
  access_log off;
  keepalive_requests 1000000;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{port};
    location = /sub {{
      nchan_subscriber websocket;
      nchan_channel_id $arg_id;
      nchan_channel_id_split_delimiter ",";
      nchan_subscriber_first_message oldest;
    }}
    location = /pub {{
      nchan_publisher http;
      nchan_channel_id $arg_id;
      nchan_message_buffer_length 1;
    }}
  }}
}}
"""
"""One worker, as of DIEM's server; the newest update of each channel is kept and sent first, as there."""


class NoPeer(Exception):
    """A peer cannot be measured here."""


class Peer(NamedTuple):
    """A server that runs."""

    name: str
    """Of its dialect."""
    websocket_url: str
    publish_url: str
    pid: int
    """Its children belong to it."""


class Publication(NamedTuple):
    """A request that publishes."""

    url: str
    body: bytes


class Dialect(ABC):
    """How clients subscribe at a kind of server, and how updates get there."""

    resubscribes = True
    """Whether a connection can change its subscriptions; otherwise it is replaced."""

    def url(self, base: str, _endpoints: Sequence[str]) -> str:
        """Return the URL of a connection with these subscriptions."""
        return base

    @abstractmethod
    def subscribe(self, subscribed: Sequence[str], unsubscribed: Sequence[str]) -> list[bytes]:
        """Return the messages that change the subscriptions of a connection; the first ones, of a new one."""

    def receive(self, message: bytes) -> tuple[int, bytes | None]:
        """Return how many updates a message has, and what to reply, if anything."""
        return 1, None

    @abstractmethod
    def publish(self, url: str, updates: Sequence[Mapping[str, Any]]) -> Iterator[Publication]:
        """Yield the requests that publish updates."""


class Ws(Dialect):
    """``peer_ws.mjs``."""

    def subscribe(self, subscribed: Sequence[str], unsubscribed: Sequence[str]) -> list[bytes]:
        """Return one message."""
        return [orjson.dumps({"subscribe": subscribed, "unsubscribe": unsubscribed})]

    def publish(self, url: str, updates: Sequence[Mapping[str, Any]]) -> Iterator[Publication]:
        """Yield one request."""
        yield Publication(url, orjson.dumps({"updates": updates}))


class Nchan(Dialect):
    """nchan with ``nchan_channel_id $arg_id`` in both locations, and ``nchan_channel_id_split_delimiter ","``."""

    resubscribes = False

    def url(self, base: str, endpoints: Sequence[str]) -> str:
        """Return the URL with all channels."""
        return f"{base}?id={','.join(map(_channel, endpoints))}"

    def subscribe(self, _subscribed: Sequence[str], _unsubscribed: Sequence[str]) -> list[bytes]:
        """Return nothing: the URL has the channels."""
        return []

    def publish(self, url: str, updates: Sequence[Mapping[str, Any]]) -> Iterator[Publication]:
        """Yield a request for each update."""
        for update in updates:
            yield Publication(f"{url}?id={quote(_channel(update['endpoint']))}", orjson.dumps(update))


class Centrifugo(Dialect):
    """Centrifugo 4 or later: its JSON protocol, and ``/api/publish?api_key=KEY`` as the URL to publish."""

    def subscribe(self, subscribed: Sequence[str], unsubscribed: Sequence[str]) -> list[bytes]:
        """Return one message; commands are lines. A connection without anything to unsubscribe from may be new."""
        commands: list[dict[str, Any]] = [] if unsubscribed else [{"connect": {}}]
        commands += [{"subscribe": {"channel": _channel(name)}} for name in subscribed]
        commands += [{"unsubscribe": {"channel": _channel(name)}} for name in unsubscribed]
        return [b"\n".join(orjson.dumps({"id": number, **each}) for number, each in enumerate(commands, 1))]

    def receive(self, message: bytes) -> tuple[int, bytes | None]:
        """Count publications; an empty object is a ping."""
        replies = [orjson.loads(line) for line in message.splitlines() if line]
        return sum("pub" in each.get("push", {}) for each in replies), b"{}" if {} in replies else None

    def publish(self, url: str, updates: Sequence[Mapping[str, Any]]) -> Iterator[Publication]:
        """Yield a request for each update."""
        for update in updates:
            yield Publication(url, orjson.dumps({"channel": _channel(update["endpoint"]), "data": update}))


def _channel(endpoint: str) -> str:
    return endpoint.strip("/").replace("/", "-")


DIALECTS: Final[Mapping[str, Dialect]] = {"ws": Ws(), "nchan": Nchan(), "centrifugo": Centrifugo()}


@dataclass(frozen=True)
class Measured:
    """What a peer did with a trace."""

    name: str
    seconds: float
    cpu_s: float
    frames: int
    """That clients received."""
    expected_frames: int
    """By the trace, if subscriptions took effect at once."""

    @property
    def us_per_frame(self) -> float | None:
        """CPU of a frame."""
        return self.cpu_s * 1e6 / self.frames if self.frames else None

    def as_json(self) -> dict[str, Any]:
        """Return it for the report."""
        cost = self.us_per_frame
        return {
            "name": self.name,
            "cpu_ms": round(1000 * self.cpu_s / self.seconds, 1),
            "frames_per_s": round(self.frames / self.seconds, 1),
            "expected_frames_per_s": round(self.expected_frames / self.seconds, 1),
            "us_per_frame": None if cost is None else round(cost, 2),
        }


class PeerClient:
    """A client of a peer, which counts the updates that it is sent."""

    def __init__(self, dialect: Dialect, base: str) -> None:
        self.frames = 0
        self._dialect = dialect
        self._base = base
        self._held: dict[str, None] = {}
        self._socket: ClientConnection | None = None
        self._reading: asyncio.Task[None] | None = None

    async def open(self, endpoints: Sequence[str]) -> None:
        """Connect and subscribe."""
        self._held = dict.fromkeys(endpoints)
        url = self._dialect.url(self._base, endpoints)
        socket = self._socket = await connect(url, compression=None, proxy=None, max_queue=None)
        self._reading = asyncio.create_task(self._read(socket))
        for message in self._dialect.subscribe(endpoints, ()):
            await socket.send(message, text=True)

    async def change(self, subscribed: Sequence[str], unsubscribed: Sequence[str]) -> None:
        """Change the subscriptions, on a new connection where the dialect has no other way."""
        self._held = {name: None for name in (*self._held, *subscribed) if name not in unsubscribed}
        if not self._dialect.resubscribes:
            await self.close()
            await self.open(list(self._held))
        elif self._socket is not None:
            for message in self._dialect.subscribe(subscribed, unsubscribed):
                await self._socket.send(message, text=True)

    async def close(self) -> None:
        """Disconnect."""
        if self._socket is not None:
            await self._socket.close()
        if self._reading is not None:
            await self._reading

    async def _read(self, socket: ClientConnection) -> None:
        with contextlib.suppress(ConnectionClosed):
            while True:
                count, reply = self._dialect.receive(await socket.recv(decode=False))
                self.frames += count
                if reply is not None:
                    await socket.send(reply, text=True)


async def measure(peer: Peer, trace: Trace) -> Measured:
    """Repeat a trace at a peer. Raises ``NoPeer``: it cannot be reached, or its process has ended."""
    dialect = DIALECTS[peer.name]
    clients = [PeerClient(dialect, peer.websocket_url) for _ in trace.visits]
    slots = asyncio.Semaphore(AT_ONCE)
    first = [(client, visit) for client, visit in zip(clients, trace.visits, strict=True) if not visit.start]

    async def open_first(client: PeerClient, visit: Visit) -> None:
        async with slots:
            await client.open(visit.endpoints)

    try:
        await asyncio.gather(*(open_first(client, visit) for client, visit in first))
        await asyncio.sleep(REST_S)
        cpu, began = _cpu_s(peer.pid), monotonic()
        async with asyncio.TaskGroup() as tasks:
            for client, visit in zip(clients, trace.visits, strict=True):
                tasks.create_task(_follow(client, visit, began))
            tasks.create_task(_publish(peer, trace, began))
        await asyncio.sleep(max(0.0, began + trace.seconds - monotonic()) + REST_S)
        cpu_s, seconds = _cpu_s(peer.pid) - cpu, monotonic() - began
        return Measured(peer.name, seconds, cpu_s, sum(client.frames for client in clients), trace.frames())
    except* (OSError, httpx.HTTPError, WebSocketException) as group:
        raise NoPeer(f"{peer.name}: {group.exceptions[0]}") from group
    finally:
        await asyncio.gather(*(client.close() for client in clients), return_exceptions=True)


async def _follow(client: PeerClient, visit: Visit, began: float) -> None:
    if visit.start:
        await asyncio.sleep(max(0.0, began + visit.start - monotonic()))
        await client.open(visit.endpoints)
    for time, subscribed, unsubscribed in visit.changes:
        await asyncio.sleep(max(0.0, began + time - monotonic()))
        await client.change(subscribed, unsubscribed)
    if visit.end is not None:
        await asyncio.sleep(max(0.0, began + visit.end - monotonic()))
        await client.close()


async def _publish(peer: Peer, trace: Trace, began: float) -> None:
    """Publish the writes of a trace, each when it is due."""
    dialect, slots = DIALECTS[peer.name], asyncio.Semaphore(AT_ONCE)
    async with httpx.AsyncClient(timeout=PATIENCE_S, trust_env=False) as http:

        async def send(publication: Publication) -> None:
            async with slots:
                headers = {"Content-Type": "application/json"}
                (await http.post(publication.url, content=publication.body, headers=headers)).raise_for_status()

        for time, endpoints in trace.writes:
            await asyncio.sleep(max(0.0, began + time - monotonic()))
            version = START_MS + round(1000 * time)
            updates = [
                {"type": "update", "endpoint": name, "version": version, "time": iso(version)} for name in endpoints
            ]
            await asyncio.gather(*map(send, dialect.publish(peer.publish_url, updates)))


def _cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process and its children. Raises ``OSError``: it has ended."""
    return sum(cpu_seconds(each) for each in (pid, *children(pid)))


@contextlib.asynccontextmanager
async def ws_peer(port: int = 0) -> AsyncIterator[Peer]:
    """Run ``peer_ws.mjs``, on a free port if none is given. Raises ``NoPeer``: Node.js or ``ws`` is not installed."""
    if not (CLIENT / "node_modules" / "ws").exists():
        raise NoPeer("ws: not installed (npm ci in client/)")
    pipe = asyncio.subprocess.PIPE
    node = await asyncio.create_subprocess_exec(
        "../deploy/install/node.sh", "node", str(SCRIPT), str(port), cwd=CLIENT, stdin=pipe, stdout=pipe
    )
    try:
        assert node.stdout is not None
        line = await asyncio.wait_for(node.stdout.readline(), PATIENCE_S)
        if not line.strip().isdigit():
            raise NoPeer("ws: it does not start")
        address = f"127.0.0.1:{int(line)}"
        yield Peer("ws", f"ws://{address}/", f"http://{address}/", node.pid)
    finally:
        assert node.stdin is not None
        node.stdin.close()
        await node.wait()


@contextlib.asynccontextmanager
async def nchan_peer(port: int = 0) -> AsyncIterator[Peer]:
    """Run an nginx with nchan, on a free port if none is given. Raises ``NoPeer``: it is not installed."""
    program = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    module = next((folder / NCHAN for folder in NCHAN_FOLDERS if (folder / NCHAN).exists()), None)
    if program is None or module is None:
        raise NoPeer("nchan: not installed (libnginx-mod-nchan)")
    port = port or free_port()
    with tempfile.TemporaryDirectory(prefix="diem-nchan-") as folder:
        config = Path(folder) / "nginx.conf"
        config.write_text(_NCHAN_CONFIG.format(module=module.absolute(), folder=folder, port=port), encoding="utf-8")
        command = (program, "-p", folder, "-e", f"{folder}/error.log", "-c", str(config))
        nginx = await asyncio.create_subprocess_exec(*command)
        try:
            await _answering(port, nginx)
            yield Peer("nchan", f"ws://127.0.0.1:{port}/sub", f"http://127.0.0.1:{port}/pub", nginx.pid)
        finally:
            with contextlib.suppress(ProcessLookupError):
                nginx.terminate()
            await nginx.wait()


async def _answering(port: int, process: asyncio.subprocess.Process) -> None:
    """Wait until a server accepts connections. Raises ``NoPeer``: it has ended, or does not in time."""
    limit = monotonic() + PATIENCE_S
    while monotonic() < limit and process.returncode is None:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        await asyncio.sleep(POLL_S)
    raise NoPeer("nchan: nginx does not start")


STARTED: Final[Mapping[str, Callable[[], contextlib.AbstractAsyncContextManager[Peer]]]] = {
    "ws": ws_peer,
    "nchan": nchan_peer,
}
"""Peers that are started here, unless one of the kind is named."""


def parse_peer(words: Sequence[str]) -> Peer:
    """Return the peer that ``--peer`` names. Raises ``ValueError``."""
    name, websocket_url, publish_url, pid = words
    if name not in DIALECTS:
        raise ValueError(f"--peer {name}: known are {', '.join(DIALECTS)}")
    if not pid.isdecimal() or not Path(f"/proc/{pid}").exists():
        raise ValueError(f"--peer {name}: there is no process {pid}")
    return Peer(name, websocket_url, publish_url, int(pid))


async def measure_all(named: Sequence[Peer], trace: Trace) -> tuple[list[Measured], dict[str, str]]:
    """Measure peers one after the other: those that can be started here, and the named ones.

    Return those that were not measured with the reason.
    """
    found: list[Measured] = []
    absent = {name: "not named (--peer)" for name in DIALECTS if name not in STARTED}
    for name, start in STARTED.items():
        if any(peer.name == name for peer in named):
            continue
        try:
            async with start() as peer:
                found.append(await measure(peer, trace))
        except NoPeer as error:
            absent[name] = str(error)
    for peer in named:
        absent.pop(peer.name, None)
        try:
            found.append(await measure(peer, trace))
        except NoPeer as error:
            absent[peer.name] = str(error)
    return found, absent


def beside_single(rows: Sequence[Mapping[str, Any]]) -> dict[str, float] | None:
    """Return the CPU for each frame of mode single in R1, in us: of its server, and with the Data Service."""
    row = next((row for row in rows if row["regime"] == "R1" and row["configuration"] == "single"), None)
    if row is None or not row["frames_per_s"]:
        return None
    server, data = (1000 * row["cpu_ms"].get(kind, 0.0) / row["frames_per_s"] for kind in ("websocket", "data"))
    return {"server": round(server, 2), "server_and_data_service": round(server + data, 2)}
