"""Series over HTTP: zones of the calendar."""

from typing import Any

from services.data.kinds import SERIES
from tests.unit.services.data.conftest import Rest, assert_problem

AS_SERIES = {"Content-Type": SERIES}
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
