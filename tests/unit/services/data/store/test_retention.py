"""Old versions: kept up to a number and an age, each as it was accepted, and deleted in batches."""

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from diem.process.clock import ManualClock
from services.data.api import history as history_api
from services.data.api.history import HistoryApi
from services.data.datasets import Dataset, Point, build
from services.data.errors import EndpointDeleted, UnknownEndpoint, VersionNotKept
from services.data.store import HistoryLimits, Store, StoreLimits, WriterLimits, retention
from services.data.store.index import EndpointHead
from services.data.store.retention import BATCH, OVERDUE, SLACK, Retention, StoredVersion
from services.data.store.write_plan import Write, WritePlan
from services.data.store.writer import MAX_GROUP
from tests.support.databases import Databases
from tests.unit.services.data.conftest import Rest


def dataset(value: float, endpoint: str = "/a") -> Dataset:
    return build(endpoint, "MW", "PT1H", [Point(0, value)])


async def open_store(databases: Databases, clock: ManualClock | None = None, **limits: float) -> Store:
    kept = HistoryLimits(**limits)  # type: ignore[arg-type]
    return await Store.open(
        databases.url(), clock=clock or ManualClock(), limits=StoreLimits(writer=WriterLimits(history=kept))
    )


async def test_each_accepted_version_can_be_read_as_it_was(databases: Databases) -> None:
    store = await open_store(databases)
    async with store.serving():
        accepted = [(await store.writer.put([dataset(value)]))[0].version for value in range(3)]
        deleted = await store.writer.delete("/a")
        (again,) = await store.writer.put([dataset(9)])
        listed = await store.reads.versions("/a")
        assert [each.version for each in listed] == [again.version, deleted.version, *reversed(accepted)]
        assert [each.kind for each in listed] == [0, 1, 0, 0, 0]
        for value, version in enumerate(accepted):
            assert (await store.reads.version("/a", version)).content == dataset(value).content
        assert (await store.reads.version("/a", again.version)).content == dataset(9).content
        with pytest.raises(EndpointDeleted):
            await store.reads.version("/a", deleted.version)
        with pytest.raises(VersionNotKept, match="is not kept"):
            await store.reads.version("/a", accepted[0] - 1)
        with pytest.raises(UnknownEndpoint):
            await store.reads.versions("/b")
        with pytest.raises(UnknownEndpoint):
            await store.reads.version("/b", 1)


async def test_data_that_did_not_change_makes_no_version_and_no_history(databases: Databases) -> None:
    store = await open_store(databases)
    async with store.serving():
        for title in ("", "one", "two"):
            await store.writer.put([replace(dataset(1), title=title)])
        assert len(await store.reads.versions("/a")) == 1


async def test_a_version_that_was_replaced_within_one_transaction_is_kept_too(databases: Databases) -> None:
    store = await open_store(databases)
    await_all = [store.writer.submit(Write(datasets=[dataset(value)])) for value in range(4)]
    waiting = [asyncio.ensure_future(each) for each in await_all]
    await asyncio.sleep(0)
    async with store.serving():
        versions = [(await each)[0].version for each in waiting]
        assert store.writer.counts.commits == 1
        assert [each.version for each in await store.reads.versions("/a")] == versions[::-1]
        for value, version in enumerate(versions):
            assert (await store.reads.version("/a", version)).content == dataset(value).content


