"""A record as a change of an endpoint. Pure."""

import re
from typing import Any, Final, NamedTuple

import orjson

from diem.protocol import endpoints
from diem.protocol.media_types import DOCUMENT, NOTICE, POINTS_PATCH
from services.data.errors import InvalidDataset
from services.data.files.instants import CellTimes
from services.data.files.mapping import Mapping
from services.data.kinds import Body, Representation, kind_of, seal
from services.data.kinds.json_text import check_bounds, written
from services.data.kinds.prefixes import Prefixes
from services.data.kinds.series.form import Dataset, Point, build, number
from services.data.kinds.series.times import IRREGULAR, Instant, TimeReader, iso_seconds, parse_resolution
from services.data.limits import DATASET_BYTES
from services.data.sources.records.envelopes import ENVELOPES
from services.data.sources.records.record import MISSING, Getter, Record, getter, text_of
from services.data.sources.records.table import FIELD, RecordTable
from services.data.store import Change, Deletion, Patch

_FRACTION: Final = re.compile(r"(:\d\d)[.,]\d+")


class SeriesPoint(NamedTuple):
    """A point of a series."""

    endpoint: str
    point: Point


class RecordConverter:
    """Makes changes of the records of one source.

    Args:
        table: the source's.
        prefixes: rules by prefix.
        max_bytes: largest content of an endpoint.
    """

    def __init__(self, table: RecordTable, prefixes: Prefixes | None = None, max_bytes: int = DATASET_BYTES) -> None:
        self._table = table
        self._prefixes = prefixes or Prefixes()
        self._max_bytes = max_bytes
        self._open = ENVELOPES[table.envelope]
        self._parts = FIELD.split(table.endpoint)
        """Fixed texts, and paths between them."""
        self._getters = [(path, getter(path)) for path in self._parts[1::2]]
        self._where = [(getter(path), texts) for path, texts in table.wanted().items()]
        self._gone = [(getter(path), texts) for path, texts in table.ending().items()]
        self._value: Getter | None = None if table.value is None else getter(table.value)
        self._time: Getter | None = None if table.time is None else getter(table.time)
        self._step = parse_resolution(table.resolution or IRREGULAR)
        self._times = CellTimes(Mapping(time_format=table.time_format), table.zone)

    def convert(self, record: Record) -> Change | SeriesPoint | None:
        """Return the change that a record makes; None if it makes none.

        Raises:
            DataError: it cannot be stored.
        """
        if record.fault is not None:
            raise record.fault
        opened = self._open(record)
        if opened is None or not all(_is_one_of(get(opened), texts) for get, texts in self._where):
            return None
        endpoint = self.endpoint_of(opened)
        ends = self._gone and all(_is_one_of(get(opened), texts) for get, texts in self._gone)
        if ends or opened.value is MISSING:
            return Deletion(endpoint, missing_ok=True)
        if self._table.kind == "series":
            return SeriesPoint(endpoint, self._point_of(endpoint, opened))
        return self._content_of(endpoint, opened)

    def endpoint_of(self, record: Record) -> str:
        """Return the name of a record's endpoint; raises InvalidDataset."""
        parts = self._parts[:]
        for index, (path, get) in enumerate(self._getters):
            text = text_of(get(record), f"{{{path}}}")
            # Only the last name may have several segments: otherwise two records could have one name.
            if "/" in text and (index < len(self._getters) - 1 or parts[-1]):
                raise InvalidDataset(f"{{{path}}} has a slash: {text[:60]!r}")
            parts[2 * index + 1] = text
        try:
            return endpoints.check_written("".join(parts))
        except endpoints.BadName as error:
            raise InvalidDataset(f"{error} (key: endpoint)") from None

    def _content_of(self, endpoint: str, record: Record) -> Representation:
        table, rules = self._table, self._prefixes.of(endpoint)
        if table.kind == "notice":
            body = Body(b"", NOTICE, {"title": table.title, "url": rules.url_of(endpoint)})
            made = kind_of(NOTICE).parse(endpoint, body)
        else:
            value = record.value if self._value is None else self._value(record)
            if value is MISSING:
                raise InvalidDataset(f"{table.value} is missing (key: value)")
            if table.kind == "bytes":
                made = kind_of(table.media_type).parse(endpoint, Body(_bytes_of(value), table.media_type))
            else:
                raw = record.raw if self._value is None else None
                made = seal(endpoint, DOCUMENT, _json_of(value) if raw is None else written(value, raw))
            made.title = table.title
        made.check_size(self._max_bytes)
        rules.check(made)
        return made.expiring(table.ttl * 1000 or rules.ttl_ms)

    def _point_of(self, endpoint: str, record: Record) -> Point:
        if self._prefixes.of(endpoint).kind not in {"", "series"}:
            raise InvalidDataset(f"[[prefix]] declares another kind for {endpoint} (key: kind)")
        value = record.value if self._value is None else self._value(record)
        if value is MISSING or (value is not None and type(value) not in {int, float, str}):
            raise InvalidDataset(f"{self._table.value or 'its value'} is no number (key: value)")
        try:
            if type(value) is str:
                value = float(value)
            seconds = self._seconds_of(record)
            TimeReader(self._step, self._times.clock).check(Instant(seconds, iso_seconds(seconds)))
            return Point(seconds, None if value is None else number(value))
        except ValueError as error:
            raise InvalidDataset(str(error)) from None

    def _seconds_of(self, record: Record) -> int:
        """Return the time of a point, rounded down to a second; raises ValueError."""
        if self._time is None:
            if not record.time_ms:
                raise ValueError("the record has no time (key: time)")
            return record.time_ms // 1000
        given = self._time(record)
        if given is MISSING or isinstance(given, dict | list | bool) or given is None:
            raise ValueError(f"{self._table.time} is no time (key: time)")
        if self._table.time_format == "epoch_ms" and isinstance(given, int | float):
            given = given // 1000 * 1000
        elif self._table.time_format == "epoch" and isinstance(given, float):
            given = int(given)
        elif isinstance(given, str):
            given = _FRACTION.sub(r"\1", given)
        found = self._times.instant(given)
        if not isinstance(found, int):
            raise ValueError(f"clocks show {given} twice or never: times need an offset (key: zone)")  # noqa: TRY004
        return found

    def series_change(self, endpoint: str, points: dict[int, Point]) -> Patch:
        """Return the insertion of points, by their seconds."""
        table = self._table
        in_order = [points[at] for at in sorted(points)]
        initial: Dataset = build(
            endpoint, str(table.unit), str(table.resolution), in_order, table.title, zone=table.zone
        )
        patch: dict[str, Any] = {
            "points": [{"time": iso_seconds(at), "value": value} for at, value in in_order],
        }
        if table.keep:
            patch["keep_from"] = iso_seconds(max(0, in_order[-1].seconds - table.keep))
        zone = {} if table.zone == "UTC" else {"zone": table.zone}
        body = Body(orjson.dumps(patch), POINTS_PATCH, zone)
        ttl_ms = table.ttl * 1000 or self._prefixes.of(endpoint).ttl_ms
        return Patch(endpoint, body, self._max_bytes, ttl_ms, initial=initial.expiring(ttl_ms))


def _is_one_of(value: object, texts: frozenset[str]) -> bool:
    if value is None or value is MISSING:
        return "" in texts
    return not isinstance(value, dict | list | bytes) and text_of(value, "where") in texts


def _bytes_of(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else orjson.dumps(value)


def _json_of(value: object) -> bytes:
    try:
        made = orjson.dumps(value)
    except (orjson.JSONEncodeError, TypeError) as error:
        raise InvalidDataset(f"it is no document: {error} (key: kind)") from None
    check_bounds(made)
    return made
