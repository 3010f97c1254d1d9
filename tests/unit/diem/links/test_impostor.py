"""Attacks on the key of internal links: somebody takes the port of a listener, or passes on what it is sent."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path

import httpx
import orjson
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from websockets.exceptions import InvalidStatus
from websockets.typing import Subprotocol

from diem.links.dialer import LinkConnection, dial
from diem.links.feed_reader import FeedReader
from diem.links.feed_server import FeedServer
from diem.links.http_server import AsgiFallback
from diem.links.internal import InternalListener
from diem.links.internal_client import fetch_status
from diem.links.mutual_auth import PATH, SCHEME, PeerNotAuthenticated
from diem.process import key_ring
from diem.process.auth import SharedKey
from diem.process.key_ring import KeyRing
from diem.protocol import feed
from tests.support.internal import InternalConnect, http_client
from tests.support.patience import PATIENCE_S, until
from tests.support.ports import free_port
from tests.support.small import MemoryFeed
from tests.unit.diem.links.test_feed_reader import Sink

SECRET = "a-very-secret-key-of-the-internal-links"
KEY = SharedKey(SECRET)
Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter, bytearray], Coroutine[None, None, None]]


class Impostor:
    """Listens on a port, and keeps what every connection sends."""

    def __init__(self, answer: Answer) -> None:
        self.recorded: list[bytearray] = []
        self._answer = answer

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        record = bytearray()
        self.recorded.append(record)
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await self._answer(reader, writer, record)
        writer.close()


@contextlib.asynccontextmanager
async def impostor(port: int, answer: Answer) -> AsyncIterator[Impostor]:
    made = Impostor(answer)
    server = await asyncio.start_server(made.handle, "127.0.0.1", port)
    async with server:
        yield made


def replying(text: str) -> Answer:
    """Answer everything with one text, and record all that comes."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, record: bytearray) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.2):
                while data := await reader.read(65536):
                    record += data
                    writer.write(text.encode())

    return answer


def relaying(port: int) -> Answer:
    """Pass on everything in both directions, and record what the client sends."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, record: bytearray) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port)

        async def forward() -> None:
            while data := await reader.read(65536):
                record.extend(data)
                back.write(data)
            back.close()

        forwarding = asyncio.create_task(forward())
        while data := await there.read(65536):
            writer.write(data)
        forwarding.cancel()

    return answer


@contextlib.asynccontextmanager
async def serving(
    port: int = 0, *addresses: str, bodies: list[bytes] | None = None, key: KeyRing | SharedKey = KEY
) -> AsyncIterator[InternalListener]:
    """Run a listener with a feed and an application."""
    received: list[bytes] = [] if bodies is None else bodies

    async def create(request: Request) -> PlainTextResponse:
        received.append(await request.body())
        return PlainTextResponse("made", 201)

    app = Starlette(routes=[Route("/v1/keys", create, methods=["POST"])])
    listener = InternalListener(
        "127.0.0.1",
        port,
        key=key,
        ready=lambda: None,
        status=lambda: {"ready": True},
        channels={"/feed": FeedServer(MemoryFeed(KEY))},
        fallback=AsgiFallback(app, "/v1/keys"),
        addresses=addresses,
    )
    listener.start()
    try:
        yield listener
    finally:
        listener.stop()


async def send(port: int, data: bytes) -> bytes:
    """Send recorded data to a listener; return all of its answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    writer.write_eof()
    async with asyncio.timeout(PATIENCE_S):
        answer = await reader.read()
    writer.close()
    return answer


async def link_to(port: int) -> LinkConnection:
    url = f"ws://127.0.0.1:{port}/feed"
    return await dial(url, KEY, lambda authorization: LinkConnection(url, authorization))


LIES = [
    "",
    "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    f'HTTP/1.1 204 No Content\r\nAuthentication-Info: nonce="{"a" * 32}", proof="{"b" * 64}"\r\n\r\n',
    "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer\r\nContent-Length: 0\r\n\r\n",
]


