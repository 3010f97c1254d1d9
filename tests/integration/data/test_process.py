"""The whole process: start, feed, health, orderly end, and faults in one line."""

import asyncio
import contextlib
import signal
from pathlib import Path

import httpx
import orjson
import pytest
import websockets

from diem.protocol import feed
from tests.integration.data.process import RESTARTED, DataProcess, bulk, serving, start
from tests.support.internal import InternalConnect, http_client
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_ports

pytestmark = pytest.mark.usefixtures("any_database")

TWO_MARKETS = """
[[source]]
type = "simulation"
name = "first"

[[source]]
type = "simulation"
name = "second"
zones = ["GR"]
"""


def _feed(process: DataProcess) -> InternalConnect:
    url = f"ws{process.internal.removeprefix('http')}/feed"
    return InternalConnect(url, process.key, subprotocols=[websockets.Subprotocol(feed.SUBPROTOCOL)])


async def test_a_committed_change_is_sent_on_the_feed_at_once(tmp_path: Path) -> None:
    async with (
        serving(tmp_path / "state") as process,
        httpx.AsyncClient(base_url=process.url, headers=process.write, timeout=PATIENCE_S) as http,
        _feed(process) as reader,
    ):
        await http.put("/v1/data", json=bulk({"/a": 1}))
        await reader.send(feed.encode(feed.Resume(None, {})), text=True)
        hello = feed.decode(str(await reader.recv()).encode())
        assert isinstance(hello, feed.Hello)
        first = await reader.recv(decode=False)
        assert [record.endpoint for record in feed.decode_batch(first).records] == [b"/a"]
        assert feed.decode(await reader.recv(decode=False)) == feed.CaughtUp("store")
        (accepted,) = (await http.put("/v1/data", json=bulk({"/b": 1}))).json()["accepted"]
        while (message := await asyncio.wait_for(reader.recv(decode=False), PATIENCE_S)) == feed.HEARTBEAT:
            pass
        (record,) = feed.decode_batch(message).records
        assert (record.endpoint, record.version) == (b"/b", accepted["version"])


async def test_a_deleted_endpoint_is_unknown_once_its_history_has_expired(tmp_path: Path) -> None:
    async with (
        serving(tmp_path / "state", HISTORY_DAYS="0.000001", MAX_ENDPOINTS="1") as process,
        httpx.AsyncClient(base_url=process.url, headers=process.write, timeout=PATIENCE_S) as http,
    ):
        await http.put("/v1/data", json=bulk({"/a": 1}))
        deleted = (await http.delete("/v1/data/a")).json()["version"]
        async with asyncio.timeout(PATIENCE_S):
            while (await http.put("/v1/data", json=bulk({"/b": 1}))).status_code == 422:
                await asyncio.sleep(0.02)
        answer = await http.get("/v1/data/a")
        assert (answer.status_code, answer.json()["code"]) == (404, "unknown_endpoint")
        catalogue = (await http.get("/v1/endpoints", params={"gone": "true"})).json()["endpoints"]
        assert [entry["endpoint"] for entry in catalogue] == ["/b"]
        async with _feed(process) as reader:
            status = (await http.get(f"{process.internal}/status", headers=process.shared)).json()
            await reader.send(feed.encode(feed.Resume(status["store"], {feed.STORE: 2})), text=True)
            hello = feed.decode(await reader.recv(decode=False))
            assert hello == feed.Hello(f"{status['store']}.2", (feed.STORE,))
    async with (
        serving(tmp_path / "state", **RESTARTED) as process,
        httpx.AsyncClient(base_url=process.url, headers=process.write, timeout=PATIENCE_S) as http,
    ):
        (accepted,) = (await http.put("/v1/data", json=bulk({"/a": 1}))).json()["accepted"]
        assert accepted["version"] > deleted


async def test_a_store_replaced_by_an_old_copy_is_not_ready(tmp_path: Path) -> None:
    async with (
        serving(tmp_path / "state") as process,
        httpx.AsyncClient(timeout=PATIENCE_S) as http,
    ):
        assert (await http.get(f"{process.internal}/readyz")).status_code == 200
        status = (await http.get(f"{process.internal}/status", headers=process.shared)).json()
        assert status["why_not_ready"] is None
        async with _feed(process) as reader:
            await reader.send(feed.encode(feed.Resume(status["store"], {feed.STORE: 100})), text=True)
            with contextlib.suppress(websockets.ConnectionClosed):
                await reader.recv()
        ready = await http.get(f"{process.internal}/readyz")
        assert ready.status_code == 503
        assert "older copy" in ready.text
        status = (await http.get(f"{process.internal}/status", headers=process.shared)).json()
        assert f"{status['why_not_ready']}\n" == ready.text


async def test_health_status_and_metrics(tmp_path: Path) -> None:
    config = '[[source]]\ntype = "simulation"\nzones = ["GR", "BG"]\n'
    async with (
        serving(tmp_path / "state", config=config) as process,
        httpx.AsyncClient(timeout=PATIENCE_S) as http,
    ):
        async with asyncio.timeout(PATIENCE_S):
            while True:
                status = (await http.get(f"{process.internal}/status", headers=process.shared)).json()
                if status["sources"][0]["ok"]:
                    break
                await asyncio.sleep(0.02)
        assert status["process"] == "data"
        assert status["ready"]
        assert status["endpoints"] == 23
        assert status["sequence"] >= 23
        await http.get(f"{process.url}/v1/endpoints")
        metrics = (await http.get(f"{process.internal}/metrics", headers=process.shared)).text
        assert "diem_endpoints_retained 34.0" in metrics  # with 11 collections
        assert 'diem_source_polls_total{source="market"}' in metrics
        assert 'diem_http_requests_total{method="GET",status="200"} 1.0' in metrics
        assert (await http.get(f"{process.internal}/status")).status_code == 401


