"""`diem why` beside a running system: ten staged cases, each with the hop that explains it."""

import asyncio
import json
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count, cycle
from pathlib import Path

import httpx
import orjson
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Origin, Subprotocol

from deploy.system.state_dir import StateDir
from tests.integration.deploy.machines import ORIGIN, Ends, Loaded, loaded
from tests.integration.deploy.running import Running, diem, fine, report_of, up
from tests.support.nginx import needs_nginx
from tests.support.patience import PATIENCE_S, until
from tests.support.required import in_cluster
from tools.commands.why import read_evidence
from tools.diagnosis import Diagnosis, State
from tools.why import cause_of, hops

HERE = "127.0.0.1"
NAME = "/dam/prices/GR"
PLAN_AND_SOURCE = """
[[plan]]
name = "load"
prefixes = ["/load"]

[[source]]
type = "directory"
name = "plant"
path = "plant"
prefix = "/plant"
unit = "MW"
resolution = "PT1H"
"""
NAMES = [f"/n/{n}" for n in range(100)]
CSV = "time,value\n2026-01-01T00:00:00Z,1\n"


async def explain(running: Running, endpoint: str, client: str | None = None) -> list[Diagnosis]:
    """Return the hops as the command finds them."""
    return hops(await read_evidence(StateDir(running.cwd / ".diem"), endpoint, client))


async def blamed(running: Running, endpoint: str, client: str | None = None) -> Diagnosis:
    """Return the hop that explains it."""
    chain = await explain(running, endpoint, client)
    found = cause_of(chain)
    assert found is not None, chain
    return found


