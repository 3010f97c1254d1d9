import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diem.process.limits import (
    REPLY_DATA_BURST,
    REPLY_DATA_RATE_PER_S,
    AddressLimits,
    AddressTable,
    AdmissionResult,
    ConnectionQuota,
    ErrorWindow,
    MessageAllowance,
    Network,
    TokenBucket,
    UserTable,
    address_key,
    networks,
)


def test_bucket_gives_its_burst_and_then_its_rate() -> None:
    bucket = TokenBucket(rate_per_s=2.0, burst=3.0)
    assert [bucket.take(10.0) for _ in range(4)] == [True, True, True, False]
    assert not bucket.take(10.4)
    assert bucket.take(10.5)
    assert not bucket.take(10.5)


def test_bucket_never_holds_more_than_its_burst() -> None:
    bucket = TokenBucket(rate_per_s=1.0, burst=2.0)
    assert [bucket.take(1e6) for _ in range(3)] == [True, True, False]


def test_default_bucket_is_20_at_once_and_100_a_minute() -> None:
    bucket = TokenBucket()
    assert sum(bucket.take(0.0) for _ in range(50)) == 20
    assert sum(bucket.take(second / 10) for second in range(1, 601)) == 100


def test_bucket_returns_when_to_retry() -> None:
    bucket = TokenBucket(rate_per_s=0.5, burst=1.0)
    assert bucket.retry_after(5.0) == 0
    bucket.take(5.0)
    assert bucket.retry_after(5.5) == pytest.approx(1.5)


@given(
    st.floats(0.1, 50),
    st.integers(1, 20),
    st.lists(st.floats(0, 3), max_size=60),
)
def test_bucket_equals_counting_tokens(rate: float, burst: int, gaps: list[float]) -> None:
    bucket = TokenBucket(rate, float(burst))
    tokens, now = float(burst), 100.0
    for gap in gaps:
        now += gap
        tokens = min(float(burst), tokens + gap * rate)
        if abs(tokens - 1) < 1e-6:
            return  # within rounding of the threshold the two may differ
        expected = tokens >= 1
        assert bucket.take(now) is expected
        tokens -= expected


def test_error_window_trips_at_the_limit_within_the_window() -> None:
    window = ErrorWindow(limit=3, seconds=60)
    assert [window.add(now) for now in (0, 30, 59)] == [False, False, True]


def test_error_window_forgets() -> None:
    window = ErrorWindow(limit=3, seconds=60)
    assert [window.add(now) for now in (0, 30, 60, 89, 91)] == [False, False, False, True, True]


def test_error_window_is_bounded_and_free_before_the_first_error() -> None:
    window = ErrorWindow()
    assert window._times is None
    for now in range(1000):
        window.add(now * 10.0)
    assert window._times is not None
    assert len(window._times) == 20


def test_limits_of_a_connection_are_small() -> None:
    assert sys.getsizeof(TokenBucket()) + sys.getsizeof(ErrorWindow()) <= 128


def test_address_has_a_number_of_connections() -> None:
    table = AddressTable(AddressLimits(connections=2))
    first = table.admit("192.0.2.1", 0)
    assert table.refusal("192.0.2.1", 0) is None
    table.admit("192.0.2.1", 0)
    assert table.refusal("192.0.2.1", 0) is AdmissionResult.ADDRESS_LIMIT
    assert table.refusal("192.0.2.2", 0) is None
    table.release("192.0.2.1", first, 0)
    assert table.refusal("192.0.2.1", 0) is None
    assert table.open("192.0.2.1") == 1


def test_address_table_is_bounded_and_empties() -> None:
    table = AddressTable(AddressLimits(), max_addresses=1)
    allowance = table.admit("192.0.2.1", 0)
    assert table.refusal("192.0.2.2", 0) is AdmissionResult.ADDRESS_LIMIT
    assert table.refusal("192.0.2.1", 0) is None
    table.release("192.0.2.1", allowance, 1)
    # Its connection is paid for; nothing of it is left.
    assert len(table) == 0
    assert table.refusal("192.0.2.2", 1) is None


def test_addresses_that_have_left_are_forgotten_when_nothing_of_theirs_is_used_up() -> None:
    table = AddressTable(AddressLimits())
    for number in range(100):
        address = f"192.0.2.{number}"
        allowance = table.admit(address, 0)
        allowance.messages.take(0)
        table.release(address, allowance, 0)
    assert len(table) == 100
    for _ in range(50):
        table.refusal("198.51.100.1", 1)
    assert len(table) == 0


def test_address_that_has_left_makes_room_for_a_new_one() -> None:
    table = AddressTable(AddressLimits(), max_addresses=2)
    for address in ("192.0.2.1", "192.0.2.2"):
        table.release(address, table.admit(address, 0), 0)
    assert table.refusal("192.0.2.3", 0) is None
    table.admit("192.0.2.3", 0)
    assert len(table) == 2


