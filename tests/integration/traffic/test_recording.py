"""Traffic of real clients, recorded by real servers and proxies in files."""

import asyncio
import re
from pathlib import Path

import orjson
import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.typing import Subprotocol

from diem.client import Timing, UpdatesClient
from diem.process.auth import SharedKey
from diem.protocol import messages
from diem.protocol.traffic import Counted, TrafficEvent, Type, decode
from tests.integration.proxy.group import proxied
from tests.integration.proxy.test_proxy import subscribe, subscribed, unsubscribe, updates
from tests.support.patience import PATIENCE_S, until
from tests.support.small import small_system


@pytest.fixture(autouse=True)
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have every process of the test record traffic; return the folder of the files."""
    SharedKey.create(tmp_path / "traffic.salt")
    monkeypatch.setenv("DIEM_TRAFFIC_SINK", "files")
    monkeypatch.setenv("DIEM_TRAFFIC_DIR", str(tmp_path / "traffic"))
    monkeypatch.setenv("DIEM_TRAFFIC_SALT_FILE", str(tmp_path / "traffic.salt"))
    return tmp_path / "traffic" / "in"


def events(folder: Path, edge: str) -> list[TrafficEvent]:
    """Return all events of a process that has ended, in order."""
    files = sorted(folder.glob(f"{edge}-*.jsonl"), key=lambda path: int(path.stem.rpartition("-")[2]))
    assert not list(folder.glob(f".{edge}-*"))
    return [decode(line) for file in files for line in file.read_bytes().splitlines()]


def lifecycle(found: list[TrafficEvent]) -> list[tuple[str, frozenset[str]]]:
    return [(event.type, frozenset(event.endpoints)) for event in found if event.type is not Type.COUNTS]


def counted(found: list[TrafficEvent]) -> dict[str, Counted]:
    total: dict[str, Counted] = {}
    for event in found:
        for name, (taken, delivered) in event.updates.items():
            known = total.get(name, Counted(0, 0))
            total[name] = Counted(known.received + taken, known.delivered + delivered)
    return total


async def test_a_server_records_the_subscriptions_that_took_effect(tmp_path: Path, recorded: Path) -> None:
    async with small_system(tmp_path) as system, system.client() as client:
        await client.ask(subscribe("/a", "/b"))
        await client.ask(subscribe("/b", "/c", id_=2))
        assert (await client.ask(subscribe("bad", id_=3)))["rejected"]
        await client.ask(unsubscribe("/a", "/a", "/nobody", id_=4))
        system.feed.put("/b", "/c", "/nobody")
        assert {(await client.receive())["endpoint"] for _ in range(2)} == {"/b", "/c"}
    found = events(recorded, "websocket-1")
    assert lifecycle(found) == [
        ("connect", frozenset()),
        ("subscribe", {"/a", "/b"}),
        ("subscribe", {"/c"}),
        ("unsubscribe", {"/a"}),
        ("disconnect", frozenset()),
    ]
    assert len({(event.client, event.connection) for event in found if event.type is not Type.COUNTS}) == 1
    assert counted(found) == {"/b": Counted(1, 1), "/c": Counted(1, 1), "/nobody": Counted(1, 0)}


async def test_connections_of_one_client_share_a_pseudonym_that_hides_its_name(tmp_path: Path, recorded: Path) -> None:
    name = "0123456789abcdef-my-page"
    async with small_system(tmp_path) as system:
        for own in ({"client": name}, {"client": name}, {"client": "another-page"}, {}, {}):
            async with system.client(welcome=False) as client:
                await client.receive()
                await client.ask({**subscribe("/a"), **own})
    connects = [event for event in events(recorded, "websocket-1") if event.type is Type.CONNECT]
    assert len({event.connection for event in connects}) == 5
    clients = [event.client for event in connects]
    assert clients[0] == clients[1]
    assert len(set(clients)) == 4
    assert not any(name.encode() in path.read_bytes() for path in recorded.iterdir())


@pytest.mark.parametrize("records", [True, False])
async def test_a_python_client_sends_its_id_in_the_first_message_where_traffic_is_recorded(records: bool) -> None:
    paths: list[str] = []
    ids: list[str | None] = []

    async def send_away(connection: ServerConnection) -> None:
        assert connection.request is not None
        paths.append(connection.request.path)
        hello = messages.welcome(
            session="s", server="a", mode="single", authenticated=False, subscriptions=128, traffic=records
        )
        await connection.send(hello, text=True)
        ids.append(orjson.loads(await connection.recv()).get("client"))
        await connection.close(1012)

    async with serve(send_away, "127.0.0.1", 0, subprotocols=[Subprotocol("diem.v1.json")]) as server:
        url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/ws"
        for timing in (Timing(base_s=0.01, cap_s=0.01), Timing(base_s=0.01, cap_s=0.01)):
            async with UpdatesClient(url, timing=timing) as client:
                await client.subscribe({"/a": None})
                seen = len(ids)
                await until(lambda seen=seen: len(ids) >= seen + 2)  # type: ignore[misc]
    assert set(paths) == {"/ws"}
    assert all(each is not None and re.fullmatch(r"[0-9a-f]{32}", each) for each in ids) is records
    assert len(set(ids)) == (2 if records else 1)


async def test_the_first_id_of_a_connection_counts_and_none_in_its_url(tmp_path: Path, recorded: Path) -> None:
    async with small_system(tmp_path) as system:
        async with system.client(welcome=False) as new:
            assert (await new.receive())["traffic"] is True
            await new.ask({**subscribe("/a"), "client": "page-number-one"})
            await new.ask({**subscribe("/b"), "client": "page-number-two"})
        system.url += "?client=page-number-one"
        async with system.client() as other:
            await other.ask(subscribe("/a"))
        async with system.client() as wrong:
            assert (await wrong.ask({**subscribe("/a"), "client": "short"}))["code"] == "bad_message"
    found = [event for event in events(recorded, "websocket-1") if event.client]
    assert [event.type for event in found].count(Type.CONNECT) == 2
    assert len({event.client for event in found}) == 2


async def test_a_stopping_server_records_the_disconnect_of_every_client(tmp_path: Path, recorded: Path) -> None:
    async with small_system(tmp_path) as system:
        clients = [system.client() for _ in range(5)]
        for each in clients:
            client = await each.__aenter__()
            await client.ask(subscribe("/a"))
        system.life.stop("test")
        await until(lambda: bool(list(recorded.glob("websocket-1-*.jsonl"))))
        for each in clients:
            await each.__aexit__(None, None, None)
    ends = [event.connection for event in events(recorded, "websocket-1") if event.type is Type.DISCONNECT]
    assert len(set(ends)) == len(ends) == 5


async def test_nothing_is_recorded_with_the_sink_off(
    tmp_path: Path, recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIEM_TRAFFIC_SINK", "off")
    async with small_system(tmp_path) as system, system.client() as client:
        await client.ask(subscribe("/a"))
    assert not recorded.exists()


async def test_an_unwritable_directory_does_not_affect_clients(
    tmp_path: Path, recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("DIEM_TRAFFIC_DIR", str(tmp_path / "file" / "traffic"))
    async with small_system(tmp_path) as system, system.client() as client:
        assert (await client.ask(subscribe("/a")))["endpoints"] == {"/a": None}
        version = system.feed.put("/a")
        assert (await client.receive())["version"] == version


async def test_a_proxy_records_clients_and_servers_record_counts(tmp_path: Path, recorded: Path) -> None:
    async with proxied(tmp_path) as system:
        one, two = system.group.names(0)[0], system.group.names(1)[0]
        async with system.client() as client:
            await subscribed(client, one, two, own="page-number-one")
            await subscribed(client, one, known=1, id_=2)
            system.group.put(one, two)
            await updates(client, one, two)
            await client.ask(unsubscribe(two, "/nobody", id_=3))
            async with system.client() as second:
                await subscribed(second, one, id_=4, own="page-number-one")
    found = events(recorded, "proxy-1")
    connections = {event.connection: None for event in found if event.connection}
    first, second_ = ([e for e in found if e.connection == connection] for connection in connections)
    asked = [lifecycle([event]) for event in first if event.type is Type.SUBSCRIBE]
    # Servers answer separately, so the names of one request may be in several events.
    assert sorted(name for event in first if event.type is Type.SUBSCRIBE for name in event.endpoints) == sorted(
        [one, two]
    ), asked
    assert [entry for entry in lifecycle(first) if entry[0] != "subscribe"] == [
        ("connect", frozenset()),
        ("unsubscribe", {two}),
        ("disconnect", frozenset()),
    ]
    assert lifecycle(second_) == [("connect", frozenset()), ("subscribe", {one}), ("disconnect", frozenset())]
    assert len({event.client for event in found if event.client}) == 1
    servers = [events(recorded, f"websocket-{number}") for number in (1, 2)]
    assert [lifecycle(each) for each in servers] == [[], []]
    assert counted(servers[0])[one] == Counted(1, 1)
    assert counted(servers[1])[two] == Counted(1, 1)
    shared = {one: Counted(1, 1), two: Counted(1, 1)}
    assert counted(found) == shared


async def test_an_endpoint_that_moves_to_another_server_stays_subscribed(tmp_path: Path, recorded: Path) -> None:
    async with proxied(tmp_path) as system:
        (name,) = system.group.names(0)
        async with system.client() as client:
            await subscribed(client, name)
            system.group.assign(dict.fromkeys(system.group.assigned, 1))
            system.group.publish_snapshot()
            async with asyncio.timeout(PATIENCE_S):
                while (await system.server_status(1))["subscriptions"] == 0:
                    await asyncio.sleep(0.02)
    assert lifecycle(events(recorded, "proxy-1")) == [
        ("connect", frozenset()),
        ("subscribe", {name}),
        ("disconnect", frozenset()),
    ]


async def test_files_are_named_by_process_and_incarnation(tmp_path: Path, recorded: Path) -> None:
    for _ in range(2):
        async with small_system(tmp_path) as system, system.client() as client:
            await client.ask(subscribe("/a"))
    names = [path.name for path in recorded.iterdir()]
    assert len(names) == 2
    assert all(re.fullmatch(r"websocket-1-[0-9a-f]{12}-1\.jsonl", name) for name in names)
