"""The kind ``series`` for requests and answers."""

from functools import lru_cache
from typing import Any, Final

import orjson

from diem.protocol.media_types import CSV, SERIES
from services.data.errors import InvalidDataset, WrongUnit
from services.data.kinds.kind import Body, Format, Kind, Stored, envelope
from services.data.kinds.representation import labels_of
from services.data.kinds.series.csv_form import parse_csv, render_csv, rows_to_datasets
from services.data.kinds.series.form import Dataset, check_description
from services.data.kinds.series.json_form import parse_single

JSON: Final = "application/json"


class Series(Kind):
    """Points with a unit and a resolution, as JSON or CSV."""

    name = "series"
    formats = (
        Format("json", SERIES, (JSON, SERIES)),
        Format("csv", "text/csv; charset=utf-8; header=present", (CSV,)),
    )

    def parse(self, endpoint: str, body: Body) -> Dataset:
        """Parse JSON or, by the media type, CSV; the query may describe the endpoint."""
        parse = _from_csv if body.media_type == CSV else _from_json
        dataset = parse(endpoint, body)
        title, area, quantity = (body.fields.get(name, "") for name in ("title", "area", "quantity"))
        if not (title or area or quantity):
            return dataset
        try:
            check_description(dataset.unit, title=title, area=area, quantity=quantity)
        except ValueError as error:
            raise InvalidDataset(str(error)) from None
        return dataset.described(title=title, area=area, quantity=quantity)

    def check_successor(self, endpoint: str, stored: str, new: str) -> None:
        """Refuse another unit or resolution."""
        if fault := _difference(stored, new):
            raise WrongUnit(fault, endpoint)

    def render(self, endpoint: str, stored: Stored, suffix: str) -> bytes:
        """Render the dataset as JSON with its version, or as CSV."""
        if suffix == "csv":
            return render_csv(stored.content)
        return envelope(endpoint, stored)

    def inline(self, endpoint: str, stored: Stored) -> bytes | None:
        """Return the JSON of an answer."""
        return envelope(endpoint, stored)

    def describe(self, content: bytes) -> dict[str, Any]:
        """Return the number of points."""
        return {"points": content.count(b'{"time":')}

    def revised(self, new: bytes, old: bytes) -> int | None:
        """Return the number of times that both have, with different values."""
        before = _values(old)
        return sum(1 for time, value in _values(new).items() if time in before and before[time] != value)


def _from_json(endpoint: str, body: Body) -> Dataset:
    return parse_single(endpoint, body.content, _zone(body))


def _zone(body: Body) -> str:
    """Return the zone of times without an offset and of days: that of the query, else the stored one; empty: none."""
    stored = labels_of(body.labels).get("zone", "")
    return body.fields.get("zone", "") or ("" if stored == "UTC" else stored)


def _from_csv(endpoint: str, body: Body) -> Dataset:
    known = labels_of(body.labels)
    (dataset,) = rows_to_datasets(
        parse_csv(body.content),
        endpoint=endpoint,
        unit_=body.fields.get("unit") or known.get("unit"),
        resolution=body.fields.get("resolution") or known.get("resolution"),
        zone=_zone(body),
    )
    return dataset


@lru_cache(maxsize=4096)
def _difference(stored: str, new: str) -> str:
    before, after = labels_of(stored), labels_of(new)
    for name in ("unit", "resolution"):
        if before.get(name) != after.get(name):
            return f"wrong {name} {after.get(name)}: it has {before.get(name)}"
    return ""


def _values(content: bytes) -> dict[str, Any]:
    return {point["time"]: point["value"] for point in orjson.loads(content)["points"]} if content else {}
