"""Files as their publishers write them: preview and publication."""

import asyncio
from pathlib import Path

import httpx
import pytest

from diem.process.auth import SharedKey
from services.data.access.keys import WriteTerms
from services.data.api import ApiOptions, files, make_api
from services.data.api.files import AT_ONCE
from services.data.api.problems import problem_of
from services.data.errors import MissingPackage
from services.data.files.grid import InputFile
from services.data.files.mapping import Mapping
from services.data.files.reader import ReaderEnded
from services.data.files.target import FileTarget
from services.data.kinds import SERIES, Representation
from tests.support.file_threads import FileThreads
from tests.unit.services.data.access.test_access import problem, serving
from tests.unit.services.data.conftest import WRITE_KEY, Rest, assert_problem

METER = b"Zeit;Wirk [kW];Blind [kvar]\n25.10.2026 01:45;1.002,5;0,5\n25.10.2026 02:00;3,25;\n"
LAYOUT = """\
resolution = "PT15M"
zone = "Europe/Berlin"

[mapping]
delimiter = ";"
decimal = ","
thousands = "."
time = "Zeit"
time_format = "%d.%m.%Y %H:%M"
value = "*"
"""
METER_LAYOUT = {"endpoint": "/meter", "layout": LAYOUT}
ONE = b"time,value\n2026-01-01T00:00:00Z,5\n"
SINGLE = {"endpoint": "/load", "layout": 'unit = "MW"\nresolution = "PT1H"'}

SMARD = (
    "Datum von;Datum bis;Belgien [€/MWh] Originalauflösungen\n"
    "01.01.2026 00:00;01.01.2026 00:15;1.002,16\n01.01.2026 00:15;01.01.2026 00:30;-\n"
).encode()


async def post(rest: Rest, query: dict[str, str], body: bytes = METER, key: str = "") -> httpx.Response:
    headers = {"Idempotency-Key": key} if key else {}
    return await rest.writer.post("/v1/files", params=query, content=body, headers=headers)


async def test_a_preview_shows_what_would_be_stored_and_stores_nothing(rest: Rest) -> None:
    answer = await post(rest, {**METER_LAYOUT, "preview": "true"})
    first, second = answer.json()["endpoints"]
    assert (answer.json()["count"], answer.json()["zone"]) == (2, "Europe/Berlin")
    assert first.pop("bytes") > 100
    assert first == {
        "endpoint": "/meter/Wirk",
        "title": "Wirk",
        "media_type": SERIES,
        "unit": "kW",
        "resolution": "PT15M",
        "points": 2,
        "first": [{"time": "2026-10-24T23:45:00Z", "value": 1002.5}, {"time": "2026-10-25T00:00:00Z", "value": 3.25}],
        "last": [],
        "curve": [1002.5, 3.25],
    }
    assert second["curve"] == [0.5, None]
    assert not rest.store.index.heads


async def test_the_endpoints_of_a_file_are_stored_together_with_their_versions(rest: Rest) -> None:
    accepted = (await post(rest, METER_LAYOUT)).json()["accepted"]
    stored = (await rest.reader.get("/v1/data/meter/Wirk")).json()
    assert [each["endpoint"] for each in accepted] == ["/meter/Wirk", "/meter/Blind"]
    assert (accepted[0]["version"], stored["points"][0]["value"]) == (stored["version"], 1002.5)
    assert (await post(rest, METER_LAYOUT)).json()["accepted"][0]["changed"] is False


async def test_a_preset_is_named_and_a_layout_is_above_it(rest: Rest) -> None:
    query = {"endpoint": "/dam", "preset": "smard", "layout": 'resolution = "PT15M"', "preview": "true"}
    (found,) = (await post(rest, query, SMARD)).json()["endpoints"]
    assert (found["resolution"], found["unit"], found["curve"]) == ("PT15M", "EUR/MWh", [1002.16, None])


