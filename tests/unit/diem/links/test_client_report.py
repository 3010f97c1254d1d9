"""What an edge knows of the clients of an endpoint, and of those that left it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Subprotocol

from diem.fanout.feed_hub import FeedHub
from diem.links.client_report import EVERYBODY, MAX_CLIENTS, read_clients
from diem.links.edge import Admission, AdmissionRules, Edge, EdgeRules, HubService
from diem.protocol.codes import Close
from tests.support.patience import until
from tests.unit.diem.links.edges import HANDSHAKE, listening

HERE = "127.0.0.1"


@pytest.fixture
async def edge() -> AsyncIterator[tuple[Edge, int]]:
    hub = FeedHub()
    rules = AdmissionRules(limit_loopback=False)
    edge = Edge(hub.fanout, Admission(rules), EdgeRules("test", "single"), HubService(hub))
    edge.ready = True
    edge.publish_status(live=True, since="-")
    async with listening(edge) as port:
        yield edge, port


def report(edge: Edge, client: str, endpoint: str = "/a") -> dict[str, Any]:
    answer = read_clients(edge, asyncio.get_running_loop().time, lambda _name: {"version": 1}, f"/{client}{endpoint}")
    found: dict[str, Any] = orjson.loads(answer.body)
    return found


async def subscriber(port: int, *names: str) -> tuple[ClientConnection, str]:
    client = await connect(f"ws://{HERE}:{port}/ws", proxy=None, subprotocols=[Subprotocol("diem.v1.json")])
    session = orjson.loads(await client.recv())["session"]
    await client.send(orjson.dumps({"type": "subscribe", "id": 1, "endpoints": dict.fromkeys(names)}).decode())
    while orjson.loads(await client.recv())["type"] != "subscribed":
        pass
    return client, session


async def test_client_is_found_by_session_and_address_with_its_subscriptions(edge: tuple[Edge, int]) -> None:
    service, port = edge
    one, session = await subscriber(port, "/a")
    other, others = await subscriber(port, "/b")
    assert [each["session"] for each in report(service, EVERYBODY)["clients"]] == [session]
    assert report(service, HERE)["matching"] == 2
    (found,) = report(service, others)["clients"]
    assert (found["subscribed"], found["names"], found["allowed"], found["blocked"]) == (False, ["/b"], True, False)
    known = report(service, session)
    assert (known["version"], known["subscribers"], known["clients"][0]["subscribed"]) == (1, 1, True)
    assert report(service, "198.51.100.1")["clients"] == []
    for client in (one, other):
        await client.close()


async def test_client_that_left_is_remembered_with_code_and_side(edge: tuple[Edge, int]) -> None:
    service, port = edge
    one, session = await subscriber(port, "/a")
    await one.close(reason="of anybody")
    await until(lambda: not service.connections)
    (left,) = report(service, session)["departures"]
    assert (left["close"], left["by_client"], left["detail"]) == (Close.NORMAL, True, "")
    _, session = await subscriber(port, "/a")
    (connection,) = service.connections
    connection.close(Close.SLOW, "retry=1000")
    (left,) = report(service, session)["departures"]
    assert (left["close"], left["by_client"], left["detail"]) == (Close.SLOW, False, "retry=1000")


async def test_refused_client_is_remembered_with_the_reason(edge: tuple[Edge, int]) -> None:
    service, port = edge
    reader, writer = await asyncio.open_connection(HERE, port)
    writer.write(HANDSHAKE.replace(b"\r\n\r\n", b"\r\nOrigin: https://other.example\r\n\r\n"))
    assert b" 403 " in await reader.readline()
    writer.close()
    (left,) = report(service, HERE)["departures"]
    assert (left["status"], left["close"]) == (403, 0)
    assert left["detail"].startswith("https://other.example is not an allowed origin")


async def test_clients_in_an_answer_are_bounded_and_their_number_is_not(edge: tuple[Edge, int]) -> None:
    service, port = edge
    writers = [(await asyncio.open_connection(HERE, port))[1] for _ in range(MAX_CLIENTS + 1)]
    for writer in writers:
        writer.write(HANDSHAKE)
    await until(lambda: len(service.connections) == MAX_CLIENTS + 1)
    found = report(service, HERE)
    assert (found["matching"], len(found["clients"])) == (MAX_CLIENTS + 1, MAX_CLIENTS)
    for writer in writers:
        writer.close()
