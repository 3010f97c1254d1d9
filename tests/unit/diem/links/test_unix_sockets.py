"""Internal links within one machine: over a Unix socket if there is one, else over TCP."""

import asyncio
import contextlib
import os
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from structlog.testing import capture_logs

from diem.links import unix_sockets
from diem.links.dialer import ClientConnection, dial
from diem.links.internal import InternalConnection, InternalListener
from diem.links.mutual_auth import PeerNotAuthenticated
from diem.process.auth import SharedKey
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port

KEY = SharedKey("0123456789abcdef0123456789abcdef")


class End:
    """Counts its links, and answers every message."""

    subprotocol = "test"
    accepting = True

    def __init__(self) -> None:
        self.families: list[int] = []
        self.peers: list[str] = []

    def opened(self, connection: InternalConnection) -> None:
        self.families.append(connection.transport.get_extra_info("socket").family)
        self.peers.append(connection.peer)

    def received(self, connection: InternalConnection, data: bytes) -> None:
        connection.send_text(b"heard " + data)

    def blocked(self, connection: InternalConnection) -> None: ...

    def resumed(self, connection: InternalConnection) -> None: ...

    def closed(self, connection: InternalConnection) -> None: ...


class Link(ClientConnection):
    def __init__(self, url: str, key: str) -> None:
        super().__init__(url, key, subprotocol="test")
        self.heard: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.lost = asyncio.Event()

    def on_text(self, data: bytes) -> None:
        self.heard.set_result(data)

    def on_closed(self) -> None:
        super().on_closed()
        self.lost.set()


@pytest.fixture
def sockets(tmp_path: Path) -> Path:
    # Not made: the first process makes it.
    return tmp_path / "s"


@contextlib.asynccontextmanager
async def serving(
    sockets: Path | None, *, host: str = "127.0.0.1", port: int = 0, relay: int = 0
) -> AsyncIterator[tuple[End, str]]:
    end = End()
    listener = InternalListener(
        host,
        port,
        key=KEY,
        ready=lambda: None,
        status=dict,
        channels={"/end": end},
        sockets=sockets,
        addresses=[f"127.0.0.1:{relay}"],
    )
    listener.start()
    yield end, f"ws://127.0.0.1:{listener.port}/end"
    listener.stop()


async def talk(url: str, sockets: Path | None, key: SharedKey = KEY) -> None:
    """Dial, wait for an answer, and close."""
    link = await dial(url, key, lambda authorization: Link(url, authorization), sockets=sockets)
    try:
        link.send_text(b"this")
        async with asyncio.timeout(PATIENCE_S):
            assert await link.heard == b"heard this"
    finally:
        link.close(1000)
        async with asyncio.timeout(PATIENCE_S):
            await link.lost.wait()


def port_of(url: str) -> int:
    return int(url.split(":")[2].partition("/")[0])


async def test_a_link_within_the_machine_takes_the_socket(sockets: Path) -> None:
    async with serving(sockets) as (end, url):
        await talk(url, sockets)
        await talk(url.replace("127.0.0.1", "localhost"), sockets)
    assert end.families == [socket.AF_UNIX] * 2
    assert end.peers == ["", ""]


async def test_a_dialer_without_a_directory_of_sockets_uses_tcp(sockets: Path) -> None:
    async with serving(sockets) as (end, url):
        await talk(url, None)
    assert end.families == [socket.AF_INET]
    assert end.peers == ["127.0.0.1"]


async def test_another_port_that_leads_to_the_process_takes_tcp(sockets: Path) -> None:
    """The relay of a fault injection has no socket, so that its faults take effect."""
    port = free_port()
    async with serving(sockets, relay=port) as (end, url):

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there, back = await asyncio.open_connection("127.0.0.1", port_of(url))

            async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
                while data := await source.read(4096):
                    sink.write(data)
                sink.close()

            await asyncio.gather(pump(reader, back), pump(there, writer))

        server = await asyncio.start_server(relay, "127.0.0.1", port)
        async with server:
            await talk(f"ws://127.0.0.1:{port}/end", sockets)
    assert end.families == [socket.AF_INET]


