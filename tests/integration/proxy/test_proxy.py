"""Unmodified clients of a real proxy with real servers: they keep the contract of a single server."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from diem.links import unix_sockets
from tests.integration.proxy.group import BufferedClient, System, proxied
from tests.support.patience import FACTOR, PATIENCE_S
from tests.support.stalls import stalls


def subscribe(*names: str, known: int | None = None, id_: int = 1) -> dict[str, Any]:
    return {"type": "subscribe", "id": id_, "endpoints": dict.fromkeys(names, known)}


def unsubscribe(*names: str, id_: int = 2) -> dict[str, Any]:
    return {"type": "unsubscribe", "id": id_, "endpoints": list(names)}


async def subscribed(
    client: BufferedClient, *names: str, known: int | None = None, id_: int = 1, own: str | None = None
) -> dict[str, int | None]:
    """Subscribe, with an id of one's ``own`` if given, and merge the parts of the answer."""
    await client.send(subscribe(*names, known=known, id_=id_) | ({} if own is None else {"client": own}))
    found: dict[str, int | None] = {}
    between = []
    while len(found) < len(names):
        message = await client.receive()
        if message["type"] == "subscribed":
            assert message["id"] == id_
            found |= message["endpoints"]
        else:
            between.append(message)
    client.buffered += between
    return found


async def updates(client: BufferedClient, *names: str) -> dict[str, int]:
    """Return the latest version of each endpoint, after at least one update of each."""
    found: dict[str, int] = {}
    while set(names) - set(found):
        message = await client.receive()
        if message["type"] == "update":
            found[message["endpoint"]] = message["version"]
    return found


