"""Links to servers: each dialled by itself, and redialled."""

import asyncio
from collections.abc import Callable
from ipaddress import ip_address
from typing import cast

import pytest
from structlog.testing import capture_logs

from diem.links import refused_peers
from diem.links.dialer import ClientConnection
from diem.links.keepalive import LinkMonitor
from diem.links.mutual_auth import IncompatiblePeer
from diem.process import backoff
from diem.process.allow_list import Address, AllowList
from diem.process.auth import SharedKey
from diem.protocol.compatibility import Versions
from proxy import upstream_pool as pool_module
from proxy.upstream import Upstream
from proxy.upstream_pool import UpstreamDialer, UpstreamLink
from tests.support.patience import until
from tests.unit.proxy.world import RecordingListener

KEY = SharedKey("0123456789abcdef0123456789abcdef")
HANGING, HEALTHY = "ws://127.0.0.1:9101/ws", "ws://127.0.0.1:9102/ws"


def link_to(url: str, dialer: UpstreamDialer) -> UpstreamLink:
    return dialer.link(url, RecordingListener(), LinkMonitor("server"))


async def test_hanging_server_does_not_delay_a_dial_to_another(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[str] = []

    async def dial(url: str, *_: object, **__: object) -> None:
        attempts.append(url)
        if url == HANGING:
            await asyncio.Event().wait()

    monkeypatch.setattr(pool_module, "dial", dial)
    dialer = UpstreamDialer(KEY)
    link_to(HANGING, dialer).start()
    link_to(HEALTHY, dialer).start()
    await until(lambda: HEALTHY in attempts)
    dialer.stop()
    await asyncio.sleep(0)


async def test_link_that_opens_in_the_turn_of_its_time_out_is_not_dialled_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dials = 0

    async def dial(_url: str, _key: object, make: Callable[[str], ClientConnection], **_: object) -> None:
        nonlocal dials
        dials += 1
        upstream = cast("Upstream", make("proof"))
        link.connected(upstream)
        if dials == 1:
            asyncio.get_running_loop().call_soon(link.disconnected, upstream)
            raise TimeoutError

    monkeypatch.setattr(pool_module, "dial", dial)
    monkeypatch.setattr(backoff, "full_jitter", lambda *_: 0.0)
    link = link_to(HEALTHY, UpstreamDialer(KEY))
    link.start()
    for _ in range(20):
        await asyncio.sleep(0)
    assert dials == 2


async def test_the_address_that_was_checked_is_dialled_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    dialled: list[tuple[str, object]] = []

    async def dial(url: str, *_: object, address: object = None, **__: object) -> None:
        dialled.append((url, address))
        await asyncio.Event().wait()

    async def resolve(name: str) -> list[Address]:
        return [ip_address("10.0.0.7" if name == "pair-0.pairs" else "192.0.2.1")]

    monkeypatch.setattr(pool_module, "dial", dial)
    monkeypatch.setattr(backoff, "full_jitter", lambda *_: 3600.0)
    dialer = UpstreamDialer(KEY, allowed=AllowList(["10.0.0.0/24", "127.0.0.0/8"], resolve))
    urls = ["ws://pair-0.pairs:9101/ws", HEALTHY, "ws://elsewhere:9101/ws"]
    with capture_logs() as logged:
        for url in urls:
            link_to(url, dialer).start()
        await until(lambda: len(dialled) >= 2 and logged)
    dialer.stop()
    assert sorted(dialled) == [(HEALTHY, "127.0.0.1"), ("ws://pair-0.pairs:9101/ws", "10.0.0.7")]
    (line,) = logged
    assert (line["log_level"], line["url"]) == ("warning", "ws://elsewhere:9101/ws")
    assert line["error"] == "NotAllowed: no address of ws://elsewhere:9101/ws is admitted by DIEM_PROXY_ALLOWED"


async def test_a_server_of_another_version_is_reported_and_dialled_again_after_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dialled, refused = list[str](), list[tuple[str, Versions]]()

    async def dial(url: str, *_: object, **__: object) -> None:
        dialled.append(url)
        raise IncompatiblePeer(Versions(7, 9), "a line")

    monkeypatch.setattr(pool_module, "dial", dial)
    monkeypatch.setattr(pool_module, "INCOMPATIBLE_RETRY_S", 3600.0)
    monkeypatch.setattr(backoff, "full_jitter", lambda *_: 0.0)
    monkeypatch.setattr(refused_peers, "refuse_versions", lambda *refusal: refused.append(refusal))
    dialer = UpstreamDialer(KEY)
    link_to(HEALTHY, dialer).start()
    for _ in range(20):
        await asyncio.sleep(0)
    dialer.stop()
    assert (dialled, refused) == ([HEALTHY], [("127.0.0.1:9102", Versions(7, 9))])
