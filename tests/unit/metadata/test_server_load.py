import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from diem.links.internal import InternalListener
from diem.process.auth import SharedKey
from diem.protocol.assignment import STABLE, Clone, Owner
from metadata import server_load
from metadata.directory import Directory
from metadata.server_load import ServerLoads
from tests.support.patience import until

KEY = SharedKey("0123456789abcdef0123456789abcdef")
HERE = ["127.0.0.0/8"]


@contextlib.asynccontextmanager
async def server(status: dict[str, Any]) -> AsyncIterator[tuple[str, list[int]]]:
    """A server with this status: its internal URL, and one entry for each time it was polled."""
    polls: list[int] = []

    def poll() -> dict[str, Any]:
        polls.append(1)
        return status

    listener = InternalListener("127.0.0.1", 0, key=KEY, ready=lambda: None, status=poll)
    listener.start()
    yield f"ws://127.0.0.1:{listener.port}/ws", polls
    listener.stop()


def directory(**internal: str) -> Directory:
    """One group of servers with these internal URLs."""
    made = Directory([1])
    members = {name: Owner(name, url, f"ws://{name}/ws") for name, url in internal.items()}
    made.update_group(1, Clone(STABLE, members, {}), 0, 0.0)
    return made


@contextlib.asynccontextmanager
async def running(made: ServerLoads) -> AsyncIterator[None]:
    task = asyncio.create_task(made.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def until_known(made: ServerLoads, public: str, clients: int | None) -> None:
    await until(lambda: made.of(public) == clients)


async def test_loads_are_known_by_public_url() -> None:
    async with server({"clients": 7}) as (one, _), server({"clients": 0}) as (other, _):
        made = ServerLoads(directory(a=one, b=other), KEY, HERE)
        async with running(made):
            await until_known(made, "ws://a/ws", 7)
            await until_known(made, "ws://b/ws", 0)


@pytest.mark.parametrize("status", [{}, {"clients": "7"}, {"clients": None}, {"clients": True}])
async def test_the_load_of_a_server_without_a_valid_status_is_unknown(status: dict[str, Any]) -> None:
    async with server(status) as (silent, polls), server({"clients": 1}) as (other, _):
        made = ServerLoads(directory(a=silent, b=other), KEY, HERE)
        async with running(made):
            await until_known(made, "ws://b/ws", 1)
            assert polls
            assert made.of("ws://a/ws") is None


@pytest.mark.parametrize("url", ["ws://127.0.0.1:1/ws", "ws://no.such.host.invalid/ws", "nonsense", "ws://[::1/ws"])
async def test_an_unreachable_server_does_not_delay_the_others(url: str) -> None:
    async with server({"clients": 1}) as (other, _):
        made = ServerLoads(directory(a=url, b=other), KEY, HERE)
        async with running(made):
            await until_known(made, "ws://b/ws", 1)
            assert made.of("ws://a/ws") is None


async def test_an_unparsable_status_does_not_affect_the_others() -> None:
    deep = b"[" * 100_000

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(deep), deep))
        await writer.drain()
        writer.close()

    hostile = await asyncio.start_server(respond, "127.0.0.1", 0)
    url = f"ws://127.0.0.1:{hostile.sockets[0].getsockname()[1]}/ws"
    async with hostile, server({"clients": 1}) as (other, _):
        made = ServerLoads(directory(a=url, b=other), KEY, HERE)
        async with running(made):
            await until_known(made, "ws://b/ws", 1)
            assert made.of("ws://a/ws") is None


@pytest.mark.parametrize("rule", ["192.0.2.0/24", "127.0.0.1/32:1-1023"])
async def test_addresses_and_ports_that_are_not_allowed_are_not_dialled(rule: str) -> None:
    async with server({"clients": 1}) as (url, polls):
        made = ServerLoads(directory(a=url), KEY, [rule])
        async with running(made):
            await until(lambda: made._refused)
            assert made.of("ws://a/ws") is None
        assert not polls


@pytest.mark.parametrize("rule", ["127.0.0.0/8", "localhost"])
async def test_names_of_servers_and_in_rules_are_resolved(rule: str) -> None:
    async with server({"clients": 1}) as (url, _):
        made = ServerLoads(directory(a=url.replace("127.0.0.1", "localhost")), KEY, [rule])
        async with running(made):
            await until_known(made, "ws://a/ws", 1)


async def test_a_redirected_client_counts_until_the_next_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    async with server({"clients": 1}) as (url, _):
        made = ServerLoads(directory(a=url), KEY, HERE)
        async with running(made):
            await until_known(made, "ws://a/ws", 1)
            made.redirected("ws://a/ws")
            made.redirected("ws://nobody/ws")
            assert (made.of("ws://a/ws"), made.of("ws://nobody/ws")) == (2, None)
        monkeypatch.setattr(server_load, "POLL_INTERVAL_S", 0.01)
        async with running(made):
            await until_known(made, "ws://a/ws", 1)


async def test_a_server_that_left_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_load, "POLL_INTERVAL_S", 0.01)
    async with server({"clients": 1}) as (url, _):
        members = directory(a=url)
        made = ServerLoads(members, KEY, HERE)
        async with running(made):
            await until_known(made, "ws://a/ws", 1)
            members.update_group(1, Clone(STABLE, {}, {}), 0, 0.0)
            await until_known(made, "ws://a/ws", None)
