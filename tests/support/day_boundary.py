"""Support for tests of daily limits."""

import time
from typing import Final

DAY_S: Final = 86_400
LONGEST_S: Final = 120
"""Longer than such a test runs."""


def wait_for_room_in_the_day() -> None:
    """Wait for the next day (UTC) if this one is about to end, so that the test runs within one day."""
    left = DAY_S - time.time() % DAY_S
    if left < LONGEST_S:
        time.sleep(left)