async def test_a_suggestion_can_be_sent_back_and_shows_the_same(rest: Rest) -> None:
    suggested = (await post(rest, {"name": "Zähler 7.csv"})).json()
    assert suggested["endpoint"] == "/zahler-7"
    assert 'decimal = ","' in suggested["layout"]
    assert {"smard", "entsoe"} < {*suggested["presets"]}
    (zone,) = (each for each in suggested["questions"] if each["key"] == "zone")
    assert (zone["assumed"], 'zone = "UTC"' in suggested["layout"]) == ("UTC", True)
    query = {name: suggested[name] for name in ("endpoint", "layout")}
    shown = (await post(rest, {**query, "preview": "true"})).json()
    assert shown["endpoints"][0]["first"][0] == {"time": "2026-10-25T01:45:00Z", "value": 1002.5}
    assert {name: suggested[name] for name in shown} == shown
    assert not rest.store.index.heads


async def test_a_file_without_a_table_is_answered_with_the_reason(rest: Rest) -> None:
    suggested = (await post(rest, {"name": "notes.txt"}, b"hello")).json()
    assert (suggested["endpoint"], suggested["problem"]) == ("/notes", "there is no table in it")
    assert (suggested["count"], suggested["layout"]) == (0, "")


async def test_a_publishers_file_is_suggested_with_its_preset(rest: Rest) -> None:
    suggested = (await post(rest, {"name": "smard.csv"}, SMARD)).json()
    assert (suggested["preset"], suggested["zone"]) == ("smard", "Europe/Berlin")
    assert suggested["endpoints"][0]["curve"] == [1002.16, None]


@pytest.mark.parametrize(
    ("layout", "where", "words"),
    [
        ("a = [", "layout", "line 1, not TOML"),
        ("[mapping]\ndelimitr = ';'", "layout", "line 2, mapping.delimitr: unknown field (did you mean `delimiter`"),
        ("unit = 5", "layout", "line 1, unit: expected text in quotes"),
        ("x = " + "[" * 7000, "layout", "nested too deeply"),
        ("x = " + "9" * 7000, "layout", "a number is too long"),
        (LAYOUT.replace('"Zeit"', '"Zait"'), "", "key: time"),
        (LAYOUT.replace('decimal = ","\n', 'decimal = "."\n').replace("thousands", "#"), "line 2", "decimal"),
    ],
)
async def test_an_error_names_the_place_and_the_key_of_the_mapping(
    rest: Rest, layout: str, where: str, words: str
) -> None:
    document = assert_problem(await post(rest, {"endpoint": "/meter", "layout": layout}), 422, "invalid_dataset")
    assert document["errors"][0]["where"] == where
    assert words in document["errors"][0]["detail"]


@pytest.mark.parametrize("preset", ["/etc/passwd", "own.toml", "../smard", "smrd", "presets/smard.toml"])
async def test_a_preset_is_never_a_file_of_the_server(rest: Rest, preset: str) -> None:
    document = assert_problem(await post(rest, {"endpoint": "/meter", "preset": preset}), 422, "invalid_dataset")
    assert f"layout: there is no preset {preset!r}" in document["detail"]


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ({"name": "../x"}, "malformed"),
        ({"name": ""}, "malformed"),
        ({"name": "a\n"}, "malformed"),
        ({"preview": "yes"}, "malformed"),
        ({"endpoint": "/meter", "layout": " " * 8001}, "malformed"),
        ({"endpoint": "meter", "layout": ""}, "bad_name"),
        ({"endpoint": "/meter/", "layout": ""}, "bad_name"),
    ],
)
async def test_a_wrong_query_is_refused(rest: Rest, query: dict[str, str], code: str) -> None:
    assert_problem(await post(rest, query), 400, code)


async def test_a_layout_needs_an_endpoint(rest: Rest) -> None:
    assert "need endpoint" in assert_problem(await post(rest, {"preset": "smard"}), 422, "invalid_dataset")["detail"]


async def test_without_a_layout_a_file_has_times_values_and_units(rest: Rest) -> None:
    body = b"time,value,unit\n2026-01-01T00:00:00Z,5,MW\n2026-01-01T01:00:00Z,6,MW\n"
    document = assert_problem(await post(rest, {"endpoint": "/load"}, body), 422, "invalid_dataset")
    assert "resolution" in document["detail"]


async def test_a_source_keeps_its_endpoints_also_in_a_preview(rest: Rest) -> None:
    for preview in ("true", "false"):
        refused = await post(rest, {**SINGLE, "endpoint": "/owned", "preview": preview}, ONE)
        assert_problem(refused, 409, "owned_by_source")


