"""The health of one process in a status of ``diem up``: a level and a word; pure."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final, NamedTuple

STARTING_S: Final = 15.0
"""Uptime until which an unready process counts as starting."""


class HealthLevel(StrEnum):
    """Severity."""

    OK = "ok"
    WARNING = "warning"
    """Clients are served; somebody should look."""
    CRITICAL = "critical"
    """Clients may miss updates now."""


_ORDER: Final = list(HealthLevel)


def worst(levels: Iterable[HealthLevel]) -> HealthLevel:
    """Return the worst of some levels; ``OK`` without any."""
    return max(levels, key=_ORDER.index, default=HealthLevel.OK)


class SystemHealth(NamedTuple):
    """Health of a process; ``word`` is for people."""

    level: HealthLevel
    word: str


READY: Final = SystemHealth(HealthLevel.OK, "ready")
STARTING: Final = SystemHealth(HealthLevel.WARNING, "starting")
STOPPING: Final = SystemHealth(HealthLevel.WARNING, "stopping")
DOWN: Final = SystemHealth(HealthLevel.CRITICAL, "down")
FAILED: Final = SystemHealth(HealthLevel.CRITICAL, "not restarted")
NO_ANSWER: Final = SystemHealth(HealthLevel.CRITICAL, "no answer")
LISTENING: Final = SystemHealth(HealthLevel.OK, "listening")
STAND_BY: Final = SystemHealth(HealthLevel.OK, "stand-by")
NOT_READY: Final = SystemHealth(HealthLevel.CRITICAL, "not ready")
NO_READER: Final = SystemHealth(HealthLevel.WARNING, "no reader")
"""A bridge whose server is not connected."""
STALE: Final = SystemHealth(HealthLevel.CRITICAL, "stale")
"""Running, but possibly outdated: its source is silent."""


_STATES: Final = {"failed": FAILED, "stopped": STOPPING, "listening": LISTENING, "no answer": NO_ANSWER}
"""The last two are of processes on other hosts, which nothing is known of but whether they answer."""


def health(process: dict[str, Any]) -> SystemHealth:
    """Return the health of an entry of ``processes``, or of a child of a composite."""
    if process["state"] != "running":
        waiting = STARTING if process.get("last_exit") is None else DOWN
        return _STATES.get(process["state"], waiting)
    report: dict[str, Any] | None = process.get("report")
    if report is None:
        found = NO_ANSWER
    elif report.get("standby"):
        return STAND_BY
    elif not report.get("ready"):
        found = NOT_READY
    # A composite's liveness is its servers', which are checked themselves.
    elif report.get("live") is False and "children" not in report:
        found = NO_READER if report.get("reader") is False else STALE
    else:
        return READY
    return STARTING if process["uptime_seconds"] < STARTING_S else found
