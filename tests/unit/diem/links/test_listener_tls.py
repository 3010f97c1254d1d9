"""Listeners with TLS: WebSocket and HTTP over it, bounded handshakes, certificates replaced while they run."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from starlette.requests import Request as HttpRequest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.http11 import Request

from diem.links import listener as module
from diem.links.connection_limits import ConnectionLimits
from diem.links.handshakes import HandshakeEnd, HandshakeLimiter, HandshakeLimits
from diem.links.http_server import make_server
from diem.links.listener import Listener, Reply, ServerConnection
from diem.process import metrics
from diem.process.limits import RateLimit
from diem.process.listeners import bind
from diem.process.tls import HSTS, ServerTls, client_context
from tests.support.certificates import Authority, serial_of
from tests.support.patience import PATIENCE_S, until
from tests.support.security_events import recorded_events


class Echo(ServerConnection):
    """Echoes messages; ``/no`` is refused, and ``bye`` answered with a close."""

    made: list["Echo"]

    def __init__(self) -> None:
        super().__init__(subprotocols=(), max_size=1 << 20)
        self.ended = asyncio.Event()

    def on_request(self, request: Request) -> None:
        if request.path == "/no":
            self.reply(Reply(403, b"no\n"))
        else:
            self.upgrade(request)

    def on_text(self, data: bytes) -> None:
        if data == b"bye":
            self.close(4000, "bye")
        else:
            self.send_text(data)

    def on_closed(self) -> None:
        self.ended.set()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def tls(authority: Authority) -> ServerTls:
    return ServerTls(*authority.issue()[:2])


@contextlib.asynccontextmanager
async def echoing(
    tls: ServerTls, made: list[Echo] | None = None, handshakes: HandshakeLimiter | None = None
) -> AsyncIterator[str]:
    def make() -> Echo:
        echo = Echo()
        if made is not None:
            made.append(echo)
        return echo

    served = Listener((bind("127.0.0.1", 0),), make, send_buffer=65536, tls=tls, handshakes=handshakes)
    served.start()
    try:
        yield f"wss://localhost:{served.port}/"
    finally:
        served.stop()


async def test_messages_and_closes_travel_over_tls(authority: Authority, tls: ServerTls) -> None:
    made: list[Echo] = []
    async with echoing(tls, made) as url:
        async with connect(url, ssl=client_context(authority.file), proxy=None) as client:
            for message in ("a", "b" * 300_000):
                await client.send(message)
                assert await client.recv() == message
            await client.send("bye")
            with pytest.raises(ConnectionClosed) as closed:
                await client.recv()
            assert closed.value.rcvd is not None
            assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (4000, "bye")
        async with asyncio.timeout(PATIENCE_S):
            await made[0].ended.wait()


async def test_client_that_leaves_ends_the_connection_on_both_sides(authority: Authority, tls: ServerTls) -> None:
    made: list[Echo] = []
    async with echoing(tls, made) as url:
        async with connect(url, ssl=client_context(authority.file), proxy=None):
            pass
        async with asyncio.timeout(PATIENCE_S):
            await made[0].ended.wait()
        assert made[0].close_code == 1000


async def test_refusal_is_read_to_its_end(authority: Authority, tls: ServerTls) -> None:
    async with echoing(tls) as url:
        with pytest.raises(InvalidStatus) as refused:
            await connect(url + "no", ssl=client_context(authority.file), proxy=None)
    assert (refused.value.response.status_code, refused.value.response.body) == (403, b"no\n")


async def test_plain_text_is_not_answered(tls: ServerTls) -> None:
    async with echoing(tls) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(url))
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), PATIENCE_S)
        assert b"HTTP" not in answer
        writer.close()


async def test_returning_client_resumes_its_session(authority: Authority, tls: ServerTls) -> None:
    context = client_context(authority.file)

    def session_after(session: ssl.SSLSession | None) -> ssl.SSLSession | None:
        """Read an answer, before which the ticket comes; check that the handshake resumed ``session``, if given."""
        with (
            socket.create_connection(("127.0.0.1", port_of(url))) as plain,
            context.wrap_socket(plain, server_hostname="localhost", session=session) as client,
        ):
            client.sendall(b"GET /no HTTP/1.1\r\nHost: localhost\r\n\r\n")
            client.recv(1)
            assert client.session_reused is (session is not None)
            return client.session

    async with echoing(tls) as url:
        session = await asyncio.to_thread(session_after, None)
        await asyncio.to_thread(session_after, session)


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2].rstrip("/"))


async def test_new_connections_get_the_new_certificate_and_open_ones_stay(authority: Authority, tls: ServerTls) -> None:
    async with echoing(tls) as url, connect(url, ssl=client_context(authority.file), proxy=None) as old:
        renewed = authority.issue()
        tls.reload()
        async with connect(url, ssl=client_context(authority.file), proxy=None) as new:
            shown = [serial_of(each.transport.get_extra_info("ssl_object").getpeercert(True)) for each in (old, new)]
            assert shown[1] == renewed.serial != shown[0]
            for each in (old, new):
                await each.send("still here")
                assert await each.recv() == "still here"


async def test_silent_tls_handshakes_are_bounded_and_do_not_keep_others_out(
    authority: Authority, tls: ServerTls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_TLS_HANDSHAKES", 3)
    async with echoing(tls) as url:
        silent = [await asyncio.open_connection("127.0.0.1", port_of(url)) for _ in range(6)]
        for reader, _ in silent[:3]:
            assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b"", "the oldest are aborted"
        async with connect(url, ssl=client_context(authority.file), proxy=None) as client:
            await client.send("a")
            assert await client.recv() == "a"
        for _, writer in silent:
            writer.close()


async def test_silent_tls_handshake_ends_in_time(tls: ServerTls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HANDSHAKE_TIMEOUT_S", 0.2)
    async with echoing(tls) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(url))
        assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""
        writer.close()


NO_LIMIT = RateLimit(1000, 1000)


def limited(connections: int, rate: RateLimit = NO_LIMIT) -> HandshakeLimiter:
    """Return a limiter whose limits hold for addresses of this machine, too."""
    return HandshakeLimiter("public", HandshakeLimits(connections, connections, rate=lambda _: rate))


async def refused(url: str, context: ssl.SSLContext) -> bool:
    """Return whether a connection ends before its TLS handshake."""
    try:
        await connect(url, ssl=context, proxy=None)
    except (OSError, EOFError):
        return True
    return False


async def test_unfinished_handshakes_of_an_address_are_refused_unread_and_others_are_served(
    authority: Authority, tls: ServerTls
) -> None:
    handshakes = limited(3)
    with recorded_events() as recorded:
        async with echoing(tls, handshakes=handshakes) as url:
            silent = [await asyncio.open_connection("127.0.0.1", port_of(url)) for _ in range(3)]
            async with asyncio.timeout(PATIENCE_S):
                while handshakes.pending < 3:
                    await asyncio.sleep(0.01)
                for _ in range(2):
                    assert await refused(url, client_context(authority.file))
            here = ("127.0.0.2", 0)
            async with connect(url, ssl=client_context(authority.file), proxy=None, local_addr=here) as other:
                await other.send("a")
                assert await other.recv() == "a"
            assert (handshakes.outcomes[HandshakeEnd.REFUSED], handshakes.outcomes[HandshakeEnd.COMPLETED]) == (2, 1)
            for _, writer in silent:
                writer.close()
            await until(lambda: not handshakes.pending)
            assert handshakes.outcomes[HandshakeEnd.FAILED] == 3
            async with connect(url, ssl=client_context(authority.file), proxy=None):
                pass
    (line,) = recorded.of("handshake_refused")
    assert (line["address"], line["code"]) == ("127.0.0.1", 0)
    assert line["detail"] == "TLS: too many connections from this address"


async def test_address_that_makes_handshakes_at_a_high_rate_is_refused_before_they_begin(
    authority: Authority, tls: ServerTls
) -> None:
    handshakes = limited(1, RateLimit(1e-3, 2))
    context = client_context(authority.file)
    with recorded_events() as recorded:
        async with echoing(tls, handshakes=handshakes) as url:
            for _ in range(2):
                async with connect(url, ssl=context, proxy=None):
                    pass
            assert await refused(url, context)
            async with connect(url, ssl=context, proxy=None, local_addr=("127.0.0.2", 0)):
                pass
    assert (handshakes.outcomes[HandshakeEnd.REFUSED], handshakes.outcomes[HandshakeEnd.COMPLETED]) == (1, 3)
    (line,) = recorded.of("handshake_refused")
    assert line["detail"] == "TLS: too many new connections from this address"


async def test_handshakes_of_a_listener_are_metrics_while_it_listens(authority: Authority, tls: ServerTls) -> None:
    async with echoing(tls) as url:
        async with connect(url, ssl=client_context(authority.file), proxy=None):
            pass
        assert b'diem_tls_handshakes_total{listener="public",outcome="completed"} 1.0' in metrics.render()[0]
    assert b"diem_tls_handshakes" not in metrics.render()[0]


async def test_http_server_answers_over_tls_and_asks_browsers_to_stay_with_it(
    authority: Authority, tls: ServerTls
) -> None:
    async def show(scope: Scope, receive: Receive, send: Send) -> None:
        body = await HttpRequest(scope, receive).body()
        await PlainTextResponse(f"{scope['scheme']} {len(body)}")(scope, receive, send)

    server = make_server(show, limits=ConnectionLimits(10), drain_s=1, tls=tls)
    listening, stopping = bind("127.0.0.1", 0), asyncio.Event()
    serving = asyncio.create_task(server.run_until(stopping, listening))
    url = f"https://localhost:{listening.getsockname()[1]}/"
    async with httpx.AsyncClient(verify=client_context(authority.file), trust_env=False) as http:
        for size in (0, 500_000):
            answer = await http.put(url, content=b"x" * size)
            assert answer.text == f"https {size}"
            assert answer.headers["strict-transport-security"] == HSTS
        renewed = authority.issue()
        tls.reload()
        assert await certificate_of(url, client_context(authority.file)) == renewed.serial
    stopping.set()
    await asyncio.wait_for(serving, PATIENCE_S)


async def certificate_of(url: str, context: ssl.SSLContext) -> int:
    _, writer = await asyncio.open_connection("localhost", port_of(url), ssl=context)
    shown = writer.get_extra_info("ssl_object").getpeercert(True)
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return serial_of(shown)
