"""Series over HTTP: zones of the calendar, series of the field, patches of points."""

import asyncio
import threading
from datetime import datetime
from typing import Any

import pytest

from diem.protocol.media_types import POINTS_PATCH
from services.data import large
from services.data.api import reads as reads_api
from services.data.api.cors import Cors
from services.data.api.reads import DataReads
from services.data.api.rendered import Rendered, render
from services.data.kinds import SERIES
from services.data.kinds.series import iso_seconds
from services.data.limits import DATASET_BYTES
from tests.unit.services.data.conftest import HOUR, WRITE_KEY, Rest, assert_problem

AS_SERIES = {"Content-Type": SERIES}
AS_PATCH = {"Content-Type": POINTS_PATCH}
AS_CSV = {"Content-Type": "text/csv"}


def series(resolution: str, points: dict[str, float | None], unit: str = "MWh") -> dict[str, Any]:
    """Return a series of these times and values."""
    return {
        "unit": unit,
        "resolution": resolution,
        "points": [{"time": time, "value": value} for time, value in points.items()],
    }


async def points(rest: Rest, endpoint: str) -> dict[str, float | None]:
    answer = (await rest.reader.get(f"/v1/data{endpoint}")).json()
    return {point["time"]: point["value"] for point in answer["points"]}


async def test_the_zone_of_a_calendar_is_given_once_and_kept(rest: Rest) -> None:
    body = series("P1M", {"2026-01-01": 1, "2026-07-01": 2})
    put = await rest.writer.put("/v1/data/a?zone=Europe/Athens", json=body, headers=AS_SERIES)
    assert put.status_code == 200, put.text
    first = {"2025-12-31T22:00:00Z": 1, "2026-06-30T21:00:00Z": 2}
    assert await points(rest, "/a") == first
    (entry,) = (await rest.writer.get("/v1/endpoints")).json()["endpoints"]
    assert (entry["zone"], entry["resolution"]) == ("Europe/Athens", "P1M")
    again = await rest.writer.put("/v1/data/a", json=body, headers=AS_SERIES)
    assert again.json() == put.json() | {"changed": False}
    csv = await rest.writer.put("/v1/data/a", content="time,value\n2026-01-01,1\n2026-07-01,3\n", headers=AS_CSV)
    assert csv.status_code == 200, csv.text
    assert await points(rest, "/a") == first | {"2026-06-30T21:00:00Z": 3}


async def test_a_series_of_utc_does_not_accept_local_times(rest: Rest) -> None:
    body = series("P1D", {"2026-01-01": 1})
    assert (await rest.writer.put("/v1/data/a", json=body, headers=AS_SERIES)).status_code == 200
    assert await points(rest, "/a") == {"2026-01-01T00:00:00Z": 1}
    local = series("P1D", {"2026-01-01T00:00": 1})
    problem = assert_problem(await rest.writer.put("/v1/data/a", json=local, headers=AS_SERIES), 422, "invalid_dataset")
    assert "a local time needs its zone" in problem["detail"]


async def test_json_may_have_local_times_of_the_zone_of_the_query(rest: Rest) -> None:
    body = series("PT1H", {"2026-06-01T03:00": 1, "2026-06-01 04:00": None})
    put = await rest.writer.put("/v1/data/a?zone=Europe/Athens", json=body, headers=AS_SERIES)
    assert put.status_code == 200, put.text
    assert await points(rest, "/a") == {"2026-06-01T00:00:00Z": 1, "2026-06-01T01:00:00Z": None}
    wrong = await rest.writer.put("/v1/data/a?zone=Athens", json=body, headers=AS_SERIES)
    assert assert_problem(wrong, 422, "invalid_dataset")["errors"][0]["where"] == "zone"


def spaced(start: str, step_s: int, count: int) -> list[str]:
    first = int(datetime.fromisoformat(start).timestamp())
    return [iso_seconds(first + number * step_s) for number in range(count)]


