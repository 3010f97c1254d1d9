"""``diem up`` records traffic by default; nothing that a killed server had written is lost."""

import signal
from pathlib import Path

from diem.client import UpdatesClient
from diem.protocol.traffic import Type, decode
from tests.support.nginx import needs_nginx
from tests.support.patience import until
from tests.support.running import Running, running


async def record(system: Running, *names: str, identity: str | None = None) -> UpdatesClient:
    """Return a client once its subscriptions to ``names`` are confirmed."""
    client = UpdatesClient(system.websocket_urls[0])
    if identity is not None:
        client._link._identity = identity
    await client.__aenter__()
    await client.subscribe(dict.fromkeys(names))
    seen: set[str | None] = set()
    async for event in client:
        if event.kind == "subscribed":
            seen.add(event.endpoint)
        if seen == set(names):
            break
    return client


async def test_the_file_of_a_killed_server_is_completed_by_the_next_one(tmp_path: Path) -> None:
    async with running(tmp_path) as system:
        folder = system.state_dir / "traffic" / "in"
        client = await record(system, "/a", "/b")
        (hidden,) = await until(lambda: [p for p in folder.glob(".websocket-1-*") if b'"/b"' in p.read_bytes()])
        # It may be about to write a line, as at a full minute.
        system.kill("websocket-1", signal.SIGSTOP)
        with hidden.open("ab") as file:
            file.write(b'{"type":"subscr')
        system.kill("websocket-1")
        (completed,) = await until(lambda: list(folder.glob("websocket-1-*.jsonl")))
        # The client has reconnected to the new process.
        await until(lambda: [p for p in folder.glob(".websocket-1-*") if b'"/b"' in p.read_bytes()])
        await client.__aexit__(None, None, None)
    assert completed.name == hidden.name.removeprefix(".")
    every = [decode(line) for line in completed.read_bytes().splitlines()]
    # Counts of updates are written at every full minute.
    events = [event for event in every if event.type is not Type.COUNTS]
    assert [event.type for event in events[:2]] == [Type.CONNECT, Type.SUBSCRIBE]
    assert set(events[1].endpoints) == {"/a", "/b"}
    (last,) = [path for path in folder.iterdir() if path != completed]
    incarnations = {decode(line).incarnation for line in last.read_bytes().splitlines()}
    assert incarnations
    assert events[0].incarnation not in incarnations
    assert (system.state_dir / "traffic.salt").stat().st_mode & 0o777 == 0o600


async def test_nothing_is_recorded_with_traffic_off(tmp_path: Path) -> None:
    async with running(tmp_path, options=("--traffic", "off")) as system:
        client = await record(system, "/a")
        await client.__aexit__(None, None, None)
    assert not (system.state_dir / "traffic").exists()


@needs_nginx
async def test_a_client_has_the_same_pseudonym_at_every_server_behind_nginx(tmp_path: Path) -> None:
    async with running(tmp_path, "x-broadcast", servers=2, options=("--nginx",)) as system:
        clients = [await record(system, "/a", identity="one-and-the-same") for _ in range(4)]
        for client in clients:
            await client.__aexit__(None, None, None)
    folder = system.state_dir / "traffic" / "in"
    events = [decode(line) for path in folder.iterdir() for line in path.read_bytes().splitlines()]
    connects = [event for event in events if event.type is Type.CONNECT]
    assert {event.edge for event in connects} == {"websocket-1", "websocket-2"}
    assert len({event.connection for event in connects}) == 4
    assert len({event.client for event in connects}) == 1
