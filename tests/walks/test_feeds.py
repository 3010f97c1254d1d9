"""Readers of a store that forgets deleted endpoints: at the store and at a Broadcast node, over links that are lost.

Index, feed servers, node and the state of the readers are the real ones; links are lists of messages that the walk
delivers one by one. Whoever has caught up has the endpoints that the store has, each with its version, and no other.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diem.fanout.change_map import ChangeMap
from diem.fanout.feed_state import FeedState
from diem.links import feed_server
from diem.links.feed_server import FeedServer
from diem.protocol import feed
from diem.protocol.update import GONE, UPDATE
from services.broadcast.node import Node
from services.data.store.index import EndpointHead, StoreIndex
from tests.walks import walk_settings

pytestmark = pytest.mark.usefixtures("silent_log")

NAMES: Final = ("/a", "/b", "/c")
BUFFERED: Final = 2
"""Messages on a link after which its transport is paused."""


class Link:
    """A connection to a feed server, with the messages under way."""

    alive = True

    def __init__(self, server: FeedServer, sink: Any) -> None:
        self.server, self.sink = server, sink
        self.is_open = True
        self.messages: deque[bytes | str] = deque()
        server.opened(self)  # type: ignore[arg-type]
        server.received(self, feed.encode(sink.resume()))  # type: ignore[arg-type]

    @property
    def paused(self) -> bool:
        return len(self.messages) >= BUFFERED

    def send_binary(self, data: bytes) -> None:
        self.messages.append(data)

    def send_text(self, data: bytes) -> None:
        self.messages.append(data.decode())

    def close(self, _code: int = 0, _reason: str = "") -> None:
        if self.is_open:
            self.is_open = False
            self.messages.clear()
            self.server.closed(self)  # type: ignore[arg-type]

    def read(self) -> None:
        if not self.messages:
            return
        message = self.messages.popleft()
        if isinstance(message, bytes):
            self.sink.batch(feed.decode_batch(message))
        else:
            match feed.decode(message.encode()):
                case feed.Hello() as hello:
                    self.sink.hello(hello)
                case feed.CaughtUp(name):
                    self.sink.caught_up(name)
        if self.is_open and not self.paused:
            self.server.resumed(self)  # type: ignore[arg-type]


class Reader:
    """A server's reader of the feed."""

    def __init__(self) -> None:
        self.state = FeedState()
        self.resume = self.state.resume
        self.batch = self.state.apply
        self.caught_up = self.state.finish_catch_up

    def hello(self, message: feed.Hello) -> None:
        self.state.hello(message.source, message.names)

    @property
    def live(self) -> dict[str, int]:
        held = self.state.retained.items()
        return {name.decode(): version for name, (version, value) in held if b'"gone"' not in value}


class Store:
    """The store's side: it is a ``FeedSource``."""

    def __init__(self) -> None:
        self.index = StoreIndex()
        self.floor = 0
        self.sequence = 0

    @property
    def source(self) -> str:
        return feed.store_source("store", self.index.forgotten)

    @property
    def changes(self) -> ChangeMap:
        return self.index.changes

    def went_back(self, position: int) -> None:
        raise AssertionError(f"a reader was at {position}")

    def change(self, name: str, *, gone: bool) -> None:
        head = self.index.heads.get(name)
        if gone and (head is None or head.gone):
            return
        self.sequence += 1
        version = (head.version if head else self.floor) + 1
        kind = GONE if gone else UPDATE
        self.index.apply([EndpointHead(name, self.sequence, version, kind, 0, "MW", "PT1H", "", "", b"")])

    def forget(self, count: int) -> None:
        if due := list(self.index.gone.values())[:count]:
            self.floor = max(self.floor, *(head.version for head in due))
            self.index.forget(due[-1].sequence)

    @property
    def live(self) -> dict[str, int]:
        return {name: head.version for name, head in self.index.heads.items() if not head.gone}


