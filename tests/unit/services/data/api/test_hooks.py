"""Deliveries of webhooks over REST: verified, stored once, and answered when they are on the disk."""

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from diem.process.auth import SharedKey
from diem.process.clock import ManualClock
from diem.process.limits import RateLimit
from services.data.api import ApiOptions, hooks, make_api
from services.data.sources.config import load
from services.data.sources.runner import SourceRunner
from services.data.store.store import Store
from tests.support.file_threads import FILES
from tests.support.new_store import new_store
from tests.support.patience import PATIENCE_S
from tests.support.security_events import recorded_events
from tests.unit.services.data.conftest import WRITE_KEY, assert_problem
from tests.unit.services.data.sources.toml import write

NOW_S = 1_700_000_000
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SHOP = """\
[[source]]
type = "webhook"
name = "shop"
secret = { file = "shop.key" }
endpoint = "/orders/{data/id}"
value = "data"
"""
GITHUB = """\
[[source]]
type = "webhook"
name = "code"
scheme = "github"
secret = { file = "shop.key" }
endpoint = "/repositories/{repository/full_name}"
kind = "notice"
where = { "header/X-GitHub-Event" = ["push", "release"] }
"""
SENSORS = """\
[[source]]
type = "webhook"
name = "sensors"
scheme = "bearer"
secret = { file = "shop.key" }
endpoint = "/sensors/{id}"
kind = "series"
value = "t"
time = "at"
unit = "celsius"
resolution = "irregular"
rows = "readings"
"""
ORDER = {"type": "order.paid", "data": {"id": 7, "total": 12}}