@pytest.mark.parametrize("text", LIES)
async def test_who_takes_the_port_of_a_listener_learns_nothing_that_opens_it(text: str) -> None:
    port, sink = free_port(), Sink()
    async with impostor(port, replying(text)) as taken, http_client(KEY, 1.0) as http:
        reading = asyncio.create_task(FeedReader(f"ws://127.0.0.1:{port}/feed", KEY, sink).run())
        with pytest.raises((PeerNotAuthenticated, OSError)):
            await link_to(port)
        assert await fetch_status(http, f"http://127.0.0.1:{port}") is None
        with pytest.raises((httpx.ConnectError, httpx.ConnectTimeout)):
            await http.post(f"http://127.0.0.1:{port}/v1/keys", json={"name": "a body that is secret"})
        reading.cancel()
        await asyncio.wait([reading])
    recorded = b"".join(taken.recorded)
    assert len(taken.recorded) >= 4
    assert PATH.encode() in recorded
    for secret in (SECRET, KEY.header, "a body that is secret", "/feed", "/v1/keys", "proof"):
        assert secret.encode() not in recorded, secret
    assert not sink.events, "nothing of its content was believed"
    bodies: list[bytes] = []
    async with serving(port, bodies=bodies):
        # As the key of the real listener, by then on the same port, and again and again.
        for record in taken.recorded * 2:
            answer = await send(port, bytes(record))
            assert b" 101 " not in answer
            assert b" 200 " not in answer
    assert not bodies


async def test_an_impostor_cannot_have_the_listener_answer_for_it() -> None:
    """A client that dials the impostor means its address, which the listener does not have."""
    async with serving() as listener, impostor(port := free_port(), relaying(listener.port)) as taken:
        with pytest.raises(PeerNotAuthenticated):
            await link_to(port)
        async with http_client(KEY) as http:
            with pytest.raises(httpx.ConnectError):
                await http.post(f"http://127.0.0.1:{port}/v1/keys", json={})
        assert SECRET.encode() not in b"".join(taken.recorded)


async def test_what_a_relay_between_both_records_does_not_work_later() -> None:
    """Also one at an address of the listener, where addresses are translated."""
    port, bodies = free_port(), list[bytes]()
    async with (
        serving(0, f"127.0.0.1:{port}", bodies=bodies) as listener,
        impostor(port, relaying(listener.port)) as taken,
    ):
        link = await link_to(port)
        link.close(1000)
        async with http_client(KEY) as http:
            assert (await http.post(f"http://127.0.0.1:{port}/v1/keys", json={"a": 1})).status_code == 201
            assert (await fetch_status(http, f"http://127.0.0.1:{port}")) == {"ready": True}
        assert [orjson.loads(body) for body in bodies] == [{"a": 1}]
        assert len(taken.recorded) == 3
        for record in taken.recorded:
            assert SECRET.encode() not in record
            assert b"proof" in record
            challenge, _, request = bytes(record).partition(b"\r\n\r\n")
            for replayed in (bytes(record), request, challenge + b"\r\n\r\n" + request.replace(b"/status", b"/feed")):
                answer = await send(listener.port, replayed)
                assert not any(code in answer for code in (b" 200 ", b" 201 ", b" 101 ")), answer
    assert len(bodies) == 1


async def test_a_second_challenge_or_a_pipelined_request_is_refused() -> None:
    async with serving() as listener:
        url = f"ws://127.0.0.1:{listener.port}/feed"
        challenge = f'GET {PATH} HTTP/1.1\r\nHost: a\r\nAuthorization: {SCHEME} keyid="{KEY.id}", nonce="{"0" * 32}", '
        challenge += f'address="127.0.0.1:{listener.port}"\r\n\r\n'
        assert b" 204 " in await send(listener.port, challenge.encode())
        assert b" 204 " not in await send(listener.port, challenge.encode() * 2)
        async with InternalConnect(url, KEY, subprotocols=[Subprotocol(feed.SUBPROTOCOL)]):
            pass


