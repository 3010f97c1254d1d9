import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bridge import side_channels as module
from bridge.link import BridgeLink
from bridge.side_channels import MapFeed, OwnersFeed
from diem.kafka.config import KafkaOptions
from diem.kafka.map_reader import MapReader, MapRecord
from diem.protocol import feed
from diem.protocol.assignment import STABLE, Clone, Owner
from diem.protocol.partition_map import HEAD_KEY, START_KEY, Entry, Head, MapBuilder, encode_entry, encode_head
from tests.support.patience import PATIENCE_S, until

NAME = "x.partition-map/0"


class Reader:
    """The map reader of a bridge, with settable records."""

    def __init__(self) -> None:
        self.map = MapReader(KafkaOptions("nobody:1"))

    def put(self, key: bytes, value: bytes | None) -> None:
        self.map.records[key] = MapRecord(self.map.next, value)
        self.map.next += 1


class Wire:
    """A link that records what is written to it."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, list[tuple[bytes, bytes]]]] = []
        self.said: list[feed.Control | feed.UnknownMessage] = []
        connection = SimpleNamespace(paused=False, send_binary=self._binary, send_text=self._text)
        self.connection = connection
        self.link = BridgeLink(cast("Any", connection))

    def _binary(self, data: bytes) -> None:
        name, next_, records = feed.decode_batch(data)
        assert name == NAME
        self.batches.append((next_, [(record.endpoint, record.value) for record in records]))

    def _text(self, data: bytes) -> None:
        self.said.append(feed.decode(data))

    @property
    def keys(self) -> list[list[bytes]]:
        return [[key for key, _ in records] for _, records in self.batches]

    def built(self) -> MapBuilder:
        builder = MapBuilder()
        for _, records in self.batches:
            for key, value in records:
                builder.apply(key, value)
        return builder


@pytest.fixture
def reader() -> Reader:
    return Reader()


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
async def feeding(reader: Reader, wire: Wire) -> AsyncIterator[MapFeed]:
    made = MapFeed(wire.link, NAME, reader.map)
    running = asyncio.create_task(made.run())
    yield made
    running.cancel()


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_nothing_is_sent_before_the_map_is_known(reader: Reader, wire: Wire, feeding: MapFeed) -> None:
    reader.put(b"/a", encode_entry(Entry(1)))
    feeding.on_change()
    await settled()
    assert (wire.batches, wire.said, feeding.caught_up) == ([], [], False)
    reader.map.caught_up = True
    feeding.on_change()
    await settled()
    assert wire.keys == [[START_KEY, b"/a"]]
    assert (wire.said, feeding.caught_up) == ([feed.CaughtUp(NAME)], True)


async def test_the_head_is_last_whatever_was_written_after_it(reader: Reader, wire: Wire, feeding: MapFeed) -> None:
    reader.put(b"/a", encode_entry(Entry(1)))
    reader.put(HEAD_KEY, encode_head(Head(4, 0)))
    reader.put(b"/b", encode_entry(Entry(2)))
    reader.map.caught_up = True
    feeding.on_change()
    await settled()
    assert wire.keys == [[START_KEY, b"/a", b"/b", HEAD_KEY]]
    assert wire.batches[0][0] == 3


async def test_what_no_server_needs_or_could_take_is_left_out(reader: Reader, wire: Wire, feeding: MapFeed) -> None:
    reader.put(b"ack/publisher", b"{}")
    reader.put(b"/" + 70_000 * b"k", encode_entry(Entry(1)))
    reader.put(b"no name", encode_entry(Entry(1)))
    reader.put(b"/long", b" " * 100_000)
    reader.put(b"/a", encode_entry(Entry(1)))
    reader.put(HEAD_KEY, encode_head(Head(4, 0)))
    reader.map.caught_up = True
    feeding.on_change()
    await settled()
    assert wire.keys == [[START_KEY, b"/a", HEAD_KEY]]


async def test_later_only_what_is_new_is_sent(reader: Reader, wire: Wire, feeding: MapFeed) -> None:
    reader.put(b"/a", encode_entry(Entry(1)))
    reader.put(HEAD_KEY, encode_head(Head(4, 0)))
    reader.map.caught_up = True
    feeding.on_change()
    await settled()
    reader.put(b"/a", None)
    reader.put(b"/b", encode_entry(Entry(2)))
    reader.put(HEAD_KEY, encode_head(Head(4, 1)))
    feeding.on_change()
    feeding.on_change()
    await settled()
    assert wire.keys[1:] == [[b"/a", b"/b", HEAD_KEY]]
    built = wire.built().map
    assert built is not None
    assert (built.head, built.entries) == (Head(4, 1), {b"/b": Entry(2)})
    assert len(wire.said) == 1


async def test_a_map_that_is_read_again_from_its_beginning_is_sent_again_from_its_beginning(
    reader: Reader, wire: Wire, feeding: MapFeed
) -> None:
    for n in range(3):
        reader.put(b"/%d" % n, encode_entry(Entry(1)))
    reader.put(HEAD_KEY, encode_head(Head(4, 7)))
    reader.map.caught_up = True
    feeding.on_change()
    await settled()
    reader.map.records, reader.map.next, reader.map.caught_up = {}, 0, False
    feeding.on_change()
    # More than before, so that its position alone does not tell.
    for n in range(9):
        reader.put(b"/new/%d" % n, encode_entry(Entry(2)))
    reader.put(HEAD_KEY, encode_head(Head(4, 0)))
    reader.map.caught_up = True
    feeding.on_change()
    await settled()
    assert wire.keys[1][0] == START_KEY
    built = wire.built().map
    assert built is not None
    assert built.head == Head(4, 0)
    assert set(built.entries) == {b"/new/%d" % n for n in range(9)}


async def test_a_long_map_is_cut_and_counts_when_its_head_is_there(
    reader: Reader, wire: Wire, feeding: MapFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_RECORDS", 10)
    for n in range(25):
        reader.put(b"/%d" % n, encode_entry(Entry(1)))
    reader.put(HEAD_KEY, encode_head(Head(4, 0)))
    reader.map.caught_up = True
    feeding.on_change()
    await settled()
    assert [len(keys) for keys in wire.keys] == [10, 10, 7]
    assert [START_KEY in keys for keys in wire.keys] == [True, False, False]
    built = wire.built().map
    assert built is not None
    assert len(built.entries) == 25


async def test_what_a_paused_link_does_not_take_is_sent_when_it_does(
    reader: Reader, wire: Wire, feeding: MapFeed
) -> None:
    wire.connection.paused = True
    reader.put(HEAD_KEY, encode_head(Head(4, 0)))
    reader.map.caught_up = True
    feeding.on_change()
    await settled()
    assert wire.batches == []
    wire.connection.paused = False
    wire.link.on_resume()
    await settled()
    assert wire.keys == [[START_KEY, HEAD_KEY]]


async def test_a_map_that_kafka_did_not_confirm_is_nothing_to_live_by(
    reader: Reader, feeding: MapFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not feeding.is_current
    reader.put(HEAD_KEY, encode_head(Head(4, 0)))
    reader.map.caught_up = True
    feeding.on_change()
    await settled()
    assert (feeding.caught_up, feeding.is_current) == (True, False)
    monkeypatch.setattr(reader.map, "is_current", lambda: True)
    assert feeding.is_current


class Group:
    """A group as its coordinator describes it, and the membership of b001."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, wire: Wire) -> None:
        self.owner = Owner("b001", "ws://in-1", "ws://out-1")
        self.rejoins = 0
        self.membership = SimpleNamespace(
            group="z-1", owner=self.owner, assigned=frozenset({0, 1}), rejoin=self._rejoin
        )
        self.members = {"b001": self.owner, "b002": Owner("b002", "ws://in-2", "ws://out-2")}
        self.owners = {0: "b001", 1: "b001", 2: "b002"}
        self.reads = 0
        monkeypatch.setattr(OwnersFeed, "_describe", self._describe)
        self.feed = OwnersFeed(wire.link, KafkaOptions("nobody:1", topic_prefix="x."), cast("Any", self.membership))

    def _rejoin(self) -> None:
        self.rejoins += 1

    async def _describe(self) -> Clone:
        self.reads += 1
        return Clone(STABLE, self.members, self.owners)


