"""Decides of a line whether it is an event, or why not; pure."""

from typing import Final

from diem.protocol.traffic import BadEvent, TrafficEvent, decode
from metadata.statistics.constants import EARLIEST_MS, MAX_AHEAD_MS

PAST: Final = "time in the past: before 2020"
FUTURE: Final = "time in the future: more than a day ahead"


def parse_event(line: bytes | str, now_ms: int) -> TrafficEvent:
    """Return the event that a line is.

    Args:
        line: without its end.
        now_ms: our clock, Unix ms.

    Raises:
        BadEvent: it is none, or its time cannot be right, with the reason.
    """
    event = decode(line)
    if event.time < EARLIEST_MS:
        raise BadEvent(PAST)
    if event.time > now_ms + MAX_AHEAD_MS:
        raise BadEvent(FUTURE)
    return event


def reason_kind(reason: str) -> str:
    """Return what is the same of all reasons of a kind: without the value that was at fault, or the place in it."""
    return reason.partition(": '")[0].partition(': "')[0] if not reason.startswith("not JSON") else "not JSON"


def sequence_number(event_id: str) -> int:
    """Return which event of its process's life it is."""
    return int(event_id[13:])
