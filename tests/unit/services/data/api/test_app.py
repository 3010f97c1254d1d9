"""The REST interface as its clients see it: reads, writes, and an answer for everything that is wrong."""

import asyncio
import gzip
import json
import math
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from services.data.api import catalogue
from services.data.api.catalogue import MAX_PARTS, Catalogue, CataloguePage
from services.data.api.requests import accepts_gzip, choose, has_etag, media_type
from services.data.datasets import parse_single
from services.data.store.reader import Reader
from tests.unit.services.data.conftest import Rest

HOUR = "2026-01-01T00:00:00Z"
BODY = {"unit": "MW", "resolution": "PT1H", "points": [{"time": HOUR, "value": 5}]}


def body(value: float, **changes: Any) -> dict[str, Any]:
    return {**BODY, "points": [{"time": HOUR, "value": value}], **changes}


def assert_problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = response.json()
    assert (document["type"], document["status"], document["code"]) == ("about:blank", status, code)
    assert document["title"]
    assert document["detail"]
    return document


async def test_what_was_put_is_read_with_its_version(rest: Rest) -> None:
    put = await rest.writer.put("/v1/data/load/GR", json=BODY)
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
    first = await rest.writer.put("/v1/data/a", json=BODY)
    rest.clock.advance(1)
    second = await rest.writer.put("/v1/data/a", json=BODY)
    assert second.json() == {**first.json(), "changed": False}


async def test_csv_by_accept_has_an_etag_of_its_own(rest: Rest) -> None:
    await rest.writer.put("/v1/data/a", json=BODY)
    got = await rest.reader.get("/v1/data/a", headers={"Accept": "text/csv"})
    assert got.text == f"time,value\r\n{HOUR},5\r\n"
    assert got.headers["content-type"].startswith("text/csv; charset=utf-8")
    assert got.headers["etag"] == '"1700000000000-csv"'


async def test_a_client_that_takes_neither_form_is_told(rest: Rest) -> None:
    await rest.writer.put("/v1/data/a", json=BODY)
    assert_problem(await rest.reader.get("/v1/data/a", headers={"Accept": "image/png"}), 406, "not_acceptable")


async def test_a_current_client_gets_304_until_the_data_changes(rest: Rest) -> None:
    await rest.writer.put("/v1/data/a", json=BODY)
    headers = {"If-None-Match": '"1700000000000-json"'}
    current = await rest.reader.get("/v1/data/a", headers=headers)
    assert (current.status_code, current.content) == (304, b"")
    assert current.headers["etag"] == '"1700000000000-json"'
    await rest.writer.put("/v1/data/a", json=body(6))
    assert (await rest.reader.get("/v1/data/a", headers=headers)).status_code == 200


