"""Inserts, replaces and deletes points in the canonical bytes of a series, without parsing these."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import orjson

from services.data.errors import InvalidDataset, PatchRefused
from services.data.kinds.json_text import load, refuse_repeated_keys
from services.data.kinds.series.form import END, POINTS
from services.data.kinds.series.json_form import STRINGS_OF_POINT, points_of
from services.data.kinds.series.times import TimeReader

_BEFORE: Final = len('{"time":"')
_WIDTH: Final = len("2026-01-01T00:00:00Z")
"""Width of every time, so that they sort as bytes."""

_EARLIEST: Final = b"0"
"""Sorts before every time."""
Change = tuple[bytes, bytes | None]
"""Canonical time of a point, and the point; None: it is deleted."""


class Parsed(NamedTuple):
    """A patch: changes in order of time, and the time before which no point stays; empty: all stay."""

    changes: list[Change]
    keep_from: bytes

    def of(self, content: bytes) -> list[Change]:
        """Return the changes of a content, with the deletions of its points before :attr:`keep_from`."""
        if not self.keep_from:
            return self.changes
        gone = dict.fromkeys(times_between(content, _EARLIEST, self.keep_from))
        gone.pop(self.keep_from, None)
        kept = {time: point for time, point in self.changes if time >= self.keep_from}
        return sorted((kept | gone).items())


def parse(body: bytes, times: TimeReader, deleted: TimeReader, earliest: TimeReader) -> Parsed:
    """Parse ``{"points": [{"time", "value"}, ...], "delete": [time, ...], "keep_from": time}``; each may be missing.

    ``times``, ``deleted`` and ``earliest`` read the times of the three.

    Raises:
        MalformedBody, InvalidDataset: the patch is refused as a whole.
    """
    raw = load(body)
    if type(raw) is not dict or not raw or not raw.keys() <= {"points", "delete", "keep_from"}:
        raise InvalidDataset('expected an object with "points", "delete" or "keep_from", and nothing else', "$")
    points = points_of(raw["points"], times, "$.points") if "points" in raw else []
    gone = _times_of(raw["delete"], deleted, "$.delete") if "delete" in raw else []
    keep_from = _time_of(raw["keep_from"], earliest, "$.keep_from") if "keep_from" in raw else b""
    strings = len(raw) + len(gone) + bool(keep_from)
    refuse_repeated_keys(body, strings + STRINGS_OF_POINT * len(points))
    changes: dict[bytes, bytes | None] = {point["time"].encode(): orjson.dumps(point) for point in points}
    for index, time in enumerate(gone):
        if time in changes:
            raise InvalidDataset(f"{time.decode()} is in points, too", f"$.delete[{index}]")
    changes |= dict.fromkeys(gone)
    return Parsed(sorted(changes.items()), keep_from)


def _times_of(raw: Any, times: TimeReader, where: str) -> list[bytes]:  # noqa: ANN401  # any JSON value
    if type(raw) is not list or not raw:
        raise InvalidDataset("expected an array of at least one time", where)
    return [_time_of(time, times, f"{where}[{index}]") for index, time in enumerate(raw)]


def _time_of(raw: Any, times: TimeReader, where: str) -> bytes:  # noqa: ANN401
    try:
        return times.read(raw).encode()
    except TypeError:
        raise InvalidDataset("a time is a string like 2026-01-01T00:00:00Z", where) from None
    except ValueError as error:
        raise InvalidDataset(str(error), where) from None


class Spliced(NamedTuple):
    """A changed content, and the changes that undo this."""

    content: bytes
    undo: list[Change]


def splice(content: bytes, changes: Sequence[Change]) -> Spliced:
    """Apply all changes; deleted points that the content does not have are ignored.

    Args:
        content: of a series, in canonical form.
        changes: in order of time, each time once.

    Raises:
        PatchRefused: no point would be left.
    """
    at = start = content.index(POINTS) + len(POINTS)
    end = len(content) - len(END)
    view = memoryview(content)
    pieces: list[bytes | memoryview] = []
    undo: list[Change] = []

    def until(stop: int) -> int:
        """Return where the points before ``stop`` end, without the comma between."""
        return stop - 1 if stop < end else end

    for time, point in changes:
        found = _find(content, time, at, end)
        if found > at:
            pieces.append(view[at : until(found)])
        if point is not None:
            pieces.append(point)
        at = found
        if found < end and _time_at(content, found) == time:
            at = _after(content, found, end)
            undo.append((time, content[found : until(at)]))
        elif point is not None:
            undo.append((time, None))
    if at < end:
        pieces.append(view[at:end])
    if not pieces:
        raise PatchRefused(
            "no point would be left: a series has at least one, and DELETE removes the endpoint", "$.delete"
        )
    # One copy of a large content.
    parts = [part for piece in pieces for part in (b",", piece)]
    return Spliced(b"".join((view[:start], *parts[1:], END)), undo)


def pack(changes: Iterable[Change]) -> bytes:
    """Return changes as bytes, one a line."""
    return b"\n".join(time + (point or b"") for time, point in changes)


def unpack(text: bytes) -> list[Change]:
    """Return the changes of :func:`pack`."""
    return [(line[:_WIDTH], line[_WIDTH:] or None) for line in text.split(b"\n")]


def first_time(content: bytes) -> str:
    """Return the time of the first point."""
    start = content.index(POINTS) + len(POINTS)
    return _time_at(content, start).decode()


def changes_of(content: bytes) -> list[Change]:
    """Return the changes that insert all points of a content."""
    return [(point["time"].encode(), orjson.dumps(point)) for point in orjson.loads(content)["points"]]


def times_between(content: bytes, first: bytes, last: bytes) -> list[bytes]:
    """Return the times of the points from ``first`` to ``last``, both included."""
    start, end = content.index(POINTS) + len(POINTS), len(content) - len(END)
    at = _find(content, first, start, end)
    found: list[bytes] = []
    while at < end and (time := _time_at(content, at)) <= last:
        found.append(time)
        at = _after(content, at, end)
    return found


def _time_at(content: bytes, point: int) -> bytes:
    return content[point + _BEFORE : point + _BEFORE + _WIDTH]


def _find(content: bytes, time: bytes, low: int, high: int) -> int:
    """Return where the first point at or after a time begins, between the beginnings (or end) ``low`` and ``high``."""
    end = high
    while low < high:
        # Braces are in a point only at its ends.
        middle = content.rfind(b"{", low, (low + high) // 2 + 1)
        if _time_at(content, middle) < time:
            low = _after(content, middle, end)
        else:
            high = middle
    return low


def _after(content: bytes, point: int, end: int) -> int:
    """Return where the next point begins; ``end`` after the last one."""
    found = content.find(b"{", point + 1, end)
    return end if found < 0 else found
