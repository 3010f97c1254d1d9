"""The client protocol of docs/protocol.md section 1 at a real socket: each request has its stated answer."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Origin, Subprotocol

from tests.support.patience import PATIENCE_S
from tests.support.small import Client, System, small_system


@pytest.fixture
async def system(tmp_path: Path) -> AsyncIterator[System]:
    async with small_system(tmp_path) as running:
        yield running


def subscribe(request_id: int, **endpoints: int | None) -> dict[str, Any]:
    return {"type": "subscribe", "id": request_id, "endpoints": {f"/{name}": v for name, v in endpoints.items()}}


def unsubscribe(request_id: int, *names: str) -> dict[str, Any]:
    return {"type": "unsubscribe", "id": request_id, "endpoints": list(names)}


async def refused(system: System, **options: Any) -> InvalidStatus:
    with pytest.raises(InvalidStatus) as caught:
        async with system.client(**options):
            pass
    return caught.value


async def closed(client: Client) -> int:
    async with asyncio.timeout(PATIENCE_S):
        try:
            while True:
                await client.connection.recv()
        except ConnectionClosed as error:
            assert error.rcvd is not None
            return error.rcvd.code


async def test_the_first_frame_is_a_welcome_and_then_the_status(system: System) -> None:
    async with system.client(welcome=False) as client:
        welcome = await client.receive(status=True)
        assert list(welcome) == [
            *("type", "session", "server", "mode", "authenticated", "limits", "data", "heartbeat_ms")
        ]
        assert welcome["limits"] == {"subscriptions": 1024, "message_bytes": 32768}
        assert (await client.receive(status=True))["type"] == "status"


async def test_a_subscriber_gets_the_retained_update_and_then_each_later_one(system: System) -> None:
    version = system.feed.put("/a")
    async with system.client() as client:
        assert await client.ask(subscribe(1, a=None)) == {"type": "subscribed", "id": 1, "endpoints": {"/a": version}}
        assert (await client.receive())["version"] == version
        later = system.feed.put("/a")
        update = await client.receive()
        assert (update["type"], update["endpoint"], update["version"]) == ("update", "/a", later)


async def test_a_client_that_holds_the_retained_version_gets_the_next_one(system: System) -> None:
    version = system.feed.put("/a")
    async with system.client() as client:
        assert (await client.ask(subscribe(1, a=version)))["endpoints"] == {"/a": version}
        assert await client.receives_nothing()


async def test_an_endpoint_that_does_not_exist_yet_is_registered_with_null(system: System) -> None:
    async with system.client() as client:
        assert (await client.ask(subscribe(1, later=None)))["endpoints"] == {"/later": None}
        version = system.feed.put("/later")
        assert (await client.receive())["version"] == version


async def test_a_wildcard_is_rejected_with_the_hint_to_collections(system: System) -> None:
    async with system.client() as client:
        answer = await client.ask({"type": "subscribe", "id": 1, "endpoints": {"/load/*": None, "/load/": None}})
        assert answer["endpoints"] == {"/load/": None}
        assert answer["rejected"]["/load/*"] == {
            "code": "bad_name",
            "message": "no wildcards: subscribe to the collection",
        }


async def test_a_deletion_is_an_update_with_gone(system: System) -> None:
    async with system.client() as client:
        await client.ask(subscribe(1, a=None))
        system.feed.put("/a", gone=True)
        assert (await client.receive())["gone"] is True


async def test_a_client_without_a_subscription_gets_no_update(system: System) -> None:
    async with system.client() as client, system.client() as other:
        await client.ask(subscribe(1, a=None))
        await other.ask(subscribe(1, b=None))
        system.feed.put("/a")
        assert (await client.receive())["endpoint"] == "/a"
        assert await other.receives_nothing()


async def test_after_unsubscribed_nothing_follows(system: System) -> None:
    async with system.client() as client:
        await client.ask(subscribe(1, a=None, b=None))
        assert await client.ask(unsubscribe(2, "/a")) == {"type": "unsubscribed", "id": 2, "endpoints": ["/a"]}
        system.feed.put("/a", "/b")
        assert (await client.receive())["endpoint"] == "/b"
        assert await client.receives_nothing()


async def test_unsubscribe_of_what_is_not_subscribed_has_the_normal_reply(system: System) -> None:
    async with system.client() as client:
        names = ["/never", "not a name"]
        assert await client.ask(unsubscribe(5, *names)) == {"type": "unsubscribed", "id": 5, "endpoints": names}


async def test_a_duplicate_subscribe_takes_the_new_known_version(system: System) -> None:
    version = system.feed.put("/a")
    async with system.client() as client:
        await client.ask(subscribe(1, a=version))
        assert (await client.ask(subscribe(2, a=None)))["endpoints"] == {"/a": version}
        assert (await client.receive())["version"] == version, "it holds nothing, so it is told at once"
        system.feed.put("/a")
        await client.receive()
        assert await client.receives_nothing(), "subscribed twice, told once"


async def test_subscribe_unsubscribe_subscribe_in_one_packet_ends_subscribed(system: System) -> None:
    version = system.feed.put("/a")
    async with system.client() as client:
        for message in (subscribe(1, a=version), unsubscribe(2, "/a"), subscribe(3, a=version)):
            await client.send(message)
        replies = [await client.receive() for _ in range(3)]
        assert [(r["type"], r["id"]) for r in replies] == [("subscribed", 1), ("unsubscribed", 2), ("subscribed", 3)]
        later = system.feed.put("/a")
        assert (await client.receive())["version"] == later


async def test_a_client_that_asks_for_data_is_sent_it_and_no_other_is(system: System) -> None:
    version = system.feed.put("/a", size=1000)
    async with system.client() as wanting, system.client() as other:
        await wanting.ask({**subscribe(1, a=None), "data": True})
        await other.ask(subscribe(1, a=None))
        for _ in range(3):
            sent, plain = await wanting.receive(), await other.receive()
            assert (sent["version"], sent["data"]["version"]) == (version, version)
            assert sent == {**plain, "data": sent["data"]}
            version = system.feed.put("/a", size=2000)
        assert (await wanting.receive())["version"] == version
        system.feed.put("/a")
        assert "data" not in await wanting.receive()


async def test_a_subscription_is_changed_by_another_one(system: System) -> None:
    system.feed.put("/a", size=10)
    async with system.client() as client:
        seen = []
        for request_id, data in enumerate((True, False, True), 1):
            await client.ask({**subscribe(request_id, a=None), "data": data})
            seen.append("data" in await client.receive())
            system.feed.put("/a", size=10)
            seen.append("data" in await client.receive())
        assert seen == [True, True, False, False, True, True]


async def test_a_server_that_retains_no_data_asks_for_none_and_offers_none(tmp_path: Path) -> None:
    async with small_system(tmp_path, retained_data_bytes=0) as system:
        system.feed.put("/a", size=1000)
        async with system.client(welcome=False) as client:
            assert "data" not in await client.receive(status=True)
            await client.receive(status=True)
            await client.ask({**subscribe(1, a=None), "data": True})
            assert "data" not in await client.receive()


async def test_bad_names_are_rejected_one_by_one_and_the_rest_registered(system: System) -> None:
    async with system.client() as client:
        reply = await client.ask({"type": "subscribe", "id": 1, "endpoints": {"/a": None, "no": None, "/..": None}})
        assert reply["endpoints"] == {"/a": None}
        assert {name: why["code"] for name, why in reply["rejected"].items()} == {"no": "bad_name", "/..": "bad_name"}
        system.feed.put("/a")
        assert (await client.receive())["endpoint"] == "/a"


async def test_101_names_register_nothing(system: System) -> None:
    async with system.client() as client:
        reply = await client.ask({"type": "subscribe", "id": 1, "endpoints": {f"/{n}": None for n in range(101)}})
        assert (reply["type"], reply["id"], reply["code"]) == ("error", 1, "too_many")
        system.feed.put("/1")
        assert await client.receives_nothing()


async def test_more_subscriptions_than_the_limit_are_rejected(system: System) -> None:
    async with system.client() as client:
        for start in range(0, 1000, 100):
            names = {f"/{n}": None for n in range(start, start + 100)}
            reply = await client.ask({"type": "subscribe", "id": start, "endpoints": names})
            assert "rejected" not in reply, "a page of 1,000 series fits"
        names = {f"/{n}": None for n in range(1000, 1050)}
        reply = await client.ask({"type": "subscribe", "id": 1000, "endpoints": names})
        assert len(reply["endpoints"]) == 24
        why = {"code": "limit", "message": "over 1024 subscriptions (DIEM_*_SUBSCRIPTIONS)"}
        assert list(reply["rejected"].values()) == [why] * 26


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ('{"type":"sing","id":4}', "bad_message"),
        ('{"type":"subscribe","id":4,"endpoints":7}', "bad_message"),
        ("{nonsense", "bad_json"),
        ('{"type":"auth","id":4,"token":"x"}', "unauthorised"),
    ],
)
async def test_a_bad_message_is_answered_and_the_connection_stays(system: System, message: str, code: str) -> None:
    async with system.client() as client:
        await client.ask(subscribe(1, a=None))
        reply = await client.ask(message)
        assert (reply["type"], reply["code"]) == ("error", code)
        version = system.feed.put("/a")
        assert (await client.receive())["version"] == version, "nothing is lost by a bad message"


async def test_an_oversize_message_closes_with_1009(system: System) -> None:
    async with system.client() as client:
        await client.send(" " * (32 * 1024 + 1))
        assert await closed(client) == 1009


async def test_fragments_count_together_and_are_put_together(system: System) -> None:
    async with system.client() as client:
        await client.connection.send(iter(['{"type":"unsubscribe",', '"id":9,"endpoints":[]}']))
        assert (await client.receive())["id"] == 9
        await client.connection.send(iter([" " * 20_000, " " * 20_000]))
        assert await closed(client) == 1009


async def test_a_binary_message_closes_with_1003_and_bad_utf8_with_1007(system: System) -> None:
    async with system.client() as client:
        await client.connection.send(b"{}", text=False)
        assert await closed(client) == 1003
    async with system.client() as client:
        await client.connection.send(b"\xff\xff", text=True)
        assert await closed(client) == 1007


async def test_20_errors_in_a_minute_close_with_4509(system: System) -> None:
    async with system.client() as client:
        for _ in range(20):
            await client.send("{")
        assert await closed(client) == 4509


async def test_a_burst_beyond_the_rate_closes_with_4003_and_at_last_with_1008(system: System) -> None:
    codes = []
    async with contextlib.AsyncExitStack() as stack:
        # At once: the allowance that one connection has used stays with the address when it reconnects.
        for client in [await stack.enter_async_context(system.client()) for _ in range(4)]:
            for n in range(63):
                await client.send(unsubscribe(n))
            codes.append(await closed(client))
    assert codes == [4003, 4003, 4003, 1008]


async def test_50_names_count_as_one_message_more(system: System) -> None:
    names = [f"/{n}" for n in range(100)]
    async with system.client() as client:
        with contextlib.suppress(ConnectionClosed):
            for n in range(30):
                await client.send({"type": "unsubscribe", "id": n, "endpoints": names})
        assert await closed(client) == 4003


async def test_a_wrong_subprotocol_is_http_400(system: System) -> None:
    assert (await refused(system, subprotocols=[Subprotocol("chat")])).response.status_code == 400
    assert (await refused(system, subprotocols=None)).response.status_code == 400


@pytest.mark.parametrize("origin", ["http://evil.example", "http://localhost:1", "https://localhost:8080", "null"])
async def test_a_foreign_origin_is_http_403(system: System, origin: str) -> None:
    assert (await refused(system, origin=Origin(origin))).response.status_code == 403


async def test_a_client_without_origin_on_this_machine_is_admitted(system: System) -> None:
    async with system.client(origin=None) as client:
        assert (await client.ask(unsubscribe(1)))["id"] == 1


async def test_a_forwarded_address_counts_only_from_a_trusted_proxy(tmp_path: Path) -> None:
    forged = {"X-Forwarded-For": "8.8.8.8"}
    async with small_system(tmp_path, anonymous="on") as system, system.client(additional_headers=forged):
        pass
    trusted: Any = ["127.0.0.1/32"]
    async with small_system(tmp_path, anonymous="on", trusted_proxies=trusted) as system:
        error = await refused(system, origin=None, additional_headers=forged)
        assert error.response.status_code == 403, "without an Origin a client from elsewhere needs a token"


@pytest.mark.parametrize("field", ["X-Forwarded-For", "Forwarded", "Via"])
@pytest.mark.parametrize("origin", [None, "http://localhost:8080"])
async def test_a_client_behind_an_untrusted_proxy_is_not_on_this_machine(
    system: System, field: str, origin: str | None
) -> None:
    error = await refused(system, origin=origin, additional_headers={field: "127.0.0.1"})
    assert error.response.status_code == 403, "the proxy may forward for anybody"


async def test_too_many_connections_of_one_address_are_http_429_and_of_all_http_503(tmp_path: Path) -> None:
    async with small_system(tmp_path, connections_per_address=1) as system:
        async with system.client():
            error = await refused(system)
            assert error.response.status_code == 429
            assert "Retry-After" in error.response.headers
        await _left(system)
        async with system.client():
            pass
    async with small_system(tmp_path, capacity=1) as system, system.client():
        assert (await _status(system))["capacity"] == 1
        error = await refused(system)
        assert error.response.status_code == 503
        assert "Retry-After" in error.response.headers


async def test_a_server_that_is_not_ready_or_draining_answers_503(tmp_path: Path) -> None:
    async with small_system(tmp_path, start_feed=False) as system:
        error = await refused(system)
        assert (error.response.status_code, error.response.headers["Retry-After"]) == (503, "1")


async def test_other_paths_are_404_and_the_feed_is_not_on_the_public_port(system: System) -> None:
    for path in ("/", "/feed", "/metrics", "/ws/x"):
        reader, writer = await asyncio.open_connection("127.0.0.1", system.settings.port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert (await reader.readline()).split()[1] == b"404"
        writer.close()
    # What nginx asks before it sends a client.
    reader, writer = await asyncio.open_connection("127.0.0.1", system.settings.port)
    writer.write(b"GET /livez HTTP/1.1\r\nHost: servers\r\nConnection: close\r\n\r\n")
    assert (await reader.read()).split()[1] == b"200"
    writer.close()


async def test_internal_paths_need_the_key_and_health_does_not(system: System) -> None:
    async def get(path: str, *headers: str) -> tuple[int, bytes]:
        reader, writer = await asyncio.open_connection("127.0.0.1", system.settings.internal_port)
        lines = [f"GET {path} HTTP/1.1", "Host: x", *headers, "", ""]
        writer.write("\r\n".join(lines).encode())
        data = await reader.read()
        writer.close()
        return int(data.split()[1]), data.partition(b"\r\n\r\n")[2]

    key = f"Authorization: {system.feed.key.header}"
    assert (await get("/livez"))[0] == 200
    assert (await get("/readyz"))[0] == 200
    for path in ("/metrics", "/status", "/feed"):
        assert (await get(path))[0] == 401
        assert (await get(path, "Authorization: Bearer wrong"))[0] == 401
    status = orjson.loads((await get("/status", key))[1])
    assert status["ready"]
    assert b"diem_clients" in (await get("/metrics", key))[1]
    # Sent as it is, the key opens nothing else.
    assert (await get("/feed", key))[0] == (await get("/nothing", key))[0] == 401


async def test_a_slow_client_conflates_and_ends_at_the_latest_of_each_endpoint(system: System) -> None:
    names = [f"/slow/{n}" for n in range(50)]
    async with system.client() as watching, system.client() as slow:
        for client in (watching, slow):
            await client.ask({"type": "subscribe", "id": 1, "endpoints": dict.fromkeys(names)})
        slow.connection.transport.pause_reading()
        last = 0
        for _ in range(400):
            last = system.feed.put(*names)
            await asyncio.sleep(0)
        while (await watching.receive())["version"] < last:
            pass
        slow.connection.transport.resume_reading()
        latest: dict[str, int] = {}
        received = 0
        while latest.get(names[-1], 0) < last:
            update = await slow.receive()
            assert update["version"] > latest.get(update["endpoint"], 0), "versions of one endpoint only grow"
            latest[update["endpoint"]] = update["version"]
            received += 1
        assert set(latest) == set(names)
        assert min(latest.values()) > last - 50
        assert received < 400 * 50, "what the client could not take was skipped, not queued"


async def test_a_client_that_reads_nothing_is_closed_and_holds_little(system: System) -> None:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(("127.0.0.1", system.settings.port))
        sock.sendall(
            b"GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: diem.v1.json\r\n\r\n"
        )
        text = orjson.dumps({"type": "subscribe", "id": 1, "endpoints": {f"/n/{n}": None for n in range(100)}})
        sock.sendall(b"\x81\xfe" + len(text).to_bytes(2, "big") + b"\0\0\0\0" + text)
        names = [f"/n/{n}" for n in range(100)]
        await asyncio.sleep(0.1)
        for _ in range(100):
            system.feed.put(*names)
            await asyncio.sleep(0.001)
        async with asyncio.timeout(PATIENCE_S):
            while True:
                async with system.client() as other:
                    await other.ask(unsubscribe(1))
                status = await _status(system)
                if status["clients"] == 0:
                    break
                await asyncio.sleep(0.5)


async def _left(system: System) -> None:
    """Wait until the server has no client."""
    async with asyncio.timeout(PATIENCE_S):
        while (await _status(system))["clients"]:
            await asyncio.sleep(0.02)


async def _status(system: System) -> dict[str, Any]:
    reader, writer = await asyncio.open_connection("127.0.0.1", system.settings.internal_port)
    writer.write(f"GET /status HTTP/1.1\r\nHost: x\r\nAuthorization: {system.feed.key.header}\r\n\r\n".encode())
    data = await reader.read()
    writer.close()
    result: dict[str, Any] = orjson.loads(data.partition(b"\r\n\r\n")[2])
    return result


async def test_after_all_clients_left_no_state_of_them_remains(system: System) -> None:
    for _ in range(3):
        async with system.client() as client:
            await client.ask(subscribe(1, a=None, b=None))
    await _left(system)
    assert (await _status(system))["subscriptions"] == 0


async def test_a_stopping_server_closes_with_1012_and_a_short_window(tmp_path: Path) -> None:
    async with small_system(tmp_path) as system, system.client() as client:
        system.life.stop("test")
        with pytest.raises(ConnectionClosed) as caught:
            while True:
                await client.connection.recv()
        assert caught.value.rcvd is not None
        assert (caught.value.rcvd.code, caught.value.rcvd.reason) == (1012, "retry=500")


async def test_all_to_all_sends_every_update_to_every_client(tmp_path: Path) -> None:
    async with small_system(tmp_path, mode="all-to-all") as system, system.client() as client:
        version = system.feed.put("/not/subscribed")
        assert (await client.receive())["version"] == version
