"""The usage report: requests to the Data Service by day, key, plan and endpoint (docs/traffic.md section 4); pure."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, date, datetime
from typing import NamedTuple

from diem.protocol.traffic import TrafficEvent


class UsageRow(NamedTuple):
    """One row of the report, in the order in which rows are sorted."""

    day: date
    """UTC, of the middle of the event's interval."""
    key: str
    """Empty for readers without an API key."""
    plan: str
    endpoint: str
    """Empty for requests that are of no endpoint."""
    answered: int
    refused: int


def usage(events: Iterable[TrafficEvent], first: date, last: date) -> list[UsageRow]:
    """Return the report of the days from ``first`` to ``last``, both included, without Spark.

    Args:
        events: of any types, in any order; repeats have the same id and content.
        first: UTC.
        last: UTC.
    """
    sums = defaultdict[tuple[date, str, str, str], list[int]](lambda: [0, 0])
    for event in {event.id: event for event in events}.values():
        day = datetime.fromtimestamp((event.since + event.until) // 2 / 1000, UTC).date()
        if first <= day <= last:
            for key, plan, endpoint, answered, refused in event.requests:
                found = sums[day, key, plan, endpoint]
                found[0] += answered
                found[1] += refused
    return [UsageRow(*which, *found) for which, found in sorted(sums.items())]
