"""The pause that an HTTP server asks for, as sources, questions and handshakes meet it. Pure."""

from datetime import UTC
from email.utils import parsedate_to_datetime


def retry_after_s(header: str, now_s: float) -> float:
    """Return the seconds of a ``Retry-After`` header in either form (RFC 9110 section 10.2.3); ``now_s`` is Unix time.

    0 for what is neither form. There is no upper bound: whoever waits has its own.
    """
    text = header.strip()[:64]
    if text.isascii() and text.isdecimal():
        return float(text)
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return 0.0
    return max(0.0, date.replace(tzinfo=date.tzinfo or UTC).timestamp() - now_s)
