"""Keys, quotas and usage behind the REST interface: real store, no sockets."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from diem.process import metrics
from diem.process.auth import SharedKey
from diem.process.clock import ManualClock
from services.data.access import access as access_module
from services.data.access import accounts
from services.data.access import keys as keys_module
from services.data.access.access import Access, Cell, ReadReport, Usage
from services.data.access.accounts import MAX_BATCH, UsageTracker
from services.data.access.keys import WriteTerms
from services.data.access.plans import AccessPlan, AccessPlans
from services.data.access.quota import LEASE_S, QuotaReason, QuotaRequest, day_of
from services.data.access.records import KEEP_DAYS, Units
from services.data.api import ApiOptions, make_api
from services.data.api.keys import internal_app
from services.data.errors import StoreUnavailable
from services.data.store.store import Store
from tests.support.databases import Databases
from tests.support.file_threads import FILES
from tests.support.patience import PATIENCE_S
from tests.support.security_events import recorded_events
from tests.support.small import AS_SERIES
from tests.unit.services.data.conftest import BODY, WRITE_KEY

NOON = 1_700_000_000_000 // 86_400_000 * 86_400_000 + 43_200_000
PLANS = (
    AccessPlan("free", 60, 200),
    AccessPlan("tiny", per_day=7),
    AccessPlan("dam", prefixes=("/dam",)),
    AccessPlan("open"),
)
DATA = QuotaRequest("/dam/a")


class World:
    """One Data Service, which may be restarted on the same store."""

    def __init__(self, directory: Path, plans: tuple[AccessPlan, ...], url: str = "") -> None:
        self.url = url or f"sqlite:///{directory / 'data.db'}"
        self.directory = directory
        self.clock = ManualClock(wall_ms=NOON)
        self.plans = plans

    async def begin(self, **options: Any) -> None:
        self.store = await Store.open(self.url, clock=self.clock)
        self._serving = self.store.serving()
        await self._serving.__aenter__()
        self.access = await Access.open(AccessPlans(self.plans), self.store, self.clock)
        chosen, key = ApiOptions(page_dir=self.directory, **options), SharedKey(WRITE_KEY)
        self.api = make_api(self.store, key, lambda _: None, chosen, self.clock, access=self.access, files=FILES).app

    async def end(self, *, killed: bool = False) -> None:
        if killed:
            # What was on its way is committed, and nothing is given back.
            work = self.access.usage_tracker._work
            await asyncio.wait([work] if work is not None else [asyncio.create_task(asyncio.sleep(0))])
        else:
            await self.access.close()
        await self._serving.__aexit__(None, None, None)

    async def key(self, plan: str = "free") -> str:
        return (await self.access.create("a test", plan))[1]

    def http(self, key: str | None = None, client: str = "192.0.2.7") -> httpx.AsyncClient:
        transport = httpx.ASGITransport(self.api, raise_app_exceptions=False, client=(client, 50000))
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return httpx.AsyncClient(transport=transport, base_url="http://localhost:8080", headers=headers)

    async def request(self, key: str, times: int, asked: QuotaRequest = DATA) -> Counter[QuotaReason]:
        found = await asyncio.gather(*(self.access.admit(key, asked) for _ in range(times)))
        return Counter(verdict.reason for verdict in found)


@asynccontextmanager
async def serving(directory: Path, *plans: AccessPlan, url: str = "", **options: Any) -> AsyncIterator[World]:
    made = World(directory, plans, url)
    await made.begin(**options)
    yield made
    await made.end()


@pytest.fixture
async def world(tmp_path: Path, databases: Databases) -> AsyncIterator[World]:
    """A service with two endpoints, on either database."""
    async with serving(tmp_path, *PLANS, url=databases.url()) as made:
        async with made.http(WRITE_KEY) as http:
            for name in ("/dam/a", "/load/a"):
                assert (await http.put(f"/v1/data{name}", json=BODY, headers=AS_SERIES)).status_code == 200
        yield made


async def full(_work: object) -> None:
    raise StoreUnavailable("full")


def problem(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json"
    return answer.status_code, answer.json()["code"]


async def test_a_key_is_limited_by_its_plan_and_not_by_the_address(world: World) -> None:
    async with world.http(await world.key()) as http:
        answers = [await http.get("/v1/data/dam/a") for _ in range(61)]
    assert [answer.status_code for answer in answers] == [200] * 60 + [429]
    assert answers[0].headers["ratelimit-policy"] == '"minute";q=60;w=60, "day";q=200;w=86400'
    assert answers[0].headers["ratelimit"] == '"minute";r=59;t=61, "day";r=199;t=43200'
    assert problem(answers[60]) == (429, "rate")
    assert answers[60].headers["retry-after"] == "61"
    assert answers[60].headers["ratelimit"].startswith('"minute";r=0;t=61')
    assert "RateLimit" in answers[60].headers["access-control-expose-headers"]


async def test_the_next_expiry_is_that_of_a_valid_key(world: World) -> None:
    def expiry_s() -> list[float]:
        return [each.value for each in world.access.samples() if each.metric is metrics.ACCESS_KEY_EXPIRY]

    await world.key()
    assert expiry_s() == []
    now_s = world.clock.wall_ms() / 1000
    for lifetime_s in (7200, 60, 3600):
        await world.access.create("a test", "free", lifetime_s=lifetime_s)
    assert expiry_s() == [now_s + 60]
    world.clock.advance(60)
    assert expiry_s() == [now_s + 3600]


async def test_requests_beyond_the_daily_quota_are_refused_until_the_next_day(world: World) -> None:
    async with world.http(await world.key("tiny")) as http:
        answers = [await http.get("/v1/endpoints") for _ in range(8)]
        assert [answer.status_code for answer in answers] == [200] * 7 + [429]
        assert problem(answers[7]) == (429, "quota")
        assert answers[7].headers["retry-after"] == "43200"
        world.clock.advance(43_200)
        assert (await http.get("/v1/endpoints")).status_code == 200


async def test_exactly_the_quota_of_concurrent_requests_is_admitted(world: World) -> None:
    key = await world.key("tiny")
    assert await world.request(key, 50) == {QuotaReason.ADMITTED: 7, QuotaReason.DAY: 43}


async def test_a_restart_keeps_the_daily_quota_and_a_kill_never_adds_to_it(world: World) -> None:
    key = await world.key()
    admitted = (await world.request(key, 30))[QuotaReason.ADMITTED]
    await world.end()
    await world.begin()
    world.clock.advance(120)
    assert (await world.access.usage_of(world.access.all_keys()[0]))[0] == admitted == 30
    admitted += (await world.request(key, 30))[QuotaReason.ADMITTED]
    await world.end(killed=True)
    await world.begin()
    for _ in range(6):
        world.clock.advance(120)
        admitted += (await world.request(key, 60))[QuotaReason.ADMITTED]
    assert 200 - 3 * 4 <= admitted <= 200


async def test_only_the_plans_endpoints_may_be_read(world: World) -> None:
    async with world.http(await world.key("dam")) as http:
        assert (await http.get("/v1/data/dam/a")).status_code == 200
        assert problem(await http.get("/v1/data/load/a")) == (403, "not_in_plan")
        assert problem(await http.get("/v1/data/damage")) == (403, "not_in_plan")
        assert problem(await http.get("/v1/data/%6Coad/a")) == (403, "not_in_plan")
        assert problem(await http.get("/v1/history/load/a")) == (403, "not_in_plan")
        assert (await http.get("/v1/endpoints")).status_code == 200


async def test_an_unknown_key_is_refused_and_its_address_pays(world: World) -> None:
    unknown = f"diem_aaaaaaaa_{'x' * 43}"
    async with world.http(unknown) as http:
        answers = [await http.get("/v1/endpoints") for _ in range(101)]
    assert problem(answers[0]) == (401, "unauthorised")
    assert "invalid_token" in answers[0].headers["www-authenticate"]
    assert problem(answers[100]) == (429, "rate")
    async with world.http("diem_") as http:
        assert (await http.get("/config.json")).status_code == 429
    async with world.http("diem_", client="192.0.2.8") as http:
        assert (await http.get("/config.json")).status_code == 200
        assert (await http.get("/v1/data/dam/a")).status_code == 401


async def test_a_revoked_key_is_refused_at_once_and_after_a_restart(world: World) -> None:
    key = await world.key()
    async with world.http(key) as http:
        assert (await http.get("/v1/endpoints")).status_code == 200
        await world.access.revoke(key[5:13])
        assert (await http.get("/v1/endpoints")).status_code == 401
    await world.end()
    await world.begin()
    assert (await world.request(key, 1)) == {QuotaReason.REVOKED: 1}
    assert [found.revoked_ms for found in world.access.all_keys()] == [NOON]


async def test_a_key_revoked_while_its_request_waits_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    key = await world.key()
    add, begun, go = world.access.usage_tracker.add, asyncio.Event(), asyncio.Event()

    async def slow(*units: Any) -> int:
        begun.set()
        await go.wait()
        return await add(*units)

    monkeypatch.setattr(world.access.usage_tracker, "add", slow)
    waiting = asyncio.create_task(world.request(key, 3))
    await asyncio.wait_for(begun.wait(), PATIENCE_S)
    await world.access.revoke(key[5:13])
    go.set()
    assert await waiting == {QuotaReason.REVOKED: 3}


async def test_an_expired_key_is_refused_at_once_also_while_its_request_waits(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, key = await world.access.create("a test", "free", lifetime_s=60)
    _, waits = await world.access.create("another", "free", lifetime_s=60)
    async with world.http(key) as http:
        assert (await http.get("/v1/endpoints")).status_code == 200
        world.clock.advance(59.9)
        assert (await http.get("/v1/endpoints")).status_code == 200
        add = world.access.usage_tracker.add

        async def slow(*units: Any) -> int:
            world.clock.advance(0.1)
            return await add(*units)

        monkeypatch.setattr(world.access.usage_tracker, "add", slow)
        assert await world.request(waits, 1) == {QuotaReason.EXPIRED: 1}
        refused = await http.get("/v1/endpoints")
    assert problem(refused) == (401, "key_expired")
    assert world.access.verify(key) is None
    await world.end()
    await world.begin()
    assert await world.request(key, 1) == {QuotaReason.EXPIRED: 1}


async def test_a_request_that_waited_for_a_slot_is_refused_with_a_key_that_was_revoked_meanwhile(world: World) -> None:
    await world.end()
    await world.begin(concurrent_reads=1)
    key = await world.key()
    slots = world.api._slots
    assert await slots._acquired()
    async with world.http(key) as http:
        waiting = asyncio.create_task(http.get("/v1/data/dam/a"))
        async with asyncio.timeout(PATIENCE_S):
            while not slots._free._waiters:
                await asyncio.sleep(0.001)
        await world.access.revoke(key[5:13])
        slots._free.release()
        assert problem(await waiting) == (401, "key_revoked")
    assert not slots._free.locked()


async def test_last_use_is_kept_to_the_minute_and_written_rarely(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    used, unused = await world.key(), await world.key()
    key = world.access.all_keys()[0]
    written: list[dict[str, int]] = []
    write = world.access.last_use._write

    async def counted(batch: Any) -> None:
        written.append(dict(batch))
        await write(batch)

    monkeypatch.setattr(world.access.last_use, "_write", counted)
    assert world.access.last_use.of(key) is None
    for _ in range(3):
        world.clock.advance(29)
        await world.request(used, 10)
    assert not written
    await world.access.last_use.flush()
    await world.access.last_use.flush()
    assert written == [{used[5:13]: NOON + 60_000}]
    world.clock.advance(3600)
    await world.request(used, 1)
    await world.end()
    await world.begin()
    by_id = {key.id: key.last_used_ms for key in world.access.all_keys()}
    assert by_id == {used[5:13]: NOON + 3660_000, unused[5:13]: None}


async def test_last_uses_that_cannot_be_stored_are_kept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    key = await world.key()
    await world.request(key, 1)
    write = world.access.last_use._write

    monkeypatch.setattr(world.access.last_use, "_write", full)
    await world.access.last_use.flush()
    monkeypatch.setattr(world.access.last_use, "_write", write)
    await world.end()
    await world.begin()
    assert [key.last_used_ms for key in world.access.all_keys()] == [NOON]


async def test_refusals_are_security_events_with_the_name_of_the_key(world: World) -> None:
    (_, revoked), (_, limited) = [await world.access.create(name, "dam") for name in ("old page", "dam page")]
    await world.access.revoke(revoked[5:13])
    with recorded_events() as events:
        for key, path in (
            (revoked, "/v1/data/dam/a"),
            (revoked, "/v1/data/dam/a"),
            (limited, "/v1/data/load/a"),
            ("diem_aaaaaaaa_" + "x" * 43, "/v1/endpoints"),
        ):
            async with world.http(key) as http:
                assert (await http.get(path, headers={"Origin": "https://a.example"})).status_code in {401, 403}
        async with world.http() as http:
            assert (await http.put("/v1/data/dam/a", json=BODY, headers=AS_SERIES)).status_code == 401
        async with world.http(WRITE_KEY) as http:
            for _ in range(5):
                assert (await http.put("/v1/data/dam/a", json=BODY, headers=AS_SERIES)).status_code == 200
    found = [(line["kind"], line.get("key_name"), line["address"], line.get("code")) for line in events.all()]
    assert found == [
        ("revoked_key", "old page", "192.0.2.7", "key_revoked"),
        ("forbidden", "dam page", "192.0.2.7", "not_in_plan"),
        ("wrong_api_key", None, "192.0.2.7", "unauthorised"),
        ("wrong_write_key", None, "192.0.2.7", 401),
        ("writes", "write.key", "192.0.2.7", None),
    ]
    assert {line.get("origin") for line in events.all()[:3]} == {"https://a.example"}
    assert "x" * 43 not in str(events.all())


async def test_a_key_is_refused_even_if_its_revocation_cannot_be_stored(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = await world.key()

    with monkeypatch.context() as patch:
        patch.setattr(world.store, "transact", full)
        with pytest.raises(StoreUnavailable):
            await world.access.revoke(key[5:13])
    assert await world.request(key, 1) == {QuotaReason.REVOKED: 1}


async def test_requests_that_cannot_be_counted_are_refused_unless_the_plan_is_unlimited(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited, unlimited = await world.key("tiny"), await world.key("open")

    with monkeypatch.context() as patch:
        patch.setattr(world.store, "transact", full)
        async with world.http(limited) as http:
            answer = await http.get("/v1/endpoints")
        assert problem(answer) == (503, "store_unavailable")
        assert answer.headers["retry-after"] == "2"
        assert await world.request(unlimited, 5) == {QuotaReason.ADMITTED: 5}
    assert await world.request(limited, 10) == {QuotaReason.ADMITTED: 7, QuotaReason.DAY: 3}
    await world.end()
    await world.begin()
    used = {key.plan: (await world.access.usage_of(key))[0] for key in world.access.all_keys()}
    assert used == {"tiny": 7, "open": 5}


async def test_a_key_whose_plan_was_removed_gets_403(world: World) -> None:
    key = await world.key()
    await world.end()
    world.plans = PLANS[1:]
    await world.begin()
    async with world.http(key) as http:
        assert problem(await http.get("/v1/endpoints")) == (403, "no_plan")


async def test_readers_without_a_key_are_limited_by_the_anonymous_plan(tmp_path: Path) -> None:
    world = World(tmp_path, (AccessPlan("anonymous", 3, 5, ("/dam",)),))
    await world.begin()
    async with world.http() as http:
        statuses = [(await http.get("/v1/endpoints")).status_code for _ in range(4)]
        assert statuses == [200, 200, 200, 429]
        assert (await http.get("/config.json")).status_code == 200
        preflight = {
            "Origin": "https://a.example",
            "Access-Control-Request-Method": "GET",
            "Access-Control-Request-Headers": "authorization",
        }
        assert (await http.options("/v1/data/a", headers=preflight)).status_code == 204
        world.clock.advance(61)
        assert problem(await http.get("/v1/data/load/a")) == (403, "not_in_plan")
        assert problem(await http.get("/v1/data/dam/a")) == (404, "unknown_endpoint")
        assert problem(await http.get("/v1/data/dam/a")) == (429, "quota")
        assert problem(await http.put("/v1/data/dam/a", json=BODY, headers=AS_SERIES)) == (429, "quota")
    async with world.http(client="192.0.2.8") as http:
        answer = await http.get("/v1/endpoints")
        assert answer.headers["ratelimit"] == '"minute";r=2;t=61, "day";r=4;t=43139'
        assert problem(await http.put("/v1/data/dam/a", json=BODY, headers=AS_SERIES)) == (401, "unauthorised")
    async with world.http(WRITE_KEY) as http:
        assert {(await http.get("/v1/endpoints")).status_code for _ in range(10)} == {200}
    await world.end()


def test_counted_addresses_are_bounded_and_the_least_recent_is_evicted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounts, "MAX_IN_MEMORY", 2)
    plan = AccessPlan("anonymous", 1)
    order = ("192.0.2.1", "192.0.2.2", "192.0.2.1", "192.0.2.3", "192.0.2.1", "192.0.2.2")
    reasons = [world.access.admit_anonymous(plan, address, DATA).reason.value for address in order]
    assert reasons == ["admitted", "admitted", "minute", "admitted", "minute", "admitted"]


def test_anonymous_readers_of_a_56_have_four_times_the_plan(world: World) -> None:
    plan = AccessPlan("anonymous", 5)
    found = Counter(
        world.access.admit_anonymous(plan, f"2001:db8:0:{number:x}::1", DATA).reason.value for number in range(100)
    )
    assert found == {"admitted": 20, "minute": 80}
    # Those that were refused for their network have used up nothing of their own.
    world.clock.advance(61)
    assert world.access.admit_anonymous(plan, "2001:db8:0:50::1", DATA).limits[0].remaining == 4


async def test_a_browser_may_send_a_key_where_anonymous_reads_are_off(tmp_path: Path) -> None:
    headers = {
        "Origin": "https://a.example",
        "Access-Control-Request-Method": "GET",
        "Access-Control-Request-Headers": "authorization",
    }
    async with serving(tmp_path, *PLANS, anonymous=lambda _address: False) as world:
        async with world.http() as http:
            preflight = await http.options("/v1/data/dam/a", headers=headers)
            assert preflight.status_code == 204
            assert "Authorization" in preflight.headers["access-control-allow-headers"]
            assert problem(await http.get("/v1/endpoints")) == (401, "unauthorised")
        async with world.http(await world.key()) as http:
            assert (await http.get("/v1/endpoints", headers=headers)).headers["access-control-allow-origin"] == "*"


async def test_keys_are_administered_behind_the_internal_listener(world: World) -> None:
    transport = httpx.ASGITransport(internal_app(world.access))
    async with httpx.AsyncClient(transport=transport, base_url="http://internal") as http:
        made = await http.post("/v1/keys", json={"name": " The page ", "plan": "free"})
        assert made.status_code == 201
        assert made.headers["cache-control"] == "no-store"
        text = made.json()["key"]
        assert await world.request(text, 1) == {QuotaReason.ADMITTED: 1}
        listed = await http.get("/v1/keys")
        assert text.rpartition("_")[2] not in listed.text
        created = "2023-11-14T12:00:00.000Z"
        entry = {
            "id": text[5:13],
            "name": "The page",
            "plan": "free",
            "created": created,
            "revoked": None,
            "expires": None,
            "last_used": created,
            "writes": False,
            "origins": [],
        }
        assert listed.json() == {"keys": [entry], "plans": ["dam", "free", "open", "tiny"]}
        for _ in range(2):
            revoked = await http.delete(f"/v1/keys/{text[5:13]}")
            assert revoked.json() == {**entry, "revoked": created}
        for unknown in ("aaaaaaaa", "x", "%2e%2e"):
            assert problem(await http.delete(f"/v1/keys/{unknown}"))[0] == 404
        bodies: list[Any] = [{"name": "", "plan": "free"}, {"name": "a\nb", "plan": "free"}, {"name": "a"}, [], {}]
        for wrong in bodies:
            assert (await http.post("/v1/keys", json=wrong)).status_code == 422
        pages = {"name": "a", "plan": "free", "origins": ["HTTPS://App.example:443", "http://a:8080", "http://a:8080"]}
        made = await http.post("/v1/keys", json=pages)
        assert made.json()["origins"] == ["https://app.example", "http://a:8080"]
        for origins in ("https://a", ["https://a/"], ["a"], ["null"], [7], ["https://" + "a" * 250], ["http://a"] * 21):
            assert (await http.post("/v1/keys", json={**pages, "origins": origins})).status_code == 422
        assert (await http.post("/v1/keys", json={"name": "a", "writes": True, "origins": []})).status_code == 422
        assert problem(await http.post("/v1/keys", json={"name": "a", "plan": "x"})) == (422, "unknown_plan")
        assert problem(await http.post("/v1/keys", json={"name": "a", "plan": "anonymous"})) == (422, "unknown_plan")
        assert problem(await http.post("/v1/keys", content=b"{")) == (400, "malformed")
        assert problem(await http.post("/v1/keys", content=b"x" * 33_000)) == (413, "too_large")
        assert problem(await http.put("/v1/keys", content=b"")) == (405, "method_not_allowed")


def report(
    number: int,
    reads: dict[str, int] | None = None,
    *,
    asks: tuple[str, ...] = (),
    wants: dict[str, int] | None = None,
    source: str = "an edge",
) -> ReadReport:
    return ReadReport(source, number, reads or {}, asks, wants or {})


async def test_data_sent_with_updates_counts_like_requests_once_for_each_report(world: World) -> None:
    text = await world.key("free")
    key = text[5:13]
    assert await world.request(text, 10) == {QuotaReason.ADMITTED: 10}
    for _ in range(2):
        assert (await world.access.report_reads(report(1, {key: 7, "nobody00": 5}))).exhausted == []
    assert (await world.access.report_reads(report(2, {key: 3}))).exhausted == []
    assert (await world.access.report_reads(report(1, {key: 7}))).exhausted == []
    used, limits = await world.access.usage_of(world.access.all_keys()[0])
    assert (used, [limit.remaining for limit in limits]) == (20, [40, 180])
    assert world.access.usage.outcomes == {("free", "admitted"): 10, ("free", "inline"): 10}
    assert world.access.usage.today(key, day_of(NOON)) == {"/dam/a": 10, "": 10}
    await world.end()
    await world.begin()
    assert (await world.access.usage_of(world.access.all_keys()[0]))[0] == 20
    # A service that was restarted knows no reports.
    assert (await world.access.report_reads(report(2, {key: 3}))).exhausted == []
    assert (await world.access.usage_of(world.access.all_keys()[0]))[0] == 23


async def test_key_whose_quota_is_used_up_by_data_gets_no_more_until_it_has_some(world: World) -> None:
    tiny, free = [await world.key(plan) for plan in ("tiny", "free")]
    of_tiny, of_free = tiny[5:13], free[5:13]
    assert (await world.access.report_reads(report(1, {of_tiny: 6, of_free: 59}))).exhausted == []
    assert (await world.access.report_reads(report(2, {of_tiny: 30, of_free: 30}))).exhausted == [of_tiny, of_free]
    assert await world.request(tiny, 1) == {QuotaReason.DAY: 1}
    assert await world.request(free, 1) == {QuotaReason.MINUTE: 1}
    (first,) = [key for key in world.access.all_keys() if key.id == of_tiny]
    used, limits = await world.access.usage_of(first)
    assert (used, limits[0].remaining) == (7, 0), "what was sent beyond the quota is not shown"
    world.clock.advance(61)
    assert await world.request(free, 60) == {QuotaReason.ADMITTED: 31, QuotaReason.MINUTE: 29}, "29 are owed"
    assert (await world.access.report_reads(report(3, asks=(of_tiny, of_free)))).exhausted == [of_tiny, of_free]
    world.clock.advance(86_400)
    assert (await world.access.report_reads(report(4, asks=(of_tiny,)))).exhausted == []
    assert await world.request(tiny, 8) == {QuotaReason.ADMITTED: 7, QuotaReason.DAY: 1}


async def test_what_is_owed_keeps_the_minutes_used_up_until_it_is_paid(world: World) -> None:
    text = await world.key("free")
    await world.access.report_reads(report(1, {text[5:13]: 150}))
    async with world.http(text) as http:
        answer = await http.get("/v1/data/dam/a")
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "121")
        for _ in range(2):
            world.clock.advance(61)
            answer = await http.get("/v1/data/dam/a")
        assert answer.headers["ratelimit"].startswith('"minute";r=29;t=61')


async def test_what_processes_lease_is_left_to_nobody_else_until_they_return_it(world: World) -> None:
    text = await world.key("free")
    key = text[5:13]

    async def lease(source: str, number: int, wants: int, reads: int = 0) -> int | None:
        sent = report(number, {key: reads} if reads else {}, wants={key: wants}, source=source)
        return (await world.access.report_reads(sent)).leases.get(key)

    assert await lease("one", 1, 1) == 6, "a tenth without more ado"
    assert await lease("other", 1, 1000) == 27, "half of the 54 that are left"
    assert await world.request(text, 30) == {QuotaReason.ADMITTED: 27, QuotaReason.MINUTE: 3}
    assert await lease("other", 2, 40, reads=10) == 9, "half of the 17 that it did not use"
    assert await lease("one", 2, 0, reads=6) is None
    # 27 requests and 16 datasets are counted, 9 are leased.
    assert await world.request(text, 30) == {QuotaReason.ADMITTED: 8, QuotaReason.MINUTE: 22}
    # The other process was killed: what it had is lost to it, and left to others.
    world.clock.advance(31)
    assert await world.request(text, 30) == {QuotaReason.ADMITTED: 9, QuotaReason.MINUTE: 21}


async def test_leases_bound_the_data_of_any_minute_by_the_plan(world: World) -> None:
    key = (await world.key("free"))[5:13]
    world.access.plans = AccessPlans([AccessPlan("free", 60)])
    rng, leases = random.Random(34), dict[str, tuple[int, float]]()
    sent: list[tuple[float, int]] = []
    for number in range(1, 600):
        world.clock.advance(rng.choice((0.5, 1, 9)))
        now, source = world.clock.monotonic(), rng.choice("abc")
        units, until = leases.get(source, (0, 0.0))
        # Each sends some of its lease before it reports.
        used = min(units, rng.choice((0, 1, 30, 60))) if now < until else 0
        sent.append((now, used))
        assert sum(units for at, units in sent if at > now - 60) <= 60
        wants = {key: rng.choice((1, 30, 240))}
        answer = await world.access.report_reads(
            report(number, {key: used} if used else {}, wants=wants, source=source)
        )
        leases[source] = answer.leases[key] or 0, now + LEASE_S
    assert sum(units for _, units in sent) > 600


async def test_data_of_a_user_counts_to_the_user_and_to_the_key(world: World) -> None:
    text = await world.key("free")
    key = text[5:13]
    alice, bob = f"{key}/alice", f"{key}/bob"
    answer = await world.access.report_reads(report(1, wants={key: 1}))
    assert answer.per_user == {key: 6}
    answer = await world.access.report_reads(report(2, {key: 7, alice: 5, bob: 2}, asks=(f"{key}/new",)))
    assert answer.leases == {alice: 1, bob: 4, f"{key}/new": 6}
    answer = await world.access.report_reads(report(3, {key: 9, alice: 9}))
    assert answer.leases == {alice: 0}
    world.clock.advance(61)
    answer = await world.access.report_reads(report(4, asks=(alice, bob)))
    assert answer.leases == {alice: 0, bob: 6}, "alice owes more than a minute"
    assert (await world.access.usage_of(world.access.all_keys()[0]))[0] == 16


async def test_keys_that_are_not_valid_are_sent_no_data(world: World) -> None:
    revoked = (await world.key("free"))[5:13]
    await world.access.revoke(revoked)
    answer = await world.access.report_reads(report(1, wants={revoked: 1, "nobody00": 1}, asks=(f"{revoked}/alice",)))
    assert answer.leases == {revoked: 0, "nobody00": 0, f"{revoked}/alice": 0}


async def test_a_plan_without_a_limit_bounds_no_data(world: World) -> None:
    key = (await world.key("open"))[5:13]
    answer = await world.access.report_reads(report(1, {key: 10**6}, wants={key: 10**6}))
    assert (answer.leases, answer.exhausted, answer.per_user) == ({key: None}, [], {key: None})


async def test_report_that_could_not_be_stored_is_charged_when_it_is_repeated(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = (await world.key("free"))[5:13]
    add, calls = world.access.usage_tracker.add, Counter[str]()

    async def fails_once(key_id: str, day: int, units: int) -> int:
        calls[key_id] += 1
        if calls[key_id] == 1:
            raise StoreUnavailable("the disk is full")
        return await add(key_id, day, units)

    monkeypatch.setattr(world.access.usage_tracker, "add", fails_once)
    with pytest.raises(StoreUnavailable):
        await world.access.report_reads(report(1, {key: 4}))
    for _ in range(2):
        await world.access.report_reads(report(1, {key: 4}))
    assert (await world.access.usage_of(world.access.all_keys()[0]))[0] == 4


async def test_revoked_keys_and_write_keys_are_not_charged(world: World) -> None:
    revoked = (await world.key("tiny"))[5:13]
    await world.access.revoke(revoked)
    writer, _ = await world.access.create_writer("a writer", WriteTerms((), None))
    assert (await world.access.report_reads(report(1, {revoked: 100, writer.id: 100}))).exhausted == []
    assert world.access.usage.outcomes == {}


async def test_processes_whose_reports_are_remembered_are_bounded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_module, "MAX_REPORTERS", 2)
    for number in range(4):
        await world.access.report_reads(ReadReport(f"edge {number}", 1, {}, ()))
    assert list(world.access._reports) == ["edge 2", "edge 3"]


async def test_edges_report_reads_behind_the_internal_listener(world: World) -> None:
    key = (await world.key("tiny"))[5:13]
    transport = httpx.ASGITransport(internal_app(world.access))
    async with httpx.AsyncClient(transport=transport, base_url="http://internal") as http:
        valid: dict[str, Any] = {"source": "an edge", "number": 1, "reads": {key: 9}, "exhausted": []}
        answer = await http.post("/v1/keys/reads", json=valid)
        assert (answer.status_code, answer.json()) == (200, {"exhausted": [key], "leases": {}, "per_user": {}})
        for wrong in (
            {"number": 0},
            {"number": True},
            {"source": ""},
            {"reads": {key: 0}},
            {"reads": {key: 10**10}},
            {"exhausted": [1]},
            {"exhausted": ["a"] * 2001},
            {"wanted": {key: -1}},
            {"wanted": {key: "1"}},
        ):
            assert problem(await http.post("/v1/keys/reads", json={**valid, **wrong}))[0] == 422
        for malformed in (b"{", b"[]", b"{}", b'{"source":"a","number":1,"reads":[],"exhausted":[]}'):
            assert problem(await http.post("/v1/keys/reads", content=malformed)) == (400, "malformed")
        assert problem(await http.post("/v1/keys/reads", content=b"x" * 300_000)) == (413, "too_large")
        assert (await http.get("/v1/keys/reads")).status_code == 405


async def test_reservations_of_many_keys_share_commits(world: World) -> None:
    keys = [await world.key() for _ in range(20)]
    before = world.access.usage_tracker.commits
    assert sum([(await found)[QuotaReason.ADMITTED] for found in [world.request(key, 1) for key in keys]]) == 20
    spent = world.access.usage_tracker.commits
    world.clock.advance(86_400)
    found = await asyncio.gather(*(world.request(key, 1) for key in keys))
    assert sum(each[QuotaReason.ADMITTED] for each in found) == 20
    assert (spent - before, world.access.usage_tracker.commits - spent) == (20, 1)


async def test_writes_are_interleaved_with_the_reservations_of_many_keys() -> None:
    sizes: list[int] = []

    async def commit(wanted: Sequence[Units]) -> list[int]:
        sizes.append(len(wanted))
        return [each.units for each in wanted]

    usage_tracker, many = UsageTracker(commit), 2 * MAX_BATCH + 1
    assert await asyncio.gather(*(usage_tracker.add(f"k{n}", 1, n) for n in range(many))) == list(range(many))
    assert sizes == [MAX_BATCH, MAX_BATCH, 1]


async def test_a_clock_that_was_ahead_adds_no_requests(world: World) -> None:
    key = await world.key("tiny")
    assert (await world.request(key, 5))[QuotaReason.ADMITTED] == 5
    world.clock.advance(40 * 86_400)
    await world.request(key, 1)
    world.clock.step_wall(-40 * 86_400)
    assert await world.request(key, 5) == {QuotaReason.ADMITTED: 2, QuotaReason.DAY: 3}


async def test_daily_counts_of_a_key_are_pruned(world: World, databases: Databases) -> None:
    key = await world.key("tiny")
    for _ in range(KEEP_DAYS + 5):
        await world.request(key, 1)
        world.clock.advance(86_400)
    assert databases.rows("SELECT count(*) FROM key_days") == [str(KEEP_DAYS)]


async def test_requests_are_counted_by_key_plan_and_known_endpoint(world: World) -> None:
    key = await world.key("dam")
    for asked in (
        DATA,
        DATA,
        QuotaRequest("/load/a"),
        QuotaRequest("/dam/nothing"),
        QuotaRequest(None),
        QuotaRequest("/dam/a", free=True),
    ):
        await world.request(key, 1, asked)
    await world.request("diem_x", 1)
    counted = {(cell.key, cell.plan, cell.endpoint): tuple(count) for cell, count in world.access.usage.swap().items()}
    of = key[5:13]
    assert counted == {
        (of, "dam", "/dam/a"): (2, 0),
        (of, "dam", "/load/a"): (0, 1),
        (of, "dam", ""): (2, 0),
    }
    assert world.access.usage.swap() == {}
    assert world.access.usage.today(of, day_of(NOON)) == {"/dam/a": 2, "": 2}
    assert world.access.usage.outcomes == {("dam", "admitted"): 4, ("dam", "prefix"): 1}


async def test_usage_reports_used_and_remaining_requests(world: World) -> None:
    key = await world.key("tiny")
    async with world.http(key) as http:
        for path in ("data/dam/a", "data/dam/a", "data/load/a", "endpoints"):
            await http.get(f"/v1/{path}")
        usage = await http.get("/v1/usage")
        assert usage.json() == {
            "key": key[5:13],
            "name": "a test",
            "plan": "tiny",
            "prefixes": [],
            "day": "2023-11-14",
            "requests": 4,
            "limits": [{"name": "day", "quota": 7, "window": 86_400, "remaining": 3, "reset": 43_200}],
            "since": "2023-11-14T12:00:00.000Z",
            "endpoints": [
                {"endpoint": "/dam/a", "requests": 2},
                {"endpoint": "/load/a", "requests": 1},
                {"endpoint": "", "requests": 1},
            ],
        }
        assert usage.headers["ratelimit"] == '"day";r=3;t=43200'
        assert usage.headers["cache-control"] == "no-store"
        assert await world.request(key, 9) == {QuotaReason.ADMITTED: 3, QuotaReason.DAY: 6}
        assert (await http.get("/v1/usage")).json()["limits"][0]["remaining"] == 0
    await world.end()
    await world.begin()
    async with world.http(key) as http:
        usage = await http.get("/v1/usage")
        assert (usage.json()["requests"], usage.json()["limits"][0]["remaining"]) == (7, 0)
        assert usage.headers["ratelimit"] == '"day";r=0;t=43200'


async def test_usage_needs_a_key_and_is_limited_by_address(world: World) -> None:
    async with world.http() as http:
        assert problem(await http.get("/v1/usage")) == (401, "unauthorised")
    async with world.http(WRITE_KEY) as http:
        assert problem(await http.get("/v1/usage")) == (401, "unauthorised")
    async with world.http(await world.key("tiny"), client="192.0.2.9") as http:
        statuses = [(await http.get("/v1/usage")).status_code for _ in range(101)]
    assert statuses == [200] * 100 + [429]


async def test_concurrently_created_keys_replace_different_revoked_ones_when_full(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys_module, "MAX_KEYS", 3)
    old = [await world.key() for _ in range(3)]
    for key in old[:2]:
        await world.access.revoke(key[5:13])
    made = await asyncio.gather(*(world.key() for _ in range(3)), return_exceptions=True)
    new = [key for key in made if isinstance(key, str)]
    assert len(new) == 2
    assert len(world.access.all_keys()) == 3
    await world.end()
    await world.begin()
    assert {key.id for key in world.access.all_keys()} == {key[5:13] for key in (old[2], *new)}


async def test_any_interleaving_of_keys_and_failing_commits_stays_within_every_quota(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(1)
    texts = [await world.key("tiny") for _ in range(20)]
    transact = world.store.transact

    async def failing(work: Any) -> Any:
        for _ in range(chance.randrange(3)):
            await asyncio.sleep(0)
        if chance.random() < 0.2:
            raise StoreUnavailable("before")
        done = await transact(work)
        if chance.random() < 0.2:
            raise StoreUnavailable("after")
        return done

    monkeypatch.setattr(world.store, "transact", failing)
    admitted = Counter[tuple[str, int]]()

    async def ask(text: str) -> None:
        if (await world.access.admit(text, DATA)).reason is QuotaReason.ADMITTED:
            admitted[text, day_of(world.clock.wall_ms())] += 1

    for _ in range(3):
        await asyncio.gather(*(ask(chance.choice(texts)) for _ in range(200)))
        world.clock.advance(86_400)
    assert sum(admitted.values()) > 0
    assert max(admitted.values()) <= 7
    monkeypatch.undo()


def test_usage_beyond_the_bound_is_counted_without_its_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_module, "MAX_CELLS", 3)
    usage = Usage()
    for number in (0, 1, 2, 3, 4, 0):
        usage.add(Cell("k", "p", f"/e{number}"), "admitted", 1, refused=False)
    counted = {cell.endpoint: count.answered for cell, count in usage.swap().items()}
    assert counted == {"/e0": 2, "/e1": 1, "/e2": 1, "": 2}
    assert usage.merged == 2
    assert usage.today("k", 1) == {"/e0": 2, "/e1": 1, "/e2": 1, "": 2}
    assert usage.outcomes == {("p", "admitted"): 6}


def test_a_new_day_begins_at_zero() -> None:
    usage = Usage()
    usage.add(Cell("k", "p", "/a"), "admitted", 1, refused=False)
    assert usage.today("k", 2) == {}
    usage.add(Cell("k", "p", "/b"), "admitted", 2, refused=False)
    assert usage.today("k", 2) == {"/b": 1}
    assert usage.today("k", 1) == {}


def test_refused_requests_are_counted_separately_and_not_by_endpoint() -> None:
    usage = Usage()
    usage.add(Cell("k", "p", "/a"), "minute", 1, refused=True)
    assert usage.swap() == {Cell("k", "p", "/a"): (0, 1)}
    assert usage.today("k", 1) == {}


def test_a_forgotten_key_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_module, "MAX_CELLS", 1)
    usage = Usage()
    usage.add(Cell("a", "p", "/a"), "admitted", 1, refused=False)
    usage.forget("a")
    usage.swap()
    usage.add(Cell("b", "p", "/b"), "admitted", 1, refused=False)
    assert usage.today("b", 1) == {"/b": 1}
