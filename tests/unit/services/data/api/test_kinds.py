"""Documents, bytes, notices, collections, patches, conditions and times to live over HTTP."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from diem.protocol.update import without_data
from services.data.kinds import labels_of
from services.data.kinds.prefixes import Prefix, Prefixes, schema_fault
from tests.support.small import AS_SERIES
from tests.unit.services.data.conftest import BODY, Rest, assert_problem

SCORE = {"home": 2, "away": 1, "events": [{"minute": 7, "text": "goal"}]}
MERGE = {"Content-Type": "application/merge-patch+json"}
JSON_PATCH = {"Content-Type": "application/json-patch+json"}


async def put(rest: Rest, endpoint: str, value: Any, **headers: str) -> int:  # any JSON value
    headers = {"Content-Type": "application/json", **headers}
    answer = await rest.writer.put(f"/v1/data{endpoint}", content=json.dumps(value), headers=headers)
    assert answer.status_code == 200, answer.text
    return int(answer.json()["version"])


async def value(rest: Rest, endpoint: str) -> Any:  # any JSON value
    return (await rest.reader.get(f"/v1/data{endpoint}")).json()


def update_of(rest: Rest, endpoint: str) -> bytes:
    """Return the update that the feed has of an endpoint."""
    found = rest.store.index.changes.get(endpoint.encode())
    assert found is not None
    return found.value


@pytest.mark.parametrize("document", [SCORE, [1, 2], "text", 7.5, True, None, {}])
async def test_a_document_is_answered_as_it_was_put_with_its_version_beside_it(rest: Rest, document: Any) -> None:
    version = await put(rest, "/score", document)
    answer = await rest.reader.get("/v1/data/score")
    assert answer.json() == document
    assert answer.headers["content-type"] == "application/json"
    assert (answer.headers["diem-version"], answer.headers["etag"]) == (str(version), f'"{version}-json"')
    assert answer.headers["diem-time"].endswith("Z")
    cached = await rest.reader.get("/v1/data/score", headers={"If-None-Match": answer.headers["etag"]})
    assert cached.status_code == 304


async def test_an_update_of_a_document_carries_it_with_its_media_type(rest: Rest) -> None:
    await put(rest, "/score", {"home": 1})
    update = update_of(rest, "/score")
    assert update.endswith(b',"data":{"home":1},"media_type":"application/json"}')
    assert without_data(b"/score", update).endswith(b'Z"}')


@pytest.mark.parametrize(
    ("content", "media_type", "data"),
    [
        (b"hello", "text/plain", b'"hello","media_type":"text/plain"'),
        (b"\x89PNG\xff", "image/png", b'"iVBORyf/","encoding":"base64"'.replace(b"iVBORyf/", b"iVBOR/8=")),
        (b"<b>", "text/html;charset=utf-8", b'"<b>","media_type":"text/html;charset=utf-8"'),
    ],
)
async def test_bytes_come_back_with_their_media_type(rest: Rest, content: bytes, media_type: str, data: bytes) -> None:
    headers = {"Content-Type": media_type}
    assert (await rest.writer.put("/v1/data/file", content=content, headers=headers)).status_code == 200
    answer = await rest.reader.get("/v1/data/file")
    assert (answer.content, answer.headers["content-type"]) == (content, media_type)
    assert data in update_of(rest, "/file")


SHOWN = ["image/png", "text/plain", "text/plain;charset=utf-16", "video/mp4", "audio/x.y-z"]
ACTIVE = [
    *("text/html", "image/svg+xml", "text/xml", "application/xhtml+xml", "application/pdf", "multipart/related"),
    *(
        "image/png+xml",
        "image/pngx",
        "video/a+xml",
        "audio/svg+xml",
        "text/plain+xml",
        "text/plainx",
        "unknown/unknown",
    ),
]


@pytest.mark.parametrize(
    "media_type",
    [
        *("text/javascript", "application/javascript;charset=utf-8", "TEXT/JavaScript", "text/javascript1.5"),
        *("application/x-javascript", "text/ecmascript", "text/jscript", "text/livescript", "application/x-ecmascript"),
    ],
)
async def test_scripts_are_refused_as_such(rest: Rest, media_type: str) -> None:
    answer = await rest.writer.put("/v1/data/file", content=b"x", headers={"Content-Type": media_type})
    detail = assert_problem(answer, 415, "unsupported_media_type")["detail"]
    assert "would run in pages of this origin: send scripts as text/plain" in detail


@pytest.mark.parametrize(
    "media_type",
    [
        *("text", "text/", "/plain", "text/plain; a", "text/plain; a=b c", 'text/plain;a="b;c"', "text/pl ain", "*/*"),
        *(
            "text/plain\u00e9",
            "text/plain, text/html",
            f"text/{'x' * 96}",
            f"text/plain;a={'x' * 90}",
            "text/plain;a=\tb",
        ),
        *("multipart/form-data;boundary=x", "application/x-www-form-urlencoded;charset=utf-8", "text/plain;;a==b"),
    ],
)
async def test_texts_that_are_no_media_types_are_refused_in_one_line(rest: Rest, media_type: str) -> None:
    headers = httpx.Headers([("Content-Type", media_type)], encoding="latin-1")
    answer = await rest.writer.put("/v1/data/file", content=b"x", headers=headers)
    assert "Content-Type" in assert_problem(answer, 415, "unsupported_media_type")["detail"]
    assert "/file" not in rest.store.index.heads


@pytest.mark.parametrize(
    "media_type",
    ["text/x;a=1;b=2", 'text/x;a="1"', "a/b;c=d;", "text/x;charset=UTF-16", "application/vnd.a.b-c+d!#$&^_e"],
)
async def test_media_types_are_kept_in_one_form_that_is_taken_again(rest: Rest, media_type: str) -> None:
    await rest.writer.put("/v1/data/file", content=b"x", headers={"Content-Type": media_type})
    answer = await rest.reader.get("/v1/data/file")
    again = await rest.writer.put(
        "/v1/data/file", content=b"x", headers={"Content-Type": answer.headers["content-type"]}
    )
    assert again.json()["changed"] is False
    update = json.loads(update_of(rest, "/file"))
    assert (update["data"], update["media_type"]) == ("x", answer.headers["content-type"])


@pytest.mark.parametrize(
    ("media_type", "shown"), [*((each, True) for each in SHOWN), *((each, False) for each in ACTIVE)]
)
async def test_bytes_never_run_in_a_browser(rest: Rest, media_type: str, shown: bool) -> None:
    await rest.writer.put("/v1/data/file", content=b"<svg/>", headers={"Content-Type": media_type})
    fields = (await rest.reader.get("/v1/data/file")).headers
    assert fields["content-security-policy"] == "default-src 'none'; sandbox"
    assert fields["x-content-type-options"] == "nosniff"
    assert ("content-disposition" not in fields) == shown


@pytest.mark.parametrize("media_types", [("text/plain", "text/markdown"), ("application/json", "application/geo+json")])
async def test_another_media_type_of_equal_content_is_a_change(rest: Rest, media_types: tuple[str, str]) -> None:
    for number, media_type in enumerate(media_types):
        answer = await rest.writer.put("/v1/data/a", content=b"{}", headers={"Content-Type": media_type})
        assert answer.json()["changed"], number
        found = await rest.reader.get("/v1/data/a")
        assert (found.headers["content-type"], found.content) == (media_type, b"{}")
    update = json.loads(update_of(rest, "/a"))
    assert (update["version"], update["media_type"]) == (answer.json()["version"], media_types[1])


async def test_the_kind_of_an_endpoint_does_not_change_until_it_is_deleted(rest: Rest) -> None:
    await put(rest, "/a", SCORE)
    refused = await rest.writer.put("/v1/data/a", json=BODY, headers=AS_SERIES)
    assert "is of the kind document, not series" in assert_problem(refused, 409, "wrong_kind")["detail"]
    await rest.writer.delete("/v1/data/a")
    assert (await rest.writer.put("/v1/data/a", json=BODY, headers=AS_SERIES)).status_code == 200
    old = (await rest.reader.get("/v1/history/a")).json()["versions"]
    assert [each["media_type"] for each in old] == ["application/vnd.diem.series+json", *["application/json"] * 2]
    first = await rest.reader.get("/v1/data/a", params={"version": old[-1]["version"]})
    assert first.json() == SCORE


async def test_equal_documents_keep_the_version_whatever_their_blanks(rest: Rest) -> None:
    first = await put(rest, "/a", SCORE)
    text = b'{ "home": 2, "away" : 1,\n"events":[{"minute":7,"text":"goal"}]}'
    answer = await rest.writer.put("/v1/data/a", content=text, headers={"Content-Type": "application/json"})
    assert answer.json() == {"endpoint": "/a", "version": first, "changed": False}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b'{"a":1,"a":2}', "appears twice"),
        (b'{"a":{"b":1,"\\u0062":2}}', "appears twice"),
        (b"[18446744073709551616]", "more than 64 bits"),
        (b"1e400", "not JSON"),
        (b'"\\ud800"', "not JSON"),
        (b"[" * 33 + b"]" * 33, "nested more than 32 deep"),
        (b'"\xff"', "not JSON"),
        (b"", "not JSON"),
        (b"NaN", "not JSON"),
    ],
)
async def test_json_that_readers_would_parse_differently_is_refused(rest: Rest, text: bytes, reason: str) -> None:
    answer = await rest.writer.put("/v1/data/a", content=text, headers={"Content-Type": "application/json"})
    assert answer.status_code in {400, 422}
    assert reason in answer.json()["detail"]
    assert "/a" not in rest.store.index.heads


async def test_a_merge_patch_changes_fields_and_removes_those_that_are_null(rest: Rest) -> None:
    await put(rest, "/a", {"x": 1, "y": {"z": 2, "w": 3}})
    patch = {"x": None, "y": {"z": 4}, "n": [None]}
    assert (await rest.writer.patch("/v1/data/a", json=patch, headers=MERGE)).json()["changed"]
    assert await value(rest, "/a") == {"y": {"z": 4, "w": 3}, "n": [None]}


async def test_a_json_patch_applies_all_operations_or_none(rest: Rest) -> None:
    version = await put(rest, "/a", {"x": [1, 2]})
    failing = [{"op": "add", "path": "/x/-", "value": 3}, {"op": "test", "path": "/x/0", "value": 9}]
    refused = await rest.writer.patch("/v1/data/a", json=failing, headers=JSON_PATCH)
    assert assert_problem(refused, 409, "patch_refused")["errors"][0]["where"] == "$[1]"
    assert rest.store.index.heads["/a"].version == version
    works = [*failing[:1], {"op": "move", "from": "/x/0", "path": "/y"}]
    assert (await rest.writer.patch("/v1/data/a", json=works, headers=JSON_PATCH)).status_code == 200
    assert await value(rest, "/a") == {"x": [2, 3], "y": 1}


@pytest.mark.parametrize(
    ("patch", "status"),
    [
        ([{"op": "add", "path": "/x", "value": 1}] * 1001, 422),
        ([{"op": "copy", "from": "/x", "path": "/x/-"}] * 60, 422),
        ([{"op": "remove", "path": "/missing"}], 409),
        ([{"op": "fly", "path": "/x"}], 422),
        ([{"path": "/x"}], 422),
        ([7], 422),
        ({"op": "add"}, 422),
        ([{"op": "add", "path": "x", "value": 1}], 422),
    ],
)
async def test_a_patch_beyond_its_bounds_or_without_sense_changes_nothing(rest: Rest, patch: Any, status: int) -> None:
    version = await put(rest, "/a", {"x": ["y" * 1000]})
    answer = await rest.writer.patch("/v1/data/a", json=patch, headers=JSON_PATCH)
    assert answer.status_code == status, answer.text
    assert rest.store.index.heads["/a"].version == version


async def test_a_patch_that_grows_too_deep_fails_no_write_beside_it(rest: Rest) -> None:
    await put(rest, "/a", {})
    value = json.loads('{"x":' * 28 + "{}" + "}" * 28)
    patch: list[Any] = [{"op": "add", "path": "/a", "value": value}]
    for here, there in zip("ab" * 30, "ba" * 30, strict=True):
        patch.append({"op": "add", "path": f"/{there}", "value": value})
        patch.append({"op": "move", "from": f"/{here}", "path": f"/{there}" + "/x" * 28})
    refused, *others = await asyncio.gather(
        rest.writer.patch("/v1/data/a", json=patch, headers=JSON_PATCH),
        *(rest.writer.put(f"/v1/data/other/{n}", json=n) for n in range(3)),
    )
    assert "nested too deeply" in assert_problem(refused, 422, "invalid_dataset")["detail"]
    assert [each.status_code for each in others] == [200, 200, 200]


async def test_only_what_is_there_is_patched_and_only_as_its_kind_is(rest: Rest) -> None:
    assert_problem(await rest.writer.patch("/v1/data/a", json={}, headers=MERGE), 404, "unknown_endpoint")
    await rest.writer.put("/v1/data/file", content=b"x", headers={"Content-Type": "text/plain"})
    refused = await rest.writer.patch("/v1/data/file", json={}, headers=MERGE)
    assert "PUT it as a whole" in assert_problem(refused, 415, "unpatchable")["detail"]
    refused = await rest.writer.patch("/v1/data/file", json={}, headers={"Content-Type": "application/json"})
    assert "application/merge-patch+json" in assert_problem(refused, 415, "unsupported_media_type")["detail"]


async def test_patches_of_one_group_build_on_each_other(rest: Rest) -> None:
    await put(rest, "/a", {"n": 0})
    patches = [{f"k{n}": n} for n in range(5)]
    answers = [rest.writer.patch("/v1/data/a", json=patch, headers=MERGE) for patch in patches]
    versions = [(await answer).json()["version"] for answer in answers]
    assert len(set(versions)) == 5
    assert await value(rest, "/a") == {"n": 0, "k0": 0, "k1": 1, "k2": 2, "k3": 3, "k4": 4}


async def test_conditions_prevent_lost_updates(rest: Rest) -> None:
    first = await put(rest, "/a", 1, **{"If-None-Match": "*"})
    refused = await rest.writer.put("/v1/data/a", json=2, headers={"If-None-Match": "*"})
    assert assert_problem(refused, 412, "precondition_failed")["version"] == first
    tag = {"If-Match": f'"{first}-json"'}
    second = await put(rest, "/a", 2, **tag)
    for lost in (
        await rest.writer.put("/v1/data/a", json=3, headers=tag),
        await rest.writer.patch("/v1/data/a", json={}, headers={**MERGE, **tag}),
        await rest.writer.delete("/v1/data/a", headers=tag),
        await rest.writer.put("/v1/data/new", json=3, headers={"If-Match": "*"}),
    ):
        assert_problem(lost, 412, "precondition_failed")
    assert rest.store.index.heads["/a"].version == second
    weak = {"If-Match": f'"1-json", W/"{second}-json-gzip"'}
    assert (await rest.writer.delete("/v1/data/a", headers=weak)).status_code == 200
    bad = await rest.writer.put("/v1/data/a", json=3, headers={"If-Match": "abc"})
    assert_problem(bad, 400, "malformed")


async def test_every_notice_is_a_change_and_has_the_url_of_its_prefix(rest: Rest) -> None:
    prefixes = Prefixes.of_all([Prefix("/orders", "notice", url="https://api.example/v2/{rest}?full=1")])
    async with rest.make(options={"prefixes": prefixes}, headers=dict(rest.writer.headers)) as http:
        versions = [(await http.post("/v1/data/orders/42")).json()["version"] for _ in range(2)]
        assert versions[0] < versions[1]
        answer = await http.get("/v1/data/orders/42")
        assert answer.json() == {
            "endpoint": "/orders/42",
            "version": versions[1],
            "time": answer.headers["diem-time"],
            "url": "https://api.example/v2/42?full=1",
        }
        assert b'"media_type":"application/vnd.diem.notice+json"' in update_of(rest, "/orders/42")
        assert_problem(await http.put("/v1/data/orders/1", json=1), 415, "unsupported_media_type")
        assert_problem(await http.post("/v1/data/orders/1", content=b"{}"), 415, "unsupported_media_type")


async def test_a_prefix_declares_what_json_is_and_checks_documents(rest: Rest) -> None:
    schema = schema_fault({"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}})
    prefixes = Prefixes.of_all([Prefix("/energy", "series"), Prefix("/orders", "document", fault=schema)])
    async with rest.make(options={"prefixes": prefixes}, headers=dict(rest.writer.headers)) as http:
        assert (await http.put("/v1/data/energy/load", json=BODY)).status_code == 200
        assert labels_of(rest.store.index.heads["/energy/load"].labels)["unit"] == "MW"
        refused = assert_problem(await http.put("/v1/data/orders/1", json={"id": "x"}), 422, "invalid_dataset")
        assert "$.id" in refused["detail"]
        assert "schema of /orders" in refused["detail"]
        await http.put("/v1/data/orders/1", json={"id": 1})
        refused_patch = await http.patch("/v1/data/orders/1", json={"id": None}, headers=MERGE)
        assert_problem(refused_patch, 422, "invalid_dataset")
        bulk = {"documents": [{"endpoint": "/orders/2", "value": {}}]}
        assert_problem(await http.put("/v1/data", json=bulk), 422, "invalid_dataset")


@pytest.mark.parametrize("schema", [{"$ref": "https://evil.example/s"}, {"$ref": "file:///etc/passwd"}, {"type": "x"}])
def test_a_schema_with_references_to_other_documents_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"https|file|valid"):
        schema_fault(schema)


async def test_a_collection_lists_its_members_and_changes_with_them_only(rest: Rest) -> None:
    await put(rest, "/game/42/score", SCORE)
    listed = await rest.reader.get("/v1/data/game/42/")
    assert listed.headers["content-type"] == "application/vnd.diem.collection+json"
    first = listed.json()
    assert first["members"] == ["/game/42/score"]
    assert (await value(rest, "/game/"))["members"] == ["/game/42/"]
    await put(rest, "/game/42/score", {"home": 3})
    assert await value(rest, "/game/42/") == first
    await put(rest, "/game/42/team/a", [])
    second = await value(rest, "/game/42/")
    assert second["members"] == ["/game/42/score", "/game/42/team/"]
    assert second["version"] > first["version"]
    assert b'"members":["/game/42/score","/game/42/team/"]' in update_of(rest, "/game/42/")
    await rest.writer.delete("/v1/data/game/42/team/a")
    assert (await value(rest, "/game/42/"))["members"] == ["/game/42/score"]
    assert (await rest.reader.get("/v1/data/game/42/team/")).status_code == 410
    await rest.writer.delete("/v1/data/game/42/score")
    assert (await rest.reader.get("/v1/data/game/")).status_code == 410


async def test_a_bulk_of_new_members_is_one_change_of_their_collection(rest: Rest) -> None:
    documents = [{"endpoint": f"/x/{n}", "value": n} for n in range(10)]
    before = rest.store.index.changes.sequence
    assert (await rest.writer.put("/v1/data", json={"documents": documents})).status_code == 200
    assert rest.store.index.changes.sequence == before + 11
    assert len((await value(rest, "/x/"))["members"]) == 10


async def test_nobody_writes_a_collection_and_the_catalogue_lists_none(rest: Rest) -> None:
    await put(rest, "/x/a", 1)
    for refused in (
        await rest.writer.put("/v1/data/x/", json=[]),
        await rest.writer.delete("/v1/data/x/"),
        await rest.writer.patch("/v1/data/x/", json=[], headers=MERGE),
        await rest.writer.post("/v1/data/x/"),
    ):
        assert_problem(refused, 409, "collection")
    listed = (await rest.reader.get("/v1/endpoints")).json()["endpoints"]
    assert [each["endpoint"] for each in listed] == ["/x/a"]


async def test_a_write_that_is_refused_leaves_its_collection_alone(rest: Rest) -> None:
    await put(rest, "/x/a", 1)
    before = rest.store.index.heads["/x/"]
    await rest.writer.put("/v1/data/x/b", json=1, headers={"If-Match": "*"})
    assert rest.store.index.heads["/x/"] == before


async def _ttl(http: httpx.AsyncClient, endpoint: str, seconds: object) -> httpx.Response:
    return await http.put(f"/v1/data{endpoint}?ttl={seconds}", json={"online": True})


@pytest.mark.parametrize("ttl", ["0", "-1", "1.5", "x", "2678401", ""])
async def test_a_wrong_time_to_live_is_refused(rest: Rest, ttl: str) -> None:
    assert "ttl" in assert_problem(await _ttl(rest.writer, "/a", ttl), 422, "invalid_dataset")["detail"]


async def test_an_endpoint_expires_unless_its_time_to_live_is_extended(rest: Rest) -> None:
    for name in ("/on/a", "/on/b", "/on/c"):
        assert (await _ttl(rest.writer, name, 30)).status_code == 200
    rest.clock.advance(20)
    # Equal content keeps its version and gets the new time; a write without one never expires.
    assert not (await _ttl(rest.writer, "/on/b", 30)).json()["changed"]
    await put(rest, "/on/c", {"online": True})
    rest.clock.advance(11)
    # Any write has what is due deleted with it.
    await put(rest, "/other", 1)
    assert rest.store.index.heads["/on/a"].gone
    assert (await value(rest, "/on/"))["members"] == ["/on/b", "/on/c"]
    rest.clock.advance(1000)
    await put(rest, "/other", 2)
    assert (await value(rest, "/on/"))["members"] == ["/on/c"]


async def test_conditions_of_a_request_for_several_endpoints_are_refused(rest: Rest) -> None:
    for name, value in {"If-Match": '"1-json"', "If-None-Match": "*"}.items():
        body = {"documents": [{"endpoint": "/a", "value": 1}]}
        answer = await rest.writer.put("/v1/data", json=body, headers={name: value})
        assert "for writes of one endpoint" in assert_problem(answer, 400, "malformed")["detail"]
    assert "/a" not in rest.store.index.heads
