"""How fast the client sends, and how long it stays away: over a server's real edge, in virtual time."""

import asyncio
from itertools import pairwise
from typing import Self

import pytest
from websockets.datastructures import Headers
from websockets.http11 import Response

from diem.client import Event, UpdatesClient
from diem.client.backoff import TokenBuckets
from diem.client.link import MAX_REFUSAL_CHARS, refusal_text
from diem.fanout.feed_hub import FeedHub
from diem.links.edge import Admission, AdmissionRules, Edge, EdgeRules, HubService
from diem.links.edge_connection import EdgeConnection
from diem.links.refusals import Cause, RefusedClient
from diem.protocol.codes import Close, reconnects
from tests.support.virtual_time import VirtualLoop, run_virtual

PORT = 8101
URL = f"ws://127.0.0.1:{PORT}/ws"
SHORT_S = 0.05
"""More than a connection takes, less than any delay here."""


class Served:
    """A server's edge on a virtual loop, and a client of it."""

    def __init__(self, loop: VirtualLoop, subscriptions: int = 128, per_address: int = 50) -> None:
        self.loop = loop
        self.dials: list[float] = []
        gate = Admission(AdmissionRules(subscriptions=subscriptions, per_address=per_address))
        hub = FeedHub(limit=10_000)
        rules = EdgeRules("test", "single", subscriptions=subscriptions)
        self.edge = Edge(hub.fanout, gate, rules, HubService(hub))
        self.edge.ready = True
        self.edge.publish_status(live=True, since="-")
        self.client = UpdatesClient(URL)
        self.events: list[Event] = []
        self.ended = False
        loop.listening[PORT] = self._accept

    def _accept(self) -> EdgeConnection:
        self.dials.append(self.loop.time())
        return EdgeConnection(self.edge)

    @property
    def subscribed(self) -> set[str]:
        """What the server has registered."""
        return {name.decode() for session in self.edge.fanout.sessions for name in session.endpoints}

    def close(self, code: int, reason: str) -> None:
        for connection in list(self.edge.connections):
            connection.close(code, reason)

    async def _follow(self) -> None:
        async for event in self.client:
            self.events.append(event)
        self.ended = True

    async def __aenter__(self) -> Self:
        await self.client.__aenter__()
        self._tasks = [asyncio.create_task(each) for each in (self._follow(), self.edge.run())]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.__aexit__(None, None, None)
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)


def test_a_view_opened_and_closed_every_half_second_stays_within_the_servers_rate() -> None:
    async def main(loop: VirtualLoop) -> None:
        async with Served(loop) as served:
            for number in range(200):
                await served.client.subscribe({f"/{number}": None})
                await asyncio.sleep(0.25)
                await served.client.unsubscribe([f"/{number}"])
                await asyncio.sleep(0.25)
            await served.client.subscribe({"/last": None})
            await asyncio.sleep(1.0)
            assert served.subscribed == {"/last"}
            assert (served.ended, len(served.dials), served.edge.errors.total()) == (False, 1, 0)

    run_virtual(main)


def test_what_piles_up_while_there_is_no_permit_is_one_message() -> None:
    async def main(loop: VirtualLoop) -> None:
        async with Served(loop) as served:
            await asyncio.sleep(SHORT_S)
            for number in range(15):  # the burst, one message each
                await served.client.subscribe({f"/{number}": None})
                await asyncio.sleep(SHORT_S / 10)
            assert served.edge.received == {"subscribe": 15}
            for number in range(15, 100):
                await served.client.subscribe({f"/{number}": None})
                await asyncio.sleep(SHORT_S / 100)
            await served.client.unsubscribe([f"/{number}" for number in range(20, 100)])
            await asyncio.sleep(0.7)
            assert served.edge.received == {"subscribe": 16}
            assert served.subscribed == {f"/{number}" for number in range(20)}

    run_virtual(main)


