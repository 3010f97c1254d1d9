"""Times and durations in arguments of commands."""

import re
from datetime import UTC, datetime
from typing import Final

from diem.errors import ConfigurationError

_SPAN: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(s|m|h|d)")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def parse_time(text: str) -> int:
    """Parse an ISO 8601 time, in UTC unless it has an offset, to Unix ms.

    Raises:
        ConfigurationError: ``text`` is not a time.
    """
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(f"{text!r} is not a time: write 2026-01-31T14:00:00Z") from None
    return round((parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp() * 1000)


def parse_span(text: str) -> int:
    """Parse a duration such as ``90s``, ``15m``, ``1h`` or ``7d`` to ms.

    Raises:
        ConfigurationError: ``text`` is not a duration.
    """
    match = _SPAN.fullmatch(text)
    if match is None or not (ms := round(float(match[1]) * _SECONDS[match[2]] * 1000)):
        raise ConfigurationError(f"{text!r} is not a length of time: write 90s, 15m, 1h or 7d")
    return ms