def sent(allowance: MessageAllowance, now: float) -> int:
    """Return the number of messages until none is left."""
    return next(count for count in range(1000) if not allowance.messages.take(now))


def test_reconnect_does_not_fill_the_allowance() -> None:
    table, total = AddressTable(AddressLimits()), 0
    for second in range(61):
        if table.refusal("192.0.2.1", second) is None:
            allowance = table.admit("192.0.2.1", second)
            total += sent(allowance, second)
            table.release("192.0.2.1", allowance, second)
    # 20 at once and 100 a minute: what one connection that stays may send.
    assert 100 < total <= 120


def test_address_that_has_used_up_all_may_come_again_when_a_quarter_of_the_burst_is_there() -> None:
    table = AddressTable(AddressLimits())
    allowance = table.admit("192.0.2.1", 0)
    sent(allowance, 0)
    table.release("192.0.2.1", allowance, 0)
    assert table.refusal("192.0.2.1", 2.9) is AdmissionResult.ADDRESS_USED_UP
    assert table.retry_after("192.0.2.1", 0) == pytest.approx(3.0)
    assert table.refusal("192.0.2.1", 3.0) is None
    assert sent(table.admit("192.0.2.1", 3.0), 3.0) == 5


def test_neighbours_behind_one_address_have_allowances_of_their_own() -> None:
    table = AddressTable(AddressLimits())
    noisy, quiet = table.admit("192.0.2.1", 0), table.admit("192.0.2.1", 0)
    sent(noisy, 0)
    assert sent(quiet, 0) == 20
    fresh = table.admit("192.0.2.1", 0)
    table.release("192.0.2.1", noisy, 0)
    table.release("192.0.2.1", fresh, 0)
    # Of those that were given back, the fullest is lent first.
    assert sent(table.admit("192.0.2.1", 0), 0) == 20
    assert table.refusal("192.0.2.1", 0) is AdmissionResult.ADDRESS_USED_UP


def test_frames_and_names_are_of_the_allowance_too() -> None:
    table = AddressTable(AddressLimits())
    allowance = table.admit("192.0.2.1", 0)
    assert sum(allowance.admit_frame(0) for _ in range(300)) == 200
    allowance.charge_names(0, 100)
    allowance.charge_names(0, 49)
    table.release("192.0.2.1", allowance, 0)
    again = table.admit("192.0.2.1", 0)
    assert not again.admit_frame(0)
    assert sent(again, 0) == 18


def test_ipv6_network_counts_as_one_address() -> None:
    assert address_key("2001:db8::1") == address_key("2001:db8::ffff:1")
    assert address_key("2001:db8::1") != address_key("2001:db8:0:1::1")
    assert address_key("192.0.2.1") == "192.0.2.1"
    assert address_key("fe80::1%eth0") == address_key("fe80::2")
    assert address_key("not:an:address") == "not:an:address"


def test_ipv4_addresses_on_a_socket_for_both_families_are_addresses_of_their_own() -> None:
    assert address_key("::ffff:192.0.2.1") == address_key("192.0.2.1")
    assert address_key("::ffff:192.0.2.1") != address_key("::ffff:192.0.2.2")


def admission(limits: AddressLimits | None = None, cap: int = 10) -> ConnectionQuota:
    return ConnectionQuota(AddressTable(limits or AddressLimits()), cap)


def admitted(outcome: MessageAllowance | AdmissionResult) -> MessageAllowance:
    assert isinstance(outcome, MessageAllowance), outcome
    return outcome


def test_full_process_refuses_with_503() -> None:
    gate = admission(cap=1)
    allowance = admitted(gate.admit("a", 0))
    assert gate.admit("b", 0) is AdmissionResult.PROCESS_FULL
    gate.release("a", allowance, 0)
    assert gate.open == 0
    admitted(gate.admit("b", 0))
    assert (gate.open_of("a"), gate.open_of("b")) == (0, 1)
    assert AdmissionResult.PROCESS_FULL.status == 503


def test_addresses_without_limits_leave_a_fifth_of_the_capacity_to_others() -> None:
    gate = ConnectionQuota(AddressTable(AddressLimits()), 10, limits_loopback=False)
    held = [admitted(gate.admit("127.0.0.1", 0)) for _ in range(8)]
    assert gate.refusal("::1", 0) is AdmissionResult.PROCESS_FULL
    assert gate.admit("::1", 0) is AdmissionResult.PROCESS_FULL
    others = [admitted(gate.admit("192.0.2.1", 0)) for _ in range(2)]
    assert gate.admit("192.0.2.1", 0) is AdmissionResult.PROCESS_FULL
    gate.release("192.0.2.1", others.pop(), 0)
    assert gate.admit("127.0.0.1", 0) is AdmissionResult.PROCESS_FULL
    gate.release("127.0.0.1", held.pop(), 0)
    admitted(gate.admit("127.0.0.1", 0))
    assert gate.open == 9


