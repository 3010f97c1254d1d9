"""Compression (RFC 7692): its negotiation, and a client of another library that is sent compressed data."""

import asyncio
import zlib
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import NegotiationError
from websockets.frames import Frame, Opcode
from websockets.typing import ExtensionParameter, Subprotocol

from diem.fanout.data_budget import DataBudget
from diem.fanout.feed_hub import FeedHub
from diem.links.compression import SharedDeflate, SharedDeflateFactory
from diem.links.edge import Admission, AdmissionRules, Edge, EdgeRules, HubService
from diem.protocol.feed import Batch
from diem.protocol.messages import MAX_MESSAGE_BYTES
from diem.protocol.update import UPDATE, Change, encode
from tests.support.patience import PATIENCE_S
from tests.unit.diem.links.edges import listening

OFFERS: list[list[ExtensionParameter]] = [
    [],
    [("client_max_window_bits", None)],
    [("server_no_context_takeover", None), ("server_max_window_bits", "15")],
]


@pytest.mark.parametrize("offer", OFFERS)
def test_neither_side_keeps_a_context(offer: list[ExtensionParameter]) -> None:
    answer, agreed = SharedDeflateFactory().process_request_params(offer, [])
    assert ("server_no_context_takeover", None) in answer
    assert ("client_no_context_takeover", None) in answer
    assert ("server_max_window_bits", "12") in answer
    assert isinstance(agreed, SharedDeflate)


def test_a_window_that_is_too_small_is_declined() -> None:
    with pytest.raises(NegotiationError):
        SharedDeflateFactory().process_request_params([("server_max_window_bits", "11")], [])


def test_what_is_sent_is_left_as_it_is() -> None:
    _, agreed = SharedDeflateFactory().process_request_params([], [])
    frame = Frame(Opcode.TEXT, b"reply" * 100)
    assert agreed.encode(frame) is frame


VERSION = 1_700_000_000_000
DATA = {"points": [{"time": number, "value": number} for number in range(200)]}


class Served:
    """A server with compression, and how many bytes it sent."""

    def __init__(self) -> None:
        self.hub = FeedHub(budget=DataBudget())
        rules = EdgeRules("test", "single", data=True, compression=True)
        self.edge = Edge(self.hub.fanout, Admission(AdmissionRules()), rules, HubService(self.hub))
        self.edge.ready = True
        self.hub.hello("source", ["store"])
        self.hub.caught_up("store")
        self.port = 0

    def publish(self, version: int) -> bytes:
        update = encode("/a", version, 0, data=orjson.dumps({**DATA, "version": version}))
        position = self.hub.state.positions["store"]
        change = Change(position, b"/a", version, UPDATE, update)
        self.hub.batch(Batch("store", position + 1, iter([change])))
        return update

    async def client(self, **options: Any) -> ClientConnection:
        return await connect(
            f"ws://127.0.0.1:{self.port}/ws", subprotocols=[Subprotocol("diem.v1.json")], max_queue=None, **options
        )


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    served = Served()
    async with listening(served.edge) as served.port:
        yield served


async def _message(client: ClientConnection, kind: str) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            message = orjson.loads(await client.recv())
            if message["type"] == kind:
                return dict(message)


def _subscribe(**fields: Any) -> str:
    return orjson.dumps({"type": "subscribe", "id": 1, "endpoints": {"/a": None}, **fields}).decode()


@pytest.mark.parametrize("offered", ["deflate", None])
async def test_clients_are_sent_data_as_they_can_read_it(served: Served, offered: str | None) -> None:
    retained = served.publish(VERSION)
    client = await served.client(compression=offered)
    assert client.response is not None
    assert ("Sec-WebSocket-Extensions" in client.response.headers) == (offered is not None)
    await client.send(_subscribe(data=True))
    assert await _message(client, "update") == orjson.loads(retained)
    served.publish(VERSION + 1)
    assert (await _message(client, "update"))["data"]["version"] == VERSION + 1
    compressed = served.hub.fanout.frames.cache
    assert len(compressed) == (1 if offered else 0)
    await client.close()


async def test_a_message_that_becomes_too_long_is_refused_with_1009(served: Served) -> None:
    client = await served.client(compression="deflate")
    await client.send(" " * (MAX_MESSAGE_BYTES + 1))
    async with asyncio.timeout(PATIENCE_S):
        await client.wait_closed()
    assert client.close_code == 1009


async def test_what_is_no_compressed_data_is_refused_with_1002(served: Served) -> None:
    client = await served.client(compression="deflate")
    # Masked with zeros: RSV1, and a block of a type that does not exist.
    client.transport.write(bytes((0xC1, 0x81, 0, 0, 0, 0, 0x07)))
    async with asyncio.timeout(PATIENCE_S):
        await client.wait_closed()
    assert client.close_code == 1002


async def test_a_flood_of_compressed_messages_is_not_inflated_at_once(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    inflated = 0
    decode = SharedDeflate.decode

    def counting(self: SharedDeflate, frame: Frame, *, max_size: int | None = None) -> Frame:
        nonlocal inflated
        decoded = decode(self, frame, max_size=max_size)
        inflated += len(decoded.data)
        return decoded

    monkeypatch.setattr(SharedDeflate, "decode", counting)
    client = await served.client(compression="deflate")
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    bomb = (compressor.compress(b" " * MAX_MESSAGE_BYTES) + compressor.flush(zlib.Z_SYNC_FLUSH))[:-4]
    assert len(bomb) < 126
    client.transport.write((bytes((0xC1, 0x80 | len(bomb), 0, 0, 0, 0)) + bomb) * 1000)
    async with asyncio.timeout(PATIENCE_S):
        await client.wait_closed()
    assert inflated < 30 * MAX_MESSAGE_BYTES, "of 1,000 messages"