async def test_a_304_does_not_read_the_store(rest: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    await rest.writer.put("/v1/data/a", json=BODY)
    monkeypatch.delattr(Reader, "current")
    headers = {"If-None-Match": "*"}
    assert (await rest.reader.get("/v1/data/a", headers=headers)).status_code == 304


async def test_unknown_and_gone_are_told_apart(rest: Rest) -> None:
    assert_problem(await rest.reader.get("/v1/data/a"), 404, "unknown_endpoint")
    assert_problem(await rest.writer.delete("/v1/data/a"), 404, "unknown_endpoint")
    await rest.writer.put("/v1/data/a", json=BODY)
    deleted = await rest.writer.delete("/v1/data/a")
    assert deleted.json() == {"endpoint": "/a", "version": 1_700_000_000_001, "changed": True}
    gone = assert_problem(await rest.reader.get("/v1/data/a"), 410, "gone")
    assert gone["version"] == 1_700_000_000_001
    assert_problem(await rest.writer.delete("/v1/data/a"), 410, "gone")
    assert (await rest.writer.put("/v1/data/a", json=BODY)).json()["version"] == 1_700_000_000_002


@pytest.mark.parametrize(
    "name", ["", "a//b", "a%20b", "%0A", "a%0A", "%C3%A9", "a?x", "a" * 300, "a%2F%2Fb", "a/%2e%2e/b"]
)
async def test_a_bad_name_is_refused_on_the_decoded_path(rest: Rest, name: str) -> None:
    url = httpx.URL("http://localhost:8080", raw_path=f"/v1/data/{name.replace('?', '%3F')}".encode())
    assert_problem(await rest.reader.get(url), 400, "bad_name")
    assert_problem(await rest.writer.put(url, json=BODY), 400, "bad_name")


async def test_an_encoded_slash_is_a_slash(rest: Rest) -> None:
    await rest.writer.put("/v1/data/load/GR", json=BODY)
    url = httpx.URL("http://localhost:8080", raw_path=b"/v1/data/load%2FGR")
    assert (await rest.reader.get(url)).json()["endpoint"] == "/load/GR"


async def test_the_catalogue_lists_what_can_be_read(rest: Rest) -> None:
    await rest.writer.put("/v1/data/b", json=BODY)
    await rest.writer.put("/v1/data/a", json=BODY)
    await rest.writer.delete("/v1/data/b")
    client, writes = rest.reader, {"Authorization": rest.writer.headers["authorization"]}
    listed = await client.get("/v1/endpoints")
    (entry,) = listed.json()["endpoints"]
    assert entry == {
        "endpoint": "/a",
        "title": "",
        "area": "",
        "quantity": "",
        "unit": "MW",
        "resolution": "PT1H",
        "version": 1_700_000_000_000,
        "time": "2023-11-14T22:13:20.000Z",
        "source": "",
        "gone": False,
    }
    again = {"If-None-Match": listed.headers["etag"]}
    await rest.store.writer.put([replace(parse_single("/a", json.dumps(BODY).encode()), title="Load")], source="market")
    # Made at most once a second, but for who writes.
    assert (await client.get("/v1/endpoints", headers=again)).status_code == 304
    assert (await client.get("/v1/endpoints", headers={**again, **writes})).status_code == 200
    rest.clock.advance(1)
    titled = await client.get("/v1/endpoints", headers=again)
    assert titled.json()["endpoints"][0]["title"] == "Load"
    etag = {"If-None-Match": titled.headers["etag"]}
    assert (await client.get("/v1/endpoints", headers=etag)).status_code == 304
    assert (await client.get("/v1/endpoints?gone=true", headers=etag)).status_code == 200
    everything = (await client.get("/v1/endpoints?gone=true")).json()["endpoints"]
    assert [(entry["endpoint"], entry["gone"]) for entry in everything] == [("/a", False), ("/b", True)]
    assert_problem(await client.get("/v1/endpoints?gone=maybe"), 400, "bad_query")


async def test_the_catalogue_comes_in_parts(rest: Rest) -> None:
    names = [f"/{letter}" for letter in "edcba"]
    for name in names:
        await rest.writer.put(f"/v1/data{name}", json=BODY)
    await rest.writer.delete("/v1/data/b")
    client = rest.reader
    found, after = [], ""
    for size in (2, 2):
        part = (await client.get("/v1/endpoints", params={"limit": "2", **({"after": after} if after else {})})).json()
        assert len(part["endpoints"]) == size
        found += [entry["endpoint"] for entry in part["endpoints"]]
        after = part.get("next", "")
    assert (found, after) == (["/a", "/c", "/d", "/e"], "")
    whole = (await client.get("/v1/endpoints")).json()
    assert list(whole) == ["endpoints"]
    everything = (await client.get("/v1/endpoints?gone=true&limit=2")).json()
    assert everything["next"] == "/b"
    assert (await client.get("/v1/endpoints?after=/e")).json() == {"endpoints": []}
    for query in ("limit=0", "limit=5001", "limit=-1", "limit=x", "after=nothing", "after="):
        assert_problem(await client.get(f"/v1/endpoints?{query}"), 400, "bad_query")


async def test_the_catalogue_is_made_once_a_second_however_many_ask(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Counter[str]()

    def counted(head: Any) -> dict[str, Any]:
        made[head.endpoint] += 1
        return entry(head)

    entry = catalogue._entry
    monkeypatch.setattr(catalogue, "_entry", counted)
    client = rest.reader
    for value in range(20):
        await rest.writer.put("/v1/data/a", json=body(value))
        await asyncio.gather(*(client.get("/v1/endpoints") for _ in range(5)))
        rest.clock.advance(0.2)
    assert made["/a"] == 4


async def test_a_part_is_compressed_once(rest: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    compressed: list[int] = []

    def counted(data: bytes, *args: Any, **options: Any) -> bytes:
        compressed.append(len(data))
        return compress(data, *args, **options)

    compress = gzip.compress
    monkeypatch.setattr(gzip, "compress", counted)
    for name in range(20):
        await rest.writer.put(f"/v1/data/{name}", json=BODY)
    client = rest.reader
    answers = await asyncio.gather(*(client.get("/v1/endpoints") for _ in range(5)))
    plain = await client.get("/v1/endpoints", headers={"Accept-Encoding": "identity"})
    assert {answer.text for answer in answers} == {plain.text}
    assert {answer.headers["content-encoding"] for answer in answers} == {"gzip"}
    assert "content-encoding" not in plain.headers
    assert plain.headers["etag"] != answers[0].headers["etag"]
    assert plain.headers["vary"] == "Accept-Encoding"
    for etag in (plain.headers["etag"], answers[0].headers["etag"]):
        assert (await client.get("/v1/endpoints", headers={"If-None-Match": etag})).status_code == 304
    assert compressed == [len(plain.content)]


async def test_no_more_parts_are_kept_than_may_be(rest: Rest) -> None:
    await rest.writer.put("/v1/data/a", json=BODY)
    kept = Catalogue(rest.store, rest.clock)
    for limit in range(1, 40):
        await kept.part(CataloguePage(limit=limit))
    assert len(kept._parts) == MAX_PARTS


async def test_what_an_answer_costs_is_paid_for_by_the_address(rest: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.data.api.cost.BYTES_A_REQUEST", 50)
    for name in range(40):
        await rest.writer.put(f"/v1/data/{name}", json=BODY)
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
    await rest.writer.put("/v1/data/a", json=BODY)
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


async def test_another_unit_or_resolution_is_refused(rest: Rest) -> None:
    await rest.writer.put("/v1/data/a", json=BODY)
    assert_problem(await rest.writer.put("/v1/data/a", json=body(6, unit="%")), 422, "wrong_unit")
    assert_problem(await rest.writer.put("/v1/data/a", json=body(6, resolution="PT30M")), 422, "wrong_unit")


async def test_what_a_source_keeps_cannot_be_written(rest: Rest) -> None:
    assert_problem(await rest.writer.put("/v1/data/owned", json=BODY), 409, "owned_by_source")
    assert_problem(await rest.writer.delete("/v1/data/owned"), 409, "owned_by_source")
    bulk = {"datasets": [{"endpoint": "/free", **BODY}, {"endpoint": "/owned", **BODY}]}
    assert_problem(await rest.writer.put("/v1/data", json=bulk), 409, "owned_by_source")
    assert (await rest.reader.get("/v1/data/free")).status_code == 404


async def test_an_idempotency_key_repeats_the_answer_and_refuses_another_request(rest: Rest) -> None:
    headers = {"Idempotency-Key": "k-1"}
    first = await rest.writer.put("/v1/data/a", json=BODY, headers=headers)
    rest.clock.advance(1)
    await rest.writer.put("/v1/data/a", json=body(6))
    again = await rest.writer.put("/v1/data/a", json=BODY, headers=headers)
    assert again.json() == first.json()
    assert (await rest.reader.get("/v1/data/a")).json()["points"][0]["value"] == 6
    for url, content in (("/v1/data/a", body(7)), ("/v1/data/b", BODY)):
        reused = await rest.writer.put(url, json=content, headers=headers)
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
        await rest.reader.put("/v1/data/a", json=BODY, headers=headers),
        await rest.reader.put("/v1/data", json={"datasets": []}, headers=headers),
        await rest.reader.delete("/v1/data/a", headers=headers),
    ):
        assert_problem(response, 401, "unauthorised")
        assert response.headers["www-authenticate"].startswith("Bearer")
    assert rest.store.index.heads.get("/a") is None


@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "text/csv; charset=utf-16"],
)
async def test_only_json_and_csv_are_taken(rest: Rest, content_type: str) -> None:
    headers = {"Content-Type": content_type}
    response = await rest.writer.put("/v1/data/a", content=json.dumps(BODY), headers=headers)
    assert_problem(response, 415, "unsupported_media_type")


async def test_bulk_is_json_only(rest: Rest) -> None:
    response = await rest.writer.put("/v1/data", content="time,value\n", headers={"Content-Type": "text/csv"})
    assert_problem(response, 415, "unsupported_media_type")


async def _chunks(count: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield b" " * 16384


@pytest.mark.parametrize(("url", "chunks"), [("/v1/data/a", 5), ("/v1/data", 65)])
async def test_an_oversize_body_is_refused_while_it_arrives(rest: Rest, url: str, chunks: int) -> None:
    headers = {"Content-Type": "application/json"}
    assert_problem(await rest.writer.put(url, content=_chunks(chunks), headers=headers), 413, "too_large")
    assert_problem(await rest.writer.put(url, content=b" " * 16384 * chunks, headers=headers), 413, "too_large")


async def test_bad_json_is_refused(rest: Rest) -> None:
    headers = {"Content-Type": "application/json"}
    for content in ("{", "[" * 100_0, '{"unit":NaN}'):
        assert_problem(await rest.writer.put("/v1/data/a", content=content, headers=headers), 400, "malformed")


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil", "", "[::2]"])
async def test_a_foreign_host_reaches_nothing(rest: Rest, host: str) -> None:
    for path in ("/", "/v1/endpoints", "/config.json"):
        assert_problem(await rest.writer.get(path, headers={"Host": host}), 400, "host")


@pytest.mark.parametrize("host", ["localhost:8080", "LOCALHOST", "127.0.0.1:1", "[::1]:8080", "data.example:443"])
async def test_own_names_are_let_in(rest: Rest, host: str) -> None:
    client = rest.make(options={"hosts": frozenset({"localhost", "127.0.0.1", "[::1]", "data.example"})})
    assert (await client.get("/v1/endpoints", headers={"Host": host})).status_code == 200


async def test_any_host_can_be_allowed(rest: Rest) -> None:
    client = rest.make(options={"hosts": frozenset({"*"})})
    assert (await client.get("/v1/endpoints", headers={"Host": "any.example"})).status_code == 200


OTHER = "https://other.example"
PREFLIGHT = {"Origin": OTHER, "Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "if-none-match"}
ALLOW = "access-control-allow-origin"


async def test_no_page_of_another_origin_reads_what_anonymous_visitors_may(rest: Rest) -> None:
    await rest.writer.put("/v1/data/a", json=BODY)
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
    await rest.writer.put("/v1/data/a", json=BODY)
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
    put = await rest.writer.put("/v1/data/a", json=BODY, headers=PREFLIGHT)
    assert ALLOW not in put.headers


async def test_a_preflight_that_announces_a_key_is_let_through_and_grants_nothing_without_it(rest: Rest) -> None:
    await rest.writer.put("/v1/data/a", json=BODY)
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


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("POST", "/v1/data", {"PUT"}),
        ("GET", "/v1/data", {"PUT"}),
        ("POST", "/", {"GET", "HEAD"}),
        ("POST", "/v1/data/a", {"GET", "HEAD", "PUT", "DELETE"}),
        ("DELETE", "/v1/endpoints", {"GET", "HEAD"}),
        ("BREW", "/v1/endpoints", {"GET", "HEAD"}),
    ],
)
async def test_a_wrong_method_is_told_the_right_ones(rest: Rest, method: str, path: str, allow: set[str]) -> None:
    response = await rest.writer.request(method, path)
    assert_problem(response, 405, "method_not_allowed")
    assert set(response.headers["allow"].split(", ")) == allow


async def test_head_answers_like_get_without_a_body(rest: Rest) -> None:
    await rest.writer.put("/v1/data/a", json=BODY)
    response = await rest.reader.head("/v1/data/a")
    assert (response.status_code, response.headers["etag"]) == (200, '"1700000000000-json"')


@pytest.mark.parametrize("path", ["/v1", "/v1/", "/v1/endpoints/", "/v2/data", "/nothing"])
async def test_an_unknown_path_is_a_problem_too(rest: Rest, path: str) -> None:
    assert_problem(await rest.reader.get(path), 404, "not_found")


async def test_a_defect_is_a_problem_that_says_nothing_of_itself(rest: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_args: object) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr("services.data.api.data.endpoints.check", broken)
    response = await rest.reader.get("/v1/data/a")
    assert_problem(response, 500, "internal")
    assert "secret" not in response.text


async def test_a_reader_beyond_its_plan_is_told_when_to_come_back(rest: Rest) -> None:
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


async def test_the_write_key_has_no_plan_and_wrong_keys_do(rest: Rest) -> None:
    wrong = rest.make(client="192.0.2.7", headers={"Authorization": "Bearer wrong"})
    statuses = [(await wrong.put("/v1/data/a", json=BODY)).status_code for _ in range(101)]
    assert (statuses[99], statuses[100]) == (401, 429)
    key = rest.writer.headers["authorization"]
    right = rest.make(client="192.0.2.7", headers={"Authorization": key})
    assert {(await right.get("/v1/endpoints")).status_code for _ in range(150)} == {200}


async def test_reads_can_need_the_key(rest: Rest) -> None:
    closed = {"anonymous": False}
    assert_problem(await rest.make(options=closed).get("/v1/endpoints"), 401, "unauthorised")
    key = rest.writer.headers["authorization"]
    assert (await rest.make(options=closed, headers={"Authorization": key}).get("/v1/endpoints")).status_code == 200


async def test_a_slow_body_is_given_up(rest: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diem.links.rest.BODY_TIMEOUT_S", 0.01)

    async def stalled() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    headers = {"Content-Type": "application/json"}
    assert_problem(await rest.writer.put("/v1/data/a", content=stalled(), headers=headers), 408, "error")


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (None, "application/json"),
        ("*/*", "application/json"),
        ("text/csv", "text/csv"),
        ("text/*", "text/csv"),
        ("text/csv, application/json", "application/json"),
        ("application/json;q=0.5, text/csv;q=0.8", "text/csv"),
        ("application/json;q=0, */*", "text/csv"),
        ("text/html, */*;q=0.1", "application/json"),
        ("TEXT/CSV", "text/csv"),
        ("image/png", None),
    ],
)
def test_the_representation_that_the_client_likes_best_is_chosen(accept: str | None, expected: str | None) -> None:
    assert choose(accept, ("application/json", "text/csv")) == expected


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ('"1-json"', True),
        ('W/"1-json"', True),
        ('"0-json", "1-json"', True),
        ("*", True),
        ('"1-csv"', False),
        (None, False),
    ],
)
def test_etags_are_compared_weakly(header: str | None, expected: bool) -> None:
    assert has_etag(header, '"1-json"') is expected


def test_media_types_with_another_charset_are_none() -> None:
    assert media_type("Application/JSON; charset=UTF-8") == "application/json"
    assert media_type('text/csv; charset="latin1"') == ""
    assert media_type(None) == ""


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("gzip, deflate, br", True),
        ("br, GZIP;q=0.5", True),
        ("gzip;q=0", False),
        ("gzip; q=0.0, identity", False),
        ("identity", False),
        ("", False),
        (None, False),
    ],
)
def test_gzip_is_for_who_names_it(header: str | None, expected: bool) -> None:
    assert accepts_gzip(header) is expected