async def test_files_and_what_is_made_of_them_are_bounded(rest: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = assert_problem(await post(rest, SINGLE, b" " * (4 * 65536 + 1)), 413, "too_large")
    assert "raise DIEM_DATASET_BYTES" in refused["detail"]
    lines = b"".join(b"%d,1\n" % (1767225600 + 60 * n) for n in range(2000))
    minutes = 'unit = "MW"\nresolution = "PT1M"\n[mapping]\ntime_format = "epoch"'
    # Points are longer in JSON than in a file.
    query = {"endpoint": "/load", "layout": minutes}
    assert_problem(await post(rest, query, b"time,value\n" + lines), 413, "too_large")
    monkeypatch.setattr(files, "MAX_ENDPOINTS", 1)
    refused = assert_problem(await post(rest, METER_LAYOUT), 422, "invalid_dataset")
    assert "2 endpoints, at most are 1" in refused["detail"]


async def test_an_idempotency_key_stores_a_file_once(rest: Rest) -> None:
    first = await post(rest, SINGLE, ONE, "once")
    await post(rest, SINGLE, ONE.replace(b"5", b"6"))
    assert (await post(rest, SINGLE, ONE, "once")).json() == first.json()
    assert_problem(await post(rest, SINGLE, ONE + b"\n", "once"), 422, "idempotency_key_reused")


async def test_without_a_write_key_no_file_is_read(rest: Rest) -> None:
    assert_problem(await rest.reader.post("/v1/files", content=METER), 401, "unauthorised")


async def test_a_write_key_publishes_below_its_prefixes_alone(tmp_path: Path) -> None:
    async with serving(tmp_path) as world:
        _, text = await world.access.create_writer("importer", WriteTerms(("/meter/Wirk", "/load"), 6))
        async with world.http(text) as http:
            for preview in ("true", "false"):
                query = {**METER_LAYOUT, "preview": preview}
                assert problem(await http.post("/v1/files", params=query, content=METER)) == (403, "not_in_key")
            assert (await http.post("/v1/files", params=SINGLE, content=ONE)).status_code == 200
            assert set(world.store.index.names) == {"/load"}


async def test_beyond_a_few_files_at_once_the_answer_is_503(rest: Rest) -> None:
    begun, released = asyncio.Event(), asyncio.Event()
    count = 0

    class Waiting(FileThreads):
        async def convert(self, file: InputFile, mapping: Mapping, target: FileTarget) -> list[Representation]:
            del file, mapping, target
            nonlocal count
            count += 1
            if count == AT_ONCE:
                begun.set()
            await released.wait()
            return []

    options = ApiOptions(page_dir=rest.page)
    app = make_api(rest.store, SharedKey(WRITE_KEY), lambda _: None, options, rest.clock, files=Waiting()).app
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")
    client.headers["Authorization"] = f"Bearer {WRITE_KEY}"
    waiting = [asyncio.create_task(client.post("/v1/files", params=SINGLE, content=ONE)) for _ in range(AT_ONCE)]
    await begun.wait()
    refused = await client.post("/v1/files", params=SINGLE, content=ONE)
    assert_problem(refused, 503, "busy")
    assert 1 <= int(refused.headers["Retry-After"]) <= 4
    released.set()
    await asyncio.gather(*waiting)


def test_a_file_that_cannot_be_read_here_or_now_is_not_called_wrong() -> None:
    missing, ended = problem_of(MissingPackage("it needs a package")), problem_of(ReaderEnded("the reader ended (-9)"))
    assert (missing.status_code, ended.status_code) == (415, 503)
    assert 1 <= int(ended.headers["Retry-After"]) <= 4


def test_a_curve_keeps_the_extremes_of_a_long_series() -> None:
    values: list[float | None] = [0.0] * 10_000
    values[1234], values[9999] = 7.0, -7.0
    curve = files._curve(values)
    assert (len(curve), max(filter(None, curve)), min(filter(None, curve))) == (files.CURVE, 7.0, -7.0)
    assert files._curve([None] * 500) == [None] * files.CURVE