def test_a_reconnect_does_not_refill_the_permits() -> None:
    async def main(loop: VirtualLoop) -> None:
        async with Served(loop) as served:
            await asyncio.sleep(SHORT_S)
            for turn in range(4):
                for number in range(30):  # more than the burst, one message each
                    await served.client.subscribe({f"/{turn}/{number}": None})
                    await asyncio.sleep(SHORT_S / 10)
                served.close(Close.RESTART, "retry=10")
                await asyncio.sleep(0.5)
            await asyncio.sleep(5.0)
            assert len(served.subscribed) == 120
            assert (served.ended, served.edge.errors.total()) == (False, 0)

    run_virtual(main)


def test_names_for_which_the_server_has_no_place_are_rejected_at_once_and_without_a_request() -> None:
    async def main(loop: VirtualLoop) -> None:
        async with Served(loop, 1024) as served:
            await served.client.subscribe({f"/{number}": None for number in range(6000)})
            await asyncio.sleep(SHORT_S)
            assert served.subscribed == {f"/{number}" for number in range(1024)}, "the first ones"
            rejected = {event.endpoint: event.message for event in served.events if event.kind == "rejected"}
            assert rejected.keys() == {f"/{number}" for number in range(1024, 6000)}
            assert set(rejected.values()) == {"limit: over 1024 subscriptions (DIEM_*_SUBSCRIPTIONS)"}
            await served.client.unsubscribe(["/0"])
            await served.client.subscribe({"/6000": None, "/6001": None})
            await asyncio.sleep(SHORT_S)
            assert "/6000" in served.subscribed, "there is one place"
            assert "/6001" in {event.endpoint for event in served.events if event.kind == "rejected"}
            assert served.edge.received == {"subscribe": 12, "unsubscribe": 1}

    run_virtual(main)


