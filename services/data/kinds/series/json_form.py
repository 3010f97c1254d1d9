"""Parses datasets from JSON."""

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import chain
from typing import Any, Final, NoReturn

from diem.protocol import endpoints
from services.data.errors import InvalidDataset, WrongUnit
from services.data.kinds.json_text import load, refuse_repeated_keys
from services.data.kinds.series.form import (
    MAX_MAGNITUDE,
    Dataset,
    Declared,
    EndpointDeclaration,
    clock_of,
    number,
    seal,
)
from services.data.kinds.series.times import LocalClock, Resolution, TimeReader, parse_resolution
from services.data.kinds.series.units import Conversion, unit


def points_of(raw: object, times: TimeReader, where: str, convert: Conversion | None = None) -> list[dict[str, Any]]:
    """Check an array of points and return it in canonical form.

    Args:
        raw: the value that should be an array of points.
        times: reader of their times.
        where: the JSON path of ``raw``.
        convert: converts each value.

    Raises:
        InvalidDataset: the error names the first invalid point.
    """
    if type(raw) is not list or not raw:
        raise InvalidDataset("expected an array of at least one point", where)
    if convert is None and times.plain is not None and _make_canonical(raw, times.plain):
        return raw
    read = times.read
    points: list[dict[str, Any]] = []
    for index, point in enumerate(raw):
        try:
            value = point["value"]
            time = read(point["time"])
            if len(point) != 2:
                raise ValueError("a point has the fields time and value and no other")
            value = None if value is None else number(value)
            if convert is not None and value is not None:
                value = number(convert(value))
            points.append({"time": time, "value": value})
        except (KeyError, TypeError):
            _explain_point(point, f"{where}[{index}]")
        except ValueError as error:
            raise InvalidDataset(str(error), f"{where}[{index}]") from None
    return points


_POINT: Final = ("time", "value")
STRINGS_OF_POINT: Final = len(_POINT) + 1
"""Names of its fields, and its time."""
_NUMBERS: Final = frozenset({int, float, type(None)})
MAX_SHARED: Final = 400
"""Maximum number of points whose times are remembered: four days by the quarter hour."""


def _make_canonical(points: list[Any], step: Resolution) -> bool:
    """Bring points into canonical form, without a turn of the interpreter for each; return whether they are valid.

    False for all that needs a closer look: long series, other fields or their order, other notations of times, faults.
    """
    if len(points) > MAX_SHARED:
        return False
    try:
        plain = [*chain.from_iterable(points)] == [*_POINT] * len(points)
        times, values = [point["time"] for point in points], [point["value"] for point in points]
        if not plain:
            return False
        _check_canonical(tuple(times), step)
    except (KeyError, TypeError, ValueError):
        return False
    types = {*map(type, values)}
    if types != {float}:
        given = [value for value in values if value is not None]
        floats = [value for value in given if type(value) is float]
    else:
        given = floats = values
    if not types <= _NUMBERS or (given and not -MAX_MAGNITUDE < min(given) <= max(given) < MAX_MAGNITUDE):
        return False
    if any(map(float.is_integer, floats)):
        for point, value in zip(points, values, strict=True):
            if type(value) is float and value.is_integer():
                point["value"] = int(value)
    return True


@lru_cache(256)
def _check_canonical(times: tuple[str, ...], step: Resolution) -> None:
    """Check times of plain points, which series written together share; others are not remembered, of any length.

    Raises:
        ValueError: they are not canonical, do not ascend, or are not on the grid.
    """
    reader = TimeReader(step)
    if any(reader.read(time) != time for time in times):
        raise ValueError


def _explain_point(point: object, where: str) -> NoReturn:
    if type(point) is not dict or not point.keys() >= {"time", "value"}:
        raise InvalidDataset('a point is an object with "time" and "value"', where)
    raise InvalidDataset("a time is a string like 2026-01-01T00:00:00Z", f"{where}.time")


_SINGLE: Final = frozenset({"unit", "resolution", "points"})
_IN_BULK: Final = _SINGLE | {"endpoint"}
_STRINGS: Final = len(_SINGLE) + 2
"""Names of fields, unit and resolution; in bulk, the endpoint and its name, too."""


def parse_single(endpoint: str, body: bytes, zone: str = "") -> Dataset:
    """Parse the body of a PUT to one endpoint: ``{"unit", "resolution", "points"}``.

    ``zone``: of times without an offset and of days; empty: every time has one, and days are those of UTC.

    Raises:
        MalformedBody, InvalidDataset: the body is refused as a whole.
    """
    dataset = _dataset(endpoint, load(body), _SINGLE, "$", clock_of(zone))
    refuse_repeated_keys(body, _STRINGS + STRINGS_OF_POINT * dataset.content.count(b'{"time":'))
    return dataset


