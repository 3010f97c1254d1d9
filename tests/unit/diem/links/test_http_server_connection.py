"""Connections of the HTTP server, with events in an order that real sockets cannot guarantee."""

import asyncio
import gc
import weakref
from typing import Any, cast

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp

from diem.links import connection_limits
from diem.links.connection_limits import ConnectionLimits
from diem.links.http_server import HttpServer, TimedProtocol, make_server

HELLO = PlainTextResponse("hello")
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


class Wire(asyncio.Transport):
    """The server's transport of a client that reads everything at once."""

    def __init__(self) -> None:
        super().__init__({"peername": ("192.0.2.1", 1), "sockname": ("192.0.2.2", 80)})
        self.sent = b""
        self.ended = False
        self.reading = True

    @property
    def answers(self) -> int:
        return self.sent.count(b"200 OK")

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += data

    def is_closing(self) -> bool:
        return self.ended

    def close(self) -> None:
        self.ended = True

    def abort(self) -> None:
        self.ended = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def get_write_buffer_size(self) -> int:
        return 0


def serving(app: ASGIApp, readers: int) -> HttpServer:
    server = make_server(app, limits=ConnectionLimits(readers), drain_s=1)
    server.config.load()
    return server


def connected(server: HttpServer) -> tuple[TimedProtocol, Wire]:
    made = cast("Any", server.config.http_protocol_class)(
        config=server.config, server_state=server.server_state, app_state={}
    )
    wire = Wire()
    made.connection_made(wire)
    return made, wire


async def rest(*protocols: TimedProtocol) -> None:
    """Let all tasks end, then close."""
    for _ in range(50):
        await asyncio.sleep(0)
    for protocol in protocols:
        protocol.connection_lost(None)


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
