"""Write what servers would have recorded of visitors of four countries, as the guide to placements makes them.

Much of it, so that a plan pays by far: ``python -m tests.support.recorded_visitors FOLDER``.
"""

import sys
import time
from pathlib import Path
from typing import Final

from diem.protocol.traffic import TrafficEvent, Type
from tests.support.traffic import MINUTE, Life, write

MINUTES: Final = 10
ZONES: Final = ("GR", "BG", "RO", "TR")
OF_A_ZONE: Final = ("/dam/prices", "/imbalance", "/load", "/load/forecast")
"""The simulated market has these of each zone."""
VISITORS: Final = 400


def visits(end: int) -> list[TrafficEvent]:
    """Return the events of the ten minutes until ``end`` (Unix ms): each visitor has three endpoints of one zone."""
    # A name that no running process has.
    life = Life("websocket-9", 0xA1, end - MINUTES * MINUTE, end)
    made = []
    for visitor in range(VISITORS):
        zone, left_out = ZONES[visitor % 4], OF_A_ZONE[visitor // 4 % 4]
        names = [f"{kind}/{zone}" for kind in OF_A_ZONE if kind != left_out]
        made.append(life.event(Type.CONNECT, life.begin + visitor, visitor, visitor))
        made.append(life.event(Type.SUBSCRIBE, life.begin + visitor, visitor, visitor, *names))
    for minute in range(MINUTES):
        since = life.begin + minute * MINUTE
        counts = {f"{kind}/{zone}".removeprefix("/"): (60, 60) for kind in OF_A_ZONE for zone in ZONES}
        made.append(life.counts(since, since + MINUTE - 1, **counts))
    return made


if __name__ == "__main__":
    write(Path(sys.argv[1]), "websocket-9-1.jsonl", visits(time.time_ns() // 1_000_000))
