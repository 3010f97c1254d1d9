"""The kind ``series`` for requests and answers."""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

import orjson

from diem.protocol.media_types import CSV, POINTS_PATCH, SERIES
from services.data.errors import InvalidDataset, WrongUnit
from services.data.kinds.kind import Body, DataKind, Format, Stored, envelope
from services.data.kinds.representation import labels_of
from services.data.kinds.series import points_patch
from services.data.kinds.series.csv_form import parse_csv, render_csv, rows_to_datasets
from services.data.kinds.series.form import Dataset, check_description, clock_of, seal_content
from services.data.kinds.series.json_form import parse_single
from services.data.kinds.series.times import IRREGULAR, Resolution, TimeReader, parse_resolution

JSON: Final = "application/json"


class SeriesKind(DataKind):
    """Points with a unit and a resolution, as JSON or CSV."""

    name = "series"
    formats = (
        Format("json", SERIES, (JSON, SERIES)),
        Format("csv", "text/csv; charset=utf-8; header=present", (CSV,), is_converted=True),
    )
    patches = frozenset({POINTS_PATCH})

    def parse(self, endpoint: str, body: Body) -> Dataset:
        """Parse JSON or, by the media type, CSV; the query may describe the endpoint."""
        parse = _from_csv if body.media_type == CSV else _from_json
        return self._described(parse(endpoint, body), body)

    def patch(self, endpoint: str, stored: Stored, body: Body) -> Dataset:
        """Insert, replace and delete points: the bytes of all others are copied, not parsed."""
        labels = labels_of(body.labels)
        step = parse_resolution(labels["resolution"])
        zone = _zone_of_patch(stored, step, labels, body.fields.get("zone", ""))
        points, deleted, earliest = (
            TimeReader(each, clock_of(zone), or_utc=False) for each in (step, step, parse_resolution(IRREGULAR))
        )
        patch = points_patch.parse(body.content, points, deleted, earliest)
        made = points_patch.splice(stored.content, patch.of(stored.content))
        dataset = seal_content(endpoint, made.content, labels["unit"], step, points.zone)
        return replace(self._described(dataset, body), undo=points_patch.pack(made.undo))

    def undo(self, content: bytes, undo: bytes) -> bytes:
        """Return the content before a patch."""
        return points_patch.splice(content, points_patch.unpack(undo)).content

    def _described(self, dataset: Dataset, body: Body) -> Dataset:
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


def _zone_of_patch(stored: Stored, step: Resolution, labels: Mapping[str, str], given: str) -> str:
    """Return the zone of the times of a patch; empty: all have an offset, and days are those of UTC."""
    known = labels.get("zone", "")
    if not step.is_calendar:
        return given
    if not known:
        # Stored by an earlier release.
        known = given or "UTC"
        try:
            TimeReader(step, clock_of(known), or_utc=False).read(points_patch.first_time(stored.content))
        except ValueError:
            raise InvalidDataset(f"its days do not begin in {known}: give their zone as ?zone=", "zone") from None
    if given and given != known:
        raise InvalidDataset(f"its days begin in {known}, not in {given[:40]}", "zone")
    return given if known == "UTC" else known


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
