"""Attacks on a running ``diem up`` that once succeeded, from outside: by HTTP, WebSocket, files and commands.

All use one system. Connections from PROXY are those of a trusted proxy, so a test can send requests from any address.
Attacks on Kafka are in ``test_kafka``; those that need more are in ``integration/deploy`` (nginx, its unused slots,
tokens), ``integration/proxy`` (endpoints that move) and the unit tests that docs/reliability.md section 3.1 names.
"""

import asyncio
import contextlib
import json
import os
import sqlite3
import stat
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import pytest_asyncio
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Origin, Subprotocol

from tests.support.patience import PATIENCE_S, until
from tests.support.ports import free_port
from tests.support.running import ROOT, Running, running

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="elsewhere 127.0.0.1 is the only loopback address"),
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("attacks"),
    pytest.mark.takes(20),
]
PROXY: Final = "127.0.0.9"
ORIGIN: Final = "https://app.example"
CONNECTIONS: Final = 40
"""Connections of readers at the Data Service."""
SETTINGS: Final = {
    "DIEM_DATA_TRUSTED_PROXIES": f'["{PROXY}/32"]',
    "DIEM_DATA_CONNECTIONS": str(CONNECTIONS),
    "DIEM_WEBSOCKET_TRUSTED_PROXIES": f'["{PROXY}/32"]',
    "DIEM_WEBSOCKET_ORIGINS": f'["{ORIGIN}"]',
}


