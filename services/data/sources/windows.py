"""The days that an HTTP source requests: the last ones at every poll, those since a date once, and their mark."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, timedelta
from hashlib import blake2b
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import orjson

from diem.process.private_files import make_private_directory, replace_private
from services.data.kinds.series import zone
from services.data.sources.tables import HttpConfig, SecretFile
from services.data.sources.templates import start_of

MAX_SKIPPED: Final = 100
"""Days with invalid data that are remembered of a backfill."""
_SHOWN: Final = 3
_DAY: Final = timedelta(days=1)


def days_between(first: date, end: date) -> Iterator[date]:
    """Yield the days from ``first`` up to the day before ``end``."""
    while first < end:
        yield first
        first += _DAY


class RequestedDays:
    """The last days of a source; today alone without ``days``."""

    def __init__(self, config: HttpConfig) -> None:
        self._days = config.days or 1
        self._since = config.since
        self._offset = min(config.day_offsets, default=0)
        self._zone = zone(config.zone)

    def first(self, today: date) -> date:
        """Return the first of the last days."""
        first = today - (self._days - 1) * _DAY
        return first if self._since is None else min(today, max(first, self._since))

    def days(self, today: date) -> list[date]:
        """Return the last days up to today."""
        return list(days_between(self.first(today), today + _DAY))

    def keep_from(self, today: date) -> str:
        """Return the time before which points are dropped: the start of the earliest date that is requested."""
        day = (self._since or self.first(today)) + self._offset * _DAY
        return start_of(day, self._zone).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(slots=True)
class BackfillMark:
    """Progress of a backfill: all days before ``before`` are done, apart from ``skipped`` ones with invalid data."""

    before: date
    skipped: list[str] = field(default_factory=list)

    def skip(self, day: date) -> None:
        """Note a day with invalid data; the first :data:`MAX_SKIPPED` are remembered."""
        if len(self.skipped) < MAX_SKIPPED and f"{day}" not in self.skipped:
            self.skipped.append(f"{day}")

    def progress(self, since: date, end: date) -> str:
        """Return the progress in words; ``end`` is the day after the last one."""
        done, of = (self.before - since).days, (end - since).days
        text = f"backfill: {done} of {of} days since {since}" if done < of else f"backfilled since {since}"
        if not self.skipped:
            return text
        more = f" and {len(self.skipped) - _SHOWN} more" if len(self.skipped) > _SHOWN else ""
        return f"{text}, without {', '.join(self.skipped[:_SHOWN])}{more} (invalid)"


class BackfillFile:
    """Keeps the mark of a source beside its store: of another store, or for another request, it does not count."""

    def __init__(self, directory: Path, store: str, config: HttpConfig) -> None:
        self._path = directory / f"{config.name}.json"
        self._of = {"store": store, "request": _digest(config)}

    def read(self) -> BackfillMark | None:
        """Return the mark; None without a valid one."""
        try:
            found = orjson.loads(self._path.read_bytes())
            if any(found[name] != text for name, text in self._of.items()):
                return None
            return BackfillMark(
                date.fromisoformat(found["before"]), [str(date.fromisoformat(day)) for day in found["skipped"]]
            )
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def write(self, mark: BackfillMark) -> None:
        """Replace the mark. Raises OSError."""
        make_private_directory(self._path.parent)
        replace_private(
            self._path, orjson.dumps({**self._of, "before": f"{mark.before}", "skipped": mark.skipped[:MAX_SKIPPED]})
        )


def _digest(config: HttpConfig) -> str:
    url = urlsplit(config.url)
    query = {name: "" if isinstance(value, SecretFile) else value for name, value in config.query.items()}
    target = (config.endpoint, config.prefix, config.since, config.zone)
    text = repr((url._replace(netloc=url.netloc.rpartition("@")[2]), query, config.body, target))
    return blake2b(text.encode(), digest_size=16).hexdigest()
