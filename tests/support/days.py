"""Tests of what begins anew each day."""

import time
from typing import Final

DAY_S: Final = 86_400
LONGEST_S: Final = 120
"""Longer than such a test takes."""


def wait_for_room_in_the_day() -> None:
    """Let a day (UTC) that is nearly over end first: the test is then on one day as a whole."""
    left = DAY_S - time.time() % DAY_S
    if left < LONGEST_S:
        time.sleep(left)
