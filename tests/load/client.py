"""Load clients: the Python clients of a server and of a group, with the history of what they did."""

import asyncio
from contextlib import suppress
from math import inf
from random import Random

from diem.client import PartitionedClient, Timing, TokenFunction, UpdatesClient
from diem.client.partitioned import GroupLink
from diem.client.routes import Route
from diem.client.tokens import NoToken
from diem.process.tasks import on_failure
from tests.load.http_link import HttpLink, StreamLink
from tests.load.link import Link, RecordedLink
from tests.load.locator import Locator
from tests.load.recorder import HistoryFull, Recorder

__all__ = ["HistoryFull", "LoadClient", "PartitionedLoadClient", "PollClient", "StreamClient"]


class LoadClient(Recorder, UpdatesClient):
    """One client over all its connections, one at a time."""

    def __init__(
        self,
        name: str,
        address: str,
        urls: list[str],
        wants: list[str],
        random: Random,
        *,
        origin: str | None = None,
        timing: Timing | None = None,
        filtered: bool = False,
        data: bool = False,
        compression: bool = False,
        token: TokenFunction | None = None,
    ) -> None:
        self.urls = urls
        UpdatesClient.__init__(self, urls, origin=origin, timing=timing, data=data, token=token)
        Recorder.__init__(self, name, address, wants, random, data=data, compression=compression, filtered=filtered)

    def number(self) -> int:
        return 0

    @property
    def connected(self) -> bool:
        return any(link.welcomed for link in self.links)

    @property
    def live(self) -> bool:
        return any(link.live and not link.stale & self.wants for link in self.links)


class PollClient(LoadClient):
    """A client that reads no WebSocket, but makes one long poll after the other."""

    link_type = HttpLink


class StreamClient(LoadClient):
    """A client that reads no WebSocket, but event streams."""

    link_type = StreamLink


class RecordedGroupLink(RecordedLink, GroupLink):
    """A recorded link to a server of a group."""


class PartitionedLoadClient(Recorder, PartitionedClient):
    """One client over all its connections: one for each server that has one of its endpoints.

    As the SDK does, it asks the metadata service for owners; without an answer, it asks servers.
    """

    link_type = RecordedGroupLink

    def __init__(
        self,
        name: str,
        address: str,
        urls: list[str],
        wants: list[str],
        random: Random,
        *,
        locator: Locator,
        timing: Timing | None = None,
        data: bool = False,
        compression: bool = False,
        token: TokenFunction | None = None,
    ) -> None:
        PartitionedClient.__init__(self, urls, timing=timing, data=data, token=token)
        Recorder.__init__(self, name, address, wants, random, data=data, compression=compression)
        self.clone: int | None = None
        self._locator = locator
        self._locating: asyncio.Task[None] | None = None
        self._due: dict[str, Route] = {}
        """To be located with the next request."""
        self._numbers = 0

    def number(self) -> int:
        self._numbers += 1
        return self._numbers

    @property
    def connected(self) -> bool:
        return bool(self.wants) and self.wants <= self.registered.keys()

    @property
    def live(self) -> bool:
        def is_live(link: Link | None, endpoint: bytes) -> bool:
            return link is not None and link.live and endpoint not in link.stale

        return all(is_live(self.registered.get(endpoint), endpoint) for endpoint in self.wants)

    def leave(self) -> None:
        super().leave()
        if self._locating is not None:
            self._locating.cancel()

    def _ask_due(self, now: float) -> None:
        """Locate what is due, with one request at a time, so that the first one chooses the clone."""
        for name, route in self._routes.items():
            if route.due <= now:
                route.due = inf
                self._due[name] = route
        if self._due and self._locating is None:
            self._locating = asyncio.get_running_loop().create_task(self._locate())
            self._locating.add_done_callback(self._located)

    async def _locate(self) -> None:
        due, self._due = self._due, {}
        answer = None
        with suppress(NoToken):
            token = "" if self._tokens is None else await self._tokens.ready()
            answer = await self._locator.locate(list(due), self.clone, token)
        for name, route in due.items():
            if self._routes.get(name) is not route:
                continue
            if answer is not None and name not in answer.owners:
                why = {"code": "unknown", "message": "", **answer.rejected.get(name, {})}
                self.count_refusal(why, name)
                self._reject(name, why)
                continue
            owner = None if answer is None else answer.owners[name]
            server = owner or self._another(route)
            if server is not None and server != route.url:
                route.ask(server)
        self.clone = self.clone if answer is None else answer.clone

    def _located(self, task: asyncio.Task[None]) -> None:
        self._locating = None
        self._wake.set()
        on_failure(self.crashed)(task)
