"""Links over TLS: certificates and host names are verified before anything else is sent."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from diem.links.dialer import LinkConnection, dial
from diem.links.feed_reader import FeedReader
from diem.links.feed_server import FeedServer
from diem.links.internal import InternalListener
from diem.links.internal_client import fetch_status, internal_client
from diem.process.auth import SharedKey
from diem.process.settings import ProcessSettings
from diem.process.tls import BadAuthorities, BadCertificate, LinkTls, ServerTls, internal_tls
from tests.support.certificates import DAY, Authority
from tests.support.patience import PATIENCE_S, until
from tests.support.small import MemoryFeed
from tests.unit.diem.links.test_feed_reader import Sink

KEY = SharedKey("a-very-secret-key-of-the-internal-links")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@contextlib.asynccontextmanager
async def listening(tls: ServerTls | None) -> AsyncIterator[int]:
    served = FeedServer(MemoryFeed(KEY))
    listener = InternalListener(
        "127.0.0.1",
        0,
        key=KEY,
        ready=lambda: None,
        status=lambda: {"ready": True},
        channels={"/feed": served},
        tls=tls,
    )
    listener.start()
    try:
        yield listener.port
    finally:
        served.stop()
        listener.stop()


async def opened(url: str, tls: LinkTls, address: str | None = None) -> bool:
    link = await dial(url, KEY, lambda authorization: LinkConnection(url, authorization), tls=tls, address=address)
    is_open = link.is_open
    link.abort()
    return is_open


async def test_link_is_opened_over_tls_by_name_and_by_address(authority: Authority) -> None:
    async with listening(ServerTls(*authority.issue(("localhost", "127.0.0.1"))[:2])) as port:
        for host in ("localhost", "127.0.0.1"):
            assert await opened(f"wss://{host}:{port}/feed", LinkTls(authority.file))


async def test_at_an_address_that_was_checked_the_certificate_needs_the_name_of_the_url(authority: Authority) -> None:
    async with listening(ServerTls(*authority.issue(("pair-0.pairs",))[:2])) as port:
        tls = LinkTls(authority.file)
        assert await opened(f"wss://pair-0.pairs:{port}/feed", tls, "127.0.0.1")
        with pytest.raises(ssl.SSLCertVerificationError):
            await opened(f"wss://pair-1.pairs:{port}/feed", tls, "127.0.0.1")


async def test_feed_is_read_over_tls(authority: Authority) -> None:
    async with listening(ServerTls(*authority.issue()[:2])) as port:
        sink = Sink()
        reader = FeedReader(f"wss://localhost:{port}/feed", KEY, sink, tls=LinkTls(authority.file))
        reading = asyncio.create_task(reader.run())
        await until(lambda: reader.connected)
        reading.cancel()
        await asyncio.wait({reading})


async def test_status_is_read_over_tls(authority: Authority) -> None:
    async with listening(ServerTls(*authority.issue()[:2])) as port:
        async with internal_client(KEY, PATIENCE_S, LinkTls(authority.file)) as http:
            status = await fetch_status(http, f"https://127.0.0.1:{port}")
            assert status == {"ready": True}
        async with internal_client(KEY, PATIENCE_S) as http:
            assert await fetch_status(http, f"https://127.0.0.1:{port}") is None, "no authority of the system signed it"


async def test_other_names_and_other_authorities_are_refused(authority: Authority, tmp_path: Path) -> None:
    async with listening(ServerTls(*authority.issue(("localhost",))[:2])) as port:
        for url, tls in (
            (f"wss://127.0.0.1:{port}/feed", LinkTls(authority.file)),
            (f"wss://localhost:{port}/feed", LinkTls(Authority(tmp_path, "Other").file)),
            (f"wss://localhost:{port}/feed", LinkTls()),
        ):
            with pytest.raises(ssl.SSLCertVerificationError):
                await opened(url, tls)


@pytest.mark.parametrize(
    ("shift", "why"), [(-3 * DAY, "certificate has expired"), (4 * DAY, "certificate is not yet valid")]
)
async def test_a_certificate_outside_of_its_time_is_refused_by_name_until_certificate_or_clock_is_right(
    authority: Authority, shift: timedelta, why: str
) -> None:
    tls = ServerTls(*authority.issue(shift=shift)[:2])
    async with listening(tls) as port:
        reader = FeedReader(f"wss://localhost:{port}/feed", KEY, Sink(), tls=LinkTls(authority.file))
        with capture_logs() as lines:
            reading = asyncio.create_task(reader.run())
            await until(lambda: [line for line in lines if why in line.get("error", "")])
            assert not reader.connected
            authority.issue()
            tls.reload()
            await until(lambda: reader.connected)
        reading.cancel()
        await asyncio.wait({reading})
    assert sum(why in line.get("error", "") for line in lines) == 1


async def test_link_with_tls_does_not_fall_back_to_plain_text(authority: Authority) -> None:
    async with listening(None) as port:
        with pytest.raises((OSError, TimeoutError)):
            await opened(f"wss://localhost:{port}/feed", LinkTls(authority.file))


def test_unusable_authorities_are_reported_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(BadAuthorities):
        LinkTls(tmp_path / "none")


def test_internal_certificate_is_for_other_machines_only(authority: Authority) -> None:
    issued = authority.issue()
    settings = ProcessSettings(internal_tls_certificate=issued.certificate, internal_tls_key=issued.key)
    assert internal_tls(ProcessSettings(), "0.0.0.0", None) is None
    assert internal_tls(settings, "127.0.0.1", None) is None
    reloads: list[object] = []
    assert internal_tls(settings, "0.0.0.0", reloads.append) is not None
    assert len(reloads) == 1
    with pytest.raises(BadCertificate):
        internal_tls(ProcessSettings(internal_tls_certificate=issued.key), "0.0.0.0", None)
