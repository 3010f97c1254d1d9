"""The Python client between a feed and a Data Service that are not equally fast: what is shown never goes back.

The client's drop rule and its fetches are the real ones; the server is what it retains, and the service may be put back
to an earlier version. Answers to requests may wait until the walk releases them. In the end the client shows what the
service has.
"""

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from diem.client import CompletedEvents, EndpointSnapshot, UpdatesClient
from diem.client.link import ClientLink
from diem.protocol.media_types import DOCUMENT
from tests.walks import walk_settings

NAME = "/a"
LINK = cast("ClientLink", SimpleNamespace(fetch_window_s=0.0))
TURNS = 12
"""Of the event loop, in which everything that can go on does."""


class World:
    """One endpoint: the service's versions, the server's retained one, and what the client has shown."""

    def __init__(self) -> None:
        self.versions = [1]
        """Of the service, the current one last, and the only one that it keeps."""
        self.retained = 1
        self.prompt = True
        """Requests are answered at once."""
        self.shown: list[int] = []
        self.may_go_back = 0
        """Times that the service was put back since the client went back."""
        self._waiting: list[asyncio.Event] = []
        self.client = UpdatesClient("ws://nobody:1/ws", data=True)
        self.completed = CompletedEvents(self.client, self._fetch, self.client.correct, self._sleep)

    async def _fetch(self, name: str, version: int | None) -> EndpointSnapshot | None:
        await self._gate()
        found = self.versions[-1] if version in {None, self.versions[-1]} else None
        await self._gate()
        return None if found is None else EndpointSnapshot(found, "", DOCUMENT, found)

    async def _sleep(self, _seconds: float) -> None:
        await self._wait()

    async def _gate(self) -> None:
        if not self.prompt:
            await self._wait()

    async def _wait(self) -> None:
        gate = asyncio.Event()
        self._waiting.append(gate)
        await gate.wait()

    async def read(self) -> None:
        """Follow what the client yields."""
        async for event in self.completed:
            if not event.has_value:
                continue
            version = event.value
            if self.shown and version < self.shown[-1]:
                assert self.may_go_back, f"{version} is shown after {self.shown[-1]}"
                self.may_go_back = 0
            self.shown.append(version)

    # Steps

    def put(self, number: int) -> None:
        """Some versions, of which the server reads one."""
        self.versions += [self.versions[-1] + each for each in range(1, 2 + number % 3)]
        if number & 64:
            self.feed(number)

    def feed(self, number: int) -> None:
        """The server reads one more version, or all that there are."""
        target = self.versions[-1] if number % 3 == 0 else self.retained + 1
        if self.retained < target <= self.versions[-1]:
            self.retained = target
            self._update(with_data=number % 2 == 0)

    def reconnect(self, number: int) -> None:
        known = self.client.known(NAME) or 0
        self.client.on_message(
            LINK, {"type": "subscribed", "id": 1, "endpoints": {NAME: self.retained}, "rejected": {}}
        )
        if self.retained > known:
            self._update(with_data=number % 2 == 0)

    def put_back(self, number: int) -> None:
        """The service has an earlier version, from which it goes on; the server was started again, too."""
        if len(self.versions) > 1:
            del self.versions[-1 - number % (len(self.versions) - 1) :]
            self.retained = self.versions[-1]
            self.may_go_back += 1
            self.reconnect(number)

    def resync(self, _number: int) -> None:
        self.client.on_message(LINK, {"type": "resync", "endpoints": [NAME]})

    def be_prompt(self, number: int) -> None:
        self.prompt = number % 2 == 0

    def answer(self, number: int) -> None:
        if self._waiting:
            self._waiting.pop(number % len(self._waiting)).set()

    def _update(self, *, with_data: bool) -> None:
        message = {"type": "update", "endpoint": NAME, "version": self.retained}
        if with_data:
            message |= {"data": self.retained, "media_type": DOCUMENT}
        self.client.on_message(LINK, message)

    async def rest(self) -> None:
        self.reconnect(0)
        self.feed(0)
        for _ in range(4 * TURNS):
            while self._waiting:
                self.answer(0)
            await turns()


async def turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


STEPS: Sequence[Callable[[World, int], None]] = (
    *[World.put] * 3,
    *[World.feed] * 3,
    *[World.answer] * 4,
    World.be_prompt,
    World.resync,
    World.reconnect,
    *[World.put_back] * 2,
)


async def walk(steps: Sequence[tuple[Callable[[World, int], None], int]]) -> None:
    world = World()
    await world.client.subscribe({NAME: None})
    async with world.completed:
        reading = asyncio.create_task(world.read())
        world.reconnect(0)
        for step, number in steps:
            await turns()
            step(world, number)
        await world.rest()
        if reading.done():
            reading.result()
        assert world.shown[-1] == world.versions[-1], "what the service has"
        reading.cancel()


@walk_settings(examples=150)
@given(steps=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 255)), min_size=5, max_size=40))
def test_client_shows_what_the_service_has_and_goes_back_only_with_it(
    steps: Sequence[tuple[Callable[[World, int], None], int]],
) -> None:
    asyncio.run(walk(steps))
