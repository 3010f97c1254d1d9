"""Infers the zone of local times: from what a text states, or from the hours that its clocks skip and repeat."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from services.data.kinds.series.times import zone

_HOUR_S: Final = 3600
_DAY_S: Final = 86_400
_WITHOUT_SUMMER_TIME: Final = (
    "Asia/Tokyo",
    "Asia/Kolkata",
    "Asia/Singapore",
    "Europe/Istanbul",
    "Australia/Brisbane",
    "Africa/Lagos",
)
SAME_CLOCKS: Final = {
    "Europe/Berlin": "Central Europe",
    "Europe/Athens": "Eastern Europe",
    "Europe/London": "Western Europe",
    "America/New_York": "the United States",
    "America/Chicago": "the United States",
    "America/Denver": "the United States",
    "America/Los_Angeles": "the United States",
    "Australia/Sydney": "Australia",
    "Pacific/Auckland": "New Zealand",
    "America/Santiago": "Chile",
}
"""Zones of which each stands for those with the same clocks."""
_STATED: Final = (
    (r"(?<![A-Za-z])(?:UTC|GMT|ZULU)(?![A-Za-z]|_?offset|\s*[+-]\s*\d)", "UTC"),
    (r"\b(?:CET\s*/\s*CEST|MEZ\s*/\s*MESZ|CEST\s*/\s*CET)\b|Central European (?:Summer )?Time", "Europe/Berlin"),
    (r"\bEET\s*/\s*EEST\b", "Europe/Athens"),
    (r"\bWET\s*/\s*WEST\b", "Europe/Lisbon"),
    (r"\bGMT\s*/\s*BST\b|\b(?:UK|London|British) (?:local )?time\b", "Europe/London"),
    (r"\b(?:EPT|Eastern Prevailing(?: Time)?|EST\s*/\s*EDT|US/Eastern)\b|_ept\b", "America/New_York"),
    (r"\b(?:CPT|Central Prevailing(?: Time)?|CST\s*/\s*CDT|US/Central)\b", "America/Chicago"),
    (r"\b(?:MPT|Mountain Prevailing(?: Time)?|MST\s*/\s*MDT|US/Mountain)\b", "America/Denver"),
    (r"\b(?:PPT|Pacific Prevailing(?: Time)?|PST\s*/\s*PDT|US/Pacific)\b", "America/Los_Angeles"),
    (r"\bAEST\b(?!\s*/\s*AEDT)", "Australia/Brisbane"),
    (r"\bNZST\s*/\s*NZDT\b|\bNZDT\s*/\s*NZST\b", "Pacific/Auckland"),
    (r"\bJST\b", "Asia/Tokyo"),
)
"""What texts call zones. The first found counts."""
_OFFSET: Final = re.compile(r"\b(?:UTC|GMT)\s*([+-])\s*(\d{1,2})(?::?00)?\b")
_KEY: Final = re.compile(
    r"\b(?:Europe|America|Asia|Australia|Africa|Pacific|Atlantic|Indian|Antarctica)/[A-Za-z_]+(?:/[A-Za-z_]+)?"
)
_AMBIGUOUS: Final = {
    r"\b(?:CET|MEZ)\b": ("Europe/Berlin", "Etc/GMT-1"),
    r"\bEET\b": ("Europe/Athens", "Etc/GMT-2"),
    r"\bEST\b": ("America/New_York", "Etc/GMT+5"),
    r"\bCST\b": ("America/Chicago", "Etc/GMT+6", "Asia/Shanghai"),
    r"\bMST\b": ("America/Denver", "Etc/GMT+7"),
    r"\bPST\b": ("America/Los_Angeles", "Etc/GMT+8"),
}
"""Names which some use for the year round and others for winter alone."""


class Stated(NamedTuple):
    """The zone that a text states; with ``others``, it may mean these as well."""

    key: str
    words: str
    others: tuple[str, ...] = ()


def stated_zone(texts: Iterable[str]) -> Stated | None:
    """Return the zone that one of the texts states, the first of them first."""
    given = [text for text in texts if text]
    for text in given:
        for named in _KEY.findall(text):
            if _exists(named):
                return Stated(named, named)
        for pattern, key in _STATED:
            if match := re.search(pattern, text, re.IGNORECASE if key == "UTC" else 0):
                return Stated(key, match[0])
        if (offset := _OFFSET.search(text)) is not None:
            hours = int(offset[2])
            # The signs of Etc are those of POSIX: hours behind UTC.
            return Stated(f"Etc/GMT{'-' if offset[1] == '+' else '+'}{hours}" if hours else "UTC", offset[0])
        for pattern, keys in _AMBIGUOUS.items():
            if match := re.search(pattern, text):
                return Stated(keys[0], match[0], keys[1:])
    return None


def _exists(key: str) -> bool:
    try:
        return bool(zone(key))
    except ValueError:
        return False


class Clocks(NamedTuple):
    """What local times show of the clocks of their zone.

    Attributes:
        zones: with the same changes as in the times. days: what shows it, such as ``2025-03-30 has 23 hours``.
        is_fixed: the times go on while the clocks of other zones change: of UTC, or a zone without summer time.
    """

    zones: tuple[str, ...] = ()
    days: tuple[str, ...] = ()
    is_fixed: bool = False


def observed_clocks(series: Sequence[Sequence[int]], step: int) -> Clocks:
    """Compare series of local times, in seconds as if they were of UTC, with the changes of clocks."""
    if not 0 < step <= _HOUR_S or not series:
        return Clocks()
    found: dict[str, list[str]] = {}
    refuted = set()
    for times in series[:20]:
        counts = Counter(times)
        if not counts:
            continue
        years = range(_year(min(counts)), _year(max(counts)) + 1)
        for key in SAME_CLOCKS:
            for year in [*years][:60]:
                for begin, forward in changes_of(key, year):
                    outcome = _fits(counts, begin, step, forward=forward)
                    if outcome is True:
                        found.setdefault(key, []).append(f"{_day(begin)} has {23 if forward else 25} hours")
                    elif outcome is False:
                        refuted.add(key)
    zones = tuple(key for key in found if key not in refuted)
    if zones:
        return Clocks(zones, tuple(dict.fromkeys(found[zones[0]])))
    european = {"Europe/Berlin", "Europe/Athens", "Europe/London"}
    return Clocks(is_fixed=european <= refuted or ({"America/New_York"} <= refuted and bool(european & refuted)))


def _fits(counts: Counter[int], begin: int, step: int, *, forward: bool) -> bool | None:
    """Return whether times show a change of clocks at a local time; None: they do not cover it."""
    hour = range(begin, begin + _HOUR_S, step)
    before, after = begin - step, begin + _HOUR_S
    if before not in counts or after not in counts:
        return None
    present = [each for each in hour if each in counts]
    if forward:
        return not present
    if len(present) < len(hour):
        return None
    return all(counts[each] == 2 for each in present) and counts[before] == 1 and counts[after] == 1


@lru_cache(maxsize=1024)
def changes_of(key: str, year: int) -> tuple[tuple[int, bool], ...]:
    """Return the hours that clocks skip (True) or repeat in a year, as local times in seconds."""
    if not 1971 <= year <= 2199:
        return ()
    info, found = zone(key), []
    begin = int(datetime(year, 1, 1, tzinfo=UTC).timestamp())
    offsets = [_offset(info, begin + day * 86_400) for day in range(367)]
    for day in range(366):
        first, second = offsets[day], offsets[day + 1]
        if abs(second - first) != _HOUR_S:
            continue
        at = next(
            each
            for each in range(begin + day * 86_400, begin + (day + 1) * 86_400 + 1, 1800)
            if _offset(info, each) == second
        )
        found.append((at + min(first, second), second > first))
    return tuple(found)


def _offset(info: ZoneInfo, seconds: int) -> int:
    delta = datetime.fromtimestamp(seconds, info).utcoffset()
    return int((delta or timedelta()).total_seconds())


def _year(seconds: int) -> int:
    return datetime.fromtimestamp(max(0, seconds), UTC).year


def _day(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d}"


def same_clocks(first: str, second: str) -> bool:
    """Return whether two zones have the same changes of clocks, at the same local times."""
    return changes_of(first, 2025) == changes_of(second, 2025)


def has_summer_time(key: str) -> bool:
    """Return whether the clocks of a zone change."""
    return bool(changes_of(key, 2025))


def is_repeated(time: int) -> bool:
    """Return whether the clocks of some zone show a local time twice."""
    changes = (change for key in SAME_CLOCKS for change in changes_of(key, _year(time)))
    return any(not forward and begin <= time < begin + _HOUR_S for begin, forward in changes)


def zones_of_days(times: Iterable[int]) -> list[str]:
    """Return the zones in which all these instants are midnights; none if they are those of UTC."""
    given = [*times]
    if not given or all(each % _DAY_S == 0 for each in given) or any(each % 900 for each in given):
        return []
    infos = {key: zone(key) for key in (*SAME_CLOCKS, *_WITHOUT_SUMMER_TIME)}
    return [key for key, info in infos.items() if all(local_seconds(each, info) % _DAY_S == 0 for each in given)]


def local_seconds(instant: int, info: ZoneInfo) -> int:
    """Return the local time of an instant in seconds, as if it were of UTC."""
    return instant + _offset(info, instant)