async def _refused(port: int) -> None:
    """Wait until no socket listens."""
    with contextlib.suppress(ConnectionRefusedError):
        async with asyncio.timeout(PATIENCE_S):
            while True:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                await asyncio.sleep(0.02)


async def test_a_stop_completes_requests_under_way(tmp_path: Path) -> None:
    async with serving(tmp_path / "state") as process:
        body = orjson.dumps(bulk({"/a": 1}))
        port = process.serving.result()["port"]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = (
            f"PUT /v1/data HTTP/1.1\r\nHost: localhost\r\nAuthorization: {process.write['Authorization']}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nExpect: 100-continue\r\n\r\n"
        )
        writer.write(head.encode() + body[:10])
        # 100 Continue is sent when the body is read: the request has begun.
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        ending = asyncio.create_task(process.end(signal.SIGTERM))
        await _refused(port)
        writer.write(body[10:])
        answer = await asyncio.wait_for(reader.read(), PATIENCE_S)
        assert answer.startswith(b"HTTP/1.1 200 OK")
        assert await ending == 0
        writer.close()
    async with (
        serving(tmp_path / "state", **RESTARTED) as process,
        httpx.AsyncClient(timeout=PATIENCE_S) as http,
    ):
        assert (await http.get(f"{process.url}/v1/data/a")).status_code == 200


async def test_an_endpoint_claimed_by_two_sources_ends_the_start_with_one_line(tmp_path: Path) -> None:
    process = await start(tmp_path / "state", config=TWO_MARKETS)
    assert await process.wait() == 2
    await process.end()
    (line,) = process.log
    assert line.startswith("diem: the endpoint /dam/prices/GR is claimed by two sources: 'first' and 'second'")


async def test_a_store_that_is_in_use_ends_the_start_with_one_line(tmp_path: Path) -> None:
    async with serving(tmp_path / "state"):
        second = await start(tmp_path / "state")
        assert await second.wait() == 1
        await second.end()
        assert second.log[-1].endswith(" is in use by another process")


async def test_a_standby_takes_over_when_the_owner_of_the_store_is_killed(tmp_path: Path) -> None:
    async with serving(tmp_path) as first:
        async with httpx.AsyncClient(base_url=first.url, headers=first.write, timeout=PATIENCE_S) as http:
            assert (await http.put("/v1/data", json=bulk({"/a": 1}))).status_code == 200
        ports = free_ports(3)
        health, internal = (f"http://127.0.0.1:{port}" for port in ports[:2])
        listeners = {"DIEM_HEALTH_PORT": ports[0], "INTERNAL_PORT": ports[1], "PORT": ports[2]}
        second = await start(tmp_path, STANDBY="true", **{name: str(port) for name, port in listeners.items()})
        try:
            await second.logged("standing by")
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", ports[2])
            async with httpx.AsyncClient(timeout=PATIENCE_S) as http:
                for url in (health, internal):
                    assert (await http.get(f"{url}/livez")).status_code == 200
                    ready = await http.get(f"{url}/readyz")
                    assert (ready.status_code, ready.text) == (503, "standing by: another process has the store\n")
                assert (await http.get(f"{internal}/status")).status_code == 401
                assert (await http.get(f"{health}/status")).status_code == 404
            async with http_client(second.key) as http:
                assert (await http.get(f"{internal}/status")).json()["standby"]
            await first.end(signal.SIGKILL)
            await second.ready()
            async with httpx.AsyncClient(base_url=second.url, timeout=PATIENCE_S) as http:
                assert (await http.get("/v1/data/a")).status_code == 200
                assert (await http.get(f"{health}/readyz")).status_code == 200
        finally:
            await second.end(signal.SIGKILL)


async def test_a_standby_beside_the_owner_waits_without_its_port_and_stops_on_request(tmp_path: Path) -> None:
    async with serving(tmp_path) as first:
        second = await start(tmp_path, STANDBY="true", INTERNAL_PORT=first.internal.rpartition(":")[2])
        await second.logged("no internal listener while standing by")
        assert await second.end() == 0


async def test_a_stream_is_answered_while_it_is_sent(tmp_path: Path) -> None:
    async with serving(tmp_path / "state") as process:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(process.url.rpartition(":")[2]))
        fields = f"Host: localhost\r\nAuthorization: {process.write['Authorization']}\r\n"
        kind = "Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n"
        writer.write(f"POST /v1/data HTTP/1.1\r\n{fields}{kind}\r\n".encode())
        async with asyncio.timeout(PATIENCE_S):
            for number in range(3):
                line = f'{{"endpoint":"/a","value":{number}}}\n'.encode()
                writer.write(b"%x\r\n%b\r\n" % (len(line), line))
                if not number:
                    assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
                size = int(await reader.readline(), 16)
                assert orjson.loads((await reader.readexactly(size + 2)).strip())["line"] == number + 1
            writer.write(b"0\r\n\r\n")
            assert await reader.readline() == b"0\r\n"
        writer.close()
