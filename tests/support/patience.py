"""How long a test waits for what other processes do, on a machine that may be slow and has other tests to run."""

import os
from typing import Final

FACTOR: Final = float(os.environ.get("DIEM_TIME_FACTOR", "1"))
"""How many times slower than the slowest usual machine this one is said to be."""
PATIENCE_S: Final = 90.0 * FACTOR
"""Longer than DIEM itself waits for its processes (60 s): whoever gives up first is to be the one that says why."""
