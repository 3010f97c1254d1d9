"""Links to servers: each dialled by itself, at allowed addresses, and closed with its membership."""

import asyncio
from collections.abc import Callable
from ipaddress import ip_address
from typing import cast

import pytest
from structlog.testing import capture_logs

from diem.links import dialer
from diem.links.dialer import ClientConnection
from diem.process import backoff
from diem.process.allow_list import Address, AllowList
from diem.process.auth import SharedKey
from proxy.upstream import Upstream
from proxy.upstream_pool import UpstreamPool
from tests.support.patience import until
from tests.unit.proxy.world import RecordingListener

KEY = SharedKey("0123456789abcdef0123456789abcdef")
HANGING, HEALTHY = "ws://127.0.0.1:9101/ws", "ws://127.0.0.1:9102/ws"


async def test_hanging_server_does_not_delay_a_dial_to_another(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[str] = []

    async def dial(url: str, *_: object, **__: object) -> None:
        attempts.append(url)
        await asyncio.Event().wait()

    monkeypatch.setattr(dialer, "dial", dial)
    pool = UpstreamPool(RecordingListener(), KEY)
    pool.keep([HANGING])
    pool.keep([HANGING, HEALTHY])
    await until(lambda: HEALTHY in attempts)
    assert attempts.count(HANGING) == 1
    pool.stop()


async def test_link_of_a_former_member_is_closed_and_that_of_a_new_one_dialled(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []

    async def dial(url: str, _key: object, make: Callable[[str], ClientConnection], **_: object) -> ClientConnection:
        made = cast("Upstream", make("proof"))
        made.lost = asyncio.Event()
        monkeypatch.setattr(type(made), "abort", lambda self: ended.append(self.url))
        return made

    monkeypatch.setattr(dialer, "dial", dial)
    pool = UpstreamPool(RecordingListener(), KEY)
    pool.keep([HANGING])
    await until(lambda: pool.open == [HANGING])
    pool.keep([HEALTHY])
    await until(lambda: pool.open == [HEALTHY])
    assert ended == [HANGING]
    pool.stop()
    await until(lambda: ended == [HANGING, HEALTHY])


async def test_the_address_that_was_checked_is_dialled_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    dialled: list[tuple[str, object]] = []

    async def dial(url: str, *_: object, address: object = None, **__: object) -> None:
        dialled.append((url, address))
        await asyncio.Event().wait()

    async def resolve(name: str) -> list[Address]:
        return [ip_address("10.0.0.7" if name == "pair-0.pairs" else "192.0.2.1")]

    monkeypatch.setattr(dialer, "dial", dial)
    monkeypatch.setattr(backoff, "full_jitter", lambda *_: 3600.0)
    pool = UpstreamPool(RecordingListener(), KEY, allowed=AllowList(["10.0.0.0/24", "127.0.0.0/8"], resolve))
    with capture_logs() as logged:
        pool.keep(["ws://pair-0.pairs:9101/ws", HEALTHY, "ws://elsewhere:9101/ws"])
        await until(lambda: len(dialled) >= 2 and logged)
    pool.stop()
    assert sorted(dialled) == [(HEALTHY, "127.0.0.1"), ("ws://pair-0.pairs:9101/ws", "10.0.0.7")]
    (line,) = logged
    assert (line["log_level"], line["url"]) == ("warning", "ws://elsewhere:9101/ws")
    text = "no address of ws://elsewhere:9101/ws is admitted by DIEM_PROXY_ALLOWED"
    assert line["error"] == f"ConnectionRefusedError: {text}"
