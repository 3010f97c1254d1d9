"""Points from JSON: checked one by one, in canonical form."""

from collections.abc import Callable
from typing import Any, NoReturn

from services.data.datasets.form import number, order_fault
from services.data.datasets.instants import Instant, Resolution, parse_instant
from services.data.datasets.units import Conversion
from services.data.datasets.zones import LocalDays
from services.data.errors import InvalidDataset


def points_of(
    raw: object,
    step: Resolution,
    where: str,
    *,
    read: Callable[[str, int, int], Instant] | None = None,
    convert: Conversion | None = None,
    days: LocalDays | None = None,
) -> list[dict[str, Any]]:
    """Check an array of points and return it in canonical form.

    Args:
        raw: what is said to be an array of points.
        step: their resolution.
        where: the JSON path of ``raw``.
        read: reads a time that follows another one; without it, times are in UTC.
        convert: converts each value.
        days: checks the times instead of the grid of the resolution.

    Raises:
        InvalidDataset: it is none; names the first point that is wrong.
    """
    if type(raw) is not list or not raw:
        raise InvalidDataset("expected an array of at least one point", where)
    grid = step.seconds
    modulus = grid if days is None else 1
    previous = -1
    points: list[dict[str, Any]] = []
    for index, point in enumerate(raw):
        try:
            value = point["value"]
            time = point["time"]
            seconds, text = parse_instant(time) if read is None else read(time, previous, grid)
            if len(point) != 2:
                raise ValueError("a point has the fields time and value and no other")
            if days is not None:
                days.check(Instant(seconds, text))
            if seconds <= previous or seconds % modulus:
                raise ValueError(f"{text} {order_fault(seconds, previous, step)}")
            previous = seconds
            value = None if value is None else number(value)
            if convert is not None and value is not None:
                value = number(convert(value))
            points.append({"time": text, "value": value})
        except (KeyError, TypeError):
            _explain_point(point, f"{where}[{index}]")
        except ValueError as error:
            raise InvalidDataset(str(error), f"{where}[{index}]") from None
    return points


def _explain_point(point: object, where: str) -> NoReturn:
    if type(point) is not dict or not point.keys() >= {"time", "value"}:
        raise InvalidDataset('a point is an object with "time" and "value"', where)
    raise InvalidDataset("a time is a string like 2026-01-01T00:00:00Z", f"{where}.time")
