"""Subscriptions to invented names, from an edge's recording over the statistics to the plan."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import pytest

from diem.fanout.fanout import UpdateCounter
from diem.fanout.feed_hub import FeedHub
from diem.fanout.session import Session
from diem.process.clock import ManualClock
from diem.protocol.feed import Batch
from diem.protocol.traffic import decode
from diem.protocol.update import Change, encode
from diem.traffic.recorder import Recorder
from diem.traffic.salt import DAY_MS, DailySalt
from learning.costs import DEFAULT
from learning.placement.instance import from_statistics
from learning.placement.options import PlanOptions
from learning.placement.planner import plan
from learning.statistics.model import Statistics
from learning.statistics.reference import Arrival, statistics
from learning.statistics.window import Window
from tests.support.brief_search import brief_search

START = 1_700_000_040_000
MINUTES = 10
REAL = [f"/area-{number % 6}/series-{number}" for number in range(120)]
MESSAGES = 40
"""Messages per minute of an attacker's connection: well within the limits of a client."""
OPTIONS = PlanOptions(servers=(4,), partitions=12, current_partitions=12)


class World:
    """A server with 120 endpoints and 60 clients, whose traffic is recorded."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.clock = ManualClock(wall_ms=START)
        self.hub = FeedHub()
        self.hub.fanout.update_counter = UpdateCounter()
        self.sequence = 0
        self.open: dict[str, int] = {}
        salt = DailySalt(b"salt", START // DAY_MS)
        self.recorder = Recorder(
            "websocket-1",
            salt,
            self.clock.wall_ms,
            self.hub.fanout.update_counter,
            count_open=lambda address: self.open[address],
        )
        self.hub.hello("s", ["store"])
        self.update(REAL)
        self.hub.caught_up("store")
        self.arrivals: list[Arrival] = []

    def session(self, number: int, address: str) -> Session:
        session = Session(lambda _: None, lambda _: None, self.hub.fanout.stats)
        self.open[address] = self.open.get(address, 0) + 1
        session.trace = self.recorder.connected(session, number.to_bytes(8), address)
        session.trace.identified(f"client-{number}")
        self.hub.fanout.join(session)
        return session

    def update(self, names: list[str]) -> None:
        records = []
        for name in names:
            self.sequence += 1
            version = START + self.sequence
            records.append(Change(self.sequence, name.encode(), version, 0, encode(name, version, version)))
        self.hub.batch(Batch("store", self.sequence + 1, iter(records)))

    def visitors(self) -> None:
        chance = Random(1)
        for number in range(60):
            area = [name for name in REAL if name.startswith(f"/area-{number % 6}/")]
            session = self.session(number, f"198.51.100.{number}")
            self.hub.subscribe(session, dict.fromkeys(chance.sample(area, 5), 0))

    def drain(self) -> None:
        while (line := self.recorder.next()) is not None:
            event = decode(line)
            self.arrivals.append(Arrival(event, event.time))

    def run(self, strangers: int) -> Statistics:
        """Run for ten minutes, with attackers of one address that subscribe to 100 invented names at a time."""
        self.visitors()
        attackers = [
            (self.session(1000 + number, "203.0.113.1"), self._invented(number)) for number in range(strangers)
        ]
        chance = Random(2)
        for _ in range(MINUTES * MESSAGES):
            self.clock.advance(60 / MESSAGES)
            # Only half of the endpoints are updated; the others are in the plan as well.
            self.update(chance.sample(REAL[:60], 3))
            for session, names in attackers:
                held = [endpoint.decode() for endpoint in session.endpoints]
                if held:
                    self.hub.fanout.unsubscribe(session, held)
                else:
                    self.hub.subscribe(session, {next(names): 0 for _ in range(100)})
            if self.clock.wall_ms() % 60_000 == 0:
                self.recorder.count()
                self.drain()
        self.drain()
        assert not self.recorder.dropped
        return statistics(self.arrivals, Window(START, START + MINUTES * 60_000))

    @staticmethod
    def _invented(number: int) -> Iterator[str]:
        count = 0
        while True:
            count += 1
            yield f"/invented/{number}/{count}"


@pytest.fixture
def without(tmp_path: Path) -> Statistics:
    return World(tmp_path / "without").run(0)


@brief_search()
def test_subscriptions_to_invented_names_do_not_change_plans(tmp_path: Path, without: Statistics) -> None:
    attacked = World(tmp_path / "attacked")
    found = attacked.run(1)
    named = {name for event, _ in attacked.arrivals for name in event.endpoints}
    assert len(named) > 19_000, "they were all recorded: what counts is decided where it can be seen as a whole"
    assert found.endpoints == without.endpoints
    assert found.sets == without.sets
    assert {row.endpoint for row in found.endpoints} <= set(REAL)
    first, second = (plan(from_statistics(each), OPTIONS, DEFAULT) for each in (without, found))
    assert first.pays == second.pays
    assert np.array_equal(first.placement, second.placement)


def test_strangers_of_one_address_have_the_weight_of_one_client(tmp_path: Path) -> None:
    world = World(tmp_path / "crowded")
    world.visitors()
    crowd = [world.session(1000 + number, "203.0.113.1") for number in range(50)]
    for session in crowd:
        world.hub.subscribe(session, {"/area-0/series-0": 0, "/area-1/series-1": 0})
    world.clock.advance((MINUTES - 1) * 60)
    world.recorder.count()
    world.drain()
    found = statistics(world.arrivals, Window(START, START + MINUTES * 60_000))
    names = [row.endpoint for row in found.endpoints]
    of_crowd = next(row for row in found.sets if [names[each] for each in row.endpoints] == sorted(REAL[:2]))
    assert (of_crowd.clients, of_crowd.weight) == (50, MINUTES * 60)
    # The load of servers is not reduced.
    assert found.endpoints[names.index(REAL[0])].subscribers > 49
