"""History over REST: descriptions of versions, their caching, and old versions as data."""

import asyncio
import threading
from typing import Any

import pytest
from starlette.requests import Request

from services.data import large
from services.data.api import history as history_api
from services.data.api.history import HistoryApi
from services.data.store import StoredVersion
from tests.support.small import AS_SERIES
from tests.unit.services.data.conftest import Rest, assert_problem


def one(*values: float | None) -> dict[str, object]:
    points = [{"time": f"2026-01-01T{hour:02d}:00:00Z", "value": value} for hour, value in enumerate(values)]
    return {"unit": "MW", "resolution": "PT1H", "points": points}


async def test_the_history_describes_how_versions_differ(rest: Rest) -> None:
    for values in ((1, 2), (1, 3, None), (1, 3, 4)):
        rest.clock.advance(1)
        assert (await rest.writer.put("/v1/data/a", json=one(*values), headers=AS_SERIES)).status_code == 200
    rest.clock.advance(1)
    await rest.writer.delete("/v1/data/a")
    answer = await rest.reader.get("/v1/history/a")
    assert answer.status_code == 200
    body = answer.json()
    assert body["endpoint"] == "/a"
    newest = [(each["gone"], each["points"], each["revised"]) for each in body["versions"]]
    assert newest == [(True, 0, 0), (False, 3, 1), (False, 3, 1), (False, 2, None)]
    assert body["versions"][0]["time"] == "2023-11-14T22:13:24.000Z"
    again = await rest.reader.get("/v1/history/a", headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    await rest.writer.put("/v1/data/a", json=one(1), headers=AS_SERIES)
    changed = await rest.reader.get("/v1/history/a", headers={"If-None-Match": answer.headers["etag"]})
    assert changed.status_code == 200


async def test_the_etag_of_a_history_changes_when_versions_expire(rest: Rest) -> None:
    for value in (1, 2, 3):
        rest.clock.advance(24 * 3600)
        await rest.writer.put("/v1/data/a", json=one(value), headers=AS_SERIES)
    known = await rest.reader.get("/v1/history/a")
    assert len(known.json()["versions"]) == 3
    condition = {"If-None-Match": known.headers["etag"]}
    assert (await rest.reader.get("/v1/history/a", headers=condition)).status_code == 304
    rest.clock.advance(5.5 * 24 * 3600)
    fewer = await rest.reader.get("/v1/history/a", headers=condition)
    assert len(fewer.json()["versions"]) == 2
    oldest = known.json()["versions"][-1]["version"]
    assert_problem(await rest.reader.get(f"/v1/data/a?version={oldest}"), 404, "version_not_kept")


async def test_an_old_version_is_served_as_json_and_csv(rest: Rest) -> None:
    (first, second) = [
        (await rest.writer.put("/v1/data/a", json=one(value), headers=AS_SERIES)).json()["version"] for value in (1, 2)
    ]
    old = await rest.reader.get("/v1/data/a", params={"version": first})
    assert (old.json()["version"], old.json()["points"][0]["value"]) == (first, 1)
    assert old.headers["etag"] == f'"{first}-json"'
    text = await rest.reader.get("/v1/data/a", params={"version": first}, headers={"Accept": "text/csv"})
    assert text.text.splitlines()[1].endswith(",1")
    same = await rest.reader.get("/v1/data/a", params={"version": first}, headers={"If-None-Match": f'"{first}-json"'})
    assert same.status_code == 304
    current = await rest.reader.get("/v1/data/a", params={"version": second})
    assert current.json()["points"][0]["value"] == 2
    deleted = (await rest.writer.delete("/v1/data/a")).json()["version"]
    assert (await rest.reader.get("/v1/data/a", params={"version": deleted})).status_code == 410
    assert (await rest.reader.get("/v1/data/a", params={"version": second})).json()["points"][0]["value"] == 2


async def test_a_requested_version_is_served_even_if_replaced_during_the_read(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = (await rest.writer.put("/v1/data/a", json=one(1), headers=AS_SERIES)).json()["version"]
    read = rest.store.reader.current

    async def late(endpoint: str) -> StoredVersion:
        monkeypatch.undo()
        await rest.writer.put("/v1/data/a", json=one(2), headers=AS_SERIES)
        return await read(endpoint)

    monkeypatch.setattr(rest.store.reader, "current", late)
    answer = (await rest.reader.get("/v1/data/a", params={"version": first})).json()
    assert (answer["version"], answer["points"][0]["value"]) == (first, 1)


async def test_concurrent_requests_share_one_description_of_a_history(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    described: list[int] = []

    def counted(kept: list[StoredVersion]) -> list[dict[str, Any]]:
        described.append(len(kept))
        return describe(kept)

    describe = history_api.describe
    monkeypatch.setattr(history_api, "describe", counted)
    client = rest.reader
    for value in (1, 2):
        await rest.writer.put("/v1/data/a", json=one(value), headers=AS_SERIES)
        answers = await asyncio.gather(*(client.get("/v1/history/a") for _ in range(10)))
        answers.append(await client.get("/v1/history/a"))
        assert {len(answer.json()["versions"]) for answer in answers} == {value}
    assert described == [1, 2]
    # Without a new version: one became too old.
    rest.clock.advance(7 * 86_400 + 1)
    assert len((await client.get("/v1/history/a")).json()["versions"]) == 1
    assert described == [1, 2, 1]


async def test_a_large_history_is_described_in_a_thread_and_charged(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large, "LARGE_BYTES", 0)
    monkeypatch.setattr(history_api, "BYTES_PER_REQUEST", 1)
    threads: list[int] = []

    def noted(kept: list[StoredVersion]) -> list[dict[str, Any]]:
        threads.append(threading.get_ident())
        return describe(kept)

    describe = history_api.describe
    monkeypatch.setattr(history_api, "describe", noted)
    for value in range(5):
        await rest.writer.put("/v1/data/a", json=one(value), headers=AS_SERIES)
    client = rest.make(client="192.0.2.7")
    assert (await client.get("/v1/history/a")).status_code == 200
    assert threads
    assert threading.get_ident() not in threads
    assert_problem(await client.get("/v1/history/a"), 429, "rate")


async def test_cached_descriptions_are_bounded(rest: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_api, "MAX_BYTES", 400)
    api = HistoryApi(rest.store)
    for name in "abcdef":
        await rest.writer.put(f"/v1/data/{name}", json=one(1), headers=AS_SERIES)
        scope = {"type": "http", "path": f"/v1/history/{name}", "headers": []}
        await api.versions(Request(scope))
    assert 1 <= len(api._descriptions) < 6
    assert api._descriptions.bytes == sum(len(each.body) for each in api._descriptions.values()) <= 400


async def test_a_version_that_is_not_retained_or_invalid_gets_a_problem(rest: Rest) -> None:
    await rest.writer.put("/v1/data/a", json=one(1), headers=AS_SERIES)
    assert_problem(await rest.reader.get("/v1/data/a?version=5"), 404, "version_not_kept")
    assert_problem(
        await rest.reader.get("/v1/data/a?version=5", headers={"If-None-Match": "*"}), 404, "version_not_kept"
    )
    assert_problem(await rest.reader.get("/v1/data/b?version=5"), 404, "unknown_endpoint")
    for bad in ("0", "-1", "x", "", "1" * 19, "%D9%A3"):
        assert_problem(await rest.reader.get(f"/v1/data/a?version={bad}"), 400, "malformed")
    assert_problem(await rest.reader.get("/v1/history/b"), 404, "unknown_endpoint")
    assert_problem(await rest.reader.get("/v1/history/a//b"), 400, "bad_name")
