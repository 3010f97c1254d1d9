"""A link that has refused a frame ignores the rest, even of the same packet."""

import asyncio
from collections.abc import Callable

import pytest
from websockets.protocol import CLOSING, OPEN

from diem.links.dialer import LONG_READ_S, YIELD_SHARE
from diem.links.feed_reader import FeedLink
from diem.protocol import feed
from diem.protocol.update import Change
from tests.support.spans import SAMPLED


class Sink:
    def __init__(self) -> None:
        self.events: list[str] = []

    def resume(self) -> feed.Resume:
        return feed.Resume(None, {})

    def hello(self, message: feed.Hello) -> None:
        self.events.append("hello")

    def batch(self, *batches: feed.Batch) -> None:
        self.events.append(" ".join(batch.name for batch in batches))

    def caught_up(self, name: str) -> None:
        self.events.append("caught_up")

    def resync(self, message: feed.Resync) -> None:
        self.events.append("resync")

    def owners(self, message: feed.Owners) -> None:
        self.events.append("owners")

    def traced(self, message: feed.Traced) -> None:
        self.events.append(f"traced {message.endpoint}")

    def heartbeat(self) -> None:
        self.events.append("heartbeat")


async def test_after_a_refusal_nothing_moves_the_position() -> None:
    sink = Sink()
    link = FeedLink("ws://127.0.0.1:1/feed", "Bearer x", sink)
    batch = feed.encode_batch("store", 2, [Change(1, b"/a", 1, 0, b"")])
    link.protocol.state = OPEN
    link.on_binary(batch)
    link.on_text(feed.HEARTBEAT)
    link.protocol.state = CLOSING
    link.on_binary(batch)
    link.on_text(feed.encode(feed.CaughtUp("store")))
    assert sink.events == ["store", "heartbeat"]
    link.opened.cancel()


async def test_context_of_a_traced_update_comes_after_the_batches_before_it() -> None:
    sink = Sink()
    link = FeedLink("ws://127.0.0.1:1/feed", "Bearer x", sink)
    link.protocol.state = OPEN
    link.on_binary(feed.encode_batch("before", 2, []))
    link.on_text(feed.encode(feed.Traced("/a", 1, SAMPLED)))
    link.on_binary(feed.encode_batch("after", 3, []))
    link._pass_on()
    assert sink.events == ["before", "traced /a", "after"]
    link.opened.cancel()


async def test_a_message_of_a_later_release_is_ignored_and_the_link_goes_on() -> None:
    sink = Sink()
    link = FeedLink("ws://127.0.0.1:1/feed", "Bearer x", sink)
    link.protocol.state = OPEN
    link.on_text(b'{"type":"later"}')
    link.on_text(feed.HEARTBEAT)
    assert sink.events == ["heartbeat"]
    assert link.is_open
    link.opened.cancel()


async def test_batches_of_one_read_are_passed_on_together_and_in_order_with_control_messages() -> None:
    sink = Sink()
    link = FeedLink("ws://127.0.0.1:1/feed", "Bearer x", sink)
    link.protocol.state = OPEN
    link.protocol.data_to_send()  # its request: there is no transport
    link.on_binary(feed.encode_batch("updates/0", 2, []))
    link.on_binary(feed.encode_batch("updates/1", 3, []))
    link.on_text(feed.HEARTBEAT)
    link.on_binary(feed.encode_batch("updates/2", 4, []))
    link._pass_on()
    assert sink.events == ["updates/0 updates/1", "heartbeat", "updates/2"]
    link.opened.cancel()


class Reading(asyncio.Transport):
    """Records when reading is paused and resumed."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.calls.append("pause")

    def resume_reading(self) -> None:
        self.calls.append("resume")


@pytest.mark.parametrize(("took", "calls"), [(0.9 * LONG_READ_S, []), (2 * LONG_READ_S, ["pause", "resume"])])
async def test_a_link_yields_to_other_work_after_a_long_read(
    took: float, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = iter([10.0, 10.0 + took])
    monkeypatch.setattr("diem.links.feed_reader.monotonic", lambda: next(ends))
    monkeypatch.setattr("diem.links.dialer.monotonic", lambda: next(ends))
    loop, delays = asyncio.get_running_loop(), list[float]()

    def call_later(delay: float, callback: Callable[[], None]) -> None:
        delays.append(delay)
        callback()

    monkeypatch.setattr(loop, "call_later", call_later)
    link = FeedLink("ws://127.0.0.1:1/feed", "Bearer x", Sink())
    link.protocol.state = OPEN
    link.protocol.data_to_send()  # its request
    link.transport = reading = Reading()
    link.data_received(b"")
    assert reading.calls == calls
    assert delays == pytest.approx([YIELD_SHARE * took] if calls else [])
    link.opened.cancel()
