"""The guard: read slots, Host names, origins (CORS), rates of addresses and their charges."""

import asyncio
import math
from dataclasses import dataclass, field

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from diem.process.forwarding import UNKNOWN
from diem.process.limits import RateLimit
from diem.process.listeners import is_loopback
from services.data.api import guard
from services.data.api.guard import Slots
from tests.support.patience import PATIENCE_S
from tests.support.security_events import recorded_events
from tests.support.small import AS_SERIES
from tests.unit.services.data.conftest import BODY, Rest, assert_problem


@dataclass
class Slow:
    """An application whose answers begin and end when the test allows it."""

    may_begin: asyncio.Event = field(default_factory=asyncio.Event)
    may_end: asyncio.Event = field(default_factory=asyncio.Event)
    begun: list[str] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.begun.append(scope["path"])
        await self.may_begin.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await self.may_end.wait()
        await send({"type": "http.response.body", "body": b"done"})


def client(app: Slots) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")


async def until(app: Slow, count: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while len(app.begun) < count:
            await asyncio.sleep(0)


async def test_concurrent_reads_are_bounded_and_the_others_wait_in_order() -> None:
    app = Slow()
    async with client(Slots(app, 2)) as http:
        asked = [asyncio.create_task(http.get(f"/{number}")) for number in range(5)]
        await until(app, 2)
        for _ in range(20):
            await asyncio.sleep(0)
        assert app.begun == ["/0", "/1"]
        # A slot is free when the answer begins, however slowly it is taken.
        app.may_begin.set()
        await until(app, 5)
        assert app.begun == ["/0", "/1", "/2", "/3", "/4"]
        app.may_end.set()
        assert [answer.text for answer in await asyncio.gather(*asked)] == ["done"] * 5


async def test_a_read_that_waits_too_long_gets_503_with_retry_after(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "SLOT_TIMEOUT_S", 0.01)
    app = Slow()
    async with client(Slots(app, 1)) as http:
        first = asyncio.create_task(http.get("/first"))
        await until(app, 1)
        refused = await http.get("/second")
        assert (refused.status_code, refused.json()["code"]) == (503, "busy")
        assert 1 <= int(refused.headers["retry-after"]) <= 4
        app.may_begin.set()
        app.may_end.set()
        assert (await first).status_code == 200
        assert (await http.get("/third")).status_code == 200


async def test_a_failing_answer_frees_its_slot() -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/broken":
            raise ZeroDivisionError
        await PlainTextResponse("fine")(scope, receive, send)

    async with client(Slots(broken, 1)) as http:
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                await http.get("/broken")
        assert (await http.get("/")).text == "fine"


async def test_a_write_does_not_wait_behind_reads(rest: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    body = {"unit": "MW", "resolution": "PT1H", "points": [{"time": "2026-01-01T00:00:00Z", "value": 5}]}
    http = rest.make(options={"concurrent_reads": 1})
    key = {"Authorization": rest.writer.headers["authorization"]}
    assert (await http.put("/v1/data/a", json=body, headers={**AS_SERIES, **key})).status_code == 200
    go, begun, read = asyncio.Event(), asyncio.Event(), rest.store.reader.current

    async def stalled(endpoint: str) -> object:
        begun.set()
        await go.wait()
        return await read(endpoint)

    monkeypatch.setattr(rest.store.reader, "current", stalled)
    reads = [asyncio.create_task(http.get("/v1/data/a")) for _ in range(20)]
    await begun.wait()
    assert (await http.put("/v1/data/b", json=body, headers={**AS_SERIES, **key})).status_code == 200
    assert not any(one.done() for one in reads)
    go.set()
    assert {answer.status_code for answer in await asyncio.gather(*reads)} == {200}


async def test_the_cost_of_an_answer_is_charged_to_the_address(rest: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.data.api.cost.BYTES_PER_REQUEST", 50)
    for name in range(40):
        await rest.writer.put(f"/v1/data/{name}", json=BODY, headers=AS_SERIES)
    client = rest.make(client="192.0.2.7", headers={"Accept-Encoding": "identity"})
    size = len((await client.get("/v1/endpoints")).content)
    assert size > 6_000
    # The next request is refused until the answer is paid: 1 + its size / 50 requests, of which 100 were there.
    refused = await client.get("/v1/data/1")
    assert_problem(refused, 429, "rate")
    debt_s = (1 + (size - 1) // 50 - 99) / 20
    assert int(refused.headers["retry-after"]) == max(1, math.ceil(debt_s))
    rest.clock.advance(debt_s + 0.05)
    assert (await client.get("/v1/data/1")).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "127.0.0.1.evil", "", "[::2]", "[::1].evil.example", "localhost:1@evil"],
)
async def test_a_foreign_host_header_is_refused_on_every_path(rest: Rest, host: str) -> None:
    for path in ("/", "/v1/endpoints", "/config.json"):
        assert_problem(await rest.writer.get(path, headers={"Host": host}), 400, "host")


@pytest.mark.parametrize("host", ["localhost:8080", "LOCALHOST", "127.0.0.1:1", "[::1]:8080", "data.example:443"])
async def test_own_names_in_the_host_header_are_accepted(rest: Rest, host: str) -> None:
    client = rest.make(options={"hosts": frozenset({"localhost", "127.0.0.1", "[::1]", "data.example"})})
    assert (await client.get("/v1/endpoints", headers={"Host": host})).status_code == 200


async def test_any_host_can_be_allowed(rest: Rest) -> None:
    client = rest.make(options={"hosts": frozenset({"*"})})
    assert (await client.get("/v1/endpoints", headers={"Host": "any.example"})).status_code == 200


OTHER = "https://other.example"


PREFLIGHT = {"Origin": OTHER, "Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "if-none-match"}


ALLOW = "access-control-allow-origin"


async def test_no_page_of_another_origin_reads_what_anonymous_visitors_may(rest: Rest) -> None:
    await rest.writer.put("/v1/data/a", json=BODY, headers=AS_SERIES)
    (rest.page / "assets").mkdir(parents=True)
    (rest.page / "diem.js").write_text("1")
    for path in (
        "/v1/data/a",
        "/v1/endpoints",
        "/v1/sources",
        "/v1/history/a",
        "/config.json",
        "/diem.js",
        "/v1/data/no",
    ):
        for origin in (OTHER, "null"):
            answer = await rest.reader.get(path, headers={"Origin": origin})
            assert ALLOW not in answer.headers
            assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    refused = await rest.reader.options("/v1/data/a", headers=PREFLIGHT)
    assert_problem(refused, 403, "origin")
    assert ALLOW not in refused.headers


async def test_pages_of_listed_origins_may_read_and_not_write(rest: Rest) -> None:
    await rest.writer.put("/v1/data/a", json=BODY, headers=AS_SERIES)
    (rest.page / "assets").mkdir(parents=True)
    (rest.page / "diem.js").write_text("1")
    client = rest.make(options={"cors_origins": frozenset({OTHER})})
    for path in ("/v1/data/a", "/config.json", "/diem.js"):
        answer = await client.get(path, headers={"Origin": OTHER})
        assert (answer.status_code, answer.headers[ALLOW]) == (200, OTHER)
        assert "Origin" in answer.headers["vary"]
        foreign = await client.get(path, headers={"Origin": OTHER + ".evil.example"})
        assert ALLOW not in foreign.headers
        assert "Origin" in foreign.headers["vary"]
    read = await client.options("/v1/data/a", headers=PREFLIGHT)
    assert (read.status_code, read.headers[ALLOW]) == (204, OTHER)
    assert read.headers["access-control-allow-methods"] == "GET, HEAD"
    for url in ("/v1/data/a", "/v1/data"):
        write = await client.options(url, headers={**PREFLIGHT, "Access-Control-Request-Method": "PUT"})
        assert write.status_code == 405
        assert "access-control-allow-methods" not in write.headers
    put = await rest.writer.put("/v1/data/a", json=BODY, headers={**AS_SERIES, **PREFLIGHT})
    assert ALLOW not in put.headers


async def test_a_preflight_that_announces_a_key_is_granted_and_the_request_without_a_key_is_not(rest: Rest) -> None:
    await rest.writer.put("/v1/data/a", json=BODY, headers=AS_SERIES)
    announced = {**PREFLIGHT, "Access-Control-Request-Headers": "Authorization, if-none-match"}
    preflight = await rest.reader.options("/v1/data/a", headers=announced)
    assert (preflight.status_code, preflight.headers[ALLOW]) == (204, "*")
    for given in ("", "Basic x", "Bearer x"):
        answer = await rest.reader.get("/v1/data/a", headers={"Origin": OTHER, "Authorization": given})
        assert ALLOW not in answer.headers
    wrong = await rest.reader.get("/v1/data/a", headers={"Origin": OTHER, "Authorization": "Bearer diem_x"})
    assert (wrong.status_code, wrong.headers[ALLOW]) == (401, "*")
    assert "points" not in wrong.text


async def test_every_origin_can_be_allowed(rest: Rest) -> None:
    client = rest.make(options={"cors_origins": frozenset({"*"})})
    assert (await client.get("/v1/endpoints", headers={"Origin": OTHER})).headers[ALLOW] == "*"
    assert (await client.options("/v1/data/a", headers=PREFLIGHT)).headers[ALLOW] == "*"


async def test_a_reader_beyond_its_rate_gets_429_with_retry_after(rest: Rest) -> None:
    client = rest.make(client="192.0.2.7")
    for _ in range(100):
        assert (await client.get("/v1/endpoints")).status_code == 200
    refused = await client.get("/v1/endpoints")
    assert_problem(refused, 429, "rate")
    assert refused.headers["retry-after"] == "1"
    assert refused.headers["ratelimit-policy"] == '"anonymous";q=100;w=5'
    assert refused.headers["ratelimit"] == '"anonymous";r=0;t=1'
    rest.clock.advance(1)
    assert (await client.get("/v1/endpoints")).status_code == 200


async def test_the_write_key_is_not_rate_limited_and_wrong_keys_are(rest: Rest) -> None:
    wrong = rest.make(client="192.0.2.7", headers={"Authorization": "Bearer wrong"})
    statuses = [(await wrong.put("/v1/data/a", json=BODY, headers=AS_SERIES)).status_code for _ in range(101)]
    assert (statuses[99], statuses[100]) == (401, 429)
    key = rest.writer.headers["authorization"]
    right = rest.make(client="192.0.2.7", headers={"Authorization": key})
    assert {(await right.get("/v1/endpoints")).status_code for _ in range(150)} == {200}


async def test_anonymous_reads_can_be_switched_off(rest: Rest) -> None:
    closed = {"anonymous": lambda _address: False}
    assert_problem(await rest.make(options=closed).get("/v1/endpoints"), 401, "unauthorised")
    key = rest.writer.headers["authorization"]
    assert (await rest.make(options=closed, headers={"Authorization": key}).get("/v1/endpoints")).status_code == 200


async def test_a_wrong_write_key_is_recorded_also_where_nobody_reads_without_a_key(rest: Rest) -> None:
    closed = rest.make(client="192.0.2.7", options={"anonymous": is_loopback})
    with recorded_events() as events:
        answer = await closed.put("/v1/data/a", json={}, headers={"Authorization": "Bearer guessed"})
    assert answer.status_code == 401
    assert "write key" in answer.json()["detail"]
    assert [(line["address"], line["code"]) for line in events.of("wrong_write_key")] == [("192.0.2.7", 401)]


async def test_anonymous_reads_may_be_for_some_addresses_only(rest: Rest) -> None:
    await rest.writer.put("/v1/data/a", json=BODY, headers=AS_SERIES)
    for address, status in (("127.0.0.1", 200), ("::1", 200), ("192.0.2.1", 401), (UNKNOWN, 401)):
        reader = rest.make(client=address, options={"anonymous": is_loopback})
        answer = await reader.get("/v1/data/a")
        assert answer.status_code == status, address


async def test_a_client_behind_an_untrusted_proxy_has_the_rate_of_a_foreign_address(rest: Rest) -> None:
    options = {"rate": RateLimit(1, 2), "loopback_rate": RateLimit(1000, 1000)}
    foreign = rest.make(client=UNKNOWN, options=options)
    assert [(await foreign.get("/v1/endpoints")).status_code for _ in range(3)] == [200, 200, 429]