async def reach(client: BufferedClient, name: str, version: int) -> None:
    """Wait until an endpoint is at a version."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            message = await client.receive()
            if message["type"] == "update" and message["endpoint"] == name and message["version"] == version:
                return


async def until(condition: Callable[[], Awaitable[Any]], within: float = PATIENCE_S) -> None:
    async with asyncio.timeout(within):
        while not await condition():
            await asyncio.sleep(0.05)


async def partial_status(client: BufferedClient, *, live: bool, name: str, within: float = PATIENCE_S) -> None:
    """Wait for a status of one endpoint."""
    async with asyncio.timeout(within):
        while True:
            message = await client.receive(status=True, within=within)
            if message["type"] == "status" and message["live"] is live and name in message.get("endpoints", ()):
                return


async def test_subscriptions_at_two_servers_over_one_connection(tmp_path: Path) -> None:
    async with proxied(tmp_path) as system, system.client() as client:
        (a,), (b,) = system.group.names(0), system.group.names(1)
        first = system.group.put(a)
        assert await subscribed(client, a, b) == {a: first, b: None}
        assert await updates(client, a) == {a: first}
        version = system.group.put(a, b)
        assert await updates(client, a, b) == {a: version - 1, b: version}
        status = await system.status()
        assert status["upstreams"] == 2
        await client.send(unsubscribe(a))
        assert await client.receive() == {"type": "unsubscribed", "id": 2, "endpoints": [a]}
        system.group.put(a)
        version = system.group.put(b)
        assert await updates(client, b) == {b: version}


async def test_known_version_is_not_sent_again_and_gone_is_forwarded(tmp_path: Path) -> None:
    async with proxied(tmp_path) as system, system.client() as client:
        (name,) = system.group.names(0)
        version = system.group.put(name)
        async with system.client() as other:
            assert await subscribed(other, name) == {name: version}
            assert await updates(other, name) == {name: version}
            await client.send(subscribe(name, known=version, id_=3))
            assert (await client.receive())["endpoints"] == {name: version}
            assert await client.receives_nothing()
            gone = system.group.put(name, gone=True)
            for one in (client, other):
                message = await one.receive()
                assert (message["version"], message["gone"]) == (gone, True)


async def test_client_with_an_older_version_is_sent_the_retained_update(tmp_path: Path) -> None:
    async with proxied(tmp_path) as system, system.client() as first, system.client() as second:
        (name,) = system.group.names(0)
        version = system.group.put(name)
        await subscribed(first, name, known=version)
        assert await subscribed(second, name) == {name: version}
        assert await updates(second, name) == {name: version}


async def test_bad_names_and_names_over_the_limit_are_refused_by_the_proxy(tmp_path: Path) -> None:
    async with proxied(tmp_path, subscriptions=2) as system, system.client() as client:
        a, b, c = system.group.names(0, 3)
        answer = await client.ask(subscribe(a, "bad name", b, c))
        assert answer["endpoints"].keys() == {a, b}
        assert {name: why["code"] for name, why in answer["rejected"].items()} == {"bad name": "bad_name", c: "limit"}
        assert (await client.ask({"type": "subscribe", "id": 5, "endpoints": {"bad": None}}))["rejected"].keys() == {
            "bad"
        }
        assert (await client.ask({"type": "subscribe", "id": 6, "endpoints": {}}))["endpoints"] == {}
        assert (await client.ask(b"{"))["code"] == "bad_json"
        assert (await client.ask(unsubscribe("/not/subscribed")))["type"] == "unsubscribed"


async def test_resync_is_forwarded_to_subscribers_only(tmp_path: Path) -> None:
    async with proxied(tmp_path) as system, system.client() as client, system.client() as other:
        a, b = system.group.names(0, 2)
        await subscribed(client, a)
        await subscribed(other, b)
        system.group.resync(a)
        assert await client.receive() == {"type": "resync", "endpoints": [a]}
        assert await other.receives_nothing()


async def test_endpoints_follow_their_partition_to_another_server(tmp_path: Path) -> None:
    async with proxied(tmp_path) as system, system.client() as client:
        group = system.group
        (name,) = group.names(0)
        await subscribed(client, name)
        group.assign(dict.fromkeys(group.assigned, 1))
        group.publish_snapshot()
        await until(lambda: _subscriptions(system, 1, 1))
        await reach(client, name, group.put(name))


async def test_redirect_of_a_server_is_followed_before_the_next_snapshot(tmp_path: Path) -> None:
    async with proxied(tmp_path) as system:
        group = system.group
        (name,) = group.names(0)
        group.assign(dict.fromkeys(group.assigned, 1))
        async with system.client() as client:
            assert await subscribed(client, name) == {name: None}
            await reach(client, name, group.put(name))


async def _subscriptions(system: System, server: int, count: int) -> bool:
    return bool((await system.server_status(server))["subscriptions"] == count)


async def test_only_endpoints_of_a_lost_server_are_stale_and_they_recover(tmp_path: Path) -> None:
    async with proxied(tmp_path) as system, system.client() as client, system.client() as other:
        group = system.group
        (a,), (b,) = group.names(0), group.names(1)
        await subscribed(client, a, b)
        await subscribed(other, b)
        await group.stop_server(0)
        await partial_status(client, live=False, name=a)
        version = group.put(a, b)
        assert await updates(client, b) == {b: version}
        assert await updates(other, b) == {b: version}
        await group.start_server(0)
        await partial_status(client, live=True, name=a)
        await reach(client, a, group.put(a))
        assert not (await system.status())["stale"]
        assert await other.receives_nothing()


async def test_subscription_at_a_stopped_server_is_answered_with_null_and_stale(tmp_path: Path) -> None:
    async with proxied(tmp_path) as system, system.client() as client, stalls() as stalled:
        group = system.group
        (a,), (b,) = group.names(0), group.names(1)
        version = group.put(a, b)
        await group.stop_server(0)
        started = asyncio.get_running_loop().time()
        assert await subscribed(client, b) == {b: version}
        assert asyncio.get_running_loop().time() - started < 2 * FACTOR + stalled.seconds
        await client.send(subscribe(a, id_=4))
        await partial_status(client, live=False, name=a)
        answer = await client.receive()
        assert (answer["type"], answer["endpoints"]) == ("subscribed", {a: None}), (
            "a client knows before that it is stale"
        )
        assert 2.5 < asyncio.get_running_loop().time() - started < 6 * FACTOR + stalled.seconds
        await group.start_server(0)
        await reach(client, a, version - 1)


async def test_hot_endpoint_moves_away_from_a_stopped_server(tmp_path: Path) -> None:
    async with proxied(tmp_path, hot=("/hot",)) as system, system.client() as client:
        group = system.group
        await subscribed(client, "/hot")
        at = 0 if await _subscriptions(system, 0, 1) else 1
        await group.stop_server(at)
        await until(lambda: _subscriptions(system, 1 - at, 1))
        await reach(client, "/hot", group.put("/hot"))


async def test_updates_and_subscriptions_continue_without_the_metadata_service(tmp_path: Path) -> None:
    async with proxied(tmp_path) as system:
        group = system.group
        group.watch.stop()
        await until(lambda: _metadata(system, connected=False))
        async with system.client() as client:
            names = [*group.names(0), *group.names(1)]
            await subscribed(client, *names)
            version = group.put(*names)
            assert (await updates(client, *names))[names[-1]] == version
        await group.watch.start()
        await until(lambda: _metadata(system, connected=True))


async def _metadata(system: System, *, connected: bool) -> bool:
    return (await system.status())["metadata"] is connected


async def test_clients_are_refused_before_the_first_snapshot(tmp_path: Path) -> None:
    async with proxied(tmp_path, snapshot=False) as system:
        await until(lambda: _metadata(system, connected=True))
        with pytest.raises(InvalidStatus) as refused:
            async with system.client():
                pass
        assert refused.value.response.status_code == 503
        system.group.publish_snapshot()
        await until(lambda: _ready(system))
        async with system.client() as client:
            assert await subscribed(client, "/a") == {"/a": None}


async def _ready(system: System) -> bool:
    return bool((await system.status())["ready"])


async def test_servers_outside_of_the_allow_list_are_never_dialled(tmp_path: Path) -> None:
    async with proxied(tmp_path, snapshot=False, allowed=["127.0.0.0/8:1"]) as system:
        system.group.publish_snapshot()

        async def refused() -> bool:
            return len((await system.status())["servers_refused"]) == 2

        await until(refused)
        status = await system.status()
        assert (status["servers"], status["ready"]) == ([], False)
        with pytest.raises(InvalidStatus):
            async with system.client():
                pass
        for number in (0, 1):
            assert (await system.server_status(number))["proxies"] == 0


async def test_subscriptions_and_links_end_with_their_clients(tmp_path: Path) -> None:
    async with proxied(tmp_path) as system:
        names = [*system.group.names(0, 3), *system.group.names(1, 3)]
        async with system.client() as one, system.client() as two:
            await subscribed(one, *names)
            await subscribed(two, *names[:3])
            assert (await system.status())["subscriptions"] == 9
        for number in (0, 1):
            await until(lambda number=number: _subscriptions(system, number, 0))  # type: ignore[misc]
        # A server may see the end of a link before the proxy does.
        counts = {"clients": 0, "subscriptions": 0, "endpoints": 0, "upstreams": 2}
        await until(lambda: _has(system, counts))


async def _has(system: System, counts: dict[str, int]) -> bool:
    return counts.items() <= (await system.status()).items()


@pytest.mark.parametrize("sockets", [True, False], ids=["unix", "tcp"])
async def test_blocked_client_gets_the_latest_versions_when_it_reads_again(tmp_path: Path, sockets: bool) -> None:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
    async with proxied(tmp_path, sockets=sockets) as system:
        sock.connect(("127.0.0.1", system.settings.port))
        async with system.client(sock=sock) as client:
            names = system.group.names(0, 20)
            await subscribed(client, *names)
            client.connection.transport.pause_reading()
            for _ in range(300):
                system.group.put(*names)
                await asyncio.sleep(0.002)
            last = system.group.put(*names)
            await asyncio.sleep(0.3)
            client.connection.transport.resume_reading()
            found: dict[str, int] = {}
            received = 0
            while set(found.values()) != set(range(last - 19, last + 1)):
                message = await client.receive()
                if message["type"] == "update":
                    assert message["version"] > found.get(message["endpoint"], 0)
                    found[message["endpoint"]] = message["version"]
                    received += 1
            assert received < 300 * 20


async def test_links_within_the_machine_use_unix_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: set[Path | None] = set()

    def find_socket(directory: Path | None, host: str, port: int) -> Path | None:
        path = find(directory, host, port)
        tried.add(path)
        return path

    find = unix_sockets.find_socket
    monkeypatch.setattr(unix_sockets, "find_socket", find_socket)
    async with proxied(tmp_path) as system:
        async with system.client() as client:
            await subscribed(client, *system.group.names(0), *system.group.names(1))
        ports = [bridge.port for bridge in system.group.bridges]
        ports += [int(owner.internal.split(":")[2].partition("/")[0]) for owner in system.group.owners]
        ports.append(system.group.watch.port)
        assert tried - {None} == {tmp_path / "s" / f"{port}.sock" for port in ports}
    assert not list((tmp_path / "s").iterdir())


async def test_stopping_proxy_closes_its_clients_with_1012(tmp_path: Path) -> None:
    async with proxied(tmp_path) as system, system.client() as client:
        await subscribed(client, *system.group.names(0))
        system.life.stop("test")
        with pytest.raises(ConnectionClosed) as closed:
            while True:
                await client.receive()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1012
