"""The registry of subscriptions as a state machine, and the counts by endpoint."""

import itertools
import weakref
import zlib
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import orjson
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from diem.fanout.fanout import Fanout, Registry, UpdateCounter, Variant, variant_for
from diem.fanout.read_meter import UNLIMITED, UNMETERED, ReadMeter
from diem.fanout.session import Session
from diem.protocol.deflate import WINDOW_BITS
from diem.protocol.frames import payload_offset, text_frame
from diem.protocol.update import encode
from tests.walks import walk_settings

ENDPOINTS = st.sampled_from([b"/a", b"/b", b"/c"])
SUBSCRIBERS = st.integers(0, 4)
CHANGES = st.sampled_from([None, *Variant])
"""None: unsubscribe; else what to subscribe to."""


@dataclass(eq=False)
class Subscriber:
    """A subscriber that is only counted."""

    number: int
    meter: ReadMeter = UNMETERED


METERS = [UNMETERED, ReadMeter("a"), ReadMeter("b")]


class RegistryMachine(RuleBasedStateMachine):
    """The registry against a plain set of pairs, with changes in the middle of iterations."""

    def __init__(self) -> None:
        super().__init__()
        self.registry: Registry[Subscriber] = Registry()
        self.subscribers = [Subscriber(number) for number in range(5)]
        self.model: dict[tuple[bytes, int], Variant] = {}
        """Subscriptions."""

    def change(self, add: Variant | None, endpoint: bytes, subscriber: int) -> None:
        if add is None:
            self.registry.discard(endpoint, self.subscribers[subscriber])
            self.model.pop((endpoint, subscriber), None)
        else:
            self.registry.add(endpoint, self.subscribers[subscriber], add)
            self.model[endpoint, subscriber] = add

    @rule(subscriber=SUBSCRIBERS, meter=st.sampled_from(METERS))
    def another_key(self, subscriber: int, meter: ReadMeter) -> None:
        held = [endpoint for endpoint, who in self.model if who == subscriber]
        self.registry.set_meter(self.subscribers[subscriber], held, meter)

    @rule(add=CHANGES, endpoint=ENDPOINTS, subscriber=SUBSCRIBERS)
    def subscribe_or_unsubscribe(self, add: Variant | None, endpoint: bytes, subscriber: int) -> None:
        self.change(add, endpoint, subscriber)

    @rule(
        endpoint=ENDPOINTS,
        changes=st.lists(st.tuples(CHANGES, ENDPOINTS, SUBSCRIBERS), min_size=1, max_size=5),
    )
    def change_while_iterating(self, endpoint: bytes, changes: list[tuple[Variant | None, bytes, int]]) -> None:
        before = {subscriber for of, subscriber in self.model if of == endpoint}
        with self.registry.iterating():
            visited = []
            for subscriber in itertools.chain(*self.registry.by_variant(endpoint)):
                visited.append(subscriber.number)
                for add, other, who in changes:
                    self.change(add, other, who)
            assert sorted(visited) == sorted(before), "a change during the loop must not disturb the loop"

    @invariant()
    def agrees_with_the_model(self) -> None:
        for endpoint in (b"/a", b"/b", b"/c"):
            expected = {subscriber for of, subscriber in self.model if of == endpoint}
            assert sorted(each.number for each in self.registry.subscribers(endpoint)) == sorted(expected)
            for variant, subscribers in zip(Variant, self.registry.by_variant(endpoint), strict=True):
                assert {each.number for each in subscribers} == {
                    who for (of, who), v in self.model.items() if of == endpoint and v == variant
                }
            with_data = [who for (of, who), v in self.model.items() if of == endpoint and v != Variant.WITHOUT_DATA]
            counted = Counter(meter for who in with_data if (meter := self.subscribers[who].meter) is not UNMETERED)
            assert self.registry.meters(endpoint) == (counted or None)
            assert (endpoint in self.registry) == bool(expected), (
                "an endpoint without subscribers leaves nothing behind"
            )
        assert self.registry.entries == len(self.model)
        assert self.registry.metered == sum(
            variant != Variant.WITHOUT_DATA and self.subscribers[who].meter is not UNMETERED
            for (_, who), variant in self.model.items()
        )


RegistryMachine.TestCase.settings = walk_settings(examples=100)
TestRegistry = RegistryMachine.TestCase


