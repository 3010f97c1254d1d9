"""Data with updates, and the quotas that bound it: clients come, go, are slow, and present other tokens.

The fan-out, sessions and meters are the real ones. After each step an account has been charged for the data that was
written to its clients, and for nothing else.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diem.fanout.feed_hub import FeedHub
from diem.fanout.read_meter import UNMETERED, ReadMeter, ReadMeters
from diem.fanout.session import Session
from diem.protocol.feed import Batch
from diem.protocol.frames import frame_has_data
from diem.protocol.update import Change, encode
from tests.walks import walk_settings

START = 1_700_000_000_000
NAMES = ("/a", "/b")


class Client:
    """A client, and the data that was written to it while an account counted it."""

    def __init__(self, world: "World", *, compressed: bool) -> None:
        self.world = world
        hub = world.hub
        self.session = Session(self._write, self._write_many, hub.fanout.stats, compressed=compressed)
        hub.fanout.join(self.session)

    def _write(self, frame: bytes) -> None:
        if frame_has_data(frame):
            for part in self.session.meter.parts:
                self.world.written[part.account] += 1

    def _write_many(self, frames: Iterable[bytes]) -> None:
        for frame in frames:
            self._write(frame)


class World:
    """A hub, three clients, two keys and a user of one of them."""

    def __init__(self, leases: Sequence[int]) -> None:
        self.hub = FeedHub()
        self.meters = ReadMeters()
        self.written: Counter[str] = Counter()
        self.reported: Counter[str] = Counter()
        self._leases = leases
        self._version = START
        self.hub.hello("s", ["store"])
        self.hub.caught_up("store")
        self.clients = [Client(self, compressed=number == 2) for number in range(3)]
        for number in range(3):
            self.use_account(number)
            self.subscribe(number)
        self.report(0)

    # Steps

    def update(self, number: int) -> None:
        self._version += 1
        name = NAMES[number % 2]
        data = b'{"version":%d}' % self._version if number % 8 else None
        value = encode(name, self._version, self._version, data=data)
        change = Change(self._version - START, name.encode(), self._version, 0, value)
        self.hub.batch(Batch("store", change.sequence + 1, iter([change])))

    def subscribe(self, number: int) -> None:
        """As the edge does it: the retained updates follow, or are held."""
        session = self.clients[number % 3].session
        known = dict.fromkeys(NAMES if number & 4 else NAMES[:1], 0)
        session.send_many(self.hub.subscribe(session, known, with_data=not number & 8).replay)

    def unsubscribe(self, number: int) -> None:
        self.hub.fanout.unsubscribe(self.clients[number % 3].session, [NAMES[number // 4 % 2]])

    def block(self, number: int) -> None:
        self.clients[number % 3].session.block()

    def unblock(self, number: int) -> None:
        self.clients[number % 3].session.unblock()

    def come_back(self, number: int) -> None:
        self.hub.fanout.leave(self.clients[number % 3].session)
        self.clients[number % 3] = Client(self, compressed=number % 3 == 2)
        self.use_account(number)
        self.subscribe(number)

    def use_account(self, number: int) -> None:
        """The client presents a token."""
        meter = (self.meters.of("k"), self.meters.of("k", "k/u"), self.meters.of("other"), UNMETERED)[number // 4 % 4]
        self.hub.fanout.set_meter(self.clients[number % 3].session, meter)

    def report(self, number: int) -> None:
        """The counts go to the Data Service, which grants leases."""
        for report in self.meters.reports(100):
            self.reported.update(report.reads)
            accounts = sorted(report.accounts)
            leases = {
                account: self._leases[(number + place) % len(self._leases)] for place, account in enumerate(accounts)
            }
            self.hub.fanout.apply_quotas(self.meters.apply(accounts, {"exhausted": [], "leases": leases}))

    # What must hold

    def check(self) -> None:
        for meter in [self.meters.of("k"), self.meters.of("k", "k/u"), self.meters.of("other")]:
            self._check_account(meter)

    def _check_account(self, meter: ReadMeter) -> None:
        account = meter.account
        held = sum(
            frame_has_data(frame)
            for client in self.clients
            if meter in client.session.meter.parts
            for frame in (client.session._held or {}).values()
        )
        assert meter.held == held
        charged = self.reported[account] + meter.reads - meter.held
        assert charged == self.written[account], f"{account} is charged {charged} for {self.written[account]} datasets"
        assert meter.reads <= max(meter.lease, meter.held), f"{account} has read more than it was granted"
        own = {client.session for client in self.clients if meter in client.session.meter.parts}
        assert (self.hub.fanout._metered.get(meter, set()), meter.clients) == (own, len(own))


STEPS: Sequence[Callable[[World, int], None]] = (
    *[World.update] * 5,
    *[World.subscribe] * 2,
    World.unsubscribe,
    *[World.block] * 2,
    World.unblock,
    World.come_back,
    World.use_account,
    World.report,
)


@walk_settings(examples=200)
@given(
    leases=st.lists(st.sampled_from([0, 1, 2, 5, 100]), min_size=1, max_size=4),
    walk=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 255)), min_size=10, max_size=60),
)
@pytest.mark.usefixtures("silent_log")
def test_account_is_charged_for_the_data_that_was_written_to_its_clients(
    leases: list[int], walk: list[tuple[Callable[[World, int], None], int]]
) -> None:
    world = World(leases)
    for step, number in walk:
        step(world, number)
        world.check()
