"""The catalogue: entries, parts, age and compression."""

import asyncio
import gzip
import json
from collections import Counter
from typing import Any

import httpx
import pytest

from services.data.access.access import Access
from services.data.access.plans import AccessPlan, AccessPlans
from services.data.access.rights import common_rights
from services.data.access.tokens import TokenRequest
from services.data.api import catalogue
from services.data.api.catalogue import MAX_NARROW_PARTS, MAX_PARTS, Catalogue, CataloguePage
from services.data.kinds.series import parse_single
from services.data.store import EndpointHead
from tests.support.small import AS_SERIES
from tests.unit.services.data.conftest import BODY, Rest, assert_problem, body


async def test_the_catalogue_lists_what_can_be_read(rest: Rest) -> None:
    await rest.writer.put("/v1/data/b", json=BODY, headers=AS_SERIES)
    await rest.writer.put("/v1/data/a", json=BODY, headers=AS_SERIES)
    await rest.writer.delete("/v1/data/b")
    client, writes = rest.reader, {"Authorization": rest.writer.headers["authorization"]}
    listed = await client.get("/v1/endpoints")
    (entry,) = listed.json()["endpoints"]
    assert entry == {
        "endpoint": "/a",
        "kind": "series",
        "media_type": "application/vnd.diem.series+json",
        "title": "",
        "unit": "MW",
        "resolution": "PT1H",
        "version": 1_700_000_000_000,
        "time": "2023-11-14T22:13:20.000Z",
        "source": "",
        "gone": False,
    }
    again = {"If-None-Match": listed.headers["etag"]}
    await rest.store.writer.put(
        [parse_single("/a", json.dumps(BODY).encode()).described(title="Load")], source="market"
    )
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


async def test_the_catalogue_leaves_out_the_endpoints_of_canaries(rest: Rest) -> None:
    names = ["/a", "/canary/p0", "/canary/p1", "/canaryish", "/z"]
    for name in names:
        await rest.writer.put(f"/v1/data{name}", json=BODY, headers=AS_SERIES)
    await rest.writer.delete("/v1/data/canary/p1")
    listed = [entry["endpoint"] for entry in (await rest.writer.get("/v1/endpoints?gone=true")).json()["endpoints"]]
    assert listed == ["/a", "/canaryish", "/z"]
    part = (await rest.writer.get("/v1/endpoints?limit=1&after=/a")).json()
    assert ([entry["endpoint"] for entry in part["endpoints"]], part["next"]) == (["/canaryish"], "/canaryish")
    assert (await rest.writer.get("/v1/data/canary/p0")).status_code == 200


async def test_the_catalogue_comes_in_parts(rest: Rest) -> None:
    names = [f"/{letter}" for letter in "edcba"]
    for name in names:
        await rest.writer.put(f"/v1/data{name}", json=BODY, headers=AS_SERIES)
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