class World:
    """A store, a node that reads it, and two readers of either."""

    upstream: Link

    def __init__(self) -> None:
        self.store = Store()
        self.feed = FeedServer(self.store)
        self.store.index.subscribe(self.feed.changed)
        self.readers = (Reader(), Reader())
        self.links: list[Link | None] = [None, None]
        self.start_node()

    def start_node(self, _number: int = 0) -> None:
        for number, link in enumerate(self.links):
            if link is not None and link.server is not self.feed:
                self.lose(number)
        if hasattr(self, "upstream"):
            self.upstream.close()
        self.node = Node()
        self.node_feed = FeedServer(self.node)
        self.node.on_changed = self.node_feed.changed
        self.node.on_new_source = self.node_feed.drop_readers
        self.upstream = Link(self.feed, self.node)

    def put(self, number: int) -> None:
        self.store.change(NAMES[number % 3], gone=False)

    def delete(self, number: int) -> None:
        self.store.change(NAMES[number % 3], gone=True)

    def forget(self, number: int) -> None:
        self.store.forget(1 + number % 2)

    def lose(self, number: int) -> None:
        link = self.links[number % 2]
        if link is not None:
            link.close()
            self.links[number % 2] = None

    def dial(self, number: int) -> None:
        """Connect a reader that has no link, to the node or the store."""
        link = self.links[number % 2]
        if link is not None and link.is_open:
            return
        to = self.node_feed if number // 2 % 2 else self.feed
        if to.accepting:
            self.links[number % 2] = Link(to, self.readers[number % 2])

    def lose_upstream(self, _number: int) -> None:
        self.upstream.close()

    def dial_upstream(self, _number: int) -> None:
        if not self.upstream.is_open:
            self.upstream = Link(self.feed, self.node)

    def read(self, number: int) -> None:
        link = (*self.links, self.upstream)[number % 3]
        if link is not None:
            link.read()

    def rest(self, _number: int) -> None:
        """All are there, and have read everything."""
        self.dial_upstream(0)
        self.read_all()
        for number in (0, 3):
            self.dial(number)
        self.read_all()

    def be_away(self, number: int) -> None:
        """A link is lost, and meanwhile an endpoint is deleted and forgotten."""
        (self.lose_upstream if number % 3 == 2 else self.lose)(number % 3)
        self.delete(number // 3)
        self.store.forget(3)

    def read_all(self, _number: int = 0) -> None:
        links = [link for link in (self.upstream, *self.links) if link is not None]
        while any(link.messages for link in links):
            for link in links:
                link.read()

    def check(self) -> None:
        current = self.upstream.is_open and not self.upstream.messages
        for reader, link in zip(self.readers, self.links, strict=True):
            if link is None or not link.is_open or link.messages:
                continue
            if link.server is self.feed or current:
                assert reader.state.caught_up
                assert reader.live == self.store.live

    def come_to_rest(self) -> None:
        self.rest(0)
        assert all(link is not None and link.is_open for link in self.links)
        self.check()


STEPS: Sequence[Callable[[World, int], None]] = (
    *[World.put] * 5,
    *[World.delete] * 4,
    *[World.forget] * 3,
    *[World.dial] * 4,
    *[World.lose] * 2,
    *[World.read] * 6,
    *[World.read_all] * 3,
    World.lose_upstream,
    *[World.rest] * 3,
    *[World.be_away] * 3,
    *[World.dial_upstream] * 2,
    World.start_node,
)


@walk_settings(examples=300)
@given(
    st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 11)), min_size=10, max_size=50), st.sampled_from([1, 99])
)
def test_no_reader_keeps_an_endpoint_that_the_store_has_forgotten(
    walk: list[tuple[Callable[[World, int], None], int]], least: int
) -> None:
    async def take() -> None:
        world = World()
        for step, number in walk:
            step(world, number)
            world.check()
        world.come_to_rest()

    with pytest.MonkeyPatch.context() as patch:
        # So that a reader is in the middle of what it reads.
        patch.setattr(feed, "MAX_RECORDS", 1)
        patch.setattr(feed_server, "LEAST_FORGOTTEN", least)
        asyncio.run(take())