class Hooks:
    """A Data Service with webhooks, and their sender."""

    def __init__(self, store: Store, clock: ManualClock, runner: SourceRunner, http: httpx.AsyncClient) -> None:
        self.store = store
        self.clock = clock
        self.runner = runner
        self.http = http

    async def deliver(
        self, name: str, body: bytes | Any, id_: str = "1", secret: str = SECRET, **headers: str
    ) -> httpx.Response:
        """Send what Standard Webhooks sign."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        time = str(self.clock.wall_ms() // 1000)
        key = base64.b64decode(secret.removeprefix("whsec_"))
        digest = hmac.new(key, f"{id_}.{time}.".encode() + content, hashlib.sha256).digest()
        signature = f"v1,{base64.b64encode(digest).decode()}"
        fields = {"webhook-id": id_, "webhook-timestamp": time, "webhook-signature": signature}
        return await self.http.post(
            f"/v1/hooks/{name}",
            content=content,
            headers={"content-type": "application/json", **fields, **headers},
        )

    async def content(self, endpoint: str) -> bytes:
        return (await self.store.reader.current(endpoint)).content

    @property
    def status(self) -> dict[str, Any]:
        return self.runner.status()[0]


Serving = Callable[..., Any]


@pytest.fixture
def serving(tmp_path: Path) -> Serving:
    @asynccontextmanager
    async def serving(text: str, secret: str = SECRET, **options: Any) -> AsyncIterator[Hooks]:
        file = tmp_path / "shop.key"
        file.write_text(secret)
        file.chmod(0o600)
        configured = load(write(tmp_path, text))
        clock = ManualClock(wall_ms=NOW_S * 1000)
        runner = SourceRunner.configured(configured, clock, 65_536, convert=FILES.convert)
        store = await Store.open(new_store(tmp_path / "data.db"), clock=clock)
        limits = {"page_dir": tmp_path, "anonymous": lambda _address: False, "prefixes": configured.prefixes}
        api = make_api(
            store,
            SharedKey(WRITE_KEY),
            runner.claims.owner_of,
            ApiOptions(**{**limits, **options}),
            clock,
            sources=runner.public_status,
            files=FILES,
            hooks=runner.webhooks,
        )
        transport = httpx.ASGITransport(api.app, client=("192.0.2.7", 50000))
        async with store.serving(), httpx.AsyncClient(transport=transport, base_url="http://localhost:8080") as http:
            running = asyncio.create_task(runner.run(store.writer.put, None, store))
            try:
                async with asyncio.timeout(PATIENCE_S):
                    while not all(health.successes or health.failures for health in runner.health()):
                        await asyncio.sleep(0)
                yield Hooks(store, clock, runner, http)
            finally:
                running.cancel()
                await asyncio.wait([running])

    return serving


async def test_a_delivery_is_stored_and_answered_with_its_version(serving: Serving) -> None:
    async with serving(SHOP) as hooks:
        answer = await hooks.deliver("shop", ORDER)
        assert answer.json() == {"accepted": [{"endpoint": "/orders/7", "version": NOW_S * 1000, "changed": True}]}
        assert await hooks.content("/orders/7") == b'{"id":7,"total":12}'
        status = hooks.status
        assert (status["type"], status["ok"], status["failures"], status["endpoints"]) == ("webhook", True, 0, 1)
        assert (status["records"], status["refused"], status["last_refusal"]) == (1, 0, None)
        assert status["last_record"] == "2023-11-14T22:13:20.000Z"


async def test_a_repeated_delivery_gets_the_same_answer_also_after_a_later_one(serving: Serving) -> None:
    async with serving(SHOP) as hooks:
        first = await hooks.deliver("shop", ORDER, "1")
        hooks.clock.advance(60)
        later = await hooks.deliver("shop", {"data": {"id": 7, "total": 13}}, "2")
        hooks.clock.advance(60)
        # With another time, and so another signature.
        again = await hooks.deliver("shop", ORDER, "1")
        assert again.json() == first.json() != later.json()
        assert await hooks.content("/orders/7") == b'{"id":7,"total":13}'
        other = await hooks.deliver("shop", {"data": {"id": 8}}, "1")
        detail = assert_problem(other, 422, "idempotency_key_reused")["detail"]
        assert detail == "the webhook-id '1' was used for another body"


async def test_ids_of_deliveries_are_apart_from_keys_of_writers_and_of_other_hooks(serving: Serving) -> None:
    async with serving(
        SHOP + SHOP.replace("shop", "shop2").replace("shop2.key", "shop.key").replace("orders", "o")
    ) as hooks:
        await hooks.deliver("shop", ORDER, "1")
        assert (await hooks.deliver("shop2", {"data": {"id": 9}}, "1")).json()["accepted"][0]["endpoint"] == "/o/9"
        headers = {"Authorization": f"Bearer {WRITE_KEY}", "Idempotency-Key": "1"}
        put = await hooks.http.put("/v1/data/mine", json={}, headers=headers)
        assert put.json()["changed"]


@pytest.mark.parametrize("id_", ["x" * 5000, "a b\xe9"])
async def test_ids_of_any_length_and_characters_are_remembered(serving: Serving, id_: str) -> None:
    scheme = SENSORS.replace("secret", 'id_header = "X-Id"\nsecret', 1).replace('rows = "readings"\n', "")
    async with serving(scheme) as hooks:
        fields = {
            "authorization": f"Bearer {SECRET}",
            "x-id": id_.encode("latin-1"),
            "content-type": "application/json",
        }
        body = {"id": 1, "t": 20, "at": "2026-01-01T00:00:00Z"}
        first, again = [await hooks.http.post("/v1/hooks/sensors", json=body, headers=fields) for _ in range(2)]
        assert first.json() == again.json()
        assert again.json()["accepted"][0]["changed"]


async def test_without_an_id_equal_content_is_no_new_version(serving: Serving) -> None:
    scheme = SHOP.replace("secret", 'scheme = "bearer"\nsecret', 1)
    async with serving(scheme) as hooks:
        fields = {"authorization": f"Bearer {SECRET}"}
        first, again = [await hooks.http.post("/v1/hooks/shop", json=ORDER, headers=fields) for _ in range(2)]
        assert first.json()["accepted"][0]["changed"]
        assert again.json()["accepted"] == [{**first.json()["accepted"][0], "changed": False}]


async def test_an_unverified_delivery_is_401_and_a_security_event(serving: Serving) -> None:
    async with serving(SHOP) as hooks:
        with recorded_events() as events:
            unsigned = await hooks.http.post("/v1/hooks/shop", json=ORDER)
            wrong = await hooks.deliver("shop", ORDER, secret="whsec_" + "A" * 32)
            privileged = await hooks.http.post(
                "/v1/hooks/shop", json=ORDER, headers={"Authorization": f"Bearer {WRITE_KEY}"}
            )
        for answer in (unsigned, wrong, privileged):
            assert_problem(answer, 401, "unverified")
        found = events.of("wrong_signature")
        assert [(line["address"], line["key_name"], line["detail"]) for line in found] == [
            ("192.0.2.7", "webhook shop", "it has no field webhook-id")
        ]
        hooks.clock.advance(1)
        await hooks.deliver("shop", ORDER, secret="whsec_" + "A" * 32)
        status = hooks.status
        assert (status["ok"], status["unverified"]) == (True, 4)
        assert status["last_unverified"] == "the signature is of another secret, or of another body"
        assert status["last_unverified_at"] == "2023-11-14T22:13:21.000Z"
        assert not hooks.store.index.names


async def test_an_old_delivery_is_refused(serving: Serving) -> None:
    async with serving(SHOP) as hooks:
        sent = (await hooks.deliver("shop", ORDER)).request
        hooks.clock.advance(301)
        replayed = await hooks.http.send(sent)
        assert "a replay, or a wrong clock" in assert_problem(replayed, 401, "unverified")["detail"]


async def test_unverified_deliveries_use_up_the_rate_of_their_address_and_verified_ones_do_not(
    serving: Serving,
) -> None:
    async with serving(SHOP, rate=RateLimit(1, 3)) as hooks:
        for n in range(10):
            assert (await hooks.deliver("shop", ORDER, str(n))).status_code == 200
        statuses = [(await hooks.http.post("/v1/hooks/shop", json=ORDER)).status_code for _ in range(4)]
        assert statuses == [401, 401, 401, 429]


async def test_a_body_beyond_the_bound_is_refused_before_it_is_read(serving: Serving) -> None:
    async with serving(SHOP.replace("value", "max_bytes = 100\nvalue")) as hooks:
        assert_problem(await hooks.deliver("shop", {"data": {"id": 1, "x": "x" * 100}}), 413, "too_large")


async def test_more_deliveries_at_once_than_the_bound_are_put_off(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooks, "MAX_IN_PROGRESS", 1)
    async with serving(SHOP) as served:
        begun, rest = asyncio.Event(), asyncio.Event()

        async def slow() -> AsyncIterator[bytes]:
            begun.set()
            yield b"{"
            await rest.wait()
            yield b"}"

        headers = {"webhook-id": "1", "webhook-timestamp": str(NOW_S), "webhook-signature": "v1,AAAA"}
        first = asyncio.create_task(served.http.post("/v1/hooks/shop", content=slow(), headers=headers))
        await asyncio.wait_for(begun.wait(), PATIENCE_S)
        refused = await served.deliver("shop", ORDER)
        assert_problem(refused, 503, "busy")
        assert refused.headers["retry-after"]
        rest.set()
        assert (await first).status_code == 401
        assert (await served.deliver("shop", ORDER)).status_code == 200


async def test_a_hook_that_is_not_configured_is_404(serving: Serving) -> None:
    async with serving(SHOP) as hooks:
        assert_problem(await hooks.deliver("ship", ORDER), 404, "unknown_hook")
        assert_problem(await hooks.http.get("/v1/hooks/shop"), 401, "unauthorised")


@pytest.mark.parametrize("policy", ["refuse", "skip"])
async def test_a_delivery_that_cannot_be_stored_is_refused_or_skipped_and_counted(
    serving: Serving, policy: str
) -> None:
    async with serving(SHOP + f'on_invalid = "{policy}"\n') as hooks:
        answer = await hooks.deliver("shop", {"data": {"total": 12}}, "17")
        if policy == "skip":
            assert answer.json() == {"accepted": []}
        else:
            assert "{data/id} is missing" in assert_problem(answer, 422, "invalid_dataset")["detail"]
        status = hooks.status
        assert (status["ok"], status["failures"], status["refused"]) == (True, 0, 1)
        assert status["last_refusal"] == "delivery 17: {data/id} is missing"


@pytest.mark.parametrize(
    ("body", "media_type", "status", "detail"),
    [
        (b"nothing", "application/json", 400, "not JSON"),
        (b"", "application/json", 400, "not JSON"),
        (b"payload=%7B%7D", "application/x-www-form-urlencoded", 422, "let the sender use application/json"),
        (b"[" * 200 + b"]" * 200, "application/json", 400, "nested"),
        (b'{"data":{"id":1,"id":2}}', "application/json", 422, "the field 'id' appears twice"),
        (b'{"data":{"id":"../x"}}', "application/json", 422, "endpoint"),
    ],
)
async def test_a_body_of_another_form_is_refused(
    serving: Serving, body: bytes, media_type: str, status: int, detail: str
) -> None:
    async with serving(SHOP.replace('value = "data"\n', "")) as hooks:
        answer = await hooks.deliver("shop", body, **{"content-type": media_type})
        assert answer.status_code == status
        assert detail in answer.json()["detail"]


async def test_a_delivery_is_put_off_while_the_store_cannot_commit(serving: Serving) -> None:
    async with serving(SHOP) as hooks:
        hooks.store.writer.close()
        answer = await hooks.deliver("shop", ORDER)
        assert_problem(answer, 503, "store_unavailable")
        assert answer.headers["retry-after"] == "2"
        assert hooks.status["error"] == "the service is stopping"


async def test_a_delivery_is_put_off_while_its_secret_cannot_be_read(serving: Serving, tmp_path: Path) -> None:
    async with serving(SHOP) as hooks:
        (tmp_path / "shop.key").chmod(0o644)
        answer = await hooks.deliver("shop", ORDER)
        assert_problem(answer, 503, "store_unavailable")
        assert answer.headers["retry-after"] == "30"
        assert "others may read it" in hooks.status["error"]
        assert "shop.key" not in answer.text
        (tmp_path / "shop.key").chmod(0o600)
        # The secret is right again, whatever is wrong with what it signs.
        assert (await hooks.deliver("shop", b"nothing")).status_code == 400
        assert hooks.status["ok"]
        assert (await hooks.deliver("shop", ORDER)).status_code == 200
        # Rotated, without a restart.
        (tmp_path / "shop.key").write_text("whsec_" + "B" * 32)
        assert (await hooks.deliver("shop", ORDER)).status_code == 401


async def test_a_secret_that_cannot_be_used_is_an_error_from_the_start(serving: Serving) -> None:
    async with serving(SHOP, secret="whsec_short") as hooks:
        assert "is whsec_ and base64" in hooks.status["error"]


async def test_notices_of_wanted_events_have_the_url_of_their_prefix(serving: Serving) -> None:
    prefix = '[[prefix]]\nprefix = "/repositories"\nkind = "notice"\nurl = "https://api.example/repos/{rest}"\n'

    def fields(event: str, id_: str, content: bytes) -> dict[str, str]:
        digest = hmac.new(SECRET.encode(), content, hashlib.sha256).hexdigest()
        return {
            "X-GitHub-Event": event, "X-GitHub-Delivery": id_, "X-Hub-Signature-256": f"sha256={digest}",
            "content-type": "application/json",
        }  # fmt: skip

    async with serving(GITHUB + prefix) as hooks:
        body = json.dumps({"repository": {"full_name": "octo-org/octo-repo"}}).encode()
        versions = []
        for event, id_ in (("ping", "1"), ("push", "2"), ("push", "3"), ("push", "3")):
            answer = await hooks.http.post("/v1/hooks/code", content=body, headers=fields(event, id_, body))
            assert answer.status_code == 200
            versions.append([each["version"] for each in answer.json()["accepted"]])
        assert versions[0] == []
        assert versions[1] < versions[2] == versions[3]
        stored = await hooks.content("/repositories/octo-org/octo-repo")
        assert b'"https://api.example/repos/octo-org/octo-repo"' in stored


async def test_rows_of_a_delivery_are_stored_all_or_none(serving: Serving) -> None:
    async with serving(SENSORS) as hooks:
        fields = {"authorization": f"Bearer {SECRET}"}
        readings = [{"id": n % 2, "t": n, "at": f"2026-01-01T00:00:{n:02}Z"} for n in range(4)]
        answer = await hooks.http.post("/v1/hooks/sensors", json={"readings": readings}, headers=fields)
        assert [each["endpoint"] for each in answer.json()["accepted"]] == ["/sensors/0", "/sensors/1"]
        assert b'{"time":"2026-01-01T00:00:02Z","value":2}' in await hooks.content("/sensors/0")
        bad = [*readings, {"id": 9, "t": "x", "at": "2026-01-01T00:01:00Z"}, {"id": 8, "t": 1, "at": "2026"}]
        refused = await hooks.http.post("/v1/hooks/sensors", json={"readings": bad}, headers=fields)
        assert refused.status_code == 422
        many = await hooks.http.post("/v1/hooks/sensors", json={"readings": [0] * 1001}, headers=fields)
        assert "more than 1000 members" in many.json()["detail"]
        none = await hooks.http.post("/v1/hooks/sensors", json={}, headers=fields)
        assert "readings is no array" in none.json()["detail"]
        assert set(hooks.store.index.names) == {"/sensors/0", "/sensors/1"}


EVENTS = """\
[[source]]
type = "webhook"
name = "events"
scheme = "bearer"
secret = { file = "shop.key" }
envelope = "cloudevents"
id_header = "ce-id"
endpoint = "/events/{header/ce_type}/{header/ce_subject}"
"""


@pytest.mark.parametrize("mode", ["structured", "binary"])
async def test_cloudevents_of_both_modes_are_stored_by_their_attributes(serving: Serving, mode: str) -> None:
    attributes = {"specversion": "1.0", "id": "1", "type": "orders", "subject": "paid/7"}
    async with serving(EVENTS) as hooks:
        fields = {"authorization": f"Bearer {SECRET}"}
        for data in ({"n": 1}, None):
            if mode == "structured":
                event = attributes | ({} if data is None else {"data": data})
                content, own = json.dumps(event).encode(), {"content-type": "application/cloudevents+json"}
            else:
                own = {f"ce-{name}": text.replace("/", "%2F") for name, text in attributes.items()}
                content = b"" if data is None else json.dumps(data).encode()
                own |= {"content-type": "application/json", "ce-id": "1" if data else "2"}
            answer = await hooks.http.post("/v1/hooks/events", content=content, headers={**fields, **own})
            assert [each["endpoint"] for each in answer.json()["accepted"]] == ["/events/orders/paid/7"], answer.text
            head = hooks.store.index.heads["/events/orders/paid/7"]
            assert head.gone == (data is None)


async def test_an_event_may_end_its_endpoint(serving: Serving) -> None:
    async with serving(SHOP + 'gone = { type = "order.deleted" }\n') as hooks:
        await hooks.deliver("shop", ORDER, "1")
        answer = await hooks.deliver("shop", {"type": "order.deleted", "data": {"id": 7}}, "2")
        assert answer.json()["accepted"][0]["endpoint"] == "/orders/7"
        assert hooks.store.index.heads["/orders/7"].gone
        unknown = await hooks.deliver("shop", {"type": "order.deleted", "data": {"id": 8}}, "3")
        assert unknown.json() == {"accepted": []}