async def until_blamed(
    running: Running, name: str, text: str, endpoint: str, client: str | None = None
) -> list[Diagnosis]:
    """Wait until a hop explains it with this text; return all hops."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        chain = await explain(running, endpoint, client)
        cause = cause_of(chain)
        if cause is not None and cause.name == name and text in cause.text:
            return chain
        assert time.monotonic() < deadline, chain
        await asyncio.sleep(0.2)


@asynccontextmanager
async def subscriber(running: Running, *names: str, token: str = "") -> AsyncIterator[tuple[ClientConnection, str]]:
    """Connect a client with a subscription; yield it with its session."""
    protocols = [Subprotocol("diem.v1.json"), *([Subprotocol(f"bearer.{token}")] if token else [])]
    url = running.described()["urls"]["websocket"][0]
    async with connect(url, proxy=None, subprotocols=protocols) as client:
        session = json.loads(await client.recv())["session"]
        if names:
            await client.send(json.dumps({"type": "subscribe", "id": 1, "endpoints": dict.fromkeys(names)}))
            while json.loads(await client.recv())["type"] != "subscribed":
                pass
        yield client, session


@asynccontextmanager
async def client_of(system: Loaded, server: str) -> AsyncIterator[str]:
    """Connect clients with a subscription until one is at a server; yield its session."""
    async with AsyncExitStack() as connections:
        for url in cycle(system.clients[0].urls):
            dialled = connect(url, proxy=None, origin=Origin(ORIGIN), subprotocols=[Subprotocol("diem.v1.json")])
            client = await connections.enter_async_context(dialled)
            welcome = json.loads(await client.recv())
            if welcome["server"] == server:
                break
        await client.send(json.dumps({"type": "subscribe", "id": 1, "endpoints": {"/hosts/1": None}}))
        while json.loads(await client.recv())["type"] != "subscribed":
            pass
        yield welcome["session"]


async def put(running: Running, *names: str, value: float = 1) -> None:
    points = [{"time": "2026-01-01T00:00:00Z", "value": value}]
    body = [{"endpoint": name, "unit": "MW", "resolution": "PT1H", "points": points} for name in names]
    headers = {"Authorization": f"Bearer {(running.cwd / '.diem' / 'write.key').read_text().strip()}"}
    async with httpx.AsyncClient(timeout=PATIENCE_S, trust_env=False) as http:
        answer = await http.put(f"{running.described()['urls']['rest']}/data", json={"datasets": body}, headers=headers)
        answer.raise_for_status()


@in_cluster()
@pytest.mark.takes(40)
async def test_cause_is_found_in_nine_cases_of_mode_single(tmp_path: Path) -> None:
    (tmp_path / "diem.toml").write_text(PLAN_AND_SOURCE)
    (tmp_path / "plant").mkdir()
    (tmp_path / "plant" / "one.csv").write_text(CSV)
    # A process that stands still is killed after 36 s instead of 12 s: servers are silent after 10 s.
    async with up(tmp_path, "--config", "diem.toml", "--time-factor", "3") as running:
        await put(running, NAME, *NAMES)
        cases: list[Callable[[Running], Awaitable[None]]] = [
            its_name_is_unknown_or_another,
            the_client_is_not_connected_or_not_subscribed,
            its_token_does_not_cover_the_endpoint,
            the_update_was_refused,
            the_client_is_slow_and_then_closed,
            the_feed_is_cut,
        ]
        for case in cases:
            await case(running)
        code, out, err = await diem("why", NAME, cwd=tmp_path)
        assert (code, err) == (0, "")
        assert "nobody is subscribed" in out
        code, out, err = await diem("doctor", cwd=tmp_path)
        assert (code, err) == (0, ""), out
        assert "Source plant fails" in out


async def its_name_is_unknown_or_another(running: Running) -> None:
    missing = await blamed(running, "/quite/another")
    assert missing[:3] == ("endpoint", State.FAULT, "there is no such endpoint")
    assert (await blamed(running, "/dam/price/GR")).text == f"there is no such endpoint; did you mean {NAME}?"
    code, out, err = await diem("why", "/quite/another", "--json", cwd=running.cwd)
    assert (code, err) == (1, "")
    assert json.loads(out)["cause"]["text"] == "there is no such endpoint"


async def the_client_is_not_connected_or_not_subscribed(running: Running) -> None:
    assert (await blamed(running, NAME, "10.0.0.7")).text == "it is not connected, and was not lately"
    async with subscriber(running, "/dam/prices/GX") as (client, session):
        assert (await blamed(running, NAME, session)).text == "it is subscribed to /dam/prices/GX instead"
        await client.send(json.dumps({"type": "unsubscribe", "id": 2, "endpoints": ["/dam/prices/GX"]}))
        await until_blamed(running, "client", "connected, and not subscribed to it: to 0", NAME, session)
    async with subscriber(running, "/dam/prices/") as (_, session):
        assert "it is subscribed to the collection /dam/prices/" in (await blamed(running, NAME, session)).text
    async with subscriber(running, NAME) as (_, session):
        chain = await explain(running, NAME, session)
        assert cause_of(chain) is None
        assert chain[-1] == Diagnosis("client", State.OK, "subscribed at websocket-1")
    await until_blamed(running, "client", "(1000): its page was closed", NAME, session)
    # One that was refused: the page of another origin.
    async with httpx.AsyncClient(trust_env=False) as http:
        url = running.described()["urls"]["websocket"][0].replace("ws:", "http:")
        upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Origin": "https://other.example"}
        assert (await http.get(url, headers=upgrade)).status_code == 403
    assert (
        "refused 0 s ago with 403: https://other.example is not an allowed origin"
        in (await blamed(running, NAME, HERE)).text
    )


async def its_token_does_not_cover_the_endpoint(running: Running) -> None:
    code, out, err = await diem("keys", "create", "page", "--plan", "load", "--json", cwd=running.cwd)
    assert code == 0, err
    headers = {"Authorization": f"Bearer {json.loads(out)['key']}"}
    async with httpx.AsyncClient(timeout=PATIENCE_S, trust_env=False) as http:
        answer = await http.post(f"{running.described()['urls']['rest']}/tokens", headers=headers)
    await running.until_status(lambda now: report_of(now, "websocket-1").get("tokens", {}).get("keys") == 1)
    async with subscriber(running, NAME, token=answer.json()["token"]) as (_, session):
        cause = await blamed(running, NAME, session)
    assert cause.text.startswith("the token of ")
    assert cause.text.endswith(f" does not cover {NAME}")


async def the_update_was_refused(running: Running) -> None:
    headers = {
        "Authorization": f"Bearer {(running.cwd / '.diem' / 'write.key').read_text().strip()}",
        "Content-Type": "application/json",
    }
    rest = running.described()["urls"]["rest"]
    async with httpx.AsyncClient(timeout=PATIENCE_S, trust_env=False) as http:
        assert (await http.put(f"{rest}/data{NAME}", content=b"{", headers=headers)).status_code == 400
    cause = await blamed(running, NAME)
    assert (cause.name, cause.state) == ("write", State.FAULT)
    assert "after the last version, was refused: " in cause.text
    await put(running, NAME, value=2)
    assert "nobody is subscribed" in (await blamed(running, NAME)).text

    await until_blamed(running, "clients", "nobody is subscribed", "/plant/one")
    (running.cwd / "plant" / "one.csv").write_text(f"{CSV}2026-01-01T01:00:00Z,much\n")
    await until_blamed(running, "source", "source plant fails: ", "/plant/one")


async def the_client_is_slow_and_then_closed(running: Running) -> None:
    url = httpx.URL(running.described()["urls"]["websocket"][0])
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect((url.host, url.port))
        sock.sendall(
            b"GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: diem.v1.json\r\n\r\n"
        )
        assert sock.recv(32).startswith(b"HTTP/1.1 101 ")
        text = orjson.dumps({"type": "subscribe", "id": 1, "endpoints": dict.fromkeys(NAMES)})
        sock.sendall(b"\x81\xfe" + len(text).to_bytes(2, "big") + b"\0\0\0\0" + text)
        await until_blamed(running, "clients", "nobody", NAME)
        async with asyncio.timeout(PATIENCE_S):
            for value in count(2):
                await put(running, *NAMES, value=value)
                found = cause_of(await explain(running, NAMES[0], HERE))
                if found is not None and "it reads too slowly: " in found.text:
                    break
        await until_blamed(running, "client", "with 4002: it did not read for 10 s", NAMES[0], HERE)


async def the_feed_is_cut(running: Running) -> None:
    os.kill(pid := running.pids()["data"], signal.SIGSTOP)
    try:
        async with asyncio.timeout(PATIENCE_S):
            while (
                "websocket-1 is stale"
                not in (chain := {hop.name: hop for hop in await explain(running, NAME)})["websocket-1"].text
            ):
                await asyncio.sleep(0.2)
        assert (await blamed(running, NAME)).name == "data"
        assert chain["endpoint"].state is State.UNKNOWN
    finally:
        os.kill(pid, signal.SIGCONT)
    await running.until_status(fine)


@in_cluster()
@pytest.mark.takes(60)
@pytest.mark.usefixtures("kafka_program")
async def test_lost_bridge_and_lost_broker_are_the_cause_in_mode_x(tmp_path: Path) -> None:
    async with up(tmp_path, "--mode", "x", "--partitions", "4", "--servers", "2") as running:
        await put(running, NAME)
        await until_blamed(running, "clients", "nobody is subscribed", NAME)
        assert [hop.name for hop in await explain(running, NAME)] == [
            *(
                "data",
                "endpoint",
                "kafka-1",
                "publisher",
                "bridge-1",
                "bridge-2",
                "websocket-1",
                "websocket-2",
                "clients",
            )
        ]
        for name in ("bridge-1", "kafka-1"):
            os.kill(running.pids()[name], signal.SIGSTOP)
            try:
                await until_blamed(running, name, f"{name} does not answer", NAME)
                code, out, err = await diem("doctor", "--json", cwd=tmp_path)
                assert (code, err) == (1, "")
                at_fault = {each["name"] for each in json.loads(out)["checks"] if each["state"] == "fault"}
                assert {name} <= at_fault
                assert ("kafka" in at_fault) == (name == "kafka-1")
            finally:
                os.kill(running.pids()[name], signal.SIGCONT)
            await running.until_status(fine)
        await until(lambda: running.described()["up"])


@in_cluster()
@needs_nginx
@pytest.mark.takes(60)
async def test_process_of_a_host_out_of_reach_is_named_and_its_clients_are_not_judged(tmp_path: Path) -> None:
    ends = Ends(8000, ((1, 8000),), frozenset({"websocket-2"}))
    async with loaded(tmp_path, "x-broadcast", ends, []) as system, client_of(system, "websocket-2") as session:

        async def asked(client: str) -> tuple[dict[str, dict[str, str]], dict[str, str] | None]:
            hosts = ("--hosts", str(system.out), "--json")
            found = json.loads(await system.diem("why", "/hosts/1", "--client", client, *hosts))
            return {hop["name"]: hop for hop in found["hops"]}, found["cause"]

        chain, cause = await asked(session)
        assert cause is None, chain
        assert [*chain] == ["data on a", "endpoint", "broadcast on a", "websocket-2 on c", "nginx on a", "client"]
        assert chain["client"]["text"] == "subscribed at websocket-2 on c"
        async with system.network.cut(system.hosts[2].namespace):
            chain, cause = await asked(session)
            assert cause == chain["websocket-2 on c"]
            assert (cause["state"], cause["text"].partition(". ")[0]) == ("unknown", "websocket-2 on c cannot be asked")
            assert cause["remedy"] == "Read `journalctl -u diem@websocket-2` on c."
            assert chain["client"]["state"] == "unknown"
            assert chain["client"]["text"].endswith(", unless at websocket-2 on c, which cannot be asked")
            screen = await system.diem("top", "--hosts", str(system.out))
            assert "websocket-2 on c cannot be asked" in screen
            assert "Nothing is known of clients at websocket-2 on c." in screen
        system.over.set()
        await system.writing
        await system.writer.close()
        for each in system.clients:
            each.leave()
