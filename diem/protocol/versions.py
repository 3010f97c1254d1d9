"""Versions (docs/protocol.md section 0): numbers that only grow, readable as times."""

from datetime import UTC, datetime


def next_version(previous: int, now_ms: int) -> int:
    """The version of a change accepted at ``now_ms`` (Unix milliseconds) after version ``previous`` (0 = none).

    Greater than ``previous`` even when the clock stepped back, and greater than every version of a store that was
    wiped, because it contains the time.
    """
    return max(previous + 1, now_ms)


def iso(ms: int) -> str:
    """Unix milliseconds as UTC in RFC 3339 with milliseconds: ``2026-01-01T00:00:00.456Z``."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{ms % 1000:03d}Z"
