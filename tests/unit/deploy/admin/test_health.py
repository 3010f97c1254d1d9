from typing import Any

import pytest

from deploy.admin import health
from deploy.admin.health import HealthLevel, worst
from tests.unit.deploy.admin.statuses import dead, process, server


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (server("websocket-1"), health.READY),
        (process("nginx", {}), health.READY),
        (dead("data"), health.DOWN),
        (process("data", None, state="waiting", uptime_seconds=0.0), health.STARTING),
        (process("data", None, state="failed"), health.FAILED),
        (process("data", None, state="stopped"), health.STOPPING),
        (process("data", None), health.NO_ANSWER),
        (process("data", None, uptime_seconds=3.0), health.STARTING),
        (process("data", {"ready": False}), health.NOT_READY),
        (process("data", {"ready": False}, uptime_seconds=3.0), health.STARTING),
        (server("websocket-1", live=False), health.STALE),
        (process("websocket-1", {"live": False}, uptime_seconds=3.0), health.STARTING),
        (process("bridge-1", {"live": False, "reader": False}), health.NO_READER),
        (process("bridge-1", {"live": False, "reader": True}), health.STALE),
        (process("composite-1", {"live": False, "children": []}), health.READY),
        (process("data-2", {"ready": False, "live": False, "standby": True}), health.STAND_BY),
        (process("nginx", None, state="listening"), health.LISTENING),
        (process("data", None, state="no answer", uptime_seconds=0.0), health.NO_ANSWER),
    ],
    ids=lambda value: None if isinstance(value, dict) else str(value.word).replace(" ", "-"),
)
def test_health_follows_from_state_answer_readiness_and_liveness(
    entry: dict[str, Any], expected: health.SystemHealth
) -> None:
    assert health.health(entry) is expected


def test_worst_level_of_several() -> None:
    assert worst([]) is HealthLevel.OK
    assert worst([HealthLevel.WARNING, HealthLevel.OK, HealthLevel.CRITICAL]) is HealthLevel.CRITICAL
