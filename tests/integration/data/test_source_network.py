"""The HTTP source on real connections: TLS, reuse, and the budget of reads."""

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import httpx
import pytest

from diem.process.clock import ManualClock
from services.data.kinds import Representation
from services.data.sources import fetch
from services.data.sources.fetch import READ_BYTES, BoundedTransport, PollingClient, ReadBudget
from services.data.sources.http import HttpSource
from services.data.sources.tables import HttpConfig
from tests.support.file_threads import FILES

BODY = b"time,value\n2026-01-01T00:00:00Z,1\n"


class Server:
    """Answers any number of requests on one connection; counts connections and requests."""

    def __init__(self, certificate: Path | None = None) -> None:
        self.connections = self.requests = self.port = 0
        self.body = BODY
        self.tag = b""
        """Line of the ETag, if there is one."""
        self._tls: ssl.SSLContext | None = None
        if certificate is not None:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(certificate)

    async def up(self) -> asyncio.Server:
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0, ssl=self._tls)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                request = await reader.readuntil(b"\r\n\r\n")
                self.requests += 1
                if b'If-None-Match: "same"' in request:
                    writer.write(b'HTTP/1.1 304 Not Modified\r\nETag: "same"\r\n\r\n')
                    continue
                head = f"HTTP/1.1 200 OK\r\nContent-Type: text/csv\r\nContent-Length: {len(self.body)}\r\n"
                writer.write(head.encode() + self.tag + b"\r\n" + self.body)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            writer.close()


pytestmark = pytest.mark.xdist_group("source-network")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of 127.0.0.1 that only this test trusts, with its key."""
    directory = tmp_path_factory.mktemp("tls")
    key, cert, both = (directory / name for name in ("key.pem", "cert.pem", "both.pem"))
    name = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(cert), *name]
    subprocess.run(made, check=True, capture_output=True)
    both.write_bytes(key.read_bytes() + cert.read_bytes())
    return both


@pytest.fixture
async def served(request: pytest.FixtureRequest, certificate: Path) -> AsyncIterator[Server]:
    server = Server(certificate if request.param == "https" else None)
    listening = await server.up()
    yield server
    listening.close()


async def _polls(server: Server, scheme: str, times: int) -> tuple[HttpSource, list[Representation]]:
    """Poll ``times`` times, on the source's own connections, with a new body each time."""
    table = {"type": "http", "name": "x", "url": f"{scheme}://127.0.0.1:{server.port}/", "max_bytes": 100_000}
    more = {"endpoint": "/a", "unit": "MW", "resolution": "PT1H"}
    clock = ManualClock()

    async def sleep(seconds: float) -> None:
        clock.advance(seconds)

    source = HttpSource(HttpConfig.model_validate({**table, **more}), clock, convert=FILES.convert, sleep=sleep)
    stored: list[Representation] = []

    async def sink(datasets: Sequence[Representation], *, source: str) -> None:
        stored.extend(datasets)

    async with PollingClient(5.0) as client:
        for _ in range(times):
            await source.poll(client, sink)
            server.body += b"\n"
    return source, stored


@pytest.mark.parametrize("served", ["http", "https"], indirect=True)
async def test_a_connection_is_reused_and_each_poll_has_the_full_budget(
    served: Server, certificate: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    scheme = request.node.callspec.params["served"]
    monkeypatch.setattr(fetch, "_trusted", lambda: ssl.create_default_context(cafile=str(certificate)))
    served.body = BODY + b"\n" * 90_000
    source, stored = await _polls(served, scheme, 6)
    assert source.health.error is None
    assert len(stored) == 6
    assert (served.connections, served.requests) == (1, 6)


@pytest.mark.parametrize("served", ["http"], indirect=True)
async def test_a_connection_is_reused_after_an_answer_that_nothing_has_changed(served: Server) -> None:
    served.tag = b'ETag: "same"\r\n'
    source, stored = await _polls(served, "http", 4)
    assert source.health.error is None
    assert (len(stored), served.connections, served.requests) == (1, 1, 4)


@pytest.mark.parametrize("served", ["https"], indirect=True)
async def test_an_untrusted_certificate_is_refused(served: Server) -> None:
    source, stored = await _polls(served, "https", 1)
    assert "CERTIFICATE_VERIFY_FAILED" in str(source.health.error)
    assert (stored, served.requests) == ([], 0)


@pytest.mark.parametrize("served", ["http"], indirect=True)
async def test_reads_are_small_and_bounded_by_the_budget(served: Server) -> None:
    served.body = b"x" * 10 * READ_BYTES
    budget = ReadBudget()
    reads: list[int] = []
    consume = budget.consume

    def counted(count: int) -> None:
        reads.append(count)
        consume(count)

    budget.consume = counted  # type: ignore[method-assign]
    async with httpx.AsyncClient(transport=BoundedTransport(budget), trust_env=False) as client:
        budget.left = 11 * READ_BYTES
        assert len((await client.get(f"http://127.0.0.1:{served.port}/")).content) == 10 * READ_BYTES
        assert max(reads) <= READ_BYTES
        budget.left = 9 * READ_BYTES
        with pytest.raises(httpx.RemoteProtocolError, match="the response is too long"):
            await client.get(f"http://127.0.0.1:{served.port}/")
