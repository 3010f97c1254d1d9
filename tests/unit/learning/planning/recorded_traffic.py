"""Recorded traffic for tests of plans: clients with two endpoints each, for ten minutes."""

import time
from pathlib import Path

from diem.protocol.traffic import TrafficEvent, Type
from tests.support.traffic import MINUTE, Life, write

MINUTES = 10


def events(pairs: int = 8, clients: int = 80) -> list[TrafficEvent]:
    """Return events in which each client is subscribed to /<n>/a and /<n>/b for one n, for the last ten minutes."""
    end = time.time_ns() // 1_000_000
    life = Life("websocket-1", 0xA1, end - MINUTES * MINUTE, end)
    made = []
    for client in range(clients):
        names = [f"/{client % pairs}/{which}" for which in "ab"]
        made.append(life.event(Type.CONNECT, life.begin + client, client, client))
        made.append(life.event(Type.SUBSCRIBE, life.begin + client, client, client, *names))
    for minute in range(MINUTES):
        since = life.begin + minute * MINUTE
        rates = {f"{pair}/{which}": (60, 60) for pair in range(pairs) for which in "ab"}
        made.append(life.counts(since, since + MINUTE - 1, **rates))
    return made


def recorded(folder: Path, pairs: int = 8) -> Path:
    """Write a folder of traffic with one file of these events and an invalid line."""
    write(folder / "in", "websocket-1-a-1.jsonl", events(pairs), b"nonsense")
    return folder
