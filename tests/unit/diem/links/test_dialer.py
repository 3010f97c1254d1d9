"""Handshakes that nobody awaits; and a reconnecting link: which server is dialled when, and its backoff."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast

import pytest
from websockets.exceptions import InvalidHandshake

from diem.links import dialer, refused_peers
from diem.links.dialer import ClientConnection, LinkConnection, Reconnector
from diem.links.mutual_auth import IncompatiblePeer
from diem.process import backoff
from diem.process.auth import SharedKey
from diem.process.key_ring import KeyRole
from diem.protocol.compatibility import Versions
from tests.support.patience import PATIENCE_S

KEY = SharedKey("0123456789abcdef")
URLS = ("ws://first/feed", "ws://second/feed")


class Link:
    """A connection that is lost as soon as it is open."""

    alive = True

    def __init__(self, url: str) -> None:
        self.url = url
        self.aborted = False
        self.lost = asyncio.Event()
        self.lost.set()

    def abort(self) -> None:
        self.aborted = True


class Recorded(Reconnector[LinkConnection]):
    def __init__(self) -> None:
        super().__init__("peer", URLS, KEY, KeyRole.FEED, logger="test")
        self.events: list[tuple[str, str, bool]] = []
        self.postpone_s = 0.0

    def _connection(self, url: str, authorization: str) -> LinkConnection:
        return cast("LinkConnection", Link(url))

    def _on_open(self, link: LinkConnection, url: str) -> None:
        assert cast("Link", link).url == url
        self.events.append(("open", url, self.connected))

    def _on_lost(self, link: LinkConnection, url: str) -> float:
        assert cast("Link", link).aborted
        self.events.append(("lost", url, self.connected))
        return self.postpone_s


class World:
    """Dials that fail or succeed, and the attempt numbers for which a delay was drawn."""

    def __init__(self) -> None:
        self.outcomes: list[type[Exception] | Exception | None] = []
        self.dials: list[str] = []
        self.attempts: list[int] = []
        self.reconnector = Recorded()

    async def dial(self, url: str, _key: object, connection: Callable[[str], object], **_: object) -> object:
        if not self.outcomes:
            await asyncio.Event().wait()
        self.dials.append(url)
        if (fault := self.outcomes.pop(0)) is not None:
            raise fault
        return connection("proof")

    def jitter(self, attempt: int, *_: object) -> float:
        self.attempts.append(attempt)
        return 0.0

    async def run(self, *outcomes: type[Exception] | Exception | None) -> None:
        """Run until all ``outcomes`` were dialled."""
        self.outcomes += outcomes
        before = len(self.attempts)
        async with self._running():
            while len(self.attempts) - before < len(outcomes):
                await asyncio.sleep(0)

    async def run_until_paused(self) -> None:
        """Run to the pause after the first dial; the outcomes have one left for an attempt that would be too early."""
        assert len(self.outcomes) == 2
        async with self._running():
            while not self.dials:
                await asyncio.sleep(0)
            for _ in range(20):
                await asyncio.sleep(0)

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.reconnector.run())
        async with asyncio.timeout(PATIENCE_S):
            yield
        task.cancel()
        await asyncio.wait([task])


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(dialer, "dial", made.dial)
    monkeypatch.setattr(backoff, "full_jitter", made.jitter)
    return made


async def test_servers_are_dialled_in_turn_and_delays_grow(world: World) -> None:
    await world.run(OSError, TimeoutError, EOFError)
    assert world.dials == [URLS[0], URLS[1], URLS[0]]
    assert world.attempts == [0, 1, 2]
    assert (world.reconnector.connects, world.reconnector.connected) == (0, False)


async def test_a_link_that_does_not_last_belongs_to_the_outage(world: World) -> None:
    await world.run(OSError, None, OSError)
    assert world.attempts == [0, 1, 2]
    assert world.reconnector.events == [("open", URLS[1], True), ("lost", URLS[1], False)]
    assert world.reconnector.connects == 1


async def test_a_link_that_lasted_starts_the_backoff_over(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world.reconnector._backoff, "_stable_s", 0.0)
    world.reconnector._backoff.next_delay()
    world.attempts.clear()
    await world.run(None)
    assert world.attempts == [0]


async def test_the_next_attempt_can_be_postponed(world: World) -> None:
    world.reconnector.postpone_s = 1000.0
    world.outcomes = [None, None]
    await world.run_until_paused()
    assert world.dials == [URLS[0]]


async def test_a_peer_of_another_version_is_reported_and_dialled_again_after_a_pause(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    later, refused = Versions(7, 9), list[tuple[str, Versions]]()
    monkeypatch.setattr(refused_peers, "refuse_versions", lambda *refusal: refused.append(refusal))
    monkeypatch.setattr(dialer, "INCOMPATIBLE_RETRY_S", 1000.0)
    world.outcomes = [IncompatiblePeer(later, "a line"), None]
    await world.run_until_paused()
    assert (world.dials, refused) == ([URLS[0]], [("first", later)])
    monkeypatch.setattr(dialer, "INCOMPATIBLE_RETRY_S", 0.0)
    world.outcomes.clear()
    await world.run(IncompatiblePeer(later, "a line"), None)
    assert world.reconnector.connects == 1


async def test_a_handshake_that_fails_after_its_dialer_has_gone_is_not_reported() -> None:
    reported: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reported.append(context))
    connection = ClientConnection("ws://127.0.0.1:1/feed", "Bearer x")
    connection.connection_lost(None)
    with pytest.raises(InvalidHandshake):
        await connection.opened
    connection = ClientConnection("ws://127.0.0.1:1/feed", "Bearer x")
    connection.connection_lost(None)
    del connection
    gc.collect()
    await asyncio.sleep(0)
    assert not reported