async def test_socket_and_directory_are_the_users_alone(sockets: Path) -> None:
    async with serving(sockets) as (_, url):
        path = unix_sockets.socket_path(sockets, port_of(url))
        assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not path.exists(), "removed at an orderly end"


async def test_the_key_is_needed_at_the_socket_too(sockets: Path) -> None:
    async with serving(sockets) as (end, url):
        with pytest.raises(PeerNotAuthenticated):
            await talk(url, sockets, key=SharedKey("a-wrong-key-of-a-test"))
        transport = httpx.AsyncHTTPTransport(uds=os.fspath(unix_sockets.socket_path(sockets, port_of(url))))
        async with httpx.AsyncClient(transport=transport, base_url="http://internal") as http:
            assert (await http.get("/livez")).status_code == 200
            assert (await http.get("/metrics")).status_code == 401
            assert (await http.get("/metrics", headers={"Authorization": KEY.header})).status_code == 200
    assert not end.families


async def test_a_socket_that_a_killed_process_has_left_is_passed_over_and_replaced(sockets: Path) -> None:
    port = free_port()
    unix_sockets.bind(sockets, port).close()
    stale = unix_sockets.socket_path(sockets, port)
    assert stale.exists()
    async with serving(None, port=port) as (end, url):
        await talk(url, sockets)
    assert end.families == [socket.AF_INET]
    async with serving(sockets, port=port) as (end, url):
        await talk(url, sockets)
    assert end.families == [socket.AF_UNIX]
    assert not stale.exists()


async def test_without_any_socket_in_the_directory_it_is_tcp(sockets: Path) -> None:
    async with serving(None) as (end, url):
        await talk(url, sockets)
        sockets.mkdir(mode=0o700)
        await talk(url, sockets)
    assert end.families == [socket.AF_INET] * 2


async def test_a_path_that_is_too_long_leaves_tcp_and_one_warning(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * unix_sockets.MAX_PATH)
    with capture_logs() as logs:
        async with serving(deep) as (end, url):
            await talk(url, deep)
    assert [(log["log_level"], log["error"]) for log in logs] == [("warning", "the path is longer than 107 bytes")]
    assert end.families == [socket.AF_INET]
    assert not deep.exists()


@pytest.mark.parametrize("length", [unix_sockets.MAX_PATH, unix_sockets.MAX_PATH + 1])
def test_the_longest_accepted_path_is_the_longest_that_works(tmp_path: Path, length: int) -> None:
    room = length - len(os.fsencode(tmp_path)) - len("//65535.sock")
    directory = tmp_path / ("d" * room)
    assert len(os.fsencode(unix_sockets.socket_path(directory, 65535))) == length
    if length == unix_sockets.MAX_PATH:
        unix_sockets.bind(directory, 65535).close()
    else:
        with pytest.raises(OSError, match="longer than 107"):
            unix_sockets.bind(directory, 65535)


async def test_a_directory_that_others_may_enter_is_used_by_neither_side(sockets: Path) -> None:
    sockets.mkdir(mode=0o700)
    async with serving(sockets) as (end, url):
        sockets.chmod(0o770)
        await talk(url, sockets)
        with capture_logs() as logs:
            async with serving(sockets) as (other, beside):
                await talk(beside, sockets)
        assert [log["log_level"] for log in logs] == ["warning"]
    assert end.families == other.families == [socket.AF_INET]


async def test_an_address_that_is_not_the_one_that_is_dialled_here_has_no_socket(sockets: Path) -> None:
    """Another process could have the same port there."""
    async with serving(sockets, host="127.0.0.2"):
        assert not sockets.exists()
    async with serving(sockets) as (_, url):
        assert unix_sockets.find_socket(sockets, "127.0.0.1", port_of(url))
        assert not unix_sockets.find_socket(sockets, "127.0.0.2", port_of(url))
        assert not unix_sockets.find_socket(sockets, "10.0.0.1", port_of(url))


async def test_a_second_stop_leaves_the_socket_of_a_successor(sockets: Path) -> None:
    port = free_port()
    first = InternalListener("127.0.0.1", port, key=KEY, ready=lambda: None, status=dict, sockets=sockets)
    first.start()
    first.stop()
    async with serving(sockets, port=port) as (end, url):
        first.stop()
        await talk(url, sockets)
    assert end.families == [socket.AF_UNIX]
