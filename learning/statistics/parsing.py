"""Parse and validate one recorded line; pure."""

from typing import Final

from diem.protocol.traffic import BadEvent, TrafficEvent, decode
from learning.statistics.constants import EARLIEST_MS, MAX_AHEAD_MS

PAST: Final = "time in the past: before 2020"
FUTURE: Final = "time in the future: more than a day ahead"


def parse_event(line: bytes | str, now_ms: int) -> TrafficEvent:
    """Parse a line into an event.

    Args:
        line: without its end.
        now_ms: our clock, Unix ms.

    Raises:
        BadEvent: the line is not an event, or its time cannot be right, with the reason.
    """
    event = decode(line)
    if event.time < EARLIEST_MS:
        raise BadEvent(PAST)
    if event.time > now_ms + MAX_AHEAD_MS:
        raise BadEvent(FUTURE)
    return event


def reason_kind(reason: str) -> str:
    """Return the kind of a reason: its text without the faulty value or position."""
    return reason.partition(": '")[0].partition(': "')[0] if not reason.startswith("not JSON") else "not JSON"


def sequence_number(event_id: str) -> int:
    """Return an event's sequence number within the incarnation of its process."""
    return int(event_id[13:])