def entries_made(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the entries that are made from now on."""
    made, entry = Counter[str](), catalogue._entry

    def counted(head: EndpointHead) -> dict[str, Any]:
        made[head.endpoint] += 1
        return entry(head)

    monkeypatch.setattr(catalogue, "_entry", counted)
    return made


async def test_the_catalogue_is_built_at_most_once_a_second(rest: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    made = entries_made(monkeypatch)
    client = rest.reader
    for value in range(20):
        await rest.writer.put("/v1/data/a", json=body(value), headers=AS_SERIES)
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
        await rest.writer.put(f"/v1/data/{name}", json=BODY, headers=AS_SERIES)
    client = rest.reader
    answers = await asyncio.gather(*(client.get("/v1/endpoints") for _ in range(5)))
    plain = await client.get("/v1/endpoints", headers={"Accept-Encoding": "identity"})
    assert {answer.text for answer in answers} == {plain.text}
    assert {answer.headers["content-encoding"] for answer in answers} == {"gzip"}
    assert "content-encoding" not in plain.headers
    assert plain.headers["etag"] != answers[0].headers["etag"]
    assert plain.headers["vary"] == "Accept-Encoding, Authorization"
    for etag in (plain.headers["etag"], answers[0].headers["etag"]):
        assert (await client.get("/v1/endpoints", headers={"If-None-Match": etag})).status_code == 304
    assert compressed == [len(plain.content)]


async def test_cached_parts_of_the_catalogue_are_bounded(rest: Rest) -> None:
    await rest.writer.put("/v1/data/a", json=BODY, headers=AS_SERIES)
    kept = Catalogue(rest.store, rest.clock)
    for limit in range(1, 40):
        await kept.part(CataloguePage(limit=limit))
    assert len(kept._whole) == MAX_PARTS


async def test_area_and_quantity_are_in_the_catalogue_and_stay_when_omitted(rest: Rest) -> None:
    await rest.store.writer.put(
        [parse_single("/a", json.dumps(body(1)).encode()).described(title="T", area="GR", quantity="load")]
    )
    await rest.store.writer.put([parse_single("/a", json.dumps(body(2)).encode())])
    (entry,) = (await rest.reader.get("/v1/endpoints")).json()["endpoints"]
    assert (entry["title"], entry["area"], entry["quantity"]) == ("T", "GR", "load")
    await rest.store.writer.put([parse_single("/a", json.dumps(body(2)).encode()).described(area="BG")])
    (entry,) = (await rest.reader.get("/v1/endpoints")).json()["endpoints"]
    assert (entry["title"], entry["area"], entry["quantity"]) == ("T", "BG", "load")


# Readers who may see some endpoints


NAMES = ("/dam", "/dam-old", "/dam/a", "/dam/b", "/dam0", "/damage/a", "/load/BG", "/load/GR", "/load/GR/a")
PLANS = AccessPlans(
    [
        AccessPlan("open"),
        AccessPlan("dam", prefixes=("/dam",)),
        AccessPlan("both", prefixes=("/load/GR", "/dam")),
        AccessPlan("anonymous", prefixes=("/damage",)),
    ]
)
VISIBLE = {
    "dam": ["/dam", "/dam/a", "/dam/b"],
    "both": ["/dam", "/dam/a", "/dam/b", "/load/GR", "/load/GR/a"],
    "open": list(NAMES),
}


async def plans_of(rest: Rest) -> Access:
    for name in NAMES:
        await rest.writer.put(f"/v1/data{name}", json=BODY, headers=AS_SERIES)
    return await Access.open(PLANS, rest.store, rest.clock)


async def reader_of(rest: Rest, access: Access, plan: str) -> httpx.AsyncClient:
    _, text = await access.create("a test", plan)
    return rest.make(access=access, headers={"Authorization": f"Bearer {text}"})


async def listed(http: httpx.AsyncClient, limit: int, query: str = "") -> list[str]:
    """Return all names, requested in parts of ``limit``."""
    found: list[str] = []
    after = ""
    while True:
        part = (await http.get(f"/v1/endpoints?limit={limit}{after}{query}")).json()
        assert len(part["endpoints"]) <= limit
        found += [entry["endpoint"] for entry in part["endpoints"]]
        if "next" not in part:
            return found
        assert part["next"] == found[-1]
        after = f"&after={part['next']}"


@pytest.mark.parametrize("limit", [1, 2, 3, 5000])
async def test_a_reader_sees_the_names_of_its_plan_and_no_others(rest: Rest, limit: int) -> None:
    access = await plans_of(rest)
    for plan, names in VISIBLE.items():
        assert await listed(await reader_of(rest, access, plan), limit) == names
    assert await listed(rest.make(access=access), limit) == ["/damage/a"]
    assert await listed(rest.make(access=access, headers=dict(rest.writer.headers)), limit) == list(NAMES)


async def test_a_reader_with_a_token_sees_what_token_and_plan_cover(rest: Rest) -> None:
    access = await plans_of(rest)
    for plan, prefixes, expected in (
        ("open", ("/load", "/nothing"), ["/load/BG", "/load/GR", "/load/GR/a"]),
        ("both", ("/dam/a", "/load/GR/a"), ["/dam/a", "/load/GR/a"]),
        ("both", (), VISIBLE["both"]),
        ("open", (), list(NAMES)),
    ):
        key, _ = await access.create("a test", plan)
        token = (await access.tokens.mint(key, PLANS[plan], TokenRequest(prefixes=prefixes))).token
        assert await listed(rest.make(access=access, headers={"Authorization": f"Bearer {token}"}), 2) == expected


async def test_the_plan_limits_the_names_of_a_token_that_was_issued_before_it_became_narrower(rest: Rest) -> None:
    access = await plans_of(rest)
    key, _ = await access.create("a test", "dam")
    token = (await access.tokens.mint(key, PLANS["open"], TokenRequest(prefixes=("/dam/a", "/load")))).token
    assert await listed(rest.make(access=access, headers={"Authorization": f"Bearer {token}"}), 2) == ["/dam/a"]


async def test_deleted_endpoints_of_others_are_not_listed_either(rest: Rest) -> None:
    access = await plans_of(rest)
    for name in ("/dam/a", "/load/GR"):
        await rest.writer.delete(f"/v1/data{name}")
    http = await reader_of(rest, access, "dam")
    assert await listed(http, 2) == ["/dam", "/dam/b"]
    assert await listed(http, 2, "&gone=true") == ["/dam", "/dam/a", "/dam/b"]


async def test_a_reader_learns_nothing_of_changes_that_it_may_not_see(rest: Rest) -> None:
    access = await plans_of(rest)
    http = await reader_of(rest, access, "dam")
    first = await http.get("/v1/endpoints")
    etag = {"If-None-Match": first.headers["etag"]}
    await rest.writer.put("/v1/data/load/GR", json=body(6), headers=AS_SERIES)
    await rest.writer.put("/v1/data/load/new", json=body(6), headers=AS_SERIES)
    rest.clock.advance(2)
    assert (await http.get("/v1/endpoints", headers=etag)).status_code == 304
    await rest.writer.put("/v1/data/dam/a", json=body(6), headers=AS_SERIES)
    rest.clock.advance(2)
    changed = await http.get("/v1/endpoints", headers=etag)
    assert (changed.status_code, changed.headers["etag"] != first.headers["etag"]) == (200, True)
    # The ETag of what everybody else sees is another one, and caches keep the answers apart.
    whole = await reader_of(rest, access, "open")
    assert (await whole.get("/v1/endpoints", headers={"If-None-Match": changed.headers["etag"]})).status_code == 200
    assert "Authorization" in changed.headers["vary"]


async def test_parts_of_some_endpoints_are_shared_and_take_no_place_of_those_of_all(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await plans_of(rest)
    made = entries_made(monkeypatch)
    kept = Catalogue(rest.store, rest.clock)
    whole, _ = await kept.part(CataloguePage())
    made.clear()
    for _ in range(3):
        await kept.part(CataloguePage(rights=common_rights((("/load/GR", "/load/GR/a"),))))
    # Nothing is made twice, and nothing for endpoints that are not listed.
    assert made == {"/load/GR": 1, "/load/GR/a": 1}
    for number in range(2 * MAX_NARROW_PARTS):
        await kept.part(CataloguePage(rights=common_rights(((f"/{number}",),))))
    assert len(kept._narrow) == MAX_NARROW_PARTS
    assert await kept.part(CataloguePage()) == (whole, 0)


async def test_parts_of_some_endpoints_are_bounded_in_bytes(rest: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    await plans_of(rest)
    monkeypatch.setattr(catalogue, "MAX_NARROW_BYTES", 2_000)
    kept = Catalogue(rest.store, rest.clock)
    bodies = []
    for limit in range(1, 20):
        part, _ = await kept.part(CataloguePage(limit=limit, rights=common_rights((("/dam",),))))
        bodies.append(part.body)
        held = [each.body for each in kept._narrow._parts.values()]
        assert sum(map(len, held)) == kept._narrow._bytes <= 2_000
        assert held == bodies[-len(held) :]
    assert 1 < len(kept._narrow) < 19