FIELD_CASES = {
    "a day by the minute": ("PT1M", "MW", spaced("2026-01-01T00:00Z", 60, 1440)),
    "a month by the quarter hour": ("PT15M", "MW", spaced("2026-01-01T00:00Z", 900, 2976)),
    "a year by the hour": ("PT1H", "EUR/MWh", spaced("2026-01-01T00:00Z", 3600, 8760)),
    "a price in pounds": ("PT30M", "GBP/MWh", spaced("2026-01-01T00:00Z", 1800, 48)),
    "a frequency by the second": ("PT1S", "Hz", spaced("2026-01-01T00:00Z", 1, 600)),
    "months": ("P1M", "GWh", [f"2026-{month:02}-01T00:00:00Z" for month in range(1, 13)]),
    "trades": ("irregular", "SEK", ["2026-01-01T09:00:01Z", "2026-01-01T09:00:02Z", "2026-01-01T17:29:59Z"]),
}
"""Series that were refused once: resolution, unit and times."""


@pytest.mark.parametrize("case", FIELD_CASES)
@pytest.mark.parametrize("way", ["json", "csv", "patch"])
async def test_series_of_the_field_come_back_as_they_were_sent(rest: Rest, case: str, way: str) -> None:
    resolution, unit, times = FIELD_CASES[case]
    expected: dict[str, float | None] = {
        time: None if number % 97 == 5 else round(50.142 + number / 100, 3) for number, time in enumerate(times)
    }
    key = {"Authorization": f"Bearer {WRITE_KEY}"}
    writer = rest.make(headers=key, options={"dataset_bytes": DATASET_BYTES})
    if way == "csv":
        text = "time,value\n" + "".join(f"{time},{'' if v is None else v}\n" for time, v in expected.items())
        query = {"unit": unit, "resolution": resolution}
        answer = await writer.put("/v1/data/a", params=query, content=text, headers=AS_CSV)
    else:
        first = dict(list(expected.items())[:1]) if way == "patch" else expected
        answer = await writer.put("/v1/data/a", json=series(resolution, first, unit), headers=AS_SERIES)
    if way == "patch":
        patch = {"points": series(resolution, expected)["points"][1:]}
        answer = await writer.patch("/v1/data/a", json=patch, headers=AS_PATCH)
    assert answer.status_code == 200, answer.text
    assert await points(rest, "/a") == expected
    csv = (await rest.reader.get("/v1/data/a", headers={"Accept": "text/csv"})).text
    assert csv.splitlines()[1:] == [f"{time},{'' if value is None else value}" for time, value in expected.items()]
    (entry,) = (await writer.get("/v1/endpoints")).json()["endpoints"]
    assert (entry["unit"], entry["resolution"]) == (unit, resolution)
    # Whatever the way, equal content is no change.
    again = await writer.put("/v1/data/a", json=series(resolution, expected, unit), headers=AS_SERIES)
    assert not again.json()["changed"]


async def test_a_patch_inserts_replaces_and_deletes_points(rest: Rest) -> None:
    hours = [f"2026-01-01T{hour:02}:00:00Z" for hour in range(5)]
    start: dict[str, float | None] = {hours[0]: 1, hours[1]: 2, hours[3]: 3}
    put = await rest.writer.put("/v1/data/a", json=series("PT1H", start), headers=AS_SERIES)
    body = {
        "points": [{"time": hours[1], "value": 9}, {"time": hours[2], "value": None}],
        "delete": [hours[0], hours[4]],
    }
    answer = await rest.writer.patch("/v1/data/a?title=Load", json=body, headers=AS_PATCH)
    assert answer.json()["changed"]
    assert answer.json()["version"] > put.json()["version"]
    after = {hours[1]: 9, hours[2]: None, hours[3]: 3}
    assert await points(rest, "/a") == after
    again = await rest.writer.patch("/v1/data/a", json=body, headers=AS_PATCH)
    assert again.json() == answer.json() | {"changed": False}
    update = rest.store.index.changes.get(b"/a")
    assert update is not None
    assert update.value.endswith(b'{"time":"2026-01-01T03:00:00Z","value":3}]}}')
    (entry,) = (await rest.writer.get("/v1/endpoints")).json()["endpoints"]
    assert entry["title"] == "Load"


