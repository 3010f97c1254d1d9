"""Plans over REST, without a network and without Kafka."""

import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from diem.protocol.partition_map import Phase
from metadata.plans import api
from metadata.plans.plan import Plan, encode
from tests.support.security_events import recorded_events
from tests.unit.metadata.plans.scripted_service import ScriptedService

Content = bytes | AsyncIterator[bytes] | None
PLAN = Plan(epoch=3, partitions=4, homes={"/a": 1}, created="2026-01-02T03:04:05Z")


async def request(directory: Path, method: str, path: str = "", content: Content = None) -> httpx.Response:
    service = ScriptedService(directory)
    service.read_map(3, Phase.STABLE, "")
    transport = httpx.ASGITransport(api.plans_app(service.plans))
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as http:
        return await http.request(method, api.PREFIX + path, content=content)


async def test_a_submitted_plan_is_listed_with_its_status(tmp_path: Path) -> None:
    assert (await request(tmp_path, "POST", content=encode(PLAN))).status_code == 201
    (status,) = (await request(tmp_path, "GET")).json()["plans"]
    assert (status["id"], status["state"], status["endpoints"]) == (PLAN.id, "ready", 1)
    assert (await request(tmp_path, "GET", f"/{PLAN.id}")).json() == status
    assert (await request(tmp_path, "GET", f"/{PLAN.id}/report")).json() == {}


async def test_a_body_that_is_too_large_is_refused_with_413(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body, sent = encode(PLAN), itertools.count()

    async def parts(count: int) -> AsyncIterator[bytes]:
        for _ in range(count):
            next(sent)
            yield b" " * (len(body) // 4)

    monkeypatch.setattr(api, "MAX_BYTES", len(body))
    assert (await request(tmp_path, "POST", content=body)).status_code == 201
    for content in (body + b" ", parts(6), parts(1000)):
        answer = await request(tmp_path, "POST", content=content)
        assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    assert next(sent) < 20, "an endless body is not read to its end"


async def test_a_body_that_is_not_a_plan_is_refused_with_422(tmp_path: Path) -> None:
    assert (await request(tmp_path, "POST", content=b"{}")).status_code == 422


async def test_changes_are_security_events(tmp_path: Path) -> None:
    with recorded_events() as events:
        assert (await request(tmp_path, "POST", content=b"{}")).status_code == 422
        assert (await request(tmp_path, "POST", content=encode(PLAN))).status_code == 201
    assert [(line["kind"], line.get("plan")) for line in events.all()] == [
        ("plan_submitted", PLAN.id),
    ]
