"""The load of ``make bench-display``, and its clients: what they count is what was sent."""

import asyncio
import random
from collections import Counter
from pathlib import Path

import orjson
import pytest

from diem.protocol.update import encode
from tests.bench import native
from tests.bench.display import INLINE, Shape, _own
from tests.bench.published import dataset
from tests.bench.viewers import viewing
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port

ENDPOINT, VERSION = "/display/plain/1/0", 1_700_000_000_456
COUNT = 60
"""More clients than connect before they first look at what has arrived."""
LONG = b'{"points":[' + b"1," * 1500 + b"1]}"


def frame(payload: bytes) -> bytes:
    head = bytes((0x81, len(payload))) if len(payload) < 126 else b"\x81\x7e" + len(payload).to_bytes(2, "big")
    return head + payload


def viewers_program(folder: Path) -> Path:
    try:
        return native.program("viewers", folder)
    except native.NoCompiler as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("clients", [200, 2000])
def test_each_tick_changes_one_endpoint_of_every_client(clients: int) -> None:
    shape = Shape("", 100, 20)
    names = shape.names("plain")
    for first in range(0, 100, shape.each_tick):
        changed = {*names[first : first + shape.each_tick]}
        assert {len(changed.intersection(_own(shape, "plain", number))) for number in range(clients)} == {1}
    subscribers = Counter(name for number in range(clients) for name in _own(shape, "plain", number))
    assert {*subscribers.values()} == {clients * 5 // 100}


def test_datasets_are_as_long_as_the_market_s_and_fit_into_an_update() -> None:
    lengths = [len(orjson.dumps(dataset(f"/display/plain/1000/{n}", random.Random(n)))) for n in range(1000)]
    assert 2_200 < min(lengths) < 2_600
    assert 4_200 < max(lengths) < 4_700 < INLINE


async def test_clients_answer_pings_while_others_of_them_still_connect(tmp_path: Path) -> None:
    answered = asyncio.Event()
    connected = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connected
        await reader.readuntil(b"\r\n\r\n")
        connected += 1
        is_first = connected == 1
        if connected == COUNT:
            await answered.wait()
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\n\r\n" + (b"\x89\x00" if is_first else b""))
        while data := await reader.read(100):
            if is_first and data[0] == 0x8A:
                answered.set()

    port = free_port()
    async with (
        asyncio.timeout(PATIENCE_S),
        await asyncio.start_server(serve, "127.0.0.1", port),
        viewing(
            viewers_program(tmp_path), port, "/ws", port, processes=1, each=COUNT, sampled=1, fetchers=1, core=None
        ),
    ):
        assert connected == COUNT
        assert answered.is_set()


async def test_clients_count_and_time_what_arrives_in_any_pieces(tmp_path: Path) -> None:
    program = viewers_program(tmp_path)
    requests: list[bytes] = []
    connections: list[asyncio.StreamWriter] = []

    async def serve_frames(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\n\r\n" + frame(b'{"type":"welcome","data":true}'))
        connections.append(writer)
        await reader.read()

    async def serve_data(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            requests.append(head.splitlines()[0])
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(LONG))
            for start in range(0, len(LONG), 700):
                writer.write(LONG[start : start + 700])
                await writer.drain()

    port, http_port = free_port(), free_port()
    plain = encode(ENDPOINT, VERSION, VERSION)
    sent = (
        frame(plain)
        + frame(b'{"type":"status","live":true}')
        + b"\x89\x00"
        + frame(encode(ENDPOINT, VERSION + 1, VERSION, data=LONG))
    )
    async with (
        asyncio.timeout(PATIENCE_S),
        await asyncio.start_server(serve_frames, "127.0.0.1", port),
        await asyncio.start_server(serve_data, "127.0.0.1", http_port),
        viewing(program, port, "/ws", http_port, processes=2, each=3, sampled=1, fetchers=2, core=None) as viewers,
    ):
        for number in range(viewers.count):
            await viewers.subscribe(number, [ENDPOINT], data=True)
        await viewers.fetch("version")
        rng = random.Random(1)
        reached = asyncio.create_task(viewers.reach([ENDPOINT, ENDPOINT], fetched=[ENDPOINT]))
        for writer in connections:
            at = 0
            while at < len(sent):
                after = at + rng.choice((1, 2, 3, 50, 400, 4000))
                writer.write(sent[at:after])
                await asyncio.sleep(0)
                at = after
        await reached
        counts = viewers.counts
        assert (counts.updates, counts.with_data, counts.fetched, counts.refused, counts.open) == (12, 6, 6, 0, 6)
        assert counts.update_bytes == 6 * (len(sent) - len(frame(b'{"type":"status","live":true}')) - 2)
        assert counts.fetched_bytes > 6 * len(LONG)
        samples = await viewers.samples()
        assert sorted((s.endpoint, s.version, s.kind) for s in samples) == sorted(
            [(ENDPOINT, VERSION, "f"), (ENDPOINT, VERSION, "u"), (ENDPOINT, VERSION + 1, "d")] * 2
        )
        assert Counter(requests) == {f"GET /v1/data{ENDPOINT}?version={VERSION} HTTP/1.1".encode(): 6}
