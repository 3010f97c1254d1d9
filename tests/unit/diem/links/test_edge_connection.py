"""Keepalive of clients by the timer wheel, floods, and pending handshakes."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from diem.fanout.feed_hub import FeedHub
from diem.links import connection as base_connection
from diem.links import edge as edge_module
from diem.links import edge_connection
from diem.links.edge import Admission, AdmissionRules, Edge, EdgeRules, HubService, Subscriber
from diem.links.edge_connection import EdgeConnection
from diem.links.keepalive import CLIENT_PING_EVERY_S, HEARTBEAT_CHECK_S, HEARTBEAT_S, TimerWheel
from diem.process.limits import RateLimit
from tests.support.patience import PATIENCE_S, until
from tests.support.security_events import recorded_events
from tests.unit.diem.links.edges import HANDSHAKE, Patient, listening

PING, PONG, CLOSE = 0x89, 0x8A, 0x88


class Member:
    def __init__(self, turns: Counter[tuple["Member", bool]]) -> None:
        self._turns = turns

    def on_ping_due(self) -> None:
        self._turns[self, True] += 1

    def on_pong_deadline(self) -> None:
        self._turns[self, False] += 1


def test_every_member_is_pinged_and_checked_once_in_each_round() -> None:
    turns: Counter[tuple[Member, bool]] = Counter()
    wheel: TimerWheel[Member] = TimerWheel()
    slots = {member: wheel.add(member) for member in [Member(turns) for _ in range(100)]}
    for _ in range(CLIENT_PING_EVERY_S):
        wheel.tick()
    assert turns == Counter({(member, due): 1 for member in slots for due in (True, False)})
    for member, slot in slots.items():
        wheel.discard(member, slot)
    for _ in range(CLIENT_PING_EVERY_S):
        wheel.tick()
    assert turns.total() == 200


@pytest.mark.parametrize("seconds", [1, 2, 5])
def test_what_is_due_more_often_is_due_at_most_so_many_seconds_apart(seconds: int) -> None:
    wheel: TimerWheel[Member] = TimerWheel()
    members = [Member(Counter()) for _ in range(100)]
    for member in members:
        wheel.add(member)
    last = dict.fromkeys(members, 0)
    for now in range(1, 3 * CLIENT_PING_EVERY_S):
        wheel.tick()
        for slot in wheel.due_every(seconds):
            last.update(dict.fromkeys(slot, now))
        assert min(last.values()) > now - seconds


@pytest.fixture
async def edge() -> AsyncIterator[tuple[Edge, int]]:
    hub = FeedHub()
    edge = Edge(hub.fanout, Admission(AdmissionRules()), EdgeRules("test", "single"), HubService(hub))
    edge.ready = True
    edge.publish_status(live=True, since="-")
    async with listening(edge) as port:
        yield edge, port


async def _connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(HANDSHAKE)
    await reader.readuntil(b"\r\n\r\n")
    return reader, writer


async def _frames(reader: asyncio.StreamReader, until: int) -> list[int]:
    """Return the first bytes of the frames up to one that begins with ``until``."""
    seen: list[int] = []
    async with asyncio.timeout(PATIENCE_S):
        while until not in seen:
            first, length = await reader.readexactly(2)
            if length == 126:
                length = int.from_bytes(await reader.readexactly(2), "big")
            body = await reader.readexactly(length)
            seen.append(first)
            if first == CLOSE:
                assert int.from_bytes(body[:2], "big") == 1011
    return seen


async def _round(edge: Edge, ticks: int) -> None:
    for _ in range(ticks):
        edge.wheel.tick()
        await asyncio.sleep(0)


async def test_a_client_that_does_not_answer_is_closed_with_1011_and_leaves_nothing(edge: tuple[Edge, int]) -> None:
    served, port = edge
    reader, writer = await _connect(port)
    await _round(served, 2 * CLIENT_PING_EVERY_S)
    seen = await _frames(reader, CLOSE)
    assert PING in seen
    assert not served.connections
    assert not served.fanout.sessions
    assert served.closes == {1011: 1}
    writer.close()


async def test_a_reconnect_brings_no_more_messages(edge: tuple[Edge, int]) -> None:
    served, port = edge
    served.admission = Admission(Patient())
    _, writer = await _connect(port)
    message = b'{"type":"unsubscribe","id":1,"endpoints":[]}'
    writer.write((bytes((0x81, 0x80 | len(message), 0, 0, 0, 0)) + message) * 62)
    async with asyncio.timeout(PATIENCE_S):
        while served.received["unsubscribe"] < 62:
            await asyncio.sleep(0.01)
        writer.close()
        while served.admission.open:
            await asyncio.sleep(0.01)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(HANDSHAKE)
    assert b" 429 " in await reader.readline()
    writer.close()


async def test_empty_fragments_take_no_room(edge: tuple[Edge, int]) -> None:
    served, port = edge
    _, writer = await _connect(port)
    writer.write(bytes((0x01, 0x80, 0, 0, 0, 0)) + bytes((0x00, 0x80, 0, 0, 0, 0)) * 150)
    await writer.drain()
    await asyncio.sleep(0.2)
    (connection,) = served.connections
    assert isinstance(connection, EdgeConnection)
    assert connection._fragments == bytearray()
    assert connection._fragments.__sizeof__() < 200
    writer.close()


@pytest.mark.parametrize("first", [0x89, 0x8A, 0x00])
async def test_a_flood_of_small_frames_is_closed_with_4003(edge: tuple[Edge, int], first: int) -> None:
    served, port = edge
    _, writer = await _connect(port)
    start = bytes((0x01, 0x80, 0, 0, 0, 0)) if first == 0 else b""
    writer.write(start + bytes((first, 0x80, 0, 0, 0, 0)) * 20_000)
    await until(lambda: not served.connections)
    assert served.closes == {4003: 1}
    writer.close()


@pytest.mark.parametrize("behind", [b"garbage that is no frame", bytes((0x88, 0x80, 0, 0, 0, 0)), HANDSHAKE])
async def test_what_stands_behind_an_unanswered_request_ends_the_connection(
    edge: tuple[Edge, int], behind: bytes
) -> None:
    served, port = edge
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(HANDSHAKE + behind)
    with contextlib.suppress(ConnectionResetError):
        assert await reader.read() == b""
    assert (served.admission.open, len(served.pending_handshakes)) == (0, 0)
    writer.close()


async def test_endless_headers_are_refused_and_cut(edge: tuple[Edge, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_connection, "CLOSE_TIMEOUT_S", 0.0)
    served, port = edge
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /ws HTTP/1.1\r\n" + b"X-A: " + b"a" * 4000 + b"\r\n" + (b"X-B: " + b"b" * 4000 + b"\r\n") * 8)
    assert (await reader.read()).startswith(b"HTTP/1.1 431 ")
    await until(lambda: not served.pending_handshakes)
    writer.close()


@pytest.mark.parametrize(
    "request_text",
    [
        HANDSHAKE.replace(b"\r\n\r\n", b"\r\nX-A: \x1b[31m\r\n\r\n"),
        HANDSHAKE.replace(b"\r\n\r\n", b"\r\nX-A: \x7f\r\n\r\n"),
        HANDSHAKE.replace(b"\r\n\r\n", b"\r\nContent-Length: 4\r\n\r\nbody"),
        HANDSHAKE.replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        b"nonsense\r\n\r\n",
    ],
    ids=["ESC", "DEL", "body", "chunked body", "nonsense"],
)
async def test_what_is_no_handshake_is_answered_because_a_closed_connection_would_count_as_a_failure(
    edge: tuple[Edge, int], request_text: bytes
) -> None:
    _, port = edge
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request_text)
    assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
    writer.close()


async def test_codes_that_clients_invent_are_counted_together(edge: tuple[Edge, int]) -> None:
    served, port = edge
    for code in (3001, 4123, 4321, 1000):
        reader, writer = await _connect(port)
        writer.write(bytes((0x88, 0x82, 0, 0, 0, 0)) + code.to_bytes(2, "big"))
        await reader.read()
        writer.close()
    assert served.closes == {0: 3, 1000: 1}


async def test_a_client_that_answers_stays(edge: tuple[Edge, int]) -> None:
    served, port = edge
    reader, writer = await _connect(port)
    (connection,) = served.connections
    assert isinstance(connection, EdgeConnection)
    for _ in range(3):
        for _ in range(CLIENT_PING_EVERY_S):
            before = connection.alive
            served.wheel.tick()
            if before and not connection.alive:
                await _frames(reader, PING)
                writer.write(bytes((PONG, 0x80, 0, 0, 0, 0)))
                await writer.drain()
                while not connection.alive:
                    await asyncio.sleep(0.001)
    assert len(served.connections) == 1
    writer.close()


async def test_refused_handshakes_are_security_events_but_not_those_of_a_starting_server(
    edge: tuple[Edge, int],
) -> None:
    served, port = edge

    async def status(head: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head)
        line = await reader.readline()
        writer.close()
        return line.split()[1]

    foreign = HANDSHAKE.replace(b"Host: x", b"Host: x\r\nOrigin: https://evil.example")
    with recorded_events() as events:
        assert [await status(foreign) for _ in range(3)] == [b"403"] * 3
        assert await status(HANDSHAKE.replace(b"/ws", b"/admin?key=secret")) == b"404"
        served.ready = False
        assert await status(HANDSHAKE) == b"503"
    refused, wrong_path = events.of("handshake_refused")
    assert (refused["address"], refused["origin"], refused["code"]) == ("127.0.0.1", "https://evil.example", 403)
    assert wrong_path["code"] == 404
    assert "secret" not in str(events.all())
    assert served.refused == {403: 3, 404: 1, 503: 1}


async def ask(port: int, *fields: bytes) -> tuple[int, dict[str, str], dict[str, Any]]:
    """Return status, header fields and problem document of a request to the WebSocket path without an upgrade."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"\r\n".join((b"GET /ws HTTP/1.1", b"Host: x", *fields, b"", b"")))
    async with asyncio.timeout(PATIENCE_S):
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    first, *lines = head.decode().split("\r\n")
    return int(first.split()[1]), dict(line.split(": ", 1) for line in lines), orjson.loads(body)


