"""Servers' reports of what is watched, on real links: differences, all of it again, and the end of a server."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from diem.fanout.fanout import Registry
from diem.fanout.session import DeliveryStats, Session
from diem.links import interest as links
from diem.links.interest import InterestReporter
from diem.links.internal import InternalListener
from diem.links.keepalive import LinkMonitor
from diem.process.auth import SharedKey
from diem.protocol import interest
from diem.protocol.codes import Close
from services.data import interest as port_module
from services.data.interest import InterestPort
from services.data.sources.source import Claim, Health
from tests.support.internal import InternalConnect
from tests.support.patience import PATIENCE_S

KEY = SharedKey("k" * 43)


class Source:
    """Polls below ``/orders``, at most ``room`` endpoints."""

    name, prefix = "orders", "/orders"
    claims = (Claim("/orders", below=True),)
    health: Health

    def __init__(self, room: int = 1000) -> None:
        self.room = room
        self.names: Counter[str] = Counter()
        self.refused = 0

    async def run(self, sink: Any) -> None:
        """Never called here."""

    @property
    def watched(self) -> int:
        return len(+self.names)

    def watch(self, name: str) -> bool:
        if self.watched >= self.room and not self.names[name]:
            self.refused += 1
            return False
        self.names[name] += 1
        return True

    def unwatch(self, name: str) -> None:
        assert self.names[name] > 0
        self.names[name] -= 1

    def readmit(self) -> bool:
        has_room = self.refused > 0 and self.watched < self.room
        self.refused *= not has_room
        return has_room

    async def until(self, **names: int) -> None:
        """Wait until these endpoints below the prefix are watched at so many servers."""
        wanted = {f"/orders/{name}": count for name, count in names.items()}
        async with asyncio.timeout(PATIENCE_S):
            while dict(+self.names) != wanted:
                await asyncio.sleep(0.005)


@asynccontextmanager
async def listening(port: InterestPort, number: int = 0) -> AsyncIterator[int]:
    listener = InternalListener(
        "127.0.0.1", number, key=KEY, ready=lambda: None, status=dict, channels={interest.PATH: port}
    )
    listener.start()
    running = asyncio.create_task(port.run())
    try:
        yield listener.port
    finally:
        listener.stop()
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


class Server:
    """The registry of a server, and its reports."""

    def __init__(self, number: int) -> None:
        self.registry: Registry[Session] = Registry()
        self.reporter = InterestReporter(self.registry, [f"ws://127.0.0.1:{number}/interest"], KEY)
        self.sessions = [Session(lambda _frame: None, lambda _frames: None, DeliveryStats()) for _ in range(2)]
        self._task = asyncio.create_task(self.reporter.run())

    def subscribe(self, *names: str, client: int = 0) -> None:
        for name in names:
            self.registry.add(name.encode(), self.sessions[client])

    def unsubscribe(self, *names: str, client: int = 0) -> None:
        for name in names:
            self.registry.discard(name.encode(), self.sessions[client])

    async def stop(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task


async def test_first_and_last_subscribers_are_reported_and_the_end_of_a_server_ends_its_interest() -> None:
    source = Source()
    async with listening(InterestPort([source])) as number:
        one, other = Server(number), Server(number)
        one.subscribe("/orders/a", "/orders/b", "/other/c", "/orders/", "/orders")
        await source.until(a=1, b=1)
        one.subscribe("/orders/a", client=1)
        other.subscribe("/orders/a", "/orders/d")
        await source.until(a=2, b=1, d=1)
        one.unsubscribe("/orders/a", "/orders/b")
        other.unsubscribe("/orders/d")
        await source.until(a=2)
        one.unsubscribe("/orders/a", client=1)
        await source.until(a=1)
        one.subscribe("/orders/e")
        await source.until(a=1, e=1)
        await one.stop()
        await source.until(a=1)
        await other.stop()
        await source.until()


async def test_a_new_data_service_is_sent_everything() -> None:
    before, after = Source(), Source()
    async with listening(InterestPort([before])) as number:
        server = Server(number)
        server.subscribe(*(f"/orders/{name}" for name in range(2500)), "/orders/a")
        async with asyncio.timeout(PATIENCE_S):
            while before.watched < 1000:  # the room of this source
                await asyncio.sleep(0.01)
    async with asyncio.timeout(PATIENCE_S):
        while server.reporter.connected:
            await asyncio.sleep(0.005)
    assert server.registry.on_change is None
    server.unsubscribe(*(f"/orders/{name}" for name in range(2500)))
    async with listening(InterestPort([after]), number):
        await after.until(a=1)
        server.subscribe("/orders/b")
        await after.until(a=1, b=1)
        await server.stop()


async def test_refused_endpoints_are_reported_again_once_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port_module, "CHECK_EVERY_S", 0.001)
    source = Source(room=2)
    async with listening(InterestPort([source])) as number:
        server = Server(number)
        server.subscribe("/orders/a", "/orders/b")
        await source.until(a=1, b=1)
        server.subscribe("/orders/c")
        async with asyncio.timeout(PATIENCE_S):
            while not source.refused:
                await asyncio.sleep(0.005)
        server.unsubscribe("/orders/a")
        await source.until(b=1, c=1)
        await server.stop()


async def test_without_such_sources_a_server_gives_up_its_link(monkeypatch: pytest.MonkeyPatch) -> None:
    async with listening(InterestPort([])) as number:
        server = Server(number)
        async with asyncio.timeout(PATIENCE_S):
            while not server.reporter.connects or server.reporter.connected:
                await asyncio.sleep(0.005)
        assert server.registry.on_change is None
        await server.stop()
    monkeypatch.setattr(links, "UNUSED_RETRY_S", 0.01)
    source = Source()
    async with listening(InterestPort([])) as number:
        server = Server(number)
        server.subscribe("/orders/a")
        async with asyncio.timeout(PATIENCE_S):
            while not server.reporter.connects:
                await asyncio.sleep(0.005)
    async with listening(InterestPort([source]), number):
        await source.until(a=1)
        await server.stop()


@pytest.mark.parametrize("message", ["x", "[]", '{"type":"watched","added":[1]}', '{"type":"watched","removed":"/a"}'])
async def test_a_malformed_report_closes_the_link_and_ends_its_interest(message: str) -> None:
    source = Source()
    async with listening(InterestPort([source])) as number:
        url = f"ws://127.0.0.1:{number}/interest"
        async with InternalConnect(url, KEY, subprotocols=[interest.SUBPROTOCOL]) as link:
            assert await link.recv(decode=False) == b'{"type":"prefixes","prefixes":["/orders"]}'
            await link.send('{"type":"later"}')
            await link.send('{"type":"watched","added":["/orders/a","/orders/../b","/orders/c/","x"]}')
            await source.until(a=1)
            await link.send(message)
            with pytest.raises(ConnectionClosed):
                await link.recv()
            assert link.close_code == Close.BAD_REQUEST
        await source.until()


async def test_a_server_that_falls_silent_watches_nothing_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port_module, "CHECK_EVERY_S", 0.01)
    source = Source()
    port = InterestPort([source])
    port._monitor = LinkMonitor("interest", silence_timeout_s=0.1)
    async with listening(port) as number:
        url = f"ws://127.0.0.1:{number}/interest"
        async with InternalConnect(url, KEY, subprotocols=[interest.SUBPROTOCOL]) as link:
            await link.send('{"type":"watched","added":["/orders/a"]}')
            await source.until(a=1)
            link.transport.pause_reading()
            await source.until()
            link.transport.abort()


async def test_a_slow_link_makes_a_server_collect_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source()
    async with listening(InterestPort([source])) as number:
        server = Server(number)
        server.subscribe("/orders/a")
        await source.until(a=1)
        monkeypatch.setattr(links, "MAX_UNSENT_BYTES", -1)
        server.subscribe("/orders/b")
        server.reporter._send()
        assert server.reporter._changed == {b"/orders/b"}
        monkeypatch.undo()
        await source.until(a=1, b=1)
        await server.stop()