REAL: Final = "/dam/real"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def system(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    """Run the system with one endpoint, and settings of a small machine."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SETTINGS.items():
            patch.setenv(name, value)
        directory = tmp_path_factory.mktemp("attacked")
        # Given, the limit of an address is also that of this machine's.
        async with running(directory, config="", options=("--clients-per-address", "50")) as started:
            (await started.put({REAL: 1.0})).raise_for_status()
            yield started


def client_of(
    system: Running, address: str | None, *, origin: str | None = ORIGIN, source: str | None = None
) -> connect:
    """Return a connection of a client at ``address`` (None: this machine), opened when it is awaited."""
    more: dict[str, Any] = {} if address is None else {"additional_headers": {"X-Forwarded-For": address}}
    source = source or (None if address is None else PROXY)
    local: dict[str, Any] = {} if source is None else {"local_addr": (source, 0)}
    allowed = None if origin is None else Origin(origin)
    url, protocols = system.websocket_urls[0], [Subprotocol("diem.v1.json")]
    return connect(url, proxy=None, compression=None, subprotocols=protocols, origin=allowed, **local, **more)


async def http_status(system: Running, path: str, **fields: str) -> int:
    """Return the status of a request with the given header fields."""
    return (await system.http.get(f"{system.page}{path}", headers=fields)).status_code


async def refusal(attempt: connect) -> int:
    """Return the status by which a handshake is refused, 101 if it is not."""
    try:
        async with attempt:
            return 101
    except InvalidStatus as error:
        return error.response.status_code


def subscribe(number: int, *endpoints: str) -> str:
    """Return a message that subscribes."""
    return json.dumps({"type": "subscribe", "id": number, "endpoints": dict.fromkeys(endpoints)})


async def sent_so_far(client: ClientConnection) -> list[str]:
    """Return all messages that were sent to a client before now; none can follow."""
    pong = await client.ping()
    async with asyncio.timeout(PATIENCE_S):
        await pong
    # Messages are in order, and the pong came after all of them.
    await client.close()
    return [str(message) async for message in client]


async def received(client: ClientConnection, type_: str) -> dict[str, Any]:
    """Return the next message of a type."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            message: dict[str, Any] = json.loads(await client.recv())
            if message["type"] == type_:
                return message


async def test_a_client_without_a_token_learns_nothing_of_an_endpoint(system: Running) -> None:
    async with client_of(system, "192.0.2.2") as stranger, client_of(system, None, origin=None) as ours:
        for client in (stranger, ours):
            await client.send(subscribe(1, REAL))
        version = (await received(ours, "subscribed"))["endpoints"][REAL]
        (await system.put({REAL: 2.0})).raise_for_status()
        while (await received(ours, "update"))["version"] <= (version or 0):
            pass
        learned = [message for message in map(json.loads, await sent_so_far(stranger)) if REAL in str(message)]
    assert learned == []


async def test_a_forwarded_client_has_no_rights_of_this_machine(system: Running) -> None:
    """A proxy on this machine that DIEM was not told of: its clients all come from 127.0.0.1."""
    assert await http_status(system, f"v1/data{REAL}") == 200
    assert await http_status(system, f"v1/data{REAL}", **{"X-Forwarded-For": "203.0.113.9"}) == 401
    async with client_of(system, "203.0.113.9", origin=None, source="127.0.0.1") as stranger:
        await stranger.send(subscribe(1, REAL))
        answers = [json.loads(message) for message in await sent_so_far(stranger)]
    assert answers[-1].get("code") == "unauthorised", answers


async def test_requests_that_never_end_do_not_keep_other_readers_out(system: Running) -> None:
    """As many connections as there may be, each with one whole request and the first byte of another."""
    url = httpx.URL(system.page)
    held: list[asyncio.StreamWriter] = []
    try:
        for _ in range(CONNECTIONS + 10):
            reader, writer = await asyncio.open_connection(url.host, url.port, local_addr=("127.0.0.5", 0))
            held.append(writer)
            writer.write(b"GET /config.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
            with contextlib.suppress(OSError):
                await reader.read(1)
                writer.write(b"G")
        transport = httpx.AsyncHTTPTransport(local_address="127.0.0.6")
        async with httpx.AsyncClient(transport=transport, timeout=PATIENCE_S) as victim, asyncio.timeout(PATIENCE_S):
            while not (await victim.get(f"{system.page}config.json")).is_success:
                await asyncio.sleep(0.5)
    finally:
        for writer in held:
            writer.transport.abort()


async def test_a_server_sends_no_key_to_whoever_took_the_port_of_its_feed(system: Running) -> None:
    key = (system.state_dir / "internal.key").read_bytes().strip()
    sent = bytearray()
    dialled = asyncio.Event()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            # Whatever is asked is granted, as often as it is asked.
            while head := await reader.readuntil(b"\r\n\r\n"):
                sent.extend(head)
                dialled.set()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    impostor = await asyncio.start_server(listen, "127.0.0.1", 0)
    port = impostor.sockets[0].getsockname()[1]
    settings = {
        "DIEM_STATE_DIR": str(system.state_dir),
        "DIEM_WEBSOCKET_FEED_URL": f"ws://127.0.0.1:{port}/feed",
        "DIEM_WEBSOCKET_PORT": str(free_port()),
        "DIEM_WEBSOCKET_INTERNAL_PORT": str(free_port()),
    }
    server = await command("run", "websocket", **settings)
    try:
        async with asyncio.timeout(PATIENCE_S):
            await dialled.wait()
            # Until it has tried twice, so that nothing follows the first answer unseen.
            await until(lambda: sent.count(b"\r\n\r\n") > 1)
    finally:
        server.kill()
        await server.wait()
        impostor.close()
    assert b"HTTP/1.1" in sent
    assert key not in sent


async def command(*arguments: str, **settings: str) -> asyncio.subprocess.Process:
    """Start ``diem`` with settings of its own."""
    kept = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "deploy", *arguments),
        cwd=ROOT,
        env=kept | settings,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )


async def test_an_address_that_opens_and_closes_does_not_use_up_what_others_may_open(system: Running) -> None:
    for _ in range(150):
        if await refusal(client_of(system, "192.0.2.6")) != 101:
            break
    assert await refusal(client_of(system, "192.0.2.7")) == 101