async def test_no_more_than_the_number_is_shown_and_little_more_is_stored(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH", 1)
    store = await open_store(databases, versions=3)
    async with store.serving():
        for value in range(60):
            await store.writer.put([dataset(value)])
            (count,) = databases.rows("SELECT count(*) FROM history")
            assert int(count) <= 2 + SLACK
        listed = await store.reads.versions("/a")
        assert [each.content for each in listed] == [dataset(value).content for value in (59, 58, 57)]


async def test_a_start_with_fewer_versions_gets_rid_of_the_others(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH", 1)
    store = await open_store(databases)
    async with store.serving():
        for value in range(20):
            await store.writer.put([dataset(value), dataset(value, "/b")])
    store = await open_store(databases, versions=1)
    async with store.serving():
        assert len(await store.reads.versions("/a")) == 1
        await store.writer.put([dataset(99)])
        assert databases.rows("SELECT count(*) FROM history") == ["0"]


async def test_without_history_nothing_is_written_to_it(databases: Databases) -> None:
    store = await open_store(databases, versions=1)
    async with store.serving():
        for value in range(5):
            await store.writer.put([dataset(value)])
        assert databases.rows("SELECT count(*) FROM history") == ["0"]


async def test_what_is_too_old_is_not_shown_and_then_deleted(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "FORGET_EVERY", 0)
    clock = ManualClock()
    store = await open_store(databases, clock, days=1)
    async with store.serving():
        for value in range(3):
            await store.writer.put([dataset(value)])
        clock.advance(25 * 3600)
        # The current version is never too old.
        assert [each.content for each in await store.reads.versions("/a")] == [dataset(2).content]
        await store.writer.put([dataset(7)])
        assert databases.rows("SELECT count(*) FROM history") == ["0"]


async def test_what_is_not_shown_any_more_is_not_served_either(databases: Databases) -> None:
    clock = ManualClock()
    store = await open_store(databases, clock, versions=3, days=1)
    async with store.serving():
        versions = [(await store.writer.put([dataset(value)]))[0].version for value in range(5)]
        assert databases.rows("SELECT count(*) FROM history") == ["4"]
        for too_many in versions[:2]:
            with pytest.raises(VersionNotKept):
                await store.reads.version("/a", too_many)
        assert (await store.reads.version("/a", versions[2])).content == dataset(2).content
        clock.advance(25 * 3600)
        with pytest.raises(VersionNotKept):
            await store.reads.version("/a", versions[2])
        assert (await store.reads.version("/a", versions[4])).content == dataset(4).content


async def test_what_is_too_old_is_deleted_as_fast_as_versions_come(databases: Databases) -> None:
    clock, names = ManualClock(), [f"/{number}" for number in range(MAX_GROUP)]
    store = await open_store(databases, clock, versions=1000, days=1)
    async with store.serving():
        for value in range(12):
            await store.writer.put([dataset(value, name) for name in names])
            clock.advance(25 * 3600)
        (count,) = databases.rows("SELECT count(*) FROM history")
        assert int(count) <= 2 * len(names)


async def test_sqlites_file_does_not_grow_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    databases = Databases(tmp_path, None)
    monkeypatch.setattr(retention, "BATCH", 1)
    points = [Point(3600 * hour, 0) for hour in range(200)]
    store = await open_store(databases, versions=3)
    pages: list[int] = []
    async with store.serving():
        for value in range(120):
            await store.writer.put([build("/a", "MW", "PT1H", [Point(0, value), *points[1:]])])
            pages.append(int(databases.rows("PRAGMA page_count")[0]))
    assert pages[-1] == pages[40], "deleted pages were not used again"


def test_retention_asks_for_nothing_until_it_is_worth_a_statement() -> None:
    retention = Retention(HistoryLimits(versions=3), {})
    names = [f"/{number}" for number in range(BATCH)]
    for _ in range(2 + SLACK):
        assert retention.due() == []
        retention.added(names)
    assert retention.due() == names
    retention.pruned(names[1:])
    assert retention.due() == []
    retention.added(names)
    assert retention.due() == []


async def test_a_store_of_one_endpoint_does_not_keep_all_of_its_versions(databases: Databases) -> None:
    store = await open_store(databases, versions=3)
    async with store.serving():
        for value in range(60):
            await store.writer.put([dataset(value)])
            (count,) = databases.rows("SELECT count(*) FROM history")
            assert int(count) <= 2 + OVERDUE
        assert len(await store.reads.versions("/a")) == 3


def test_few_endpoints_that_have_far_too_many_are_looked_at_too() -> None:
    retention = Retention(HistoryLimits(versions=3), {"/a": 2 + OVERDUE - 1, "/b": 2 + SLACK, "/c": 2})
    assert retention.due() == []
    retention.added(["/a"])
    assert retention.due() == ["/a", "/b"]
    retention.pruned(["/a", "/b"])
    retention.added(["/a"])
    assert retention.due() == []


def test_retention_takes_over_what_was_counted_at_the_start() -> None:
    counts = {f"/{number}": 100 for number in range(10 * BATCH)}
    assert len(Retention(HistoryLimits(), counts).due()) == 4 * BATCH


def test_versions_whose_commit_was_not_answered_are_counted_too() -> None:
    retention = Retention(HistoryLimits(versions=3), {"/a": 2 + OVERDUE - 1})
    lost = EndpointHead("/a", 7, 7, 0, 0, "MW", "PT1H", "", "", b"")
    retention.committed(WritePlan(7, 7, missed=[lost]))
    assert retention.due() == ["/a"]


def one(*values: float | None) -> dict[str, object]:
    points = [{"time": f"2026-01-01T{hour:02d}:00:00Z", "value": value} for hour, value in enumerate(values)]
    return {"unit": "MW", "resolution": "PT1H", "points": points}


async def test_the_history_says_how_versions_differ(rest: Rest) -> None:
    for values in ((1, 2), (1, 3, None), (1, 3, 4)):
        rest.clock.advance(1)
        assert (await rest.writer.put("/v1/data/a", json=one(*values))).status_code == 200
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
    await rest.writer.put("/v1/data/a", json=one(1))
    changed = await rest.reader.get("/v1/history/a", headers={"If-None-Match": answer.headers["etag"]})
    assert changed.status_code == 200


async def test_a_list_of_which_versions_have_become_too_old_is_another_one(rest: Rest) -> None:
    for value in (1, 2, 3):
        rest.clock.advance(24 * 3600)
        await rest.writer.put("/v1/data/a", json=one(value))
    known = await rest.reader.get("/v1/history/a")
    assert len(known.json()["versions"]) == 3
    condition = {"If-None-Match": known.headers["etag"]}
    assert (await rest.reader.get("/v1/history/a", headers=condition)).status_code == 304
    rest.clock.advance(5.5 * 24 * 3600)
    fewer = await rest.reader.get("/v1/history/a", headers=condition)
    assert len(fewer.json()["versions"]) == 2
    oldest = known.json()["versions"][-1]["version"]
    assert refused(await rest.reader.get(f"/v1/data/a?version={oldest}")) == (404, "version_not_kept")


async def test_an_old_version_is_served_in_both_forms(rest: Rest) -> None:
    (first, second) = [(await rest.writer.put("/v1/data/a", json=one(value))).json()["version"] for value in (1, 2)]
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


async def test_a_version_that_is_replaced_while_it_is_read_is_still_the_one_that_was_asked_for(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = (await rest.writer.put("/v1/data/a", json=one(1))).json()["version"]
    read = rest.store.reads.current

    async def late(endpoint: str) -> StoredVersion:
        monkeypatch.undo()
        await rest.writer.put("/v1/data/a", json=one(2))
        return await read(endpoint)

    monkeypatch.setattr(rest.store.reads, "current", late)
    answer = (await rest.reader.get("/v1/data/a", params={"version": first})).json()
    assert (answer["version"], answer["points"][0]["value"]) == (first, 1)


async def test_a_history_is_described_once_whoever_asks(rest: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    described: list[int] = []

    def counted(kept: list[StoredVersion]) -> list[dict[str, Any]]:
        described.append(len(kept))
        return describe(kept)

    describe = history_api.describe
    monkeypatch.setattr(history_api, "describe", counted)
    client = rest.reader
    for value in (1, 2):
        await rest.writer.put("/v1/data/a", json=one(value))
        answers = await asyncio.gather(*(client.get("/v1/history/a") for _ in range(10)))
        answers.append(await client.get("/v1/history/a"))
        assert {len(answer.json()["versions"]) for answer in answers} == {value}
    assert described == [1, 2]
    # Without a new version: one became too old.
    rest.clock.advance(7 * 86_400 + 1)
    assert len((await client.get("/v1/history/a")).json()["versions"]) == 1
    assert described == [1, 2, 1]


async def test_a_large_history_is_described_in_a_thread_and_paid_for(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_api, "LARGE", 0)
    monkeypatch.setattr(history_api, "BYTES_A_REQUEST", 1)
    threads: list[int] = []

    def noted(kept: list[StoredVersion]) -> list[dict[str, Any]]:
        threads.append(threading.get_ident())
        return describe(kept)

    describe = history_api.describe
    monkeypatch.setattr(history_api, "describe", noted)
    for value in range(5):
        await rest.writer.put("/v1/data/a", json=one(value))
    client = rest.make(client="192.0.2.7")
    assert (await client.get("/v1/history/a")).status_code == 200
    assert threads
    assert threading.get_ident() not in threads
    assert refused(await client.get("/v1/history/a")) == (429, "rate")


async def test_descriptions_are_kept_up_to_a_bound(rest: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_api, "MAX_BYTES", 400)
    api = HistoryApi(rest.store)
    for name in "abcdef":
        await rest.writer.put(f"/v1/data/{name}", json=one(1))
        scope = {"type": "http", "path": f"/v1/history/{name}", "headers": []}
        await api.versions(Request(scope))
    assert 1 <= len(api._descriptions) < 6
    assert api._bytes == sum(len(each.body) for each in api._descriptions.values()) <= 400


def refused(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json"
    return answer.status_code, answer.json()["code"]


async def test_what_is_not_kept_or_no_version_is_a_problem(rest: Rest) -> None:
    await rest.writer.put("/v1/data/a", json=one(1))
    assert refused(await rest.reader.get("/v1/data/a?version=5")) == (404, "version_not_kept")
    assert refused(await rest.reader.get("/v1/data/a?version=5", headers={"If-None-Match": "*"})) == (
        404,
        "version_not_kept",
    )
    assert refused(await rest.reader.get("/v1/data/b?version=5")) == (404, "unknown_endpoint")
    for bad in ("0", "-1", "x", "", "1" * 19, "%D9%A3"):
        assert refused(await rest.reader.get(f"/v1/data/a?version={bad}")) == (400, "malformed")
    assert refused(await rest.reader.get("/v1/history/b")) == (404, "unknown_endpoint")
    assert refused(await rest.reader.get("/v1/history/a//b")) == (400, "bad_name")


async def test_area_and_quantity_are_in_the_catalogue_and_stay_when_they_are_not_said(rest: Rest) -> None:
    await rest.store.writer.put([replace(dataset(1), title="T", area="GR", quantity="load")])
    await rest.store.writer.put([dataset(2)])
    (entry,) = (await rest.reader.get("/v1/endpoints")).json()["endpoints"]
    assert (entry["title"], entry["area"], entry["quantity"]) == ("T", "GR", "load")
    await rest.store.writer.put([replace(dataset(2), area="BG")])
    (entry,) = (await rest.reader.get("/v1/endpoints")).json()["endpoints"]
    assert (entry["title"], entry["area"], entry["quantity"]) == ("T", "BG", "load")
