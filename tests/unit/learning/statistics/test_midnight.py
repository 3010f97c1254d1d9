"""New pseudonyms at midnight: clients cannot be followed into the next day, and plans lose nothing that they use."""

from random import Random

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
from learning.statistics.model import Statistics
from learning.statistics.reference import Arrival, statistics
from learning.statistics.window import Window

MIDNIGHT = 1_700_006_400_000
MINUTE_MS = 60_000
ENDPOINTS = [f"/e{number}" for number in range(12)]
CLIENTS = 40


class Group:
    """Two servers that divide the endpoints, and clients with a connection to each that they need."""

    def __init__(self, *, daily: bool) -> None:
        self.daily = daily
        self.clock = ManualClock(wall_ms=MIDNIGHT - 40 * MINUTE_MS)
        self.arrivals: list[Arrival] = []
        self.hubs = [FeedHub(), FeedHub()]
        self.recorders = []
        for number, hub in enumerate(self.hubs):
            hub.fanout.update_counter = UpdateCounter()
            salt = DailySalt(b"salt", MIDNIGHT // DAY_MS - 1)
            self.recorders.append(Recorder(f"server-{number}", salt, self.clock.wall_ms, hub.fanout.update_counter))
            hub.hello("s", ["store"])
            names = ENDPOINTS[number::2]
            hub.batch(
                Batch(
                    "store",
                    len(names),
                    iter(
                        Change(n, name.encode(), 1_600_000_000_000 + n, 0, encode(name, 1_600_000_000_000 + n, 0))
                        for n, name in enumerate(names, 1)
                    ),
                )
            )
            hub.caught_up("store")
        self.sessions: dict[tuple[int, int], Session] = {}

    def subscribe(self, client: int, endpoint: int) -> None:
        server = endpoint % 2
        session = self.sessions.get((client, server))
        if session is None:
            hub = self.hubs[server]
            session = self.sessions[client, server] = Session(lambda _: None, lambda _: None, hub.fanout.stats)
            session.trace = self.recorders[server].connected(session, Random(f"{client} {server}").randbytes(8))
            session.trace.identified(f"client-{client}")
            hub.fanout.join(session)
        self.hubs[server].subscribe(session, {ENDPOINTS[endpoint]: 0})

    def pass_minute(self) -> None:
        """A minute passes, in which every endpoint changes once and the recorders are called as in a process."""
        for _ in range(60):
            self.clock.advance(1)
            for recorder in self.recorders:
                if self.daily:
                    recorder.renew()
        for hub, recorder, number in zip(self.hubs, self.recorders, range(2), strict=True):
            assert hub.fanout.update_counter is not None
            hub.fanout.update_counter.receive([name.encode() for name in ENDPOINTS[number::2]])
            recorder.count()
            while (line := recorder.next()) is not None:
                event = decode(line)
                self.arrivals.append(Arrival(event, event.time))


def run(*, daily: bool) -> Group:
    """Clients subscribe before midnight; a third of them subscribe to more, at a server new to them, after it."""
    chance = Random(1)
    group = Group(daily=daily)
    first = {client: chance.sample(range(12), 3) for client in range(CLIENTS)}
    for client, endpoints in first.items():
        for endpoint in endpoints:
            group.subscribe(client, endpoint)
    for minute in range(80):
        if minute == 50:
            for client in range(0, CLIENTS, 3):
                for endpoint in range(2):
                    group.subscribe(client, endpoint)
        group.pass_minute()
    return group


@pytest.fixture(scope="module")
def groups() -> tuple[Group, Group]:
    return run(daily=True), run(daily=False)


def both(groups: tuple[Group, Group], start_min: float, end_min: float) -> tuple[Statistics, Statistics]:
    window = Window(MIDNIGHT + int(start_min * MINUTE_MS), MIDNIGHT + int(end_min * MINUTE_MS))
    daily, constant = (statistics(group.arrivals, window) for group in groups)
    return daily, constant


def test_no_pseudonym_or_connection_is_on_both_days(groups: tuple[Group, Group]) -> None:
    days: list[set[str]] = [set(), set()]
    for event, _ in groups[0].arrivals:
        # The events of the renewal itself have the time of the new day; they only end what was before.
        if event.client and event.type != "disconnect":
            days[event.time >= MIDNIGHT].update((event.client, event.connection))
    assert len(days[0]) >= 2 * CLIENTS
    assert days[0].isdisjoint(days[1])


@pytest.mark.parametrize("end_min", [5, 12, 40])
def test_a_window_after_midnight_is_as_with_one_salt(groups: tuple[Group, Group], end_min: float) -> None:
    """Also for clients whose connections began on different days: the old ones were renewed."""
    daily, constant = both(groups, 0.1, end_min)
    assert daily.sets == constant.sets
    assert daily.endpoints == constant.endpoints


@pytest.mark.parametrize(("start_min", "end_min"), [(-30, 30), (-1, 1), (-39, 1)])
def test_a_window_over_midnight_has_the_same_weights(
    groups: tuple[Group, Group], start_min: float, end_min: float
) -> None:
    daily, constant = both(groups, start_min, end_min)
    assert [row.endpoint for row in daily.endpoints] == [row.endpoint for row in constant.endpoints]
    for mine, theirs in zip(daily.endpoints, constant.endpoints, strict=True):
        assert mine.rate == theirs.rate
        assert mine.subscribers == pytest.approx(theirs.subscribers, rel=1e-3)
    # Seconds are rounded down twice for each client, and its connections are renewed one after the other.
    total, whole = (sum(row.weight for row in each.sets) for each in (daily, constant))
    assert abs(total - whole) <= 2 * CLIENTS
    assert daily.summary.clients == 2 * constant.summary.clients
    # What nobody changes is the same set on both days: one row, with the weights of both.
    assert {row.endpoints for row in daily.sets} >= {row.endpoints for row in constant.sets}