async def test_a_reconnect_brings_no_new_messages(system: Running) -> None:
    ended: object = None
    try:
        for _ in range(10):
            async with client_of(system, None, origin=None, source="127.0.0.8") as client:
                for number in range(62):
                    await client.send(subscribe(number, REAL))
                    await received(client, "subscribed")
    except InvalidStatus as error:
        ended = error.response.status_code
    except ConnectionClosed as error:
        ended = error.rcvd.code if error.rcvd else None
    # 62 at once and 100 a minute: only a machine that needs five minutes for all of them is allowed to send them.
    assert ended in {429, 4003}


async def test_a_bad_name_is_answered_in_few_words(system: Running) -> None:
    question = subscribe(1, *(str(number) for number in range(100)))
    async with client_of(system, None, origin=None) as client:
        await client.send(question)
        while "rejected" not in (answer := str(await client.recv())):
            pass
    assert len(answer) < 100 * 80


async def test_files_of_the_state_directory_are_its_owners_alone(system: Running) -> None:
    modes: dict[str, int] = {}
    for path in system.state_dir.rglob("*"):
        # A file that is about to replace another one may have done so by now.
        with contextlib.suppress(FileNotFoundError):
            modes[str(path.relative_to(system.state_dir))] = path.stat().st_mode
    files = {name: mode for name, mode in modes.items() if stat.S_ISREG(mode)}
    assert files
    assert [name for name, mode in files.items() if mode & 0o077] == []


async def test_a_prepared_state_directory_that_others_may_write_is_not_used(tmp_path: Path) -> None:
    prepared = tmp_path / "state"
    prepared.mkdir()
    (prepared / "internal.key").write_text("known-to-whoever-has-prepared-this-directory\n")
    (prepared / "internal.key").chmod(0o600)
    prepared.chmod(0o777)
    up = await command("up", "--state-dir", str(prepared), "--free-ports", "--quiet")
    try:
        await until(lambda: up.returncode is not None or (prepared / "processes.json").exists())
        assert up.returncode not in {None, 0}
    finally:
        if up.returncode is None:
            up.terminate()
            await up.wait()


async def test_a_backup_of_another_system_with_its_keys_is_not_restored(system: Running, tmp_path: Path) -> None:
    """Whoever may replace a backup makes one with a DIEM of his own: it is whole, and his API key is in it."""
    backup, victim = tmp_path / "made.diem", tmp_path / "victim"
    key = await command("keys", "create", "mine", "--write", "--state-dir", str(system.state_dir))
    assert await key.wait() == 0
    made = await command("backup", str(backup), "--state-dir", str(system.state_dir))
    assert await made.wait() == 0
    victim.mkdir(mode=0o700)
    # An operator who has read what is restored, and agrees.
    restored = await command("restore", str(backup), "--state-dir", str(victim))
    assert restored.stdin is not None
    restored.stdin.write(b"y\n")
    assert await restored.wait() != 0
    with contextlib.closing(sqlite3.connect(victim / "data.db")) as database:
        assert database.execute("SELECT name FROM sqlite_master").fetchall() == []


async def test_wrong_keys_and_refusals_leave_lines_in_the_log(system: Running) -> None:
    attacker, internal = "192.0.2.66", system.processes["data"]["urls"]["internal"]
    wrong = {"Authorization": "Bearer guessed-guessed-guessed-guessed-guessed"}
    transport = httpx.AsyncHTTPTransport(local_address=PROXY)
    async with httpx.AsyncClient(transport=transport, timeout=PATIENCE_S) as http:
        fields = wrong | {"X-Forwarded-For": attacker}
        assert (await http.put(f"{system.page}v1/data/dam/x", json={}, headers=fields)).status_code == 401
        assert (await http.get(f"{internal}/metrics", headers=wrong)).status_code == 401
    assert await refusal(client_of(system, attacker, origin="https://evil.example")) == 403

    def logged() -> bool:
        lines = [line for path in (system.state_dir / "logs").iterdir() for line in path.read_text().splitlines()]
        from_attacker = [line for line in lines if attacker in line]
        return len(from_attacker) >= 2 and any(PROXY in line and "key" in line for line in lines)

    await until(logged)
