"""Cells as instants: formats of times, local times of a zone, intervals and periods, a column at a time."""

from collections.abc import Mapping as Parts
from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from typing import Final

from services.data.files.grid import Cell, cell_text
from services.data.files.mapping import Mapping
from services.data.files.numbers import BadCell
from services.data.files.time_formats import EPOCHS, ISO, compile_format, wall_of
from services.data.kinds.series.times import DAY_S, LocalClock

Time = int | datetime
"""Unix seconds; or a local time that its zone's clocks show twice or never, without an offset."""
MAX_KNOWN: Final = 200_000
"""Maximum number of remembered texts; then all are forgotten."""
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()


class CellTimes:
    """Reads columns of times by a mapping; times without an offset are local times of a zone.

    ``lag_s`` is the time in seconds that they are behind the instants of their points: of ends, the length of a period.
    Equal texts are parsed once: files repeat their times, for every series or column.
    """

    def __init__(self, mapping: Mapping, zone: str, lag_s: int = 0) -> None:
        self._lag_s = lag_s
        self.clock = LocalClock(zone)
        self._format = mapping.time_format
        self._scale = EPOCHS.get(mapping.time_format, 0)
        self._pattern = ISO if not mapping.time_format else None
        if self._pattern is None and not self._scale:
            self._pattern = compile_format(mapping.time_format)
        self._interval = mapping.interval
        self._offsets: dict[int, int | None] = {}
        self._known: dict[Cell, Time] = {}

    def read(self, columns: Sequence[Sequence[Cell]]) -> list[Time]:
        """Return the instants of rows; ``columns`` are joined by a blank. Raises :class:`BadCell`."""
        if len(columns) == 1:
            cells: Sequence[Cell] = columns[0]
        else:
            cells = [" ".join(cell_text(part) for part in parts) for parts in zip(*columns, strict=True)]
        known = self._known
        if len(known) > MAX_KNOWN:
            known.clear()
        for cell in {*cells} - known.keys():
            try:
                known[cell] = self.instant(cell)
            except (ValueError, OverflowError) as error:
                raise BadCell(cells.index(cell), str(error)) from None
        return [known[cell] for cell in cells]

    def instant(self, cell: Cell) -> Time:
        """Return the instant of a cell. Raises ValueError."""
        text = cell_text(cell)
        if self._interval is not None:
            first, mark, _ = text.partition(self._interval)
            if not mark:
                raise ValueError(f"{text[:40]!r} has no {self._interval!r} (key: interval)")
            text = first.strip()
        if self._pattern is None:
            return self._epoch(text)
        match = self._pattern.fullmatch(text)
        if match is None:
            raise ValueError(self._explain(text, cell))
        return self._wall(match.groupdict(), text)

    def _epoch(self, text: str) -> int:
        try:
            value = int(text) if text.lstrip("-").isdecimal() else float(text)
        except ValueError:
            raise ValueError(f"{text[:40]!r} is not a number (key: time_format)") from None
        seconds, rest = divmod(value, self._scale)
        if rest or not 0 <= seconds < 7_258_118_400:
            unit = "milliseconds" if self._scale > 1 else "seconds"
            raise ValueError(f"{text[:40]!r} are not whole seconds of 1970 to 2199 in {unit} (key: time_format)")
        return int(seconds) - self._lag_s

    def _explain(self, text: str, cell: Cell) -> str:
        if not text:
            return "the time is empty (key: where or gaps leaves rows out, or time)"
        if self._format:
            return f"{text[:40]!r} is not like {self._format!r} (key: time_format)"
        hint = "'epoch' or 'epoch_ms'" if not isinstance(cell, str) or text.isdecimal() else "as '%d.%m.%Y %H:%M'"
        return f"{text[:40]!r} is not a time like 2026-01-01T00:00 (key: time_format, {hint})"

    def _wall(self, parts: Parts[str, str | None], text: str) -> Time:
        # By the clock: the hour that ends at 02:00 begins at 01:00, also where the clocks skip or repeat one of them.
        wall = wall_of(parts, text) - timedelta(seconds=self._lag_s)
        if (offset := parts.get("z")) is not None:
            return _seconds(wall) - _offset_s(offset)
        if (name := parts.get("Z")) is not None:
            return self._named(wall, name.upper())
        return self._local(wall)

    def _named(self, wall: datetime, name: str) -> int:
        """Return the instant of a time with the name of its offset, such as CEST in Europe/Berlin."""
        if name in {"UTC", "GMT", "Z"}:
            return _seconds(wall)
        for fold in (0, 1):
            there = wall.replace(tzinfo=self.clock.zone, fold=fold)
            if there.tzname() == name:
                return int(there.timestamp())
        raise ValueError(f"{name} is not the time of {self.clock.zone.key} at {wall:%Y-%m-%dT%H:%M} (key: zone)")

    def _local(self, wall: datetime) -> Time:
        day = wall.toordinal()
        offset = self._offsets.get(day, 0)
        if day not in self._offsets:
            # The whole day has one offset if its beginning and its end have.
            begin = datetime.combine(wall.date(), time())
            found = {self._offset(each, fold) for each in (begin, begin + timedelta(days=1)) for fold in (0, 1)}
            offset = self._offsets[day] = found.pop() if len(found) == 1 else None
        if offset is not None:
            return _seconds(wall) - offset
        offsets = {self._offset(wall, fold) for fold in (0, 1)}
        return _seconds(wall) - offsets.pop() if len(offsets) == 1 else wall

    def _offset(self, wall: datetime, fold: int) -> int:
        offset = wall.replace(tzinfo=self.clock.zone, fold=fold).utcoffset()
        return 0 if offset is None else int(offset.total_seconds())

    def origin(self, of: Time) -> int:
        """Return the instant from which periods are counted. Raises ValueError for a time that never was."""
        return of if isinstance(of, int) else self.clock.resolve(of, after=-1, grid=DAY_S).seconds


def _seconds(wall: datetime) -> int:
    return (wall.toordinal() - _EPOCH_DAY) * DAY_S + wall.hour * 3600 + wall.minute * 60 + wall.second


def _offset_s(text: str) -> int:
    if text.upper() in {"Z", "UTC"}:
        return 0
    digits = text[1:].replace(":", "").ljust(4, "0")
    seconds = int(digits[:2]) * 3600 + int(digits[2:]) * 60
    return -seconds if text[0] == "-" else seconds