def parse_bulk(body: bytes, raw: dict[str, Any], *, unique: bool = False) -> list[Dataset]:
    """Parse ``{"datasets": [{"endpoint", "unit", "resolution", "points"}, ...]}``.

    Args:
        body: the JSON.
        raw: the same, parsed; other fields are ignored.
        unique: no field is repeated.

    Raises:
        InvalidDataset: the body is refused as a whole.
    """
    datasets = [_dataset(endpoint, item, _IN_BULK, where) for where, endpoint, item in _named(raw["datasets"])]
    if not unique:
        points = sum(len(item["points"]) for item in raw["datasets"])
        refuse_repeated_keys(body, 1 + (_STRINGS + 2) * len(datasets) + STRINGS_OF_POINT * points)
    return datasets


def parse_source(
    body: bytes, *, endpoint: str | None, unit_: str | None, resolution: str | None, title: str = ""
) -> list[Dataset]:
    """Parse JSON of a source, completed by its configuration.

    For one endpoint: ``{"points": [...]}`` or the array of points alone. For several (``endpoint`` None):
    ``{"datasets": [{"endpoint", "points"}, ...]}``. ``unit`` and ``resolution`` may be given beside the points, and
    must then agree with the configuration. Other fields are ignored.

    Raises:
        MalformedBody, InvalidDataset, DatasetTooLarge: the body is refused as a whole.
    """
    return read_json(body, Declared(endpoint, EndpointDeclaration(unit_, resolution, title)))


def read_json(body: bytes, declared: Declared) -> list[Dataset]:
    """Parse like :func:`parse_source`, completed by all declarations of a configuration."""
    raw = load(body)
    if declared.endpoint is not None:
        item = {"points": raw} if type(raw) is list else raw
        return [_completed(declared.endpoint, item, declared, "$")]
    if type(raw) is not dict or type(raw.get("datasets")) is not list or not raw["datasets"]:
        raise InvalidDataset('expected an object with "datasets", an array', "$")
    return [_completed(name, item, declared, where) for where, name, item in _named(raw["datasets"])]


def _completed(endpoint: str, raw: object, declared: Declared, where: str) -> Dataset:
    if type(raw) is not dict or "points" not in raw:
        raise InvalidDataset('expected an object with "points"', where)
    known = declared.of(endpoint)
    stated = _stated(raw, "unit", known.unit, where)
    resolution = _stated(raw, "resolution", known.resolution, where)
    field = "unit"
    try:
        convert = declared.conversion(unit(stated), known.quantity)
        field = "resolution"
        step = parse_resolution(resolution)
    except ValueError as error:
        raise InvalidDataset(str(error), f"{where}.{field}") from None
    times = declared.times(step)
    points = points_of(raw["points"], times, f"{where}.points", convert if convert.changes else None)
    return declared.seal(endpoint, convert.unit, step, points, times.zone)


def _stated(raw: dict[str, Any], field: str, expected: str | None, where: str) -> str:
    given = raw.get(field, expected)
    if given is None:
        raise InvalidDataset(f"neither the data nor the configuration says the {field}", where)
    if type(given) is not str:
        raise InvalidDataset(f"the {field} is a text", f"{where}.{field}")
    if expected is not None and given != expected and not _same(field, given, expected):
        raise WrongUnit(f"the {field} is {expected}, not {given[:20]!r}", f"{where}.{field}")
    return given


def _same(field: str, given: str, expected: str) -> bool:
    """Return whether two notations are of the same unit or resolution: PT60M is PT1H."""
    canonical: Callable[[str], object] = unit if field == "unit" else parse_resolution
    try:
        return canonical(given) == canonical(expected)
    except ValueError:
        return False


def _dataset(
    endpoint: str, raw: object, fields: frozenset[str], where: str, clock: LocalClock | None = None
) -> Dataset:
    if type(raw) is not dict:
        raise InvalidDataset("a dataset is an object", where)
    if raw.keys() != fields:
        missing = sorted(fields - raw.keys())
        fault = f"missing {', '.join(missing)}" if missing else f"unknown field {min(raw.keys() - fields)[:40]!r}"
        raise InvalidDataset(fault, where)
    field = "unit"
    try:
        unit_ = unit(raw["unit"])
        field = "resolution"
        step = parse_resolution(str(raw["resolution"]))
    except ValueError as error:
        raise InvalidDataset(str(error), f"{where}.{field}") from None
    times = TimeReader(step, clock)
    points = points_of(raw["points"], times, f"{where}.points")
    return seal(endpoint, unit_, step, points, times.zone)


def _named(items: list[Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield JSON path, endpoint and item; lazily, so that the body's first fault is reported."""
    seen: set[str] = set()
    for index, item in enumerate(items):
        where = f"$.datasets[{index}]"
        endpoint = _endpoint(item, where)
        if endpoint in seen:
            raise InvalidDataset(f"{endpoint} appears twice", f"{where}.endpoint")
        seen.add(endpoint)
        yield where, endpoint, item


def _endpoint(raw: object, where: str) -> str:
    name = raw.get("endpoint") if type(raw) is dict else None
    if not isinstance(name, str):
        raise InvalidDataset('a dataset is an object with an "endpoint"', where)
    try:
        return endpoints.check_written(name)
    except endpoints.BadName as error:
        raise InvalidDataset(str(error), f"{where}.endpoint") from None
