"""A walk over the connections of an HTTP listener: they open, ask, are answered, take the answer or not, and close."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from diem.links.connection_limits import GRACE_S, ConnectionLimiter, ConnectionLimits, Pool
from diem.process.limits import AdmissionResult
from tests.walks import walk_settings

READERS, PRIVILEGED, PENDING, PER_ADDRESS = 3, 1, 3, 2
ADDRESSES = ("192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2", "127.0.0.1")


class Fake:
    """A connection as the shell has it; it says when it is closed although it must not be."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.busy = False
        self.drained = True
        self.waiting_since = 0.0
        self.has_asked = False
        self.open = True
        self.now = 0.0

    def evict(self) -> None:
        assert self.open
        assert not self.busy, "a request is being answered"
        assert self.drained, "its client has not taken the answer yet"
        assert self.has_asked or self.now - self.waiting_since >= GRACE_S, "its request may be on its way"
        self.open = False


class HttpConnections(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        bound = {"127.0.0.1": None}
        limits = ConnectionLimits(READERS, PRIVILEGED, PENDING, lambda address: bound.get(address, PER_ADDRESS))
        self.limiter = ConnectionLimiter[Fake](limits)
        self.connections: list[Fake] = []

    @property
    def pools(self) -> tuple[Pool[Fake], ...]:
        return self.limiter.pending, self.limiter.readers, self.limiter.privileged

    def some(self, data: st.DataObject, *, busy: bool | None = None) -> Fake | None:
        found = [one for one in self.connections if one.open and busy in {None, one.busy}]
        return data.draw(st.sampled_from(found)) if found else None

    def gives_way(self, pool: Pool[Fake], address: str = "") -> bool:
        key = "2001:db8::" if ":" in address else address
        return any(
            one.open and not one.busy and one.drained and one in pool.members and one.address.startswith(key)
            for one in self.connections
        )

    def pass_(self, seconds: float) -> None:
        self.now += seconds
        for one in self.connections:
            one.now = self.now

    @rule(seconds=st.sampled_from([0.1, 0.5, 2.0]))
    def time_passes(self, seconds: float) -> None:
        self.pass_(seconds)

    @rule(address=st.sampled_from(ADDRESSES))
    def opens(self, address: str) -> None:
        self.dial(address)

    def dial(self, address: str) -> Fake:
        new = Fake(address)
        new.waiting_since = new.now = self.now
        self.connections.append(new)
        new.open = self.limiter.opened(new, address, self.now) is None
        return new

    @rule(address=st.sampled_from(ADDRESSES), privileged=st.booleans())
    def opens_and_asks(self, address: str, privileged: bool) -> None:
        new = self.dial(address)
        if new.open:
            self.request(new, privileged)

    @rule(data=st.data(), privileged=st.booleans())
    def asks(self, data: st.DataObject, privileged: bool) -> None:
        one = self.some(data, busy=False)
        if one is not None:
            self.request(one, privileged)

    def request(self, one: Fake, privileged: bool) -> None:
        one.busy = True  # nobody may close it for itself
        room = self.gives_way(self.limiter.readers) or len(self.limiter.readers) < READERS
        own_room = self.gives_way(self.limiter.privileged) or len(self.limiter.privileged) < PRIVILEGED
        verdict = self.limiter.requested(one, one.address, self.now, privileged=privileged)
        if verdict is None:
            one.has_asked = True
            assert one in self.limiter.readers.members or (privileged and one in self.limiter.privileged.members)
            return
        assert not (privileged and own_room), "reserved for it"
        if verdict is AdmissionResult.PROCESS_FULL:
            assert not room, "an idle reader could have given way"
        else:
            assert not self.gives_way(self.limiter.readers, one.address)
        # It is told so before it is closed.
        self.limiter.closed(one)
        one.open = False

    @rule(data=st.data(), taken=st.booleans())
    def is_answered(self, data: st.DataObject, taken: bool) -> None:
        one = self.some(data, busy=True)
        if one is not None:
            one.busy, one.drained = False, taken
            self.limiter.answered(one, self.now)

    @rule(data=st.data())
    def takes_its_answer(self, data: st.DataObject) -> None:
        one = self.some(data)
        if one is not None:
            one.drained = True

    @rule(data=st.data())
    def closes(self, data: st.DataObject) -> None:
        one = self.some(data)
        if one is not None:
            one.open = False
            self.limiter.closed(one)

    @invariant()
    def every_open_connection_is_in_one_pool_and_no_other_is_in_any(self) -> None:
        for one in self.connections:
            assert sum(one in pool.members for pool in self.pools) == one.open
        self.connections = [one for one in self.connections if one.open]
        assert len(self.limiter) == len(self.connections)

    @invariant()
    def bounds_hold(self) -> None:
        for pool, limit in zip(self.pools, (PENDING, READERS, PRIVILEGED), strict=True):
            assert len(pool) <= limit
        for pool in self.pools[:2]:
            for key in ("192.0.2.1", "192.0.2.2", "2001:db8::"):
                assert (
                    sum(one in pool.members and one.address.startswith(key) for one in self.connections) <= PER_ADDRESS
                )

    def teardown(self) -> None:
        for one in self.connections:
            self.limiter.closed(one)
        assert all(not len(pool) and not pool.addresses and not pool.idle for pool in self.pools)


TestHttpConnections = HttpConnections.TestCase
TestHttpConnections.settings = walk_settings(examples=80, steps=60)
