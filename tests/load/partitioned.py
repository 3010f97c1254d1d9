"""A load client of mode z-client: one connection for each server that owns something of its, as the SDK does it."""

import asyncio
from math import inf
from random import Random
from time import monotonic

from tests.load.locating import NAMES, Located, Locator
from tests.load.moving import MAX_HOPS, Moving, Place
from tests.load.post import Post
from tests.load.subscriber import window
from tests.oracle.history import Kind

PATIENCE_SECONDS = 2.0
"""How long a dial waits for the metadata service; then it goes where it went before."""


class PartitionedLoadClient(Moving):
    """One client over all its connections. The clone that it was given first is kept.

    While the metadata service does not answer, everything stays where it is, and is dialled where it was.
    """

    def __init__(self, name: str, address: str, locator: Locator, wants: list[str], random: Random) -> None:
        super().__init__(name, address, wants, random)
        self.clone: int | None = None
        self._locator = locator
        self._failures = 0
        self._not_before = 0.0
        self._locating: asyncio.Task[None] | None = None
        self._later: asyncio.TimerHandle | None = None

    # What the run asks of it

    def start(self, delay: float) -> None:
        self.places = {endpoint: Place(due=monotonic() + delay) for endpoint in self.wants}
        self.locate_later()

    def close(self) -> None:
        if self._later:
            self._later.cancel()
        if self._locating:
            self._locating.cancel()
        for post in self.posts.values():
            post.stop()

    def swap(self, old: str, new: str) -> None:
        if not self.connected:
            return
        self.wants.add(new.encode())
        self.places[new.encode()] = Place(due=monotonic())
        self._locate_soon()
        self.wants.discard(old.encode())
        place = self.places.pop(old.encode())
        self.record(Kind.UNSUBSCRIBE, old.encode(), time=monotonic())
        for post in (place.at, place.old):
            if post:
                post.release(old.encode())

    def doubt(self, post: Post) -> None:
        """What is wanted there may be elsewhere."""
        now = monotonic()
        for place in self.places.values():
            if place.at is post:
                place.due = now
        self._locate_soon()

    async def asked(self) -> None:
        """Wait until there is an answer, though not for long."""
        if self._locating:
            await asyncio.wait({self._locating}, timeout=PATIENCE_SECONDS)

    # Locating

    def _locate_soon(self) -> None:
        if self._locating is None and not self.leaving:
            self._locating = asyncio.get_running_loop().create_task(self._locate_due())

    def locate_later(self) -> None:
        if self._later:
            self._later.cancel()
            self._later = None
        due = max(min((place.due for place in self.places.values()), default=inf), self._not_before)
        if due < inf and not self.leaving:
            self._later = asyncio.get_running_loop().call_later(max(0.0, due - monotonic()), self._locate_soon)

    async def _locate_due(self) -> None:
        """One question at a time, so that the first one chooses the clone."""
        try:
            while (now := monotonic()) >= self._not_before:
                names = [name for name, place in self.places.items() if place.due <= now][:NAMES]
                if not names:
                    return
                for name in names:
                    self.places[name].due, self.places[name].asking = inf, True
                self._take(names, await self._locator.locate(names, self.clone))
        finally:
            self._locating = None
            self.locate_later()

    def _take(self, names: list[bytes], answer: Located | None) -> None:
        now = monotonic()
        asked = {name: place for name in names if (place := self.places.get(name)) and place.asking}
        for place in asked.values():
            place.asking = False
        if answer is None:
            self._not_before = now + self.random.random() * window(self._failures)
            self._failures += 1
            for place in asked.values():
                place.due = now
            return
        self._failures = 0
        self.clone = answer.clone
        # Hot ones last: they go where the others make connections.
        for name, place in sorted(asked.items(), key=lambda item: item[0] in answer.hot):
            owner = self._anywhere(place, answer.servers) if name in answer.hot else answer.owners.get(name)
            if owner is None:
                if place.at is None:
                    self.delay(place, max(place.hops, MAX_HOPS) + 1, now)
            elif place.at is None or place.at.url != owner:
                self.join(name, place, owner)

    def _anywhere(self, place: Place, servers: list[str]) -> str | None:
        """Where a hot endpoint goes: it stays where it is live, else where a connection is, else to a listed server."""
        live = [post.url for post in self.posts.values() if post.link and post.link.live]
        if place.at and place.at.url in live:
            return place.at.url
        used = [post.url for post in self.posts.values() if post.url in servers]
        return next(iter([*live, *used, *servers]), None)
