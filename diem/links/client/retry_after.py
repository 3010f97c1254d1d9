"""The pause that an HTTP server asks a client for; alone here because questions and handshakes both meet it."""

import time
from typing import Final

from diem.process import backoff

MAX_S: Final = 300.0


def retry_after_s(header: str | None) -> float:
    """Return the seconds that a ``Retry-After`` header asks for from now on, at most five minutes; 0 without one."""
    return 0.0 if header is None else min(backoff.retry_after_s(header, time.time()), MAX_S)
