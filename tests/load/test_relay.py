import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from tests.load.relay import Relay
from tests.support.patience import PATIENCE_S


class Echo:
    """An echo server that records how its connections ended."""

    def __init__(self) -> None:
        self.port = 0
        self.ended: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        how = "closed"
        try:
            while data := await reader.read(1024):
                writer.write(data)
        except ConnectionResetError:
            how = "reset"
        writer.close()
        self.ended.append(how)


@pytest.fixture
async def echo() -> AsyncIterator[Echo]:
    echo = Echo()
    async with await asyncio.start_server(echo.serve, "127.0.0.1", 0) as server:
        echo.port = server.sockets[0].getsockname()[1]
        yield echo


@pytest.fixture
async def relay(echo: Echo) -> AsyncIterator[Relay]:
    async with Relay(lambda: ("127.0.0.1", echo.port)) as relay:
        yield relay


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def receive(self, within: float = PATIENCE_S) -> bytes:
        async with asyncio.timeout(within):
            return await self.reader.read(1024)

    async def echoes(self, data: bytes) -> bool:
        self.writer.write(data)
        return await self.receive() == data

    async def receives_nothing(self) -> bool:
        try:
            await self.receive(0.2)
        except TimeoutError:
            return True
        return False


@contextlib.asynccontextmanager
async def client(port: int) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    yield Client(reader, writer)
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def test_relay_forwards_both_ways_and_hands_on_the_end(echo: Echo, relay: Relay) -> None:
    async with client(relay.port) as one:
        assert await one.echoes(b"hello")
        assert relay.connections == 1
    async with asyncio.timeout(PATIENCE_S):
        while echo.ended != ["closed"]:
            await asyncio.sleep(0.01)


async def test_reset_is_a_reset_on_both_sides_and_new_connections_are_taken(echo: Echo, relay: Relay) -> None:
    async with client(relay.port) as one:
        assert await one.echoes(b"hello")
        relay.reset()
        with pytest.raises(ConnectionResetError):
            await one.receive()
    async with client(relay.port) as two:
        assert await two.echoes(b"again")
    assert echo.ended[0] == "reset"
    assert relay.accepted == 2


async def test_black_hole_forwards_nothing_until_it_heals(relay: Relay) -> None:
    async with client(relay.port) as one:
        assert await one.echoes(b"hello")
        relay.black_hole()
        one.writer.write(b"lost?")
        assert await one.receives_nothing()
        relay.heal()
        assert await one.receive() == b"lost?"


async def test_black_hole_takes_no_connection_and_hides_the_end_of_one(echo: Echo, relay: Relay) -> None:
    async with client(relay.port) as one:
        assert await one.echoes(b"hello")
        relay.black_hole()
    async with client(relay.port) as two:
        two.writer.write(b"anybody?")
        assert await two.receives_nothing()
        assert echo.ended == []
        relay.heal()
        assert await two.receive() == b"anybody?"


async def test_connection_ends_when_its_target_is_gone() -> None:
    def nowhere() -> tuple[str, int]:
        raise ConnectionRefusedError

    async with Relay(nowhere) as relay, client(relay.port) as one:
        assert await one.receive() == b""
