"""Other people's traffic: who used what, from when to when, in a CSV file or a web server's access log.

Each line becomes the events of one connection, so that the statistics are those of recorded traffic.
"""

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from diem.errors import ConfigurationError
from diem.protocol.traffic import TrafficEvent, Type
from learning.statistics.reference import Arrival
from learning.statistics.window import Window

MAX_BYTES: Final = 256 << 20
"""Largest file: it is read into memory, a GB at most."""
COLUMNS: Final = ("client", "endpoint", "start", "end")
COMBINED: Final = r'(?P<client>\S+) \S+ \S+ \[(?P<start>[^\]]+)\] "(?:GET|HEAD) (?P<endpoint>[^ ?"]+)[^"]*" [23]\d\d .*'
"""A line of a successful read in the formats ``common`` and ``combined`` of Apache and nginx."""
_EDGE: Final = "file"


class Interval(NamedTuple):
    """Use of an endpoint by a client, in Unix ms."""

    client: str
    endpoint: str
    start: int
    end: int


@dataclass(slots=True)
class Intervals:
    """The content of a file."""

    found: list[Interval] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    """Skipped lines by reason."""

    @property
    def window(self) -> Window:
        """From the first start to the last end, which is in it."""
        return Window(min(each.start for each in self.found), max(each.end for each in self.found) + 1)

    def arrivals(self) -> Iterator[Arrival]:
        """Yield the events of a connection for each interval."""
        clients: dict[str, str] = {}
        for number, (client, endpoint, start, end) in enumerate(self.found):
            pseudonym, connection = clients.setdefault(client, f"{len(clients):016x}"), f"{number:016x}"
            for order, (type_, at, endpoints) in enumerate(
                ((Type.SUBSCRIBE, start, (endpoint,)), (Type.DISCONNECT, end, ()))
            ):
                event_id = f"{0:012x}-{2 * number + order}"
                event = TrafficEvent(type_, event_id, at, _EDGE, pseudonym, connection, endpoints)
                yield Arrival(event, at)


def read_intervals(file: Path, columns: Mapping[str, str], pattern: str | None, held_ms: int) -> Intervals:
    """Read a CSV file with a header, or an access log.

    Args:
        file: the file, in UTF-8.
        columns: the name in the header of each of :data:`COLUMNS`, where it is another one.
        pattern: regular expression of the lines of a log, with groups of these names; None for CSV.
        held_ms: duration of an interval without an end.

    Raises:
        ConfigurationError: the file cannot be read, or has no usable line; the pattern or the header lacks a column.
    """
    try:
        if (size := file.stat().st_size) > MAX_BYTES:
            raise ConfigurationError(f"{file} has {size >> 20} MiB: divide it, at most {MAX_BYTES >> 20} MiB are read")
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror or error}") from error
    rows = _csv_rows(file, lines, columns) if pattern is None else _log_rows(lines, pattern)
    read = Intervals()
    for row in rows:
        try:
            read.found.append(_interval(row, held_ms))
        except ValueError as error:
            read.skipped[str(error)] += 1
    if not read.found:
        reasons = ", ".join(f"{reason} ({count:,})" for reason, count in read.skipped.most_common(3))
        raise ConfigurationError(f"{file} has no usable line: {reasons or 'it is empty'}")
    return read


def _csv_rows(file: Path, lines: list[str], columns: Mapping[str, str]) -> Iterator[Mapping[str, str | None]]:
    reader = csv.DictReader(lines)
    names = {name: columns.get(name, name) for name in COLUMNS}
    header = reader.fieldnames or ()
    if missing := [name for key, name in names.items() if name not in header and (key != "end" or key in columns)]:
        has = ", ".join(header) or "none"
        raise ConfigurationError(f"{file} has no column {missing[0]} (it has: {has}): name it with --columns")
    for row in reader:
        yield {key: row.get(name) for key, name in names.items()}


def _log_rows(lines: Iterable[str], pattern: str) -> Iterator[Mapping[str, str | None]]:
    try:
        line_form = re.compile(pattern)
    except re.error as error:
        raise ConfigurationError(f"--pattern is no regular expression: {error}") from error
    if missing := [name for name in COLUMNS[:3] if name not in line_form.groupindex]:
        raise ConfigurationError(f"--pattern has no group (?P<{missing[0]}>...)")
    for line in lines:
        found = line_form.fullmatch(line)
        yield {} if found is None else found.groupdict()


def _interval(row: Mapping[str, str | None], held_ms: int) -> Interval:
    """Return the interval of a row. Raises ``ValueError`` with the reason to skip it."""
    if not row:
        raise ValueError("other form")
    client, endpoint, start, end = (row.get(name) or "" for name in COLUMNS)
    if not client or not endpoint:
        raise ValueError("no client or endpoint")
    begun = _time(start)
    ended = _time(end) if end else begun + held_ms
    if ended <= begun:
        raise ValueError("it ends before it starts")
    return Interval(client, endpoint, begun, ended)


def _time(text: str) -> int:
    """Return Unix ms of a time in ISO 8601 (UTC without an offset), Unix seconds or ms, or of an access log."""
    try:
        number = float(text)
    except ValueError:
        return _written_time(text)
    # Seconds until the year 2286.
    milliseconds = number * 1000 if abs(number) < 1e10 else number
    if not 0 <= milliseconds < 1e13:
        raise ValueError("no time")
    return int(milliseconds)


def _written_time(text: str) -> int:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        try:
            at = datetime.strptime(text, "%d/%b/%Y:%H:%M:%S %z")
        except ValueError:
            raise ValueError("no time") from None
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
