"""A real nginx with our configuration, in front of servers that record every byte."""

import asyncio
import contextlib
import socket
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from deploy import nginx
from deploy.nginx import NginxPlan, NoNginx, render
from services.data.cache_control import IMMUTABLE
from tests.integration.data.process import bulk, serving
from tests.support.certificates import Authority
from tests.support.nginx import with_probe
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port

UPGRADE = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
SWITCHING = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
WRONG_VERSION = b"HTTP/1.1 426 Upgrade Required\r\nSec-WebSocket-Version: 13\r\nContent-Length: 0\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine"
REQUESTS = 'diem_http_requests_total{method="GET"'
FULL = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"


class Backend:
    """Server with a fixed response to all but probes, which echoes the data after a 101."""

    def __init__(self, answer: bytes | Callable[[bytes], bytes]) -> None:
        self.answer = answer
        self.received: list[bytes] = []
        self.probes = 0
        self.passing: asyncio.Event | None = None
        """Set when the first byte of a body has come."""
        self.writers: set[asyncio.StreamWriter] = set()
        self.port = 0

    @property
    def heads(self) -> list[str]:
        return [received.partition(b"\r\n\r\n")[0].decode() for received in self.received]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.add(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if head.startswith(b"GET /livez "):
                    self.probes += 1
                    writer.write(OK)
                    continue
                length = next(
                    (int(line[15:]) for line in head.lower().split(b"\r\n") if line[:15] == b"content-length:"), 0
                )
                if self.passing is not None:
                    await reader.readexactly(1)
                    self.passing.set()
                self.received.append(head + await reader.readexactly(length))
                answer = self.answer if isinstance(self.answer, bytes) else self.answer(head)
                writer.write(answer)
                if answer == SWITCHING:
                    while data := await reader.read(4096):
                        writer.write(data)
                    break
        writer.close()
        self.writers.discard(writer)


@contextlib.asynccontextmanager
async def backend(answer: bytes | Callable[[bytes], bytes] = SWITCHING, port: int = 0) -> AsyncIterator[Backend]:
    made = Backend(answer)
    server = await asyncio.start_server(made.serve, "127.0.0.1", port)
    made.port = server.sockets[0].getsockname()[1]
    yield made
    server.close()
    for writer in tuple(made.writers):
        writer.close()
    while made.writers:
        await asyncio.sleep(0.01)


@contextlib.contextmanager
def unused(count: int) -> Iterator[list[int]]:
    """Reserve ports that refuse connections."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        yield [each.getsockname()[1] for each in sockets]


class Nginx:
    def __init__(self, port: int, log: Path) -> None:
        self.port = port
        self.log = log

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        async with asyncio.timeout(PATIENCE_S):
            yield reader, writer
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    async def get(self, path: str, headers: str = "", host: str | None = None) -> str:
        """Send one request on a connection of its own and return the head of its answer."""
        async with self.connected() as (reader, writer):
            writer.write(f"GET {path} HTTP/1.1\r\nHost: {host or f'localhost:{self.port}'}\r\n{headers}\r\n".encode())
            return (await reader.readuntil(b"\r\n\r\n")).decode()


def found() -> str:
    try:
        return nginx.find()
    except NoNginx as error:
        pytest.skip(str(error))


@contextlib.asynccontextmanager
async def running_nginx(
    tmp_path: Path, data: int | tuple[int, int], *slots: int, **differences: Any
) -> AsyncIterator[Nginx]:
    directory, port, log = tmp_path / "state" / "nginx", free_port(), tmp_path / "nginx.log"
    upstreams = tuple(f"127.0.0.1:{each}" for each in (data if isinstance(data, tuple) else (data,)))
    servers = tuple(f"127.0.0.1:{slot}" for slot in slots)
    text = render(NginxPlan(directory, port, upstreams, servers, workers=2, **differences))
    # The servers are in this process, which may stand still for longer than a probe may take.
    nginx.write(directory, with_probe(text, int(PATIENCE_S)))
    directory.parent.chmod(0o700)
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(*nginx.argv(found(), directory), stdout=output, stderr=output)
    running = Nginx(port, log)
    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                assert process.returncode is None, log.read_text()
                with contextlib.suppress(ConnectionError):
                    await running.get("/nothing-yet")
                    break
                await asyncio.sleep(0.02)
        yield running
    finally:
        process.terminate()
        await process.wait()


def status(head: str) -> int:
    return int(head.split()[1])


def field(head: str, name: str) -> list[str]:
    return [line.partition(": ")[2] for line in head.split("\r\n") if line.lower().startswith(f"{name.lower()}:")]


def test_nginx_accepts_the_configuration_with_every_slot(tmp_path: Path) -> None:
    directory = tmp_path / 'a "quoted" directory' / "nginx"
    slots = tuple(f"127.0.0.1:{port}" for port in range(8101, 8165))
    nginx.write(directory, render(NginxPlan(directory, free_port(), ("127.0.0.1:8080",), slots, open_files=20_000)))
    tested = subprocess.run([*nginx.argv(found(), directory), "-t"], capture_output=True, text=True, check=False)
    assert tested.returncode == 0, tested.stderr
    assert "warn" not in tested.stderr


async def test_upgrade_reaches_a_server_and_bytes_flow_both_ways(tmp_path: Path) -> None:
    async with (
        backend() as server,
        running_nginx(tmp_path, 1, server.port) as front,
        front.connected() as (reader, writer),
    ):
        writer.write(f"GET /ws HTTP/1.1\r\nHost: localhost:{front.port}\r\n{UPGRADE}\r\n".encode())
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        assert field(server.heads[0], "Upgrade") == ["websocket"]
        assert field(server.heads[0], "Host") == [f"localhost:{front.port}"]
        assert server.probes == 1


async def test_upgrade_is_not_forwarded_outside_the_websocket_path(tmp_path: Path) -> None:
    async with backend() as server, backend(OK) as data, running_nginx(tmp_path, data.port, server.port) as front:
        assert status(await front.get("/ws/probe", UPGRADE)) == 404
        for path in ("/", "/v1/data", "/ws/", "/ws/feed", "/WS"):
            data.received.clear()
            assert status(await front.get(path, UPGRADE)) == 200
            assert field(data.heads[0], "Upgrade") == []
            assert field(data.heads[0], "Connection") == []
        assert (server.received, server.probes) == ([], 0)


async def test_request_after_a_refused_upgrade_does_not_reach_the_server(tmp_path: Path) -> None:
    smuggled = "GET /feed HTTP/1.1\r\nHost: localhost\r\n\r\n"
    async with (
        backend(WRONG_VERSION) as server,
        backend(OK) as data,
        running_nginx(tmp_path, data.port, server.port) as front,
        front.connected() as (reader, writer),
    ):
        data.received.clear()
        wrong = f"GET /ws HTTP/1.1\r\nHost: localhost\r\nSec-WebSocket-Version: 1337\r\n{UPGRADE}\r\n"
        writer.write((wrong + smuggled).encode())
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 426 ")
        assert (await reader.readuntil(b"fine")).startswith(b"HTTP/1.1 200 ")  # nginx itself read the second one
        assert len(server.received) == 1
        assert b"/feed" not in server.received[0]
        assert data.heads[0].startswith("GET /feed ")


@pytest.mark.parametrize("size", [2, 100_000])
async def test_a_poll_reaches_a_server_with_its_body_and_without_an_upgrade(tmp_path: Path, size: int) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
    with unused(1) as (gone,):
        async with (
            backend(answer) as data,
            backend(answer) as server,
            running_nginx(tmp_path, data.port, gone, server.port) as running,
            running.connected() as (reader, writer),
        ):
            body = b"x" * size
            writer.write(
                b"POST /v1/updates HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: upgrade\r\n"
                b"Content-Length: %d\r\n\r\n%b" % (size, body)
            )
            assert status((await reader.readuntil(b"\r\n\r\n")).decode()) == 200
            (request,) = [each for each in server.received if each.startswith(b"POST ")]
            assert request.endswith(body)
            assert b"Upgrade" not in request
            assert not [each for each in data.received if each.startswith(b"POST ")]


async def test_clients_are_balanced_over_the_used_slots(tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        alive = [await stack.enter_async_context(backend()) for _ in range(2)]
        dead = stack.enter_context(unused(6))
        front = await stack.enter_async_context(
            running_nginx(tmp_path, 1, *dead[:3], alive[0].port, *dead[3:], alive[1].port)
        )
        await connect_all(stack, front, 50)
        counts = [len(server.received) for server in alive]
        assert sum(counts) == 50
        assert min(counts) >= 20


async def connect_all(stack: contextlib.AsyncExitStack, front: Nginx, count: int) -> None:
    """Open long-lived clients, one after another."""
    for _ in range(count):
        reader, writer = await stack.enter_async_context(front.connected())
        writer.write(f"GET /ws HTTP/1.1\r\nHost: localhost\r\n{UPGRADE}\r\n".encode())
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")


async def test_server_gets_clients_again_as_soon_as_it_is_not_full(tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(backend(FULL))
        front = await stack.enter_async_context(
            running_nginx(tmp_path, 1, server.port, *stack.enter_context(unused(7)))
        )
        # With the reason, which the server gives.
        assert status(await front.get("/ws", UPGRADE)) == 503
        server.answer = SWITCHING
        await connect_all(stack, front, 20)


async def test_requests_reach_whichever_data_service_has_the_store(tmp_path: Path) -> None:
    with unused(1) as (first,):
        async with backend(OK) as second, running_nginx(tmp_path, (first, second.port), 1) as front:
            assert {status(await front.get("/v1/endpoints")) for _ in range(6)} == {200}
            assert {status(await front.get("/v1/data/a")) for _ in range(6)} == {200}


async def test_full_server_is_skipped(tmp_path: Path) -> None:
    async with backend(FULL) as full, backend() as free, running_nginx(tmp_path, 1, full.port, free.port) as front:
        assert {status(await front.get("/ws", UPGRADE)) for _ in range(10)} == {101}
        assert full.received


async def test_forwarded_address_of_a_client_is_overwritten(tmp_path: Path) -> None:
    claims = (
        "X-Forwarded-For: 10.9.8.7",
        "X-Forwarded-For: 10.9.8.6",
        "X-Forwarded-Proto: https",
        "Forwarded: for=1.2.3.4",
    )
    spoofed = "".join(f"{claim}\r\n" for claim in claims)
    async with backend() as server, backend(OK) as data, running_nginx(tmp_path, data.port, server.port) as front:
        data.received.clear()
        await front.get("/ws", UPGRADE + spoofed)
        await front.get("/v1/endpoints", spoofed)
        for head in (server.heads[0], data.heads[0]):
            assert field(head, "X-Forwarded-For") == ["127.0.0.1"]
            assert field(head, "X-Forwarded-Proto") == ["http"]
            assert field(head, "Forwarded") == []
            assert field(head, "Via") == ["1.1 relay"]


@pytest.mark.parametrize("claim", ["X-Forwarded-For: 10.9.8.7", "Forwarded: for=1.2.3.4", "Via: 1.1 other"])
async def test_servers_see_that_a_request_was_forwarded_to_nginx(tmp_path: Path, claim: str) -> None:
    async with backend() as server, backend(OK) as data, running_nginx(tmp_path, data.port, server.port) as front:
        data.received.clear()
        await front.get("/ws", f"{UPGRADE}{claim}\r\n")
        await front.get("/ws", UPGRADE)
        await front.get("/v1/endpoints", f"{claim}\r\n")
        await front.get("/v1/endpoints")
        for heads in (server.heads, data.heads):
            assert [field(head, "Via") for head in heads] == [["1.1 relay"], []]


@pytest.mark.parametrize(
    ("front_proxies", "claims", "address", "via"),
    [
        (("127.0.0.0/8",), "X-Forwarded-For: 203.0.113.9", "203.0.113.9", []),
        (("127.0.0.0/8",), "X-Forwarded-For: 10.9.8.7, 203.0.113.9, 127.0.0.5\r\nVia: 1.1 front", "203.0.113.9", []),
        (("127.0.0.0/8",), "Forwarded: for=203.0.113.9", "127.0.0.1", ["1.1 relay"]),
        (("127.0.0.0/8",), "Accept: */*", "127.0.0.1", []),
        (("10.0.0.0/8", "192.0.2.1/32"), "X-Forwarded-For: 203.0.113.9", "127.0.0.1", ["1.1 relay"]),
        (("10.0.0.0/8", "192.0.2.1/32"), "Accept: */*", "127.0.0.1", []),
    ],
)
async def test_only_front_proxies_are_believed(
    tmp_path: Path, front_proxies: tuple[str, ...], claims: str, address: str, via: list[str]
) -> None:
    options = {"front_proxies": front_proxies}
    async with backend() as server, running_nginx(tmp_path, 1, server.port, **options) as front:
        await front.get("/ws", f"{UPGRADE}{claims}\r\n")
        assert field(server.heads[0], "X-Forwarded-For") == [address]
        assert field(server.heads[0], "Via") == via


async def ten_at_once(front: Nginx, fields: str) -> Counter[int]:
    """Return the number of answers by status: one after the other, they could take longer than a limit allows for."""
    return Counter(map(status, await asyncio.gather(*(front.get("/ws", fields) for _ in range(10)))))


async def test_limits_count_the_clients_behind_a_front_proxy(tmp_path: Path) -> None:
    options = {"front_proxies": ("127.0.0.1/32",), "connects_per_s": 1}
    async with backend() as server, running_nginx(tmp_path, 1, server.port, **options) as front:
        many = [await front.get("/ws", f"{UPGRADE}X-Forwarded-For: 203.0.113.{n}\r\n") for n in range(10)]
        assert {status(answer) for answer in many} == {101}
        assert (await ten_at_once(front, f"{UPGRADE}X-Forwarded-For: 192.0.2.1\r\n"))[429] >= 4


async def test_connection_beyond_the_limit_of_an_address_gets_429_until_another_one_ends(tmp_path: Path) -> None:
    async with (
        backend() as server,
        running_nginx(tmp_path, 1, server.port) as front,
        contextlib.AsyncExitStack() as stack,
    ):
        for _ in range(50):
            reader, writer = await stack.enter_async_context(front.connected())
            writer.write(f"GET /ws HTTP/1.1\r\nHost: localhost\r\n{UPGRADE}\r\n".encode())
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        refused = await front.get("/ws", UPGRADE)
        assert status(refused) == 429
        assert "Content-Type: application/problem+json" in refused
        assert "Access-Control-Allow-Origin: *" in refused
        writer.close()
        async with asyncio.timeout(PATIENCE_S):
            while status(await front.get("/ws", UPGRADE)) != 101:
                await asyncio.sleep(0.02)


async def test_clients_of_this_machine_have_no_limit_where_it_is_off_but_those_that_a_relay_forwards(
    tmp_path: Path,
) -> None:
    options = {"limit_loopback": False, "per_address": 2, "connects_per_s": 1}
    async with (
        backend() as server,
        running_nginx(tmp_path, 1, server.port, **options) as front,
        contextlib.AsyncExitStack() as stack,
    ):
        for _ in range(10):
            reader, writer = await stack.enter_async_context(front.connected())
            writer.write(f"GET /ws HTTP/1.1\r\nHost: localhost\r\n{UPGRADE}\r\n".encode())
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        assert (await ten_at_once(front, f"{UPGRADE}Via: 1.1 relay\r\n"))[429] >= 4


async def test_reads_of_one_address_beyond_its_limit_get_429_until_another_is_answered(tmp_path: Path) -> None:
    options = {"front_proxies": ("127.0.0.1/32",), "per_address": 2}
    async with (
        backend(lambda head: b"" if b"/unanswered" in head else OK) as data,
        running_nginx(tmp_path, data.port, 1, **options) as front,
        contextlib.AsyncExitStack() as stack,
    ):
        one, other = ("X-Forwarded-For: 192.0.2.1\r\n", "X-Forwarded-For: 192.0.2.2\r\n")
        data.received.clear()
        for _ in range(2):
            _, writer = await stack.enter_async_context(front.connected())
            writer.write(f"GET /unanswered HTTP/1.1\r\nHost: localhost\r\n{one}\r\n".encode())
        async with asyncio.timeout(PATIENCE_S):
            while len(data.received) < 2:
                await asyncio.sleep(0.02)
        assert status(await front.get("/v1/endpoints", one)) == 429
        assert status(await front.get("/v1/endpoints", other)) == 200
        # More of these, for those whose pages all fetch what has changed.
        assert status(await front.get("/v1/data/a", one)) == 200
        writer.close()
        async with asyncio.timeout(PATIENCE_S):
            while status(await front.get("/v1/endpoints", one)) != 200:
                await asyncio.sleep(0.02)


async def test_address_with_too_many_new_connections_gets_429(tmp_path: Path) -> None:
    async with backend() as server, running_nginx(tmp_path, 1, server.port, connects_per_s=1) as front:
        answers = await ten_at_once(front, UPGRADE)
        assert answers[101] >= 3
        assert answers[429] >= 4


@pytest.mark.takes(12)
async def test_tls_handshakes_that_do_not_end_are_cut(tmp_path: Path) -> None:
    issued = Authority(tmp_path).issue()
    tls = {"certificate": issued.certificate, "key": issued.key}
    async with running_nginx(tmp_path, 1, 1, **tls) as front, front.connected() as (silent, _):
        async with front.connected() as (begun, writer):
            # The first bytes of a ClientHello.
            writer.write(bytes.fromhex("16030102000100"))
            assert await begun.read() == b""
        assert await silent.read() == b""


@pytest.mark.parametrize(
    ("path", "size", "expected"),
    [("/v1/data", 9 * 1024 * 1024, 200), ("/v1/data/a", 5 * 1024 * 1024, 200), ("/v1/tokens", 64 * 1024, 200),
     ("/v1/tokens", 256 * 1024, 413), ("/ws", 4096, 413)],
)  # fmt: skip
async def test_bodies_are_bounded_except_of_data_and_never_touch_the_disk(
    tmp_path: Path, path: str, size: int, expected: int
) -> None:
    async with backend(OK) as server, backend(OK) as data, running_nginx(tmp_path, data.port, server.port) as front:
        async with front.connected() as (reader, writer):
            writer.write(f"PUT {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n\r\n".encode())
            with contextlib.suppress(ConnectionError):
                writer.write(b"x" * size)
                await writer.drain()
            assert status((await reader.readuntil(b"\r\n\r\n")).decode()) == expected
        if expected == 200:
            assert data.received[-1].endswith(b"\r\n\r\n" + b"x" * size)
        assert "buffered to a temporary file" not in front.log.read_text()


CHUNKED = "Transfer-Encoding: chunked"


@pytest.mark.parametrize("length", ["Content-Length: 1048576", CHUNKED])
@pytest.mark.parametrize("path", ["/v1/data", "/v1/data/a", "/v1/tokens"])
async def test_body_that_trickles_is_refused_by_the_data_service_before_its_end(
    tmp_path: Path, path: str, length: str
) -> None:
    length = length.replace("1048576", "1048576" if path == "/v1/data" else "1024")
    first = "1\r\n[\r\n" if length == CHUNKED else "["
    method = "POST" if path == "/v1/tokens" else "PUT"
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{length}\r\n\r\n"
    async with (
        serving(tmp_path / "data", TRUSTED_PROXIES='["127.0.0.1/32"]') as process,
        running_nginx(tmp_path, int(process.serving.result()["port"]), 1) as front,
        front.connected() as (reader, writer),
    ):
        # The rest never comes.
        writer.write(f"{head}{first}".encode())
        assert status((await reader.readuntil(b"\r\n\r\n")).decode()) == 401


async def test_body_is_passed_on_while_it_arrives(tmp_path: Path) -> None:
    async with backend(OK) as data, running_nginx(tmp_path, data.port, 1) as front, front.connected() as (_, writer):
        data.passing = asyncio.Event()
        writer.write(b"PUT /v1/data HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1048576\r\n\r\n[")
        # So that its time for a whole body counts from the first byte, and nothing is held by nginx.
        async with asyncio.timeout(PATIENCE_S):
            await data.passing.wait()


async def test_addresses_of_one_ipv6_network_share_a_limit(tmp_path: Path) -> None:
    async def refused(*addresses: str) -> int:
        asked = (front.get("/ws", f"{UPGRADE}X-Forwarded-For: {address}\r\n") for address in addresses)
        return Counter(map(status, await asyncio.gather(*asked)))[429]

    options = {"front_proxies": ("127.0.0.1/32",), "connects_per_s": 1}
    async with backend() as server, running_nginx(tmp_path, 1, server.port, **options) as front:
        assert await refused(*(f"2001:db8:1:{n:x}::1" for n in range(10))) == 0
        assert await refused(*(f"2001:db8:2:0:{n:x}::1" for n in range(1, 11))) >= 4
        assert await refused(*(f"2001:db8:3:4:{n:x}::1" for n in range(1, 11))) >= 4


async def test_query_of_a_request_is_not_logged_even_when_every_server_is_gone(tmp_path: Path) -> None:
    with unused(3) as dead:
        async with running_nginx(tmp_path, *dead) as front:
            assert status(await front.get("/ws?token=secret", UPGRADE)) == 502
            assert status(await front.get("/page?token=secret")) == 502
            assert "secret" not in front.log.read_text()


async def test_header_that_is_too_large_is_refused(tmp_path: Path) -> None:
    async with backend(OK) as data, running_nginx(tmp_path, data.port, 1) as front:
        assert status(await front.get("/", f"X-Large: {'x' * 10_000}\r\n")) == 400


PUBLIC = f"HTTP/1.1 200 OK\r\nCache-Control: {IMMUTABLE}\r\nVary: Accept, Origin\r\nContent-Length: 4\r\n\r\nfine"


@contextlib.asynccontextmanager
async def caching_nginx(tmp_path: Path, data: int, **differences: Any) -> AsyncIterator[Nginx]:
    (tmp_path / "state" / "nginx").mkdir(parents=True, mode=0o700)
    cache = nginx.new_cache(tmp_path / "state" / "nginx")
    try:
        differences = {"hosts": ("localhost", "app.example")} | differences
        async with running_nginx(tmp_path, data, 1, cache=cache, **differences) as front:
            yield front
    finally:
        nginx.remove_cache(tmp_path / "state" / "nginx")


async def test_a_named_version_that_everybody_may_read_is_requested_once_and_nothing_else_is_cached(
    tmp_path: Path,
) -> None:
    named = "/v1/data/a?version=1700000000001"
    shared = [
        (named, ""),
        (named, "Accept: application/json\r\n"),
        (named, "Origin: https://page.example\r\n"),
        (named, 'If-None-Match: "x"\r\nCache-Control: no-cache\r\nPragma: no-cache\r\nOrigin: https://x.example\r\n'),
        ("/v1/data//a?version=1700000000001", ""),
        ("/v1/data/%61?version=1700000000001", ""),
        ("/v1/data/a?version=1700000000002", ""),
    ]
    own = [
        (named, "Authorization: Bearer x\r\n"),
        (named, "Accept: text/html, */*;q=0.8\r\n"),
        ("/v1/data/a", ""),
        ("/v1/data/a?version=", ""),
        ("/v1/data?version=1", ""),
        ("/v1/history/a?version=1", ""),
    ]
    # Another name or port in Host is the Data Service's to judge, also for what is in the cache.
    others = ("evil.example", "app.example:1", "app.example:08000", "app.example.")
    async with backend(PUBLIC.encode()) as data, caching_nginx(tmp_path, data.port) as front:
        for requests, expected in ((shared, 1), (own, 2)):
            for path, headers in requests:
                data.received.clear()
                heads = [await front.get(path, headers, host="app.example") for _ in range(2)]
                assert len(data.received) == expected, (path, headers)
                assert [status(head) for head in heads] == [200, 200]
                assert [field(head, "Vary") for head in heads] == [["Accept, Origin"]] * 2
                assert [field(head, "Cache-Control") for head in heads] == [[IMMUTABLE]] * 2
        data.received.clear()
        for host in others * 2:
            await front.get(named, host=host)
        assert len(data.received) == 2 * len(others)


async def test_reads_of_an_address_from_the_cache_are_limited_but_not_those_with_a_key(tmp_path: Path) -> None:
    async with backend(PUBLIC.encode()) as data, caching_nginx(tmp_path, data.port, per_address=1) as front:
        for headers, refused in (("", True), ("Authorization: Bearer x\r\n", False)):
            async with front.connected() as (reader, writer):
                request = f"GET /v1/data/a?version=1 HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode()
                statuses = set()
                writer.write(300 * request)
                for _ in range(300):
                    head = (await reader.readuntil(b"\r\n\r\n")).decode()
                    await reader.readexactly(int(field(head, "Content-Length")[0]))
                    statuses.add(status(head))
                assert (429 in statuses) == refused
                assert 200 in statuses


@pytest.mark.parametrize(
    "answer",
    [
        PUBLIC.replace("public", "private"),
        PUBLIC.replace(IMMUTABLE, "no-cache"),
        PUBLIC.replace(IMMUTABLE, "public, max-age=60"),
        PUBLIC.replace("200 OK", "404 Not Found"),
        PUBLIC.replace("200 OK", "503 Service Unavailable"),
        PUBLIC.replace("200 OK", "200 OK\r\nSet-Cookie: a=b"),
        PUBLIC.replace(f"Cache-Control: {IMMUTABLE}\r\n", ""),
    ],
    ids=["private", "no-cache", "less long", "404", "503", "cookie", "no field"],
)
async def test_other_answers_are_not_cached(tmp_path: Path, answer: str) -> None:
    async with backend(answer.encode()) as data, caching_nginx(tmp_path, data.port) as front:
        data.received.clear()
        for _ in range(2):
            await front.get("/v1/data/a?version=1")
        assert len(data.received) == 2


async def test_a_herd_on_one_version_is_one_request(tmp_path: Path) -> None:
    async with (
        serving(tmp_path / "data", ANONYMOUS_READS="on", TRUSTED_PROXIES='["127.0.0.1/32"]') as process,
        httpx.AsyncClient(base_url=process.url, timeout=PATIENCE_S, headers=process.write) as writer,
    ):
        accepted = (await writer.put("/v1/data", json=bulk({"/a": 5}))).json()["accepted"][0]
        path = f"/v1/data/a?version={accepted['version']}"

        async def answered() -> float:
            async with httpx.AsyncClient(base_url=process.internal, timeout=PATIENCE_S) as internal:
                text = (await internal.get("/metrics", headers=process.shared)).text
            return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(REQUESTS))

        async with caching_nginx(tmp_path, int(process.serving.result()["port"]), open_files=4096) as front:
            before = await answered()
            heads = await asyncio.gather(*(front.get(path) for _ in range(200)))
            after = await answered()
            assert Counter(map(status, heads)) == {200: 200}
            assert {tuple(field(head, "ETag")) for head in heads} == {(f'"{accepted["version"]}-json"',)}
            # One for each version and format, whatever the number of workers.
            assert after - before == 1
            assert status(await front.get(path, "Authorization: Bearer diem_x\r\n")) == 401
