"""When a source is polled next: the times of day, and what servers say of when to come back. Pure."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

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


def retry_after_s(header: str, now_s: float) -> float:
    """The seconds that a Retry-After header asks for (RFC 9110 section 10.2.3); 0 when it asks for nothing sensible."""
    text = header.strip()[:64]
    if text.isascii() and text.isdecimal():
        return float(text)
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return 0.0
    return max(0.0, date.replace(tzinfo=date.tzinfo or UTC).timestamp() - now_s)
