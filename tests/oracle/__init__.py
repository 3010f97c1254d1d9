"""The oracle: checks recorded histories of a DIEM system for the invariants of docs/reliability.md section 4."""

from tests.oracle.history import (
    Accepted,
    Event,
    Fault,
    History,
    Kind,
    Snapshot,
    Uncertain,
    read_history,
    write_client,
    write_history,
)
from tests.oracle.judge import Report, judge
from tests.oracle.violations import Bounds, Violation

__all__ = [
    "Accepted",
    "Bounds",
    "Event",
    "Fault",
    "History",
    "Kind",
    "Report",
    "Snapshot",
    "Uncertain",
    "Violation",
    "judge",
    "read_history",
    "write_client",
    "write_history",
]
