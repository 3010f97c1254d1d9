"""The fast path of writes answers exactly as the routes do, with the same effects, or leaves the request to them."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from diem.links import http_server
from diem.links.connection_limits import ConnectionLimits
from diem.links.http_server import make_server
from services.data.store.store import Store
from tests.support.http_wire import connected
from tests.support.http_wire import rest as end
from tests.unit.services.data.conftest import BODY, WRITE_KEY, Rest

KEY = {"Authorization": f"Bearer {WRITE_KEY}"}
JSON = {"Content-Type": "application/json"}
SERIES = {"Content-Type": "application/vnd.diem.series+json"}
MERGE = {"Content-Type": "application/merge-patch+json"}


class Asked(NamedTuple):
    """A request."""

    method: str
    target: str
    content: bytes = b""
    headers: dict[str, str] = JSON
    key: dict[str, str] = KEY

    def bytes(self) -> bytes:
        """Return the request as it is sent."""
        fields = {"Host": "localhost:8080", **self.key, **self.headers, "Content-Length": str(len(self.content))}
        lines = [f"{self.method} {self.target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
        return "\r\n".join([*lines, "", ""]).encode() + self.content


def put(endpoint: str, value: Any, headers: dict[str, str] = JSON) -> Asked:
    return Asked("PUT", f"/v1/data{endpoint}", json.dumps(value).encode(), headers)


REQUESTS: Sequence[Asked] = (
    put("/a", {"x": 1}),
    put("/a", {"x": 1}),
    put("/series", BODY, SERIES),
    put("/series?title=T", BODY, SERIES),
    put("/a", BODY, SERIES),
    put("/a", {"x": 2}, {**JSON, "If-None-Match": "*"}),
    put("/a", {"x": 2}, {**JSON, "If-Match": "nonsense"}),
    put("/k", 1, {**JSON, "Idempotency-Key": "once"}),
    put("/k", 1, {**JSON, "Idempotency-Key": "once"}),
    put("/k", 2, {**JSON, "Idempotency-Key": "once"}),
    put("/owned", 1),
    put("/x//y", 1),
    put("/members/", []),
    Asked("PUT", "/v1/data/a", b"{", JSON),
    Asked("PUT", "/v1/data/a", b"", {}),
    Asked("PUT", "/v1/data/a", b"x" * 70_000, {"Content-Type": "text/plain"}),
    Asked("PATCH", "/v1/data/a", b'{"x":3}', MERGE),
    Asked("PATCH", "/v1/data/none", b"{}", MERGE),
    Asked("POST", "/v1/data/news", b"", {}),
    Asked("PUT", "/v1/data", json.dumps({"documents": [{"endpoint": "/b", "value": 1}]}).encode()),
    Asked("PUT", "/v1/data", b"[]"),
    Asked("DELETE", "/v1/data/a", b"", {}),
    Asked("DELETE", "/v1/data/a", b"", {}),
)
LEFT: Sequence[Asked] = (
    put("/a", 1)._replace(key={}),
    put("/a", 1)._replace(key={"Authorization": "Bearer wrong"}),
    put("/a", 1, {**JSON, "Host": "evil.example"}),
    put("/%61", 1),
    put("/a", 1, {**JSON, "Expect": "100-continue"}),
    Asked("POST", "/v1/tokens", b"{}"),
    Asked("PATCH", "/v1/data", b"{}"),
    Asked("PUT", "/v1/endpoints", b"{}"),
)


class Listener:
    """A server of a store of its own, with or without the fast path."""

    def __init__(self, rest: Rest, *, fast: bool, of: Store | None = None) -> None:
        api = rest.api(of=of)
        self.fast_answers = 0

        def counted(write: Any, address: str) -> Any:
            answer = api.fast_writes(write, address)
            self.fast_answers += answer is not None
            return answer

        self.server = make_server(
            api.app,
            limits=ConnectionLimits(10, 10),
            drain_s=1,
            privileged=api.app.is_privileged,
            fast_path=api.fast_path if fast else None,
            fast_writes=counted,
        )
        self.server.config.load()

    async def ask(self, request: Asked) -> tuple[str, list[str], bytes]:
        """Return status line, header fields in the order of their names, and body of the answer."""
        protocol, wire = connected(self.server, "127.0.0.1")
        protocol.data_received(request.bytes())
        while not _is_whole(wire.sent):
            await asyncio.sleep(0.001)
        await end(protocol)
        head, _, body = wire.sent.partition(b"\r\n\r\n")
        status, *fields = head.decode().split("\r\n")
        kept = [field for field in fields if not field.lower().startswith(("date:", "retry-after:"))]
        return status, sorted(field.lower() for field in kept), body


def _is_whole(sent: bytes) -> bool:
    head, complete, body = sent.partition(b"\r\n\r\n")
    if not complete or b" 100 " in head.split(b"\r\n")[0]:
        return bool(complete and body and _is_whole(body))
    lengths = [line.partition(b":")[2] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return len(body) == int(lengths[0])


async def test_the_fast_path_answers_as_the_routes_do(rest: Rest, tmp_path: Path) -> None:
    async with (await Store.open(f"sqlite:///{tmp_path / 'other.db'}", clock=rest.clock)).serving() as other:
        fast, slow = Listener(rest, fast=True), Listener(rest, fast=False, of=other)
        for request in REQUESTS:
            assert await fast.ask(request) == await slow.ask(request), request
        assert (fast.fast_answers, slow.fast_answers) == (len(REQUESTS), 0)
        heads = [
            {name: head._replace(version=0, changed_ms=0) for name, head in store.index.heads.items()}
            for store in (rest.store, other)
        ]
        assert heads[0] == heads[1]


@pytest.mark.parametrize("request_", LEFT)
async def test_what_is_not_plain_or_not_privileged_is_left_to_the_routes(rest: Rest, request_: Asked) -> None:
    listener = Listener(rest, fast=True)
    await listener.ask(request_)
    assert listener.fast_answers == 0


async def test_requests_sent_before_the_answer_are_answered_in_order(rest: Rest) -> None:
    listener = Listener(rest, fast=True)
    protocol, wire = connected(listener.server, "127.0.0.1")
    protocol.data_received(put("/a", 1).bytes())
    second, third = put("/b", 2).bytes(), Asked("GET", "/v1/data/b", key={}, headers={}).bytes()
    protocol.data_received(second[:40])
    protocol.data_received(second[40:])
    while wire.sent.count(b"HTTP/1.1 200") < 2:
        await asyncio.sleep(0.001)
    protocol.data_received(third.replace(b"Content-Length: 0\r\n", b""))
    while wire.sent.count(b"HTTP/1.1 200") < 3:
        await asyncio.sleep(0.001)
    await end(protocol)
    first, second_answer, third_answer = wire.sent.split(b"HTTP/1.1 200")[1:]
    assert b'"/a"' in first
    assert b'"/b"' in second_answer
    assert third_answer.endswith(b"\r\n\r\n2")


async def test_a_server_that_stops_answers_the_write_in_progress_and_closes(rest: Rest) -> None:
    listener = Listener(rest, fast=True)
    protocol, wire = connected(listener.server, "127.0.0.1")
    protocol.data_received(put("/a", 1).bytes())
    protocol.shutdown()
    assert not wire.is_closing()
    while not wire.is_closing():
        await asyncio.sleep(0.001)
    assert b"HTTP/1.1 200" in wire.sent
    assert rest.store.index.heads["/a"].version


async def test_a_write_whose_client_has_gone_is_stored(rest: Rest) -> None:
    listener = Listener(rest, fast=True)
    protocol, wire = connected(listener.server, "127.0.0.1")
    protocol.data_received(put("/a", 1).bytes())
    wire.abort()
    protocol.connection_lost(None)
    while "/a" not in rest.store.index.heads:
        await asyncio.sleep(0.001)
    await end(protocol)
    assert wire.sent == b""


async def test_a_defect_is_logged_and_answered(
    rest: Rest, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def defect(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(rest.store.writer, "submit", defect)
    status, _, body = await Listener(rest, fast=True).ask(put("/a", 1))
    assert status.startswith("HTTP/1.1 500")
    assert b"it has been logged" in body


async def after_a_write(rest: Rest) -> tuple[Listener, Any, Any]:
    """Return a listener, and a connection on which there was a write."""
    listener = Listener(rest, fast=True)
    protocol, wire = connected(listener.server, "127.0.0.1")
    protocol.data_received(put("/a", 1).bytes())
    await wait_answers(wire, 1)
    return listener, protocol, wire


async def wait_answers(wire: Any, count: int) -> None:
    while wire.sent.count(b"HTTP/1.1 200") < count:
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("at", [300, 10_000, 20_000])
async def test_a_write_in_pieces_takes_the_fast_path_behind_another_one(rest: Rest, at: int) -> None:
    listener = Listener(rest, fast=True)
    protocol, wire = connected(listener.server, "127.0.0.1")
    for number, value in enumerate(("x" * 20_000, "y" * 20_000)):
        data = put("/a", value).bytes()
        protocol.data_received(data[:at])
        protocol.data_received(data[at:])
        await wait_answers(wire, number + 1)
    await end(protocol)
    # Nobody knows whose the first one is before it has arrived.
    assert listener.fast_answers == 1
    assert json.loads((await rest.store.reader.current("/a")).content) == "y" * 20_000


async def test_a_write_in_slow_pieces_is_left_to_the_routes(rest: Rest) -> None:
    listener, protocol, wire = await after_a_write(rest)
    data = put("/b", "x" * 20_000).bytes()
    protocol.data_received(data[:1_000])
    assert not protocol.drained
    protocol._request_overdue()
    protocol.data_received(data[1_000:])
    await wait_answers(wire, 2)
    await end(protocol)
    assert listener.fast_answers == 1


async def test_a_server_that_stops_answers_a_write_in_pieces(rest: Rest) -> None:
    _listener, protocol, wire = await after_a_write(rest)
    data = put("/b", "x" * 20_000).bytes()
    protocol.data_received(data[:1_000])
    protocol.shutdown()
    protocol.data_received(data[1_000:])
    await wait_answers(wire, 2)
    assert wire.is_closing()


async def test_a_large_or_a_pipelined_write_in_pieces_is_left_to_the_routes(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener, protocol, wire = await after_a_write(rest)
    data = put("/b", "x" * 20_000).bytes()
    protocol.data_received(data[:1_000])
    protocol.data_received(data[1_000:] + put("/c", 1).bytes())
    await wait_answers(wire, 3)
    monkeypatch.setattr(http_server, "MAX_GATHERED_BYTES", 10_000)
    protocol.data_received(data[:1_000])
    protocol.data_received(data[1_000:])
    await wait_answers(wire, 4)
    await end(protocol)
    assert listener.fast_answers == 1


async def test_a_stream_of_writes_with_a_length_is_answered_line_by_line(rest: Rest) -> None:
    _listener, protocol, wire = await after_a_write(rest)
    lines = [json.dumps({"endpoint": name, "value": 1}).encode() + b"\n" for name in ("/b", "/c")]
    data = Asked("POST", "/v1/data", b"".join(lines), {"Content-Type": "application/x-ndjson"}).bytes()
    protocol.data_received(data[: -len(lines[1])])
    async with asyncio.timeout(5):
        while b'"/b"' not in wire.sent:
            await asyncio.sleep(0.001)
    protocol.data_received(lines[1])
    while b'"/c"' not in wire.sent:
        await asyncio.sleep(0.001)
    await end(protocol)


async def test_a_write_without_a_key_is_refused_before_its_body_has_arrived(rest: Rest) -> None:
    _listener, protocol, wire = await after_a_write(rest)
    protocol.data_received(put("/b", "x" * 20_000)._replace(key={}).bytes()[:1_000])
    async with asyncio.timeout(5):
        while b"HTTP/1.1 401" not in wire.sent:
            await asyncio.sleep(0.001)
    await end(protocol)
