"""Connections of the HTTP server, with events in an order that real sockets cannot guarantee."""

import asyncio
import gc
import weakref
from ipaddress import ip_network

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from diem.links import connection_limits, http_server
from diem.links.connection_limits import ConnectionLimits
from diem.links.fast_path import FastAnswer, RequestHead
from diem.links.http_server import KEEP_ALIVE_S, make_server
from tests.support.http_wire import connected, rest, serving

HELLO = PlainTextResponse("hello")
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


async def test_a_connection_whose_next_request_has_begun_is_not_evicted() -> None:
    server = serving(HELLO, readers=1)
    (regular, regular_wire), (new, new_wire) = connected(server), connected(server)
    regular.data_received(GET)
    while not regular_wire.answers:
        await asyncio.sleep(0)
    new.data_received(GET)
    regular.data_received(GET)
    await rest(regular, new)
    assert regular_wire.answers == 2
    assert b"503 Service Unavailable" in new_wire.sent


async def test_pipelined_requests_take_turns_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "REQUESTS_PER_TURN", 2)
    server = serving(HELLO, readers=10)
    connections = [connected(server) for _ in range(8)]
    for protocol, _ in connections:
        protocol.data_received(3 * GET)
    in_turns = []
    for _ in range(50):
        before = sum(wire.answers for _, wire in connections)
        await asyncio.sleep(0)
        in_turns.append(sum(wire.answers for _, wire in connections) - before)
    await rest(*(protocol for protocol, _ in connections))
    assert [wire.answers for _, wire in connections] == [3] * 8
    assert max(in_turns) <= 2
    assert all(wire.reading for _, wire in connections)


async def test_a_request_that_waits_for_its_turn_is_not_cut_as_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "REQUESTS_PER_TURN", 1)
    server = serving(HELLO, readers=10)
    (idle, wire), (other, _) = connected(server), connected(server)
    idle.data_received(GET)
    while not wire.answers:
        await asyncio.sleep(0)
    other.data_received(GET)
    idle.data_received(GET)
    idle.timeout_keep_alive_handler()
    await rest(idle, other)
    assert wire.answers == 2


