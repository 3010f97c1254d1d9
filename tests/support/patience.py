"""Time-out of tests for events of other processes, on a machine that may be slow and runs other tests."""

import os
from typing import Final

FACTOR: Final = float(os.environ.get("DIEM_TIME_FACTOR", "1"))
"""Factor by which this machine is slower than the slowest usual one."""
PATIENCE_S: Final = 90.0 * FACTOR
"""Longer than DIEM itself waits for its processes (60 s), so that DIEM's own error comes first."""