def test_updates_and_frames_are_counted_apart() -> None:
    counter = UpdateCounter()
    counter.receive([b"/a", b"/b"])
    counter.deliver(b"/a", 3)
    counter.receive([b"/a"])
    counter.deliver(b"/a", 2)
    assert sorted(counter) == [(b"/a", 2, 5), (b"/b", 1, 0)]


def test_swapped_counts_start_again_at_zero() -> None:
    counter = UpdateCounter()
    counter.receive([b"/a"])
    counter.deliver(b"/a", 1)
    done = counter.swap()
    counter.receive([b"/b"])
    assert (list(done), list(counter)) == ([(b"/a", 1, 1)], [(b"/b", 1, 0)])
    assert (len(done), len(counter)) == (1, 1)


class Receiver:
    """A session with the messages that it was sent."""

    def __init__(self, fanout: Fanout, *names: str, data: bool = False, compressed: bool = False) -> None:
        self.messages: list[dict[str, Any]] = []
        self.frames: list[bytes] = []
        self.session = Session(self._read, self._read_many, fanout.stats, compressed=compressed)
        fanout.join(self.session)
        for name in names:
            variant = variant_for(self.session, with_data=data)
            endpoint = fanout.registry.add(name.encode(), self.session, variant)
            self.session.endpoints[endpoint] = data

    def _read(self, frame: bytes) -> None:
        self.frames.append(frame)
        self.messages.append(orjson.loads(payload_of(frame)))

    def _read_many(self, frames: Iterable[bytes]) -> None:
        for frame in frames:
            self._read(frame)

    @property
    def seen(self) -> list[tuple[str, bool]]:
        """The endpoint of each update, and whether it had data."""
        return [(message["endpoint"], "data" in message) for message in self.messages]


def payload_of(frame: bytes) -> bytes:
    """Return the payload of a frame as its receiver reads it."""
    payload = frame[payload_offset(frame) :]
    return payload if frame[0] == 0x81 else zlib.decompressobj(-WINDOW_BITS).decompress(payload + b"\0\0\xff\xff")


def full(name: str) -> bytes:
    return encode(name, 1_700_000_000_000, 0, data=b'{"points":[]}')


def long(name: str, version: int = 1_700_000_000_000) -> bytes:
    """An update whose data is worth compressing."""
    data = orjson.dumps({"points": [{"time": number, "value": number} for number in range(100)]})
    return encode(name, version, 0, data=data)


def test_each_subscriber_is_sent_the_update_that_it_asked_for() -> None:
    fanout = Fanout()
    plain, data, both = Receiver(fanout, "/a"), Receiver(fanout, "/a", data=True), Receiver(fanout, "/a")
    fanout.registry.add(b"/b", both.session, Variant.WITH_DATA)
    fanout.publish({b"/a": full("/a"), b"/b": full("/b"), b"/c": full("/c")})
    assert (plain.seen, data.seen) == ([("/a", False)], [("/a", True)])
    assert sorted(both.seen) == [("/a", False), ("/b", True)]
    assert (fanout.delivered, fanout.not_subscribed, fanout.stats.offered) == (2, 1, 4)


def test_an_update_that_carries_no_data_is_the_same_for_all() -> None:
    fanout = Fanout()
    receivers = [Receiver(fanout, "/a", data=data) for data in (True, False)]
    fanout.publish({b"/a": encode("/a", 1_700_000_000_000, 0)})
    fanout.resync([b"/a"])
    for receiver in receivers:
        assert [message["type"] for message in receiver.messages] == ["update", "resync"]
        assert "data" not in receiver.messages[0]


def test_frames_of_a_server_are_passed_on_with_or_without_their_data() -> None:
    fanout = Fanout(framed=True)
    plain, data = Receiver(fanout, "/a"), Receiver(fanout, "/a", data=True)
    compressed = Receiver(fanout, "/a", data=True, compressed=True)
    frame = text_frame(long("/a"))
    fanout.publish({b"/a": frame})
    assert (plain.seen, data.seen, compressed.seen) == ([("/a", False)], [("/a", True)], [("/a", True)])
    assert data.frames == [frame]
    assert len(compressed.frames[0]) * 4 < len(frame)