def test_the_smallest_process_admits_this_machine_all_the_same() -> None:
    gate = ConnectionQuota(AddressTable(AddressLimits()), 1, limits_loopback=False)
    admitted(gate.admit("127.0.0.1", 0))
    assert gate.admit("127.0.0.1", 100) is AdmissionResult.PROCESS_FULL


def test_wider_networks_have_several_times_the_limits_of_an_address() -> None:
    table = AddressTable(AddressLimits(connections=2))
    held: list[tuple[str, MessageAllowance]] = []

    def connect(address: str) -> AdmissionResult | None:
        if (refusal := table.refusal(address, 0)) is None:
            held.append((address, table.admit(address, 0)))
        return refusal

    in_56 = [f"2001:db8:0:{number:x}::{host}" for number in range(256) for host in (1, 2)]
    assert [connect(address) for address in in_56].count(None) == 4 * 2
    in_48 = [f"2001:db8:0:{number:x}00::1" for number in range(1, 256)]
    assert [connect(address) for address in in_48].count(None) == 16 * 2 - 4 * 2
    assert connect("2001:db8:1::1") is None
    assert connect("192.0.2.1") is None
    for address, allowance in held:
        table.release(address, allowance, 0)
    assert table.open("2001:db8::1") == 0
    # Only the rate of new ones bounds them now.
    assert [connect(address) for address in in_48].count(None) == 16 * 2


def test_connections_of_a_user_are_counted_and_forgotten() -> None:
    users, own = UserTable(2, AddressLimits()), MessageAllowance(TokenBucket())

    def admit(user: str) -> MessageAllowance:
        lent = users.admit(user, 0.0)
        assert isinstance(lent, MessageAllowance)
        return lent

    lent = [(user, admit(user)) for user in ("::1", "::2")]
    first = admit("::1")
    assert users.admit("::1", 0.0) is AdmissionResult.USER_LIMIT, "a user's name is no address"
    users.release("::1", first, own, 0.0)
    lent.append(("::1", admit("::1")))
    assert (users.open("::1"), users.open("::2")) == (2, 1)
    for user, allowance in lent:
        users.release(user, allowance, own, 1.0)
    assert not len(users)


def test_user_who_reconnects_from_other_addresses_has_no_more_messages() -> None:
    users = UserTable(20, AddressLimits())
    sent, refused = 0, 0
    for _ in range(100):
        own = MessageAllowance(TokenBucket())  # of an address never seen before
        lent = users.admit("alice", 0.0)
        if isinstance(lent, AdmissionResult):
            assert lent is AdmissionResult.USER_USED_UP
            refused += 1
            continue
        own.drain_to(lent)
        sent += sum(own.messages.take(0.0) for _ in range(7))
        users.release("alice", lent, own, 0.0)
    assert (sent, refused) == (20, 97)
    assert users.retry_after("alice", 0.0) == pytest.approx(3.0)
    assert isinstance(users.admit("bob", 0.0), MessageAllowance)
    assert isinstance(users.admit("alice", 3.1), MessageAllowance)


def test_frames_of_a_user_are_of_the_allowance_too() -> None:
    users, own = UserTable(20, AddressLimits()), MessageAllowance(TokenBucket())
    lent = users.admit("alice", 0.0)
    assert isinstance(lent, MessageAllowance)
    while own.admit_frame(0.0):
        pass
    users.release("alice", lent, own, 0.0)
    other = MessageAllowance(TokenBucket())
    again = users.admit("alice", 0.0)
    assert isinstance(again, MessageAllowance)
    other.drain_to(again)
    assert not other.admit_frame(0.0)


def test_users_who_have_left_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    users = UserTable(1, AddressLimits())
    monkeypatch.setattr(users._table, "_max_addresses", 10)
    for number in range(100):
        own, lent = MessageAllowance(TokenBucket()), users.admit(str(number), 0.0)
        assert isinstance(lent, MessageAllowance)
        own.messages.take(0.0)
        users.release(str(number), lent, own, 0.0)
    assert len(users) == 10


def test_data_in_replies_is_bounded_and_a_reconnect_does_not_renew_it() -> None:
    table = AddressTable(AddressLimits())
    allowance = table.admit("192.0.2.1", 0)
    assert allowance.data_full_at == 0
    assert allowance.take_data(0, REPLY_DATA_BURST)
    assert not allowance.take_data(0, 1)
    assert sent(allowance, 0) == 20, "messages are charged apart"
    table.release("192.0.2.1", allowance, 0)
    again = table.admit("192.0.2.1", 12)
    assert not again.take_data(12, 12 * REPLY_DATA_RATE_PER_S + 1)
    assert again.take_data(12, 12 * REPLY_DATA_RATE_PER_S)
    other = MessageAllowance(TokenBucket())
    other.drain_to(again)
    assert not other.take_data(12, 1)


def test_a_mapped_address_is_its_ipv4_address() -> None:
    assert networks("::ffff:192.0.2.1") == networks("192.0.2.1") == (Network("192.0.2.1", 1),)