async def test_a_request_that_is_worked_on_for_longer_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "REQUEST_S", 0.05)
    go = asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await Request(scope, receive).body()
        await go.wait()
        await HELLO(scope, receive, send)

    protocol, wire = connected(serving(slow, readers=10))
    protocol.data_received(b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\na")
    protocol.data_received(b"b")
    await asyncio.sleep(4 * http_server.REQUEST_S)
    assert not wire.ended
    go.set()
    await rest(protocol)
    assert wire.answers == 1


async def test_of_a_connection_that_its_client_resets_nothing_is_kept() -> None:
    server = serving(HELLO, readers=10)
    protocol, wire = connected(server)
    protocol.data_received(GET)
    while not wire.answers:
        await asyncio.sleep(0)
    wire.abort()
    protocol.connection_lost(ConnectionResetError())
    await asyncio.sleep(0)
    kept = weakref.ref(protocol)
    del protocol
    gc.collect()
    assert kept() is None
    assert not len(server.limiter)


FAST = b"GET /fast HTTP/1.1\r\nHost: x\r\n\r\n"


def fast_path(head: RequestHead, address: str) -> FastAnswer | None:
    """Answer one path with the client's address."""
    if head.target != b"/fast":
        return None
    body = address.encode()
    return FastAnswer(200, b"content-length: %d\r\n" % len(body), body)


async def test_what_the_fast_path_answers_is_written_at_once_and_the_connection_stays_in_step() -> None:
    server = serving(HELLO, 10, fast_path)
    protocol, wire = connected(server)
    protocol.data_received(FAST)
    assert wire.sent == b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n192.0.2.1"
    assert protocol in server.limiter.readers.members
    for data in (GET, FAST, GET + FAST, FAST):
        before = wire.answers
        protocol.data_received(data)
        while wire.answers < before + data.count(b"GET "):
            await asyncio.sleep(0)
    assert [part.rsplit(b"\r\n")[-1] for part in wire.sent.split(b"HTTP/1.1 200 OK")[1:]] == [
        *(b"192.0.2.1", b"hello", b"192.0.2.1", b"hello"),
        b"hello",  # pipelined: by the library
        b"192.0.2.1",
    ]
    await rest(protocol)
    assert not len(server.limiter)


async def test_a_head_that_comes_in_pieces_is_left_to_the_library() -> None:
    protocol, wire = connected(serving(HELLO, 10, fast_path))
    for piece in (FAST[:20], FAST[20:]):
        assert not wire.sent
        protocol.data_received(piece)
    # What was meant as the rest of the head could be a whole request of its own.
    protocol.data_received(b"GET /")
    protocol.data_received(FAST)
    await rest(protocol)
    assert b"192.0.2.1" not in wire.sent
    assert (wire.answers, wire.sent.count(b"400 Bad Request")) == (1, 1)


async def test_a_client_that_does_not_read_is_left_to_the_library() -> None:
    protocol, wire = connected(serving(HELLO, 10, fast_path))
    wire.unread = 1
    protocol.data_received(FAST)
    await rest(protocol)
    assert wire.sent.endswith(b"hello")


async def test_a_request_of_the_fast_path_behind_one_that_is_being_answered_waits() -> None:
    protocol, wire = connected(serving(HELLO, 10, fast_path))
    protocol.data_received(GET)
    protocol.data_received(FAST)
    assert not wire.sent
    await rest(protocol)
    assert wire.sent.count(b"hello") == 2


async def test_a_reader_beyond_the_limit_is_refused_and_an_idle_one_gives_way() -> None:
    free = asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await free.wait()
        await HELLO(scope, receive, send)

    server = serving(slow, 1, fast_path)
    (first, first_wire), (second, second_wire) = connected(server), connected(server)
    first.data_received(FAST)
    second.data_received(FAST)
    assert (first_wire.ended, second_wire.answers) == (True, 1)
    first.connection_lost(None)
    second.data_received(GET)
    third, third_wire = connected(server)
    third.data_received(FAST)
    while not third_wire.sent:
        await asyncio.sleep(0)
    free.set()
    await rest(second, third)
    assert b"503 Service Unavailable" in third_wire.sent
    assert sum(server.limiter.refused.values()) == 1


async def test_requests_with_credentials_are_left_to_the_library_and_take_no_place_of_readers() -> None:
    server = serving(HELLO, 1, fast_path)
    protocol, wire = connected(server)
    protocol.data_received(FAST.replace(b"\r\n\r\n", b"\r\nAuthorization: Bearer x\r\n\r\n"))
    assert not wire.sent
    assert protocol not in server.limiter.readers.members
    await rest(protocol)
    assert wire.sent.endswith(b"hello")


async def test_the_address_of_a_client_behind_a_trusted_proxy_is_resolved() -> None:
    limits = ConnectionLimits(10)
    proxies = [ip_network("192.0.2.1")]
    server = make_server(HELLO, limits=limits, drain_s=1, fast_path=fast_path, trusted_proxies=proxies)
    server.config.load()
    protocol, wire = connected(server)
    protocol.data_received(FAST.replace(b"\r\n\r\n", b"\r\nX-Forwarded-For: 198.51.100.7\r\n\r\n"))
    assert wire.sent.endswith(b"198.51.100.7")
    await rest(protocol)


async def test_an_idle_connection_is_closed_after_its_last_answer_of_the_fast_path() -> None:
    loop = asyncio.get_running_loop()
    protocol, wire = connected(serving(HELLO, 10, fast_path))
    protocol.data_received(FAST)
    assert protocol.timeout_keep_alive_task is not None
    assert protocol.timeout_keep_alive_task.when() <= loop.time() + KEEP_ALIVE_S
    protocol.timeout_keep_alive_handler()  # as if it were due while the last answer is younger
    assert not wire.ended
    protocol.timeout_keep_alive = 0
    protocol.timeout_keep_alive_handler()
    assert wire.ended
    await rest(protocol)