def test_an_update_is_compressed_once_for_those_who_can_read_it() -> None:
    fanout = Fanout()
    clients = [Receiver(fanout, "/a", data=True, compressed=True) for _ in range(2)]
    plain, data = Receiver(fanout, "/a", compressed=True), Receiver(fanout, "/a", data=True)
    update = long("/a")
    fanout.publish({b"/a": update})
    first, second = clients
    assert first.messages == second.messages == data.messages
    assert first.frames[0] is second.frames[0]
    assert first.frames[0] is fanout.frames.get(b"/a", update, Variant.COMPRESSED), "who comes later is sent the same"
    assert plain.seen == [("/a", False)]


def test_short_data_is_not_compressed() -> None:
    fanout = Fanout()
    client = Receiver(fanout, "/a", data=True, compressed=True)
    fanout.publish({b"/a": full("/a")})
    assert client.frames == [text_frame(full("/a"))]


def test_where_everyone_is_sent_everything_data_goes_to_those_who_asked() -> None:
    fanout = Fanout(everyone=True)
    nothing, data = Receiver(fanout), Receiver(fanout, "/a", data=True, compressed=True)
    narrow, narrow_data = Receiver(fanout, "/a"), Receiver(fanout, "/a", data=True)
    for receiver in (narrow, narrow_data):
        fanout.restrict(receiver.session, restricted=True)
    fanout.publish({b"/a": full("/a"), b"/b": full("/b")})
    assert nothing.seen == [("/a", False), ("/b", False)]
    assert data.seen == [("/a", True), ("/b", False)]
    assert (narrow.seen, narrow_data.seen) == ([("/a", False)], [("/a", True)])


def test_a_repeated_subscription_changes_what_is_sent() -> None:
    fanout = Fanout()
    receiver = Receiver(fanout, "/a", data=True)
    fanout.registry.add(b"/a", receiver.session)
    assert fanout.registry.entries == 1
    fanout.publish({b"/a": full("/a")})
    assert receiver.seen == [("/a", False)]


def test_a_slow_client_is_sent_the_latest_update_compressed_or_not() -> None:
    fanout = Fanout()
    client = Receiver(fanout, "/a", data=True, compressed=True)
    version = 1_700_000_000_000
    client.session.block()
    # As during a move, when another server's update arrives late.
    for update in (long("/a", version), long("/a", version + 2), long("/a", version + 1)):
        fanout.publish({b"/a": update})
    assert client.session.held == 1
    client.session.send(text_frame(encode("/a", version + 1, 0)))
    client.session.unblock()
    assert [message["version"] for message in client.messages] == [version + 2]


def test_frames_of_equal_length_are_compared_by_version_whether_compressed_or_not() -> None:
    fanout = Fanout()
    client = Receiver(fanout, "/a", data=True, compressed=True)
    version = 1_700_000_000_000
    compressed = fanout.frames.get(b"/a", long("/a", version), Variant.COMPRESSED)
    newer = b'{"type":"update","endpoint":"/a","version":%d' % (version + 1)
    plain = text_frame((newer + b"}").ljust(len(compressed) - 4))
    assert len(plain) == len(compressed)
    client.session.block()
    client.session.send(plain)
    client.session.send(compressed)
    client.session.unblock()
    assert [message["version"] for message in client.messages] == [version + 1]


def test_data_is_counted_by_key_and_not_sent_while_the_quota_is_used_up() -> None:
    for everyone in (False, True):
        fanout = Fanout(everyone=everyone)
        meters = [ReadMeter("a"), ReadMeter("b")]
        first, second = Receiver(fanout, "/a", data=True), Receiver(fanout, "/a", data=True, compressed=True)
        other, plain = Receiver(fanout, "/a", data=True), Receiver(fanout, "/a")
        for receiver, meter in ((first, meters[0]), (second, meters[0]), (other, meters[1]), (plain, meters[1])):
            fanout.set_meter(receiver.session, meter)
        fanout.publish({b"/a": full("/a"), b"/b": encode("/b", 1_700_000_000_000, 0)})
        assert [meter.reads for meter in meters] == [2, 1]
        for used_up in (True, False):
            meters[0].renew(0 if used_up else UNLIMITED)
            for receiver in (first, second):
                fanout.apply_quota(receiver.session)
            fanout.publish({b"/a": full("/a")})
        assert [meter.reads for meter in meters] == [4, 3]
        for receiver in (first, second):
            assert [sent for sent in receiver.seen if sent[0] == "/a"] == [("/a", True), ("/a", False), ("/a", True)]
        assert [sent for sent in other.seen if sent[0] == "/a"] == [("/a", True)] * 3
        assert [sent for sent in plain.seen if sent[0] == "/a"] == [("/a", False)] * 3


