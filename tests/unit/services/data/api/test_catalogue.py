"""The catalogue: entries, parts, age and compression."""

import asyncio
import gzip
import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from services.data.api import catalogue
from services.data.api.catalogue import MAX_PARTS, Catalogue, CataloguePage
from services.data.datasets import parse_single
from tests.unit.services.data.conftest import BODY, Rest, assert_problem, body


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
    # Built at most once a second, except for holders of the write key.
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


async def test_the_catalogue_is_built_at_most_once_a_second(rest: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
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


async def test_cached_parts_of_the_catalogue_are_bounded(rest: Rest) -> None:
    await rest.writer.put("/v1/data/a", json=BODY)
    kept = Catalogue(rest.store, rest.clock)
    for limit in range(1, 40):
        await kept.part(CataloguePage(limit=limit))
    assert len(kept._parts) == MAX_PARTS


async def test_area_and_quantity_are_in_the_catalogue_and_stay_when_omitted(rest: Rest) -> None:
    await rest.store.writer.put(
        [replace(parse_single("/a", json.dumps(body(1)).encode()), title="T", area="GR", quantity="load")]
    )
    await rest.store.writer.put([parse_single("/a", json.dumps(body(2)).encode())])
    (entry,) = (await rest.reader.get("/v1/endpoints")).json()["endpoints"]
    assert (entry["title"], entry["area"], entry["quantity"]) == ("T", "GR", "load")
    await rest.store.writer.put([replace(parse_single("/a", json.dumps(body(2)).encode()), area="BG")])
    (entry,) = (await rest.reader.get("/v1/endpoints")).json()["endpoints"]
    assert (entry["title"], entry["area"], entry["quantity"]) == ("T", "BG", "load")
