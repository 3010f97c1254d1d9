"""Random walks over connections of two addresses: no way of coming and going gets an address more than its share."""

from collections import deque
from copy import deepcopy

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from diem.process.limits import (
    AddressLimits,
    AddressTable,
    AdmissionResult,
    ConnectionQuota,
    MessageAllowance,
)
from tests.walks import walk_settings

LIMITS = AddressLimits(
    connections=4, connect_rate_per_s=2.0, connect_burst=4.0, message_rate_per_s=1.0, message_burst=5.0
)
ADDRESSES = ("192.0.2.1", "2001:db8::1")


class Account:
    """What one address did, as somebody counts it who knows nothing of buckets."""

    def __init__(self) -> None:
        self.held: list[MessageAllowance] = []
        self.most = 0
        """Connections that it had at a time."""
        self.connects: deque[float] = deque()
        self.messages: deque[float] = deque()
        self.frames: deque[float] = deque()


class Comings(RuleBasedStateMachine):
    """Two addresses at one process."""

    @initialize()
    def begin(self) -> None:
        self.now = 100.0
        self.table = AddressTable(LIMITS, max_addresses=2)
        self.admission = ConnectionQuota(self.table, 100)
        self.accounts = {address: Account() for address in ADDRESSES}

    @rule(seconds=st.sampled_from([0.0, 0.1, 0.5, 1.0, 3.0, 10.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(address=st.sampled_from(ADDRESSES))
    def connect(self, address: str) -> None:
        account = self.accounts[address]
        outcome = self.admission.admit(address, self.now)
        if isinstance(outcome, AdmissionResult):
            if outcome is AdmissionResult.ADDRESS_LIMIT:
                assert len(account.held) == LIMITS.connections
            else:
                wait = self.admission.retry_after(address, self.now)
                assert 0 < wait < 60
                # Of a copy: this one would forget who has got everything back by then.
                assert deepcopy(self.table).refusal(address, self.now + wait + 1e-6) is None
            return
        account.held.append(outcome)
        account.most = max(account.most, len(account.held))
        account.connects.append(self.now)

    @rule(address=st.sampled_from(ADDRESSES), which=st.integers(0, 3), messages=st.integers(1, 8))
    def send(self, address: str, which: int, messages: int) -> None:
        account = self.accounts[address]
        if which < len(account.held):
            for _ in range(messages):
                if account.held[which].messages.take(self.now):
                    account.messages.append(self.now)

    @rule(address=st.sampled_from(ADDRESSES), which=st.integers(0, 3), frames=st.integers(50, 300))
    def ping(self, address: str, which: int, frames: int) -> None:
        account = self.accounts[address]
        if which < len(account.held):
            account.frames.extend([self.now] * sum(account.held[which].admit_frame(self.now) for _ in range(frames)))

    @rule(address=st.sampled_from(ADDRESSES), which=st.integers(0, 3))
    def leave(self, address: str, which: int) -> None:
        account = self.accounts[address]
        if which < len(account.held):
            self.admission.release(address, account.held.pop(which), self.now)

    @rule(address=st.sampled_from(ADDRESSES), messages=st.integers(1, 8), frames=st.integers(0, 300))
    def visit(self, address: str, messages: int, frames: int) -> None:
        """Come, use it, and go at once."""
        before = len(self.accounts[address].held)
        self.connect(address)
        if len(self.accounts[address].held) > before:
            self.send(address, before, messages)
            self.ping(address, before, frames)
            self.leave(address, before)

    @invariant()
    def nobody_has_more_than_the_rules_allow(self) -> None:
        if not hasattr(self, "accounts"):
            return
        assert self.admission.open == sum(len(account.held) for account in self.accounts.values())
        assert len(self.table) <= 2
        for address, account in self.accounts.items():
            assert self.table.open(address) == len(account.held) <= LIMITS.connections
            self._within(account.connects, LIMITS.connect_rate_per_s, LIMITS.connect_burst)
            self._within(
                account.messages, LIMITS.message_rate_per_s * account.most, LIMITS.message_burst * account.most
            )
            self._within(account.frames, 10.0 * account.most, 200.0 * account.most)

    def _within(self, times: deque[float], rate: float, burst: float) -> None:
        """In no time up to now was there more than the burst and what the rate adds."""
        for count, since in enumerate(reversed(times), start=1):
            assert count <= burst + rate * (self.now - since) + 1e-6


Comings.TestCase.settings = walk_settings(examples=60, steps=40)
TestComings = Comings.TestCase