async def test_the_wrong_key_opens_nothing() -> None:
    async with serving() as listener:
        for scheme in ("Bearer", "bearer", "Basic", SCHEME):
            headers = {"Authorization": f"{scheme} {SECRET[:-1]}"}
            async with httpx.AsyncClient(trust_env=False, headers=headers) as http:
                for path in ("/status", "/metrics", "/feed", "/v1/keys", "/nothing"):
                    assert (await http.get(f"http://127.0.0.1:{listener.port}{path}")).status_code == 401
        async with http_client(SharedKey(SECRET[:-1])) as http:
            with pytest.raises(httpx.ConnectError, match="another key"):
                await http.get(f"http://127.0.0.1:{listener.port}/status")


async def test_the_key_as_a_bearer_opens_only_metrics_and_status() -> None:
    async with serving() as listener, httpx.AsyncClient(trust_env=False, headers={"Authorization": KEY.header}) as http:
        base = f"http://127.0.0.1:{listener.port}"
        answers = {path: (await http.get(base + path)).status_code for path in ("/status", "/metrics", "/feed", "/x")}
        assert answers == {"/status": 200, "/metrics": 200, "/feed": 401, "/x": 401}


ROLES = {
    "feed": {"/feed": 101},
    "metadata": {"/status": 200},
    "metrics": {"/status": 200, "/metrics": 200},
    "admin": {"/status": 200, "/metrics": 200, "/feed": 101, "/v1/keys": 201, "/nothing": 404},
}
ALL_PATHS = ("/status", "/metrics", "/feed", "/v1/keys", "/nothing")


@pytest.mark.parametrize("role", ROLES)
async def test_the_key_of_a_role_opens_its_paths_alone(tmp_path: Path, role: str) -> None:
    SharedKey.create(tmp_path / "internal.key")
    key = SharedKey.create(tmp_path / f"{role}.key")
    found = {}
    async with serving(key=KeyRing.load(tmp_path / "internal.key")) as listener, http_client(key) as http:
        base = f"http://127.0.0.1:{listener.port}"
        for path in ALL_PATHS:
            found[path] = (await http.request("POST" if path == "/v1/keys" else "GET", base + path)).status_code
        with contextlib.suppress(InvalidStatus):
            url = f"ws://127.0.0.1:{listener.port}/feed"
            async with InternalConnect(url, key, subprotocols=[Subprotocol(feed.SUBPROTOCOL)]):
                found["/feed"] = 101
        async with httpx.AsyncClient(trust_env=False, headers={"Authorization": key.header}) as plain:
            bearer = {path: (await plain.get(base + path)).status_code for path in ALL_PATHS}
    assert found == {path: ROLES[role].get(path, 403) for path in ALL_PATHS}
    opened = {path: status for path, status in ROLES[role].items() if path in {"/status", "/metrics"}}
    assert {path: status for path, status in bearer.items() if status == 200} == opened


async def test_a_link_outlives_the_replacement_of_its_key_and_the_next_proves_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_ring, "CHECK_EVERY_S", 0.0)
    old = SharedKey.create(tmp_path / "internal.key")
    new = SharedKey("a-new-key-of-the-internal-links")

    def write(*keys: SharedKey) -> None:
        (tmp_path / "new").write_text("".join(key.header.partition(" ")[2] + "\n" for key in keys))
        (tmp_path / "new").chmod(0o600)
        (tmp_path / "new").rename(tmp_path / "internal.key")

    async with serving(key=KeyRing.load(tmp_path / "internal.key")) as listener:
        url = f"ws://127.0.0.1:{listener.port}/feed"
        reader = FeedReader(url, KeyRing.load(tmp_path / "internal.key"), Sink())
        reading = asyncio.create_task(reader.run())

        async def connects(times: int) -> None:
            await until(lambda: reader.connects >= times and reader.connected)

        await connects(1)
        for number, keys in enumerate(((old, new), (new, old), (new,))):
            write(*keys)
            await asyncio.sleep(0.05)
            assert (reader.connects, reader.connected) == (number + 1, True)
            for link in list(reader._monitor._last_alive):
                link.abort()
            await connects(number + 2)
        with pytest.raises(PeerNotAuthenticated):
            await InternalConnect(url, old, subprotocols=[Subprotocol(feed.SUBPROTOCOL)])
        reading.cancel()
        await asyncio.wait([reading])