def test_updates_without_data_are_not_counted() -> None:
    for framed in (False, True):
        fanout, meter = Fanout(framed=framed), ReadMeter("a")
        receiver = Receiver(fanout, "/a", data=True)
        fanout.set_meter(receiver.session, meter)
        for update in (full("/a"), encode("/a", 1_700_000_000_000, 0)):
            fanout.publish({b"/a": text_frame(update) if framed else update})
        assert meter.reads == 1


def test_data_that_a_slow_client_is_not_sent_is_not_counted() -> None:
    for compressed in (False, True):
        fanout, meter = Fanout(), ReadMeter("a")
        receiver = Receiver(fanout, "/a", data=True, compressed=compressed)
        fanout.set_meter(receiver.session, meter)
        receiver.session.block()
        for version, data in enumerate([b"[1]" * 200, b"[2]" * 200, b"[3]", None, b"[4]"]):
            fanout.publish({b"/a": encode("/a", 1_700_000_000_000 + version, 0, data=data)})
        assert (meter.reads, meter.held) == (1, 1)
        assert meter.drain() == 0, "it is not sent yet"
        receiver.session.unblock()
        assert (meter.reads, meter.held, meter.drain()) == (1, 0, 1)


def test_data_that_was_never_sent_is_not_counted() -> None:
    fanout = Fanout()
    key = ReadMeter("a")
    alice = ReadMeter("a/alice", key)
    receiver = Receiver(fanout, "/a", "/b", data=True)
    fanout.set_meter(receiver.session, alice)
    receiver.session.block()
    fanout.publish({b"/a": full("/a"), b"/b": full("/b")})
    assert (key.reads, alice.reads) == (2, 2)
    fanout.unsubscribe(receiver.session, ["/a"])
    assert (key.reads, alice.reads) == (1, 1)
    fanout.leave(receiver.session)
    assert (key.reads, key.held, alice.reads, alice.held) == (0, 0, 0, 0)
    # A reply to a client that is gone meanwhile.
    receiver.session.drop([fanout.replayed(receiver.session, b"/a", full("/a"), Variant.WITH_DATA)])
    assert (key.reads, alice.reads) == (0, 0)


def test_a_session_that_left_is_freed_at_once() -> None:
    """A cycle would keep it, and its meter and recording, until the whole heap is searched for garbage."""

    class Watched(Session):
        __slots__ = ("__weakref__",)

    fanout, sent = Fanout(), deque[bytes]()
    for blocked in (False, True):
        session = Watched(sent.append, sent.extend, fanout.stats)
        fanout.join(session)
        if blocked:
            session.block()
        fanout.leave(session)
        freed = weakref.ref(session)
        del session
        assert freed() is None


def test_update_for_more_receivers_than_are_left_goes_without_data_to_all_of_the_account() -> None:
    for everyone in (False, True):
        fanout, key, other = Fanout(everyone=everyone), ReadMeter("a"), ReadMeter("b")
        alice, bob = ReadMeter("a/alice", key), ReadMeter("a/bob", key)
        receivers = [Receiver(fanout, "/a", "/b", data=True) for _ in range(4)]
        for receiver, meter in zip(receivers, (alice, alice, bob, other), strict=True):
            fanout.set_meter(receiver.session, meter)
        alice.renew(1)
        fanout.publish({b"/a": full("/a"), b"/b": full("/b")})
        assert [[with_data for _, with_data in receiver.seen] for receiver in receivers] == [
            *[[False, False]] * 2,
            *[[True, True]] * 2,
        ]
        assert (key.reads, alice.reads, bob.reads, other.reads) == (2, 0, 2, 2)
        key.renew(3)
        fanout.publish({b"/a": full("/a"), b"/b": full("/b")})
        assert [sum(with_data for _, with_data in receiver.seen) for receiver in receivers] == [0, 0, 3, 4]
        assert (key.reads, bob.reads) == (3, 3)