async def test_a_patch_that_does_not_fit_changes_nothing(rest: Rest) -> None:
    put = await rest.writer.put("/v1/data/a", json=series("PT1H", {HOUR: 1}), headers=AS_SERIES)
    last = await rest.writer.patch("/v1/data/a", json={"delete": [HOUR]}, headers=AS_PATCH)
    assert "DELETE removes the endpoint" in assert_problem(last, 409, "patch_refused")["detail"]
    wrong = await rest.writer.patch("/v1/data/a", json={"points": [{"time": HOUR}]}, headers=AS_PATCH)
    assert assert_problem(wrong, 422, "invalid_dataset")["errors"][0]["where"] == "$.points[0]"
    patch = {"points": [{"time": HOUR, "value": 2}]}
    old = await rest.writer.patch("/v1/data/a", json=patch, headers={**AS_PATCH, "If-Match": '"7-json"'})
    assert_problem(old, 412, "precondition_failed")
    assert rest.store.index.heads["/a"].version == put.json()["version"]
    current = {"If-Match": f'"{put.json()["version"]}-json"'}
    assert (await rest.writer.patch("/v1/data/a", json=patch, headers=AS_PATCH | current)).status_code == 200


async def test_points_of_a_patch_are_for_series_alone(rest: Rest) -> None:
    patch = {"points": [{"time": HOUR, "value": 2}]}
    assert_problem(await rest.writer.patch("/v1/data/a", json=patch, headers=AS_PATCH), 404, "unknown_endpoint")
    assert (await rest.writer.put("/v1/data/a", json={"home": 1})).status_code == 200
    wrong = await rest.writer.patch("/v1/data/a", json=patch, headers=AS_PATCH)
    assert "is of the kind document" in assert_problem(wrong, 415, "unpatchable")["detail"]
    merge = {"Content-Type": "application/merge-patch+json"}
    await rest.writer.put("/v1/data/b", json=series("PT1H", {HOUR: 1}), headers=AS_SERIES)
    assert (
        POINTS_PATCH
        in assert_problem(await rest.writer.patch("/v1/data/b", json={}, headers=merge), 415, "unpatchable")["detail"]
    )


@pytest.mark.parametrize("media_type", [POINTS_PATCH, "application/merge-patch+json", "application/json-patch+json"])
async def test_the_body_of_a_patch_is_no_content(rest: Rest, media_type: str) -> None:
    answer = await rest.writer.put("/v1/data/a", content=b"{}", headers={"Content-Type": media_type})
    assert "is the body of a PATCH" in assert_problem(answer, 415, "unsupported_media_type")["detail"]


async def test_a_patch_may_not_make_a_series_too_large(rest: Rest) -> None:
    body = series("PT1M", dict.fromkeys(spaced("2026-01-01T00:00Z", 60, 1000), 1))
    assert (await rest.writer.put("/v1/data/a", json=body, headers=AS_SERIES)).status_code == 200
    more = series("PT1M", dict.fromkeys(spaced("2026-01-02T00:00Z", 60, 1000), 1))
    answer = await rest.writer.patch("/v1/data/a", json={"points": more["points"]}, headers=AS_PATCH)
    assert "/a would have" in assert_problem(answer, 413, "too_large")["detail"]
    assert len(await points(rest, "/a")) == 1000


async def test_a_large_series_becomes_csv_in_a_thread_once_for_all_readers(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []

    def noted(*arguments: Any) -> Rendered:
        threads.append(threading.get_ident())
        return render(*arguments)

    monkeypatch.setattr(reads_api, "render", noted)
    monkeypatch.setattr(large, "LARGE_BYTES", 0)
    monkeypatch.setattr(reads_api, "LARGE_BYTES", 0)
    body = series("PT1H", {HOUR: 1})
    assert (await rest.writer.put("/v1/data/a", json=body, headers=AS_SERIES)).status_code == 200
    reads = DataReads(rest.store, rest.clock, Cors(), public=False)
    json, csv = (reads.select("/a", None, accept, None) for accept in (None, "text/csv"))
    assert json is not None
    assert csv is not None
    await reads.find(json)
    assert reads.in_memory(json) is not None
    assert reads.in_memory(csv) is None, "the store has it in memory, but not as CSV"
    one, other = await asyncio.gather(reads.find(csv), reads.find(csv))
    assert reads.in_memory(csv) == one == other
    here = threading.get_ident()
    assert [each == here for each in threads] == [True, False]