@pytest.mark.parametrize(
    ("subscriptions", "at_once", "last_s"),
    [(128, 3, 5.0), (1024, 1, 25.0)],
)
def test_many_subscriptions_survive_several_restarts_in_a_row(
    subscriptions: int, at_once: int, last_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("diem.client.backoff.full_jitter", lambda *_: 0.0)

    async def main(loop: VirtualLoop) -> None:
        async with Served(loop, subscriptions) as served:
            await served.client.subscribe({f"/{number}": None for number in range(subscriptions)})
            for turn in range(5):
                opened = loop.time()
                while len(served.subscribed) < subscriptions:
                    assert loop.time() < opened + (SHORT_S if turn < at_once else last_s)
                    await asyncio.sleep(SHORT_S / 10)
                served.close(Close.RESTART, "restart retry=2000")
                await asyncio.sleep(SHORT_S / 10)
            await asyncio.sleep(last_s)
            assert len(served.subscribed) == subscriptions
            assert (served.ended, served.edge.errors.total(), served.edge.closes[Close.RATE]) == (False, 0, 0)

    run_virtual(main)


def test_names_use_up_permits_as_the_server_counts_them() -> None:
    async def main(loop: VirtualLoop) -> None:
        async with Served(loop) as served:
            for turn in range(5):
                names = [f"/{turn}/{number}" for number in range(100)]
                await served.client.subscribe(dict.fromkeys(names))
                await asyncio.sleep(SHORT_S / 10)
                await served.client.unsubscribe(names[turn:])
                await asyncio.sleep(SHORT_S / 10)
            # 3 permits for 100 names, 2 for fewer: 14, and one is left for the next message.
            assert served.edge.received == {"subscribe": 3, "unsubscribe": 3}
            await asyncio.sleep(15.0)
            assert len(served.subscribed) == 1 + 2 + 3 + 4
            assert (len(served.dials), served.edge.errors.total()) == (1, 0)

    run_virtual(main)


def test_a_server_that_was_sent_nothing_lately_is_forgotten() -> None:
    buckets = TokenBuckets()
    for number in range(1000):
        buckets.charge(f"server-{number}", 1, number * 0.5)
    assert len(buckets) == 2
    assert buckets.wait_s("server-0", 128, 500.0) == 0.0


def test_who_was_too_fast_begins_with_nothing() -> None:
    async def main(loop: VirtualLoop) -> None:
        async with Served(loop) as served:
            await asyncio.sleep(SHORT_S)
            served.close(Close.RATE, "retry=1")  # others of the address have used up what this client is lent
            await asyncio.sleep(SHORT_S)
            assert len(served.edge.connections) == 1
            for number in range(5):
                await served.client.subscribe({f"/{number}": None})
                await asyncio.sleep(SHORT_S)
            assert served.edge.received.total() == 0
            await asyncio.sleep(0.7)
            assert (served.edge.received, len(served.subscribed)) == ({"subscribe": 1}, 5)

    run_virtual(main)


@pytest.mark.parametrize("code", [int(code) for code in Close if reconnects(code)])
def test_the_window_of_a_close_reason_is_kept_whatever_the_code(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diem.client.backoff.full_jitter", lambda _attempt, base, cap, _rng: min(base, cap))

    async def main(loop: VirtualLoop) -> None:
        async with Served(loop) as served:
            await asyncio.sleep(1.0)
            served.close(code, "any words retry=12000")
            await asyncio.sleep(15.0)
            assert served.dials[1] - 1.0 == pytest.approx(12.0, abs=SHORT_S)

    run_virtual(main)


@pytest.mark.parametrize("drawn", [0.0, 0.25])
def test_the_pause_of_a_refused_handshake_is_the_least_that_is_waited(
    monkeypatch: pytest.MonkeyPatch, drawn: float
) -> None:
    monkeypatch.setattr("diem.client.backoff.full_jitter", lambda *_: drawn)

    async def main(loop: VirtualLoop) -> None:
        async with Served(loop) as served:
            served.edge.ready = False  # 503 with Retry-After: 1
            await asyncio.sleep(3.0)
            gaps = [later - dial for dial, later in zip(served.dials, served.dials[1:], strict=False)]
            assert gaps == [pytest.approx(1.0 + drawn, abs=SHORT_S)] * 2
            served.edge.ready = True
            await asyncio.sleep(1.0 + drawn)
            assert len(served.edge.connections) == 1

    run_virtual(main)


def test_the_text_of_a_refused_handshake_sets_no_window(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = RefusedClient(503, Cause.FULL, "busy retry=500000")
    monkeypatch.setattr("diem.links.edge_connection.NOT_READY", refusal)
    monkeypatch.setattr("diem.client.backoff.full_jitter", lambda _attempt, base, cap, _rng: min(base, cap))

    async def main(loop: VirtualLoop) -> None:
        async with Served(loop) as served:
            served.edge.ready = False
            await asyncio.sleep(60.0)
            assert len(served.dials) >= 4

    run_virtual(main)


def test_a_client_beyond_the_limit_of_its_address_says_why_and_comes_again_when_it_was_asked_to() -> None:
    async def main(loop: VirtualLoop) -> None:
        async with Served(loop, per_address=1) as served:
            await asyncio.sleep(1.0)
            events: list[Event] = []

            async def follow(client: UpdatesClient) -> None:
                async for event in client:
                    events.append(event)  # noqa: PERF401 - it is cancelled: a comprehension would leave nothing

            async with UpdatesClient(URL) as second:
                following = asyncio.create_task(follow(second))
                await asyncio.sleep(50.0)
                following.cancel()
                await asyncio.wait([following])
            assert {(event.kind, event.code, event.message) for event in events} == {
                ("closed", 429, "429: this address has 1 clients already (--clients-per-address)")
            }
            gaps = [later - dial for dial, later in pairwise(served.dials[1:])]
            assert len(gaps) >= 2
            assert min(gaps) >= 10.0

    run_virtual(main)


@pytest.mark.parametrize(
    ("kind", "body", "text"),
    [
        ("text/plain; charset=utf-8", b"not here\n", "403: not here"),
        ("application/problem+json", b'{"detail":"too many"}', "403: too many"),
        ("application/problem+json", b"[1]", "403: Forbidden"),
        ("application/problem+json", b"{", "403: Forbidden"),
        ("text/html", b"<h1>Forbidden</h1>", "403: Forbidden"),
        ("text/plain", b"\x1b[31m" + b"x" * 5000, "403: [31m" + "x" * (MAX_REFUSAL_CHARS - 5)),
        ("text/plain", b"", "403"),
    ],
)
def test_the_reason_of_a_refusal_is_read_from_texts_and_problem_documents(kind: str, body: bytes, text: str) -> None:
    assert refusal_text(Response(403, "Forbidden", Headers({"Content-Type": kind}), body)) == text