@pytest.fixture
async def group(monkeypatch: pytest.MonkeyPatch, wire: Wire) -> AsyncIterator[Group]:
    made = Group(monkeypatch, wire)
    monkeypatch.setattr(module, "UNSTABLE_POLL_S", 0.0)
    running = asyncio.create_task(made.feed.run())
    yield made
    running.cancel()


async def test_owners_are_sent_once_and_again_after_every_assignment(group: Group, wire: Wire) -> None:
    await settled()
    urls = {"x.updates/0": "ws://out-1", "x.updates/1": "ws://out-1", "x.updates/2": "ws://out-2"}
    assert (wire.said, group.reads, group.rejoins) == ([feed.Owners(urls)], 1, 0)
    group.feed.on_assignment()
    await settled()
    assert (wire.said, group.reads) == ([feed.Owners(urls)] * 2, 2)


async def test_reader_that_is_about_to_stop_is_sent_the_owners_once_others_have_all_its_partitions(
    group: Group, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LEAVING_POLL_S", 0.0)
    await settled()
    group.feed.on_leave()
    group.membership.assigned = None
    incomplete: list[dict[int, str]] = [group.owners, {}, {0: "b002", 2: "b002"}]
    async with asyncio.timeout(PATIENCE_S):
        for group.owners in incomplete:
            reads = group.reads
            while group.reads < reads + 3:
                await asyncio.sleep(0)
            assert len(wire.said) == 1, "not all of its partitions have another owner"
        group.owners = dict.fromkeys((0, 1, 2), "b002")
        while len(wire.said) == 1:
            await asyncio.sleep(0)
    urls = dict.fromkeys(("x.updates/0", "x.updates/1", "x.updates/2"), "ws://out-2")
    assert wire.said[1:] == [feed.Owners(urls, left=True)]
    assert group.rejoins == 0


async def test_last_reader_of_a_group_is_not_kept_waiting_for_others(
    group: Group, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LEAVING_POLL_S", 0.0)
    await settled()
    group.members, group.owners = {}, {}
    group.feed.on_leave()
    await settled()
    assert wire.said[-1] == feed.Owners({}, left=True)


async def test_member_rejoins_when_the_group_has_old_urls_of_its_server(group: Group, wire: Wire) -> None:
    group.members["b001"] = Owner("b001", "ws://old-in-1", "ws://old-out-1")
    await settled()
    assert group.rejoins
    assert wire.said == []


async def test_group_is_read_more_often_until_it_agrees_with_the_assignment(group: Group, wire: Wire) -> None:
    group.owners = {0: "b001", 2: "b002"}
    group.feed.on_assignment()
    await until(lambda: group.reads >= 5)
    said = [message for message in wire.said if isinstance(message, feed.Owners) and len(message.owners) == 2]
    assert len(said) == 1, "only what has changed is sent"
