"""The resources of data over REST: reads, writes, and the answers to faults."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator

import httpx
import pytest

from services.data.store.reader import Reader
from tests.support.small import AS_SERIES
from tests.unit.services.data.conftest import BODY, HOUR, Rest, assert_problem, body


async def test_what_was_put_is_read_with_its_version(rest: Rest) -> None:
    put = await rest.writer.put("/v1/data/load/GR", json=BODY, headers=AS_SERIES)
    assert put.json() == {"endpoint": "/load/GR", "version": 1_700_000_000_000, "changed": True}
    got = await rest.reader.get("/v1/data/load/GR")
    assert got.json() == {
        "endpoint": "/load/GR",
        "version": 1_700_000_000_000,
        "time": "2023-11-14T22:13:20.000Z",
        **BODY,
    }
    assert got.headers["etag"] == '"1700000000000-json"'
    assert got.headers["vary"] == "Accept"
    assert got.headers["cache-control"] == "no-cache"


async def test_unchanged_data_is_accepted_without_a_new_version(rest: Rest) -> None:
    first = await rest.writer.put("/v1/data/a", json=BODY, headers=AS_SERIES)
    rest.clock.advance(1)
    second = await rest.writer.put("/v1/data/a", json=BODY, headers=AS_SERIES)
    assert second.json() == {**first.json(), "changed": False}


async def test_csv_by_accept_has_an_etag_of_its_own(rest: Rest) -> None:
    await rest.writer.put("/v1/data/a", json=BODY, headers=AS_SERIES)
    got = await rest.reader.get("/v1/data/a", headers={"Accept": "text/csv"})
    assert got.text == f"time,value\r\n{HOUR},5\r\n"
    assert got.headers["content-type"].startswith("text/csv; charset=utf-8")
    assert got.headers["etag"] == '"1700000000000-csv"'


async def test_a_client_that_accepts_neither_format_gets_406(rest: Rest) -> None:
    await rest.writer.put("/v1/data/a", json=BODY, headers=AS_SERIES)
    assert_problem(await rest.reader.get("/v1/data/a", headers={"Accept": "image/png"}), 406, "not_acceptable")


async def test_a_current_client_gets_304_until_the_data_changes(rest: Rest) -> None:
    await rest.writer.put("/v1/data/a", json=BODY, headers=AS_SERIES)
    headers = {"If-None-Match": '"1700000000000-json"'}
    current = await rest.reader.get("/v1/data/a", headers=headers)
    assert (current.status_code, current.content) == (304, b"")
    assert current.headers["etag"] == '"1700000000000-json"'
    await rest.writer.put("/v1/data/a", json=body(6), headers=AS_SERIES)
    assert (await rest.reader.get("/v1/data/a", headers=headers)).status_code == 200


async def test_a_304_does_not_read_the_store(rest: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    await rest.writer.put("/v1/data/a", json=BODY, headers=AS_SERIES)
    monkeypatch.delattr(Reader, "current")
    headers = {"If-None-Match": "*"}
    assert (await rest.reader.get("/v1/data/a", headers=headers)).status_code == 304


async def test_unknown_endpoints_get_404_and_deleted_ones_410(rest: Rest) -> None:
    assert_problem(await rest.reader.get("/v1/data/a"), 404, "unknown_endpoint")
    assert_problem(await rest.writer.delete("/v1/data/a"), 404, "unknown_endpoint")
    await rest.writer.put("/v1/data/a", json=BODY, headers=AS_SERIES)
    deleted = await rest.writer.delete("/v1/data/a")
    assert deleted.json() == {"endpoint": "/a", "version": 1_700_000_000_001, "changed": True}
    gone = assert_problem(await rest.reader.get("/v1/data/a"), 410, "gone")
    assert gone["version"] == 1_700_000_000_001
    assert_problem(await rest.writer.delete("/v1/data/a"), 410, "gone")
    assert (await rest.writer.put("/v1/data/a", json=BODY, headers=AS_SERIES)).json()["version"] == 1_700_000_000_002


@pytest.mark.parametrize(
    "name", ["", "a//b", "a%20b", "%0A", "a%0A", "%C3%A9", "a?x", "a" * 300, "a%2F%2Fb", "a/%2e%2e/b"]
)
async def test_a_bad_name_is_refused_on_the_decoded_path(rest: Rest, name: str) -> None:
    url = httpx.URL("http://localhost:8080", raw_path=f"/v1/data/{name.replace('?', '%3F')}".encode())
    assert_problem(await rest.reader.get(url), 400, "bad_name")
    assert_problem(await rest.writer.put(url, json=BODY), 400, "bad_name")


async def test_an_encoded_slash_is_a_slash(rest: Rest) -> None:
    await rest.writer.put("/v1/data/load/GR", json=BODY, headers=AS_SERIES)
    url = httpx.URL("http://localhost:8080", raw_path=b"/v1/data/load%2FGR")
    assert (await rest.reader.get(url)).json()["endpoint"] == "/load/GR"


async def test_bulk_is_all_or_nothing(rest: Rest) -> None:
    good = {"datasets": [{"endpoint": f"/e{i}", **BODY} for i in range(50)]}
    answer = (await rest.writer.put("/v1/data", json=good)).json()
    assert [one["endpoint"] for one in answer["accepted"]] == [f"/e{i}" for i in range(50)]
    bad = {"datasets": [{"endpoint": "/new", **BODY}, {"endpoint": "/e1", **body(7, unit="%")}]}
    problem = assert_problem(await rest.writer.put("/v1/data", json=bad), 422, "wrong_unit")
    assert problem["errors"] == [{"where": "/e1", "detail": "wrong unit %: it has MW"}]
    assert (await rest.reader.get("/v1/data/new")).status_code == 404
    assert (await rest.reader.get("/v1/data/e1")).json()["points"] == BODY["points"]


async def test_invalid_csv_is_refused_with_the_line_and_the_old_data_stays(rest: Rest) -> None:
    await rest.writer.put("/v1/data/a", json=BODY, headers=AS_SERIES)
    headers = {"Content-Type": "text/csv"}
    bad = await rest.writer.put("/v1/data/a", content=f"time,value\n{HOUR},x\n", headers=headers)
    problem = assert_problem(bad, 422, "invalid_dataset")
    assert problem["errors"][0]["where"] == "line 2"
    assert (await rest.reader.get("/v1/data/a")).json()["points"] == BODY["points"]


async def test_csv_takes_unit_and_resolution_from_the_catalogue_or_the_query(rest: Rest) -> None:
    headers = {"Content-Type": "text/csv; charset=utf-8"}
    text = f"time,value\n{HOUR},1.5\n"
    assert_problem(await rest.writer.put("/v1/data/a", content=text, headers=headers), 422, "invalid_dataset")
    created = await rest.writer.put("/v1/data/a?unit=MW&resolution=PT1H", content=text, headers=headers)
    assert created.json()["changed"]
    assert (await rest.writer.put("/v1/data/a", content=text.replace("1.5", "2"), headers=headers)).status_code == 200
    assert_problem(await rest.writer.put("/v1/data/a?unit=%25", content=text, headers=headers), 422, "wrong_unit")


async def test_local_times_and_a_description_come_with_the_query(rest: Rest) -> None:
    headers = {"Content-Type": "text/csv"}
    query = "unit=MW&resolution=PT1H&zone=Europe/Athens&title=Load%20of%20Greece&area=GR&quantity=load"
    stored = await rest.writer.put(f"/v1/data/a?{query}", content="time,value\n2026-01-01T02:00,1\n", headers=headers)
    assert stored.status_code == 200
    assert (await rest.reader.get("/v1/data/a")).json()["points"] == [{"time": "2026-01-01T00:00:00Z", "value": 1}]
    await rest.writer.put("/v1/data/a", json=BODY, headers=AS_SERIES)  # which says nothing of it, so that it stays
    (entry,) = (await rest.writer.get("/v1/endpoints")).json()["endpoints"]
    assert [entry[name] for name in ("title", "area", "quantity")] == ["Load of Greece", "GR", "load"]


@pytest.mark.parametrize(
    ("query", "detail"),
    [
        ("quantity=price", "price is not measured in MW, but in EUR/MWh or EUR/MW or EUR/tCO2"),
        ("quantity=" + 33 * "x", "quantity: expected at most 32 printable characters"),
        ("area=Gr%0Aeece", "area: expected at most 64 printable characters"),
        ("title=" + 201 * "x", "a title has at most 200 characters"),
    ],
)
async def test_a_wrong_description_is_refused(rest: Rest, query: str, detail: str) -> None:
    problem = assert_problem(
        await rest.writer.put(f"/v1/data/a?{query}", json=BODY, headers=AS_SERIES), 422, "invalid_dataset"
    )
    assert problem["detail"].startswith(detail)
    assert (await rest.reader.get("/v1/data/a")).status_code == 404


@pytest.mark.parametrize("path", ["/v1/data/a", "/v1/data"])
async def test_a_compressed_body_is_415(rest: Rest, path: str) -> None:
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    answer = await rest.writer.put(path, content=gzip.compress(b"{}"), headers=headers)
    assert "must not be compressed" in assert_problem(answer, 415, "unsupported_coding")["detail"]
    assert answer.headers["Accept-Encoding"] == "identity"


async def test_a_body_that_is_too_large_names_the_limit_and_the_remedy(rest: Rest) -> None:
    answer = await rest.writer.put(
        "/v1/data/a", json={**BODY, "points": [{"time": HOUR, "value": 1}] * 2976}, headers=AS_SERIES
    )
    detail = assert_problem(answer, 413, "too_large")["detail"]
    assert detail.startswith("a body has at most 65536 bytes here")
    assert detail.endswith("split it into several endpoints, or raise DIEM_DATASET_BYTES")


async def test_another_unit_or_resolution_is_refused(rest: Rest) -> None:
    await rest.writer.put("/v1/data/a", json=BODY, headers=AS_SERIES)
    assert_problem(await rest.writer.put("/v1/data/a", json=body(6, unit="%"), headers=AS_SERIES), 422, "wrong_unit")
    assert_problem(
        await rest.writer.put("/v1/data/a", json=body(6, resolution="PT30M"), headers=AS_SERIES), 422, "wrong_unit"
    )


async def test_an_endpoint_of_a_source_cannot_be_written(rest: Rest) -> None:
    assert_problem(await rest.writer.put("/v1/data/owned", json=BODY, headers=AS_SERIES), 409, "owned_by_source")
    assert_problem(await rest.writer.delete("/v1/data/owned"), 409, "owned_by_source")
    bulk = {"datasets": [{"endpoint": "/free", **BODY}, {"endpoint": "/owned", **BODY}]}
    assert_problem(await rest.writer.put("/v1/data", json=bulk), 409, "owned_by_source")
    assert (await rest.reader.get("/v1/data/free")).status_code == 404


async def test_an_idempotency_key_repeats_the_answer_and_refuses_another_request(rest: Rest) -> None:
    headers = {"Idempotency-Key": "k-1"}
    first = await rest.writer.put("/v1/data/a", json=BODY, headers={**AS_SERIES, **headers})
    rest.clock.advance(1)
    await rest.writer.put("/v1/data/a", json=body(6), headers=AS_SERIES)
    again = await rest.writer.put("/v1/data/a", json=BODY, headers={**AS_SERIES, **headers})
    assert again.json() == first.json()
    assert (await rest.reader.get("/v1/data/a")).json()["points"][0]["value"] == 6
    for url, content in (("/v1/data/a", body(7)), ("/v1/data/b", BODY)):
        reused = await rest.writer.put(url, json=content, headers={**AS_SERIES, **headers})
        assert_problem(reused, 422, "idempotency_key_reused")
    deleted = await rest.writer.delete("/v1/data/a", headers={"Idempotency-Key": "k-2"})
    assert (await rest.writer.delete("/v1/data/a", headers={"Idempotency-Key": "k-2"})).json() == deleted.json()


@pytest.mark.parametrize("key", ["", "x" * 256, "caf\xe9", "a\tb"])
async def test_a_bad_idempotency_key_is_refused(rest: Rest, key: str) -> None:
    headers = httpx.Headers([(b"Idempotency-Key", key.encode("latin-1"))])
    assert_problem(await rest.writer.put("/v1/data/a", json=BODY, headers=headers), 400, "malformed")


@pytest.mark.parametrize("authorization", [None, "Bearer wrong", "Basic YTpi", "a-write-key-of-the-tests", "Bearer "])
async def test_a_write_without_the_key_changes_nothing(rest: Rest, authorization: str | None) -> None:
    headers = {} if authorization is None else {"Authorization": authorization}
    for response in (
        await rest.reader.put("/v1/data/a", json=BODY, headers={**AS_SERIES, **headers}),
        await rest.reader.put("/v1/data", json={"datasets": []}, headers=headers),
        await rest.reader.delete("/v1/data/a", headers=headers),
    ):
        assert_problem(response, 401, "unauthorised")
        assert response.headers["www-authenticate"].startswith("Bearer")
    assert rest.store.index.heads.get("/a") is None


@pytest.mark.parametrize(
    "content_type",
    ["application/x-www-form-urlencoded", "multipart/form-data", "", "text/csv; charset=utf-16"],
)
async def test_a_body_without_a_usable_media_type_is_refused_with_the_remedy(rest: Rest, content_type: str) -> None:
    headers = {"Content-Type": content_type}
    response = await rest.writer.put("/v1/data/a", content=json.dumps(BODY), headers=headers)
    assert "--json" in assert_problem(response, 415, "unsupported_media_type")["detail"]


async def test_bulk_is_json_only(rest: Rest) -> None:
    response = await rest.writer.put("/v1/data", content="time,value\n", headers={"Content-Type": "text/csv"})
    assert_problem(response, 415, "unsupported_media_type")


async def _chunks(count: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield b" " * 16384


@pytest.mark.parametrize(("url", "chunks"), [("/v1/data/a", 5), ("/v1/data", 9)])
async def test_an_oversize_body_is_refused_while_it_arrives(rest: Rest, url: str, chunks: int) -> None:
    headers = {"Content-Type": "application/json"}
    assert_problem(await rest.writer.put(url, content=_chunks(chunks), headers=headers), 413, "too_large")
    assert_problem(await rest.writer.put(url, content=b" " * 16384 * chunks, headers=headers), 413, "too_large")


async def test_bad_json_is_refused(rest: Rest) -> None:
    headers = {"Content-Type": "application/json"}
    for content in ("{", "[" * 100_0, '{"unit":NaN}'):
        assert_problem(await rest.writer.put("/v1/data/a", content=content, headers=headers), 400, "malformed")


async def test_head_answers_like_get_without_a_body(rest: Rest) -> None:
    await rest.writer.put("/v1/data/a", json=BODY, headers=AS_SERIES)
    response = await rest.reader.head("/v1/data/a")
    assert (response.status_code, response.headers["etag"]) == (200, '"1700000000000-json"')


async def test_a_slow_body_gets_408(rest: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diem.links.rest.BODY_TIMEOUT_S", 0.01)

    async def stalled() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    headers = {"Content-Type": "application/json"}
    assert_problem(await rest.writer.put("/v1/data/a", content=stalled(), headers=headers), 408, "timeout")


async def test_a_new_name_with_a_wildcard_is_refused(rest: Rest) -> None:
    put = await rest.writer.put("/v1/data/load/*", json=BODY, headers=AS_SERIES)
    assert put.status_code == 400
    assert "subscribe to the collection" in put.json()["detail"]
