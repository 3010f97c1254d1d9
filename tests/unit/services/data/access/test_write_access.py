"""Write keys of the store behind the REST interface: prefixes, rate, expiry and revocation, on either database."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from diem.process.auth import SharedKey
from diem.process.clock import ManualClock
from services.data.access.keys import WriteTerms
from services.data.access.plans import AccessPlan
from services.data.access.write_access import WriteAccess
from services.data.api.keys import internal_app
from tests.support.databases import Databases
from tests.support.patience import PATIENCE_S, until
from tests.support.security_events import recorded_events
from tests.support.small import AS_SERIES
from tests.unit.services.data.access.test_access import World, problem, serving
from tests.unit.services.data.conftest import BODY, WRITE_KEY

NARROW = WriteTerms(("/dam", "/load/GR"), 6)


@pytest.fixture
async def world(tmp_path: Path, databases: Databases) -> AsyncIterator[World]:
    async with serving(tmp_path, AccessPlan("open"), url=databases.url()) as made:
        yield made


async def writer(world: World, terms: WriteTerms = NARROW, lifetime_s: int | None = None) -> httpx.AsyncClient:
    _, text = await world.access.create_writer("importer", terms, lifetime_s=lifetime_s)
    return world.http(text)


def bulk(*names: str) -> dict[str, object]:
    return {"datasets": [{**BODY, "endpoint": name} for name in names]}


async def test_a_write_key_writes_and_deletes_what_its_prefixes_cover_and_nothing_else(world: World) -> None:
    async with await writer(world) as http:
        assert (await http.put("/v1/data/dam/a", json=BODY, headers=AS_SERIES)).status_code == 200
        assert (await http.put("/v1/data/load/GR", json=BODY, headers=AS_SERIES)).status_code == 200
        assert (await http.delete("/v1/data/dam/a")).status_code == 200
        for path in ("/v1/data/damage", "/v1/data/load/DE", "/v1/data/load", "/v1/data/other"):
            refused = await http.put(path, json=BODY)
            assert problem(refused) == (403, "not_in_key")
            assert path.removeprefix("/v1/data") in refused.json()["detail"]
            assert problem(await http.delete(path)) == (403, "not_in_key")
        assert set(world.store.index.names) == {"/dam/a", "/load/GR"}


async def test_a_bulk_write_with_one_endpoint_outside_of_the_prefixes_stores_nothing(world: World) -> None:
    async with await writer(world) as http:
        assert problem(await http.put("/v1/data", json=bulk("/dam/a", "/dam/b", "/load/DE"))) == (403, "not_in_key")
        assert not world.store.index.heads
        assert (await http.put("/v1/data", json=bulk("/dam/a", "/dam/b"))).status_code == 200


async def test_a_write_key_does_not_read_and_an_api_key_does_not_write(world: World) -> None:
    async with await writer(world) as http:
        assert (await http.put("/v1/data/dam/a", json=BODY, headers=AS_SERIES)).status_code == 200
        for path in ("/v1/data/dam/a", "/v1/endpoints", "/v1/history/dam/a", "/v1/usage"):
            assert problem(await http.get(path)) == (403, "write_only")
    async with world.http(await world.key("open")) as http:
        for answer in (
            await http.put("/v1/data/dam/a", json=BODY, headers=AS_SERIES),
            await http.delete("/v1/data/dam/a"),
        ):
            assert problem(answer) == (403, "read_only")
    async with world.http(WRITE_KEY) as http:
        assert (await http.put("/v1/data/other", json=BODY, headers=AS_SERIES)).status_code == 200


async def test_the_rate_counts_changes_exactly_within_any_minute(world: World) -> None:
    async with await writer(world) as http:
        assert (await http.put("/v1/data", json=bulk("/dam/a", "/dam/b", "/dam/c", "/dam/d"))).status_code == 200
        # The request itself counts even where it is refused: two are left, then one.
        assert problem(await http.put("/v1/data", json=bulk("/dam/a", "/dam/b", "/dam/c"))) == (429, "rate")
        assert (await http.put("/v1/data/dam/a", json=BODY, headers=AS_SERIES)).status_code == 200
        refused = await http.put("/v1/data/dam/a", json=BODY, headers=AS_SERIES)
        assert problem(refused) == (429, "rate")
        assert refused.headers["retry-after"] == "61"
        assert problem(await http.put("/v1/data", json=bulk(*(f"/dam/{n}" for n in range(7))))) == (429, "rate")
        world.clock.advance(61)
        assert problem(await http.put("/v1/data", json=bulk(*(f"/dam/{n}" for n in range(7))))) == (403, "over_rate")
        assert (await http.put("/v1/data", json=bulk(*(f"/dam/{n}" for n in range(5))))).status_code == 200


async def test_an_exhausted_key_is_refused_before_its_body_is_read(world: World) -> None:
    async with await writer(world, WriteTerms((), 1)) as http:
        assert (await http.put("/v1/data/a", json=BODY, headers=AS_SERIES)).status_code == 200

        async def never() -> AsyncIterator[bytes]:
            raise AssertionError("the body is read")
            yield b""

        headers = {"Content-Type": "application/json"}
        assert problem(await http.put("/v1/data/a", content=never(), headers=headers)) == (429, "rate")


async def test_a_stream_does_not_outlive_its_key(world: World) -> None:
    key, text = await world.access.create_writer("importer", NARROW)
    go = asyncio.Event()

    async def lines() -> AsyncIterator[bytes]:
        yield b'{"endpoint":"/dam/a","value":1}\n'
        await go.wait()
        yield b'{"endpoint":"/dam/b","value":1}\n'

    async with world.http(text) as http, asyncio.timeout(PATIENCE_S):
        headers = {"Content-Type": "application/x-ndjson"}
        sending = asyncio.create_task(http.post("/v1/data", content=lines(), headers=headers))
        await until(lambda: "/dam/a" in world.store.index.heads)
        await world.access.revoke(key.id)
        go.set()
        accepted, refused = map(json.loads, (await sending).text.splitlines())
    assert accepted["changed"]
    assert (refused["status"], refused["code"]) == (401, "key_invalid")
    assert "/dam/b" not in world.store.index.heads


async def test_an_expired_write_key_is_refused_at_once(world: World) -> None:
    async with await writer(world, lifetime_s=60) as http:
        assert (await http.put("/v1/data/dam/a", json=BODY, headers=AS_SERIES)).status_code == 200
        world.clock.advance(60)
        assert problem(await http.put("/v1/data/dam/a", json=BODY, headers=AS_SERIES)) == (401, "key_expired")


async def test_a_write_key_revoked_while_its_body_arrives_is_refused(world: World) -> None:
    key, text = await world.access.create_writer("importer", NARROW)
    begun, go = asyncio.Event(), asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield b'{"unit":"MW","resolution":"PT1H",'
        begun.set()
        await go.wait()
        yield b'"points":[{"time":"2026-01-01T00:00:00Z","value":5}]}'

    with recorded_events() as events:
        async with world.http(text) as http:
            headers = {"Content-Type": "application/json"}
            waiting = asyncio.create_task(http.put("/v1/data/dam/a", content=slow(), headers=headers))
            await asyncio.wait_for(begun.wait(), PATIENCE_S)
            await world.access.revoke(key.id)
            go.set()
            assert problem(await waiting) == (401, "key_invalid")
            assert problem(await http.put("/v1/data/dam/a", json=BODY, headers=AS_SERIES)) == (401, "key_revoked")
    assert not world.store.index.heads
    assert [(line["kind"], line["key_name"]) for line in events.all()] == [("revoked_key", "importer")] * 2


async def test_a_write_key_survives_a_restart_with_its_terms(world: World) -> None:
    async with await writer(world, WriteTerms(("/dam",), 2)) as http:
        assert (await http.put("/v1/data/dam/a", json=BODY, headers=AS_SERIES)).status_code == 200
    (before,) = world.access.all_keys()
    await world.end()
    await world.begin()
    (after,) = world.access.all_keys()
    assert (after.writes, after.prefixes, after.per_minute) == (True, ("/dam",), 2)
    assert after.digest == before.digest
    assert after.last_used_ms == world.clock.wall_ms() // 60_000 * 60_000


async def test_writes_have_lines_with_the_name_of_the_key(world: World) -> None:
    with recorded_events() as events:
        async with await writer(world) as http:
            await http.put("/v1/data", json=bulk("/dam/a", "/dam/b"))
            await http.put("/v1/data/other", json=BODY, headers=AS_SERIES)
    assert [(line["kind"], line["key_name"], line.get("changes"), line.get("code")) for line in events.all()] == [
        ("writes", "importer", 2, None),
        ("forbidden", "importer", None, "not_in_key"),
    ]


async def test_only_writes_of_a_write_key_use_the_connections_reserved_for_writes(world: World) -> None:
    _, text = await world.access.create_writer("importer", NARROW)

    def privileged(method: str, key: str) -> bool:
        headers = [(b"authorization", f"Bearer {key}".encode())]
        return world.api.is_privileged({"type": "http", "method": method, "path": "/v1/data/dam/a", "headers": headers})

    assert privileged("PUT", text)
    assert not privileged("GET", text)
    assert not privileged("PUT", "")
    assert not world.api.is_privileged({"type": "http", "method": "PUT", "headers": [(b"authorization", b"")]})
    assert not privileged("PUT", await world.key("open"))
    assert privileged("GET", WRITE_KEY)


async def test_counts_of_keys_that_are_no_longer_used_are_forgotten(world: World) -> None:
    clock = ManualClock()
    access = WriteAccess(SharedKey(WRITE_KEY), world.access, clock)
    for _ in range(30):
        _, text = await world.access.create_writer("importer", NARROW)
        found = access.identify(f"Bearer {text}", writes=True)
        assert found is not None
        found.begin("/dam/a")
        clock.advance(20)
    assert len(access._writers) < 6


async def test_write_keys_are_administered_over_http(world: World) -> None:
    transport = httpx.ASGITransport(internal_app(world.access))
    async with httpx.AsyncClient(transport=transport, base_url="http://internal") as http:
        wanted = {"name": "importer", "writes": True, "prefixes": ["/dam"], "per_minute": 600, "lifetime_seconds": 60}
        made = (await http.post("/v1/keys", json=wanted)).json()
        assert (made["writes"], made["prefixes"], made["per_minute"]) == (True, ["/dam"], 600)
        assert made["endpoints"] == 1000
        assert (made["plan"], made["created"], made["expires"]) == (
            None,
            "2023-11-14T12:00:00.000Z",
            "2023-11-14T12:01:00.000Z",
        )
        (listed,) = (await http.get("/v1/keys")).json()["keys"]
        assert listed == {name: value for name, value in made.items() if name != "key"}
        for wrong in (
            {"plan": "open"},
            {"prefixes": "/dam"},
            {"prefixes": ["dam"]},
            {"prefixes": ["/dam/"]},
            {"prefixes": ["/a"] * 101},
            {"per_minute": 0},
            {"per_minute": 1.5},
            {"per_minute": True},
            {"endpoints": 0},
            {"lifetime_seconds": -1},
            {"lifetime_seconds": 10**12},
            {"writes": "yes"},
            {"rate": 5},
        ):
            assert (await http.post("/v1/keys", json={**wanted, **wrong})).status_code == 422, wrong
        for field in ("prefixes", "per_minute", "endpoints"):
            body = {"name": "page", "plan": "open", field: {**wanted, "endpoints": 9}[field]}
            assert (await http.post("/v1/keys", json=body)).status_code == 422


async def test_write_keys_may_use_the_same_idempotency_key(world: World) -> None:
    headers = {"Idempotency-Key": "import-2026-11-28"}
    async with (
        await writer(world, WriteTerms(("/mal",))) as one,
        await writer(world, WriteTerms(("/ext",))) as other,
    ):
        for _ in range(2):
            assert (await one.put("/v1/data/mal", json=BODY, headers={**AS_SERIES, **headers})).status_code == 200
            assert (await other.put("/v1/data/ext", json=BODY, headers={**AS_SERIES, **headers})).status_code == 200
        reused = await one.put("/v1/data/mal/b", json=BODY, headers={**AS_SERIES, **headers})
        assert problem(reused) == (422, "idempotency_key_reused")


async def test_a_write_key_fills_its_own_part_of_the_store_alone(world: World) -> None:
    async with (
        await writer(world, WriteTerms(("/mal",), None, 3)) as one,
        await writer(world, WriteTerms(("/ext",))) as other,
        world.http(WRITE_KEY) as operator,
    ):
        assert (await one.put("/v1/data", json=bulk("/mal/a", "/mal/b"))).status_code == 200
        refused = await one.put("/v1/data", json=bulk("/mal/c", "/mal/d"))
        assert problem(refused) == (422, "too_many_endpoints")
        assert "--endpoints" in refused.json()["detail"]
        assert (await one.put("/v1/data/mal/c", json=BODY, headers=AS_SERIES)).status_code == 200
        assert (await one.delete("/v1/data/mal/c")).status_code == 200
        assert problem(await one.put("/v1/data/mal/d", json=BODY, headers=AS_SERIES)) == (422, "too_many_endpoints")
        assert (await one.put("/v1/data/mal/c", json=BODY, headers=AS_SERIES)).status_code == 200
        assert (await one.delete("/v1/data/mal/c")).status_code == 200
        world.clock.advance(8 * 24 * 3600)
        assert (await one.put("/v1/data/mal/d", json=BODY, headers=AS_SERIES)).status_code == 200
        assert problem(await one.delete("/v1/data/mal/c")) == (404, "unknown_endpoint")
        assert (await other.put("/v1/data/ext/a", json=BODY, headers=AS_SERIES)).status_code == 200
        assert (await operator.put("/v1/data/mal/e", json=BODY, headers=AS_SERIES)).status_code == 200
