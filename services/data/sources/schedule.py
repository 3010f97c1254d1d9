"""When a source is polled next: the times of day. Pure."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from services.data.datasets import zone


def next_time(times: Sequence[str], key: str, now_s: float) -> float:
    """The next of some times of day (``HH:MM`` of a zone) after an instant, both in Unix seconds.

    Each comes once a day: of an hour that the clocks show twice, the first; one that they pass over, an hour later.
    """
    there = zone(key)
    today = datetime.fromtimestamp(now_s, UTC).astimezone(there).date()
    found = []
    for day in range(-1, 3):
        for time in times:
            hour, minute = map(int, time.split(":"))
            date = today + timedelta(days=day)
            found.append(datetime(date.year, date.month, date.day, hour, minute, tzinfo=there).timestamp())
    return min(at for at in found if at > now_s)