async def test_a_page_may_ask_why_its_handshake_was_refused_and_counts_nowhere(edge: tuple[Edge, int]) -> None:
    served, port = edge
    foreign = b"Origin: http://localhost:5173"
    with recorded_events() as events:
        status, fields, problem = await ask(port, foreign)
    assert (status, problem["code"]) == (403, "origin")
    assert problem["detail"].endswith("start with --origin http://localhost:5173")
    assert (fields["Access-Control-Allow-Origin"], fields["Content-Type"]) == ("*", "application/problem+json")
    served.admission = Admission(AdmissionRules(per_address=1))
    assert (await ask(port))[0] == 426
    _, writer = await _connect(port)
    status, fields, problem = await ask(port)
    assert (status, problem["code"], fields["Retry-After"]) == (429, "limit", "10")
    writer.close()
    served.ready = False
    assert (await ask(port))[2]["code"] == "not_ready"
    assert events.all() == []
    assert not served.refused


async def test_a_page_that_asks_too_often_is_refused_counted_and_logged(
    edge: tuple[Edge, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    served, port = edge
    monkeypatch.setattr("diem.links.edge.EXPLANATIONS", RateLimit(1e-3, 3.0))
    served.admission = Admission(AdmissionRules())
    with recorded_events() as events:
        answers = [await ask(port) for _ in range(5)]
    assert [status for status, _, _ in answers] == [426, 426, 426, 429, 429]
    _, fields, problem = answers[-1]
    assert (problem["code"], problem["detail"]) == ("rate", "too many requests from this address")
    assert fields["Access-Control-Allow-Origin"] == "*"
    assert int(fields["Retry-After"]) > 1
    assert served.refused == {429: 2}
    (line,) = events.of("rate_exceeded")
    assert (line["address"], line["code"]) == ("127.0.0.1", 429)
    _, writer = await _connect(port)
    assert len(served.connections) == 1, "clients are not concerned"
    writer.close()


async def test_a_client_beyond_its_rate_is_a_security_event(edge: tuple[Edge, int]) -> None:
    served, port = edge
    served.admission = Admission(Patient())
    message = b'{"type":"unsubscribe","id":1,"endpoints":[]}'
    with recorded_events() as events:
        _, writer = await _connect(port)
        writer.write((bytes((0x81, 0x80 | len(message), 0, 0, 0, 0)) + message) * 63)
        await until(lambda: served.closes)
        writer.close()
    (line,) = events.of("rate_exceeded")
    assert (line["address"], line["code"], line["detail"]) == ("127.0.0.1", 4003, "messages")


async def test_compression_is_not_negotiated_where_it_is_off(edge: tuple[Edge, int]) -> None:
    _, port = edge
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    offer = b"Host: x\r\nSec-WebSocket-Extensions: permessage-deflate; client_max_window_bits"
    writer.write(HANDSHAKE.replace(b"Host: x", offer))
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101 ")
    assert b"sec-websocket-extensions" not in head.lower()
    writer.close()


async def test_connections_wait_while_many_others_had_no_time_for_a_request(
    edge: tuple[Edge, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    served, port = edge
    monkeypatch.setattr(edge_module, "ACCEPTED_AHEAD", 2)
    silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
    await until(lambda: len(served.pending_handshakes) == 2)
    begun = max(served.pending_handshakes.values())
    served.pending_handshakes.update(dict.fromkeys(served.pending_handshakes, begun + PATIENCE_S))
    assert served.awaits_requests()
    served.pending_handshakes.update(dict.fromkeys(served.pending_handshakes, begun - edge_module.REQUEST_AFTER_S))
    assert not served.awaits_requests()
    for _, each in silent:
        each.close()
    await until(lambda: not served.pending_handshakes)


async def test_silent_web_socket_connections_are_bounded_and_the_oldest_gives_way(
    edge: tuple[Edge, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    served, port = edge
    monkeypatch.setattr(edge_connection, "MAX_PENDING_HANDSHAKES", 3)
    with recorded_events() as events:
        silent = []
        for expected in (1, 2, 3, 3):
            silent.append(await asyncio.open_connection("127.0.0.1", port))
            async with asyncio.timeout(PATIENCE_S):
                while len(served.pending_handshakes) < expected or (len(silent) == 4 and not served.refused):
                    await asyncio.sleep(0.01)
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(silent[0][0].read(), PATIENCE_S) == b""
        reader, writer = await _connect(port)
        assert (await reader.readexactly(1))[0] == 0x81
    assert [line["code"] for line in events.of("handshake_refused")] == [0]
    for _, each in [*silent, (reader, writer)]:
        each.close()


async def test_the_welcome_says_over_which_time_the_clients_of_the_server_spread_their_fetches(
    edge: tuple[Edge, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("diem.links.edge.FETCHES_PER_S", 4)
    connections = [await _connect(edge[1]) for _ in range(2)]
    async with asyncio.timeout(PATIENCE_S):
        heads = [await reader.readuntil(b"}") + await reader.readuntil(b"}") for reader, _ in connections]
    assert [b'"fetch_window_ms":%d,' % (250 * clients) in head for clients, head in enumerate(heads, 1)] == [True] * 2
    for _, writer in connections:
        writer.close()


async def _texts(reader: asyncio.StreamReader) -> AsyncIterator[dict[str, Any]]:
    """Messages of the server; pings between them are left out."""
    while True:
        first, length = await reader.readexactly(2)
        if length == 126:
            length = int.from_bytes(await reader.readexactly(2), "big")
        body = await reader.readexactly(length)
        if first == 0x81:
            yield orjson.loads(body)


async def test_a_client_that_is_sent_nothing_else_has_a_heartbeat_in_each_interval_that_was_announced(
    edge: tuple[Edge, int],
) -> None:
    served, port = edge
    reader, writer = await _connect(port)
    texts = _texts(reader)
    async with asyncio.timeout(PATIENCE_S):
        assert (await anext(texts))["heartbeat_ms"] == 1000 * HEARTBEAT_S
        assert await anext(texts) == {"type": "status", "live": True, "since": "-"}
        (connection,) = served.connections
        for live in (True, False):
            if not live:
                served.publish_status(live=False, since="-")
                await anext(texts)
            connection.on_heartbeat_check()
            for _ in range(2):
                connection.on_heartbeat_check()
                assert await anext(texts) == {"type": "status", "live": live, "since": "-", "endpoints": []}
                connection.on_heartbeat_check()
    writer.close()


async def test_a_client_that_was_sent_something_else_has_no_heartbeat(edge: tuple[Edge, int]) -> None:
    served, port = edge
    reader, writer = await _connect(port)
    async with asyncio.timeout(PATIENCE_S):
        texts = _texts(reader)
        await anext(texts)
        await anext(texts)
        (connection,) = served.connections
        served.fanout.registry.add(b"/a", connection.session)
        for version in range(1, 4):
            served.fanout.publish({b"/a": b'{"version":%d}' % version})
            connection.on_heartbeat_check()
        served.publish_status(live=True, since="end")
        assert [(await anext(texts)).get("version") for _ in range(4)] == [1, 2, 3, None]
    writer.close()


@pytest.mark.parametrize("every_s", [HEARTBEAT_CHECK_S, 1])
async def test_the_edge_checks_every_client_within_two_seconds_or_at_once(edge: tuple[Edge, int], every_s: int) -> None:
    served, port = edge
    clients = [await _connect(port) for _ in range(5)]
    for connection in served.connections:
        connection.session.recently_sent = False
    for _ in range(every_s):
        served.wheel.tick()
        served.send_heartbeats(every_s)
    status = {"type": "status", "live": True, "since": "-"}
    async with asyncio.timeout(PATIENCE_S):
        for reader, writer in clients:
            texts = _texts(reader)
            seen = [await anext(texts) for _ in range(3)]
            # The status of its ping stands in for the heartbeat of a client whose place on the wheel is due.
            assert seen[2] in ({**status, "endpoints": []}, status)
            writer.close()


class RecordingService(HubService):
    """The hub's service, with the event of flow control."""

    def __init__(self, hub: FeedHub) -> None:
        super().__init__(hub)
        self.events: list[str] = []

    def unblocked(self, client: Subscriber) -> None:
        self.events.append("unblocked")


async def test_the_service_knows_when_the_buffer_of_a_client_is_no_longer_full() -> None:
    hub = FeedHub()
    service = RecordingService(hub)
    edge = Edge(hub.fanout, Admission(AdmissionRules()), EdgeRules("test", "single"), service)
    edge.ready = True
    edge.publish_status(live=True, since="-")
    async with listening(edge) as port:
        await _connect(port)
        await until(lambda: edge.connections)
        (connection,) = edge.connections
        assert isinstance(connection, EdgeConnection)
        connection.pause_writing()
        assert service.events == []
        connection.resume_writing()
        assert service.events == ["unblocked"]
