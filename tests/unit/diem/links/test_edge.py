"""Admission: the limits of one address, which reconnects do not reset."""

from ipaddress import ip_network
from typing import Any, Final

import pytest
from websockets.datastructures import Headers

from diem.links.edge import MAX_VIOLATIONS, Admission, AdmissionRules, admission_rules, fetch_window_ms
from diem.links.refusals import Cause, RefusedClient
from diem.process.limits import MessageAllowance
from services.websocket.settings import Settings

PAGE: Final = 8080


def knock(gate: Admission, address: str, now: float = 0.0) -> MessageAllowance | RefusedClient:
    headers = Headers({"Origin": f"http://localhost:{PAGE}", "X-Forwarded-For": address})
    found, outcome = gate.admit("127.0.0.1", headers, now)
    assert found == address
    return outcome if isinstance(outcome, RefusedClient) else outcome.allowance


def gate_with(**rules: Any) -> Admission:
    given: dict[str, Any] = {"page_port": PAGE, "trusted_proxies": (ip_network("127.0.0.0/8"),), "anonymous": "on"}
    return Admission(AdmissionRules(**given | rules))


def test_neighbours_in_one_ipv6_network_share_their_violations() -> None:
    gate = Admission(AdmissionRules())
    assert [gate.add_violation(f"2001:db8::{n}", n) for n in range(1, 6)] == [False] * MAX_VIOLATIONS + [True, True]
    assert not gate.add_violation("2001:db8:0:1::1", 6)


def test_address_that_connects_too_fast_gets_retry_after() -> None:
    gate = gate_with()
    for _ in range(50):
        allowance = knock(gate, "192.0.2.1")
        assert isinstance(allowance, MessageAllowance)
        gate.release("192.0.2.1", allowance, 0)
    refused = knock(gate, "192.0.2.1")
    assert isinstance(refused, RefusedClient)
    assert (refused.status, refused.retry_after_s) == (429, 1)
    assert isinstance(knock(gate, "192.0.2.2"), MessageAllowance)
    assert isinstance(knock(gate, "192.0.2.1", 0.1), MessageAllowance)
    assert gate.open_of("192.0.2.1") == 1


def test_address_that_has_sent_all_it_may_waits_outside() -> None:
    gate = gate_with()
    allowance = knock(gate, "192.0.2.1")
    assert isinstance(allowance, MessageAllowance)
    assert sum(allowance.messages.take(0) for _ in range(100)) == 62
    gate.release("192.0.2.1", allowance, 0)
    refused = knock(gate, "192.0.2.1")
    assert isinstance(refused, RefusedClient)
    assert (refused.status, refused.retry_after_s) == (429, 19)


@pytest.mark.parametrize(
    ("per_address", "given", "rate", "burst"),
    [(50, None, 10, 50), (1, None, 10, 50), (500, None, 100, 500), (50, 3.0, 3, 50)],
)
def test_all_connections_of_an_address_may_come_back_at_once(
    per_address: int, given: float | None, rate: float, burst: float
) -> None:
    settings = Settings(
        internal_port=0,
        feed_url=["ws://127.0.0.1:1/feed"],
        connections_per_address=per_address,
        connection_rate_per_address=given,
    )
    limits = admission_rules(settings).address_limits
    assert (limits.connections, limits.connect_rate_per_s, limits.connect_burst) == (per_address, rate, burst)


@pytest.mark.parametrize(("subscriptions", "burst"), [(128, 20), (1000, 60)])
def test_client_may_ask_twice_for_all_that_it_may_subscribe_to(subscriptions: int, burst: int) -> None:
    gate = gate_with(subscriptions=subscriptions)
    allowance = knock(gate, "192.0.2.1")
    assert isinstance(allowance, MessageAllowance)
    messages = 2 * -(-subscriptions // 100)
    for _ in range(messages):
        assert allowance.messages.take(0)
        allowance.charge_names(0, 100)
    assert sum(allowance.messages.take(0) for _ in range(100)) == burst - 3 * messages


def asks_for(allowance: MessageAllowance, names: int, now: float) -> bool:
    """Subscribe to so many names as clients do, 100 in a message; return whether all messages were admitted."""
    for start in range(0, names, 100):
        if not allowance.messages.take(now):
            return False
        allowance.charge_names(now, min(100, names - start))
    return True


@pytest.mark.parametrize("subscriptions", [128, 160, 170, 333, 500, 1000, 1024])
def test_client_that_comes_again_and_again_is_let_in_when_it_may_ask_for_all(subscriptions: int) -> None:
    gate, now = gate_with(subscriptions=subscriptions), 0.0
    for _ in range(6):
        outcome = knock(gate, "192.0.2.1", now)
        while isinstance(outcome, RefusedClient):
            now += outcome.retry_after_s
            outcome = knock(gate, "192.0.2.1", now)
        assert asks_for(outcome, subscriptions, now)
        gate.release("192.0.2.1", outcome, now)


@pytest.mark.parametrize(
    ("clients", "window_ms"), [(0, 0), (399, 0), (400, 100), (10_000, 2500), (40_000, 10_000), (10**6, 10_000)]
)
def test_fetches_are_spread_by_the_number_of_clients(clients: int, window_ms: int) -> None:
    assert fetch_window_ms(clients) == window_ms


def refusal_of(gate: Admission, address: str, **fields: str) -> RefusedClient:
    headers = Headers({"Origin": f"http://localhost:{PAGE}", "X-Forwarded-For": address, **fields})
    _, outcome = gate.admit("127.0.0.1", headers, 0.0)
    assert isinstance(outcome, RefusedClient)
    assert gate.refusal("127.0.0.1", headers, 0.0) == outcome, "asking for the reason gives the same answer"
    return outcome


@pytest.mark.parametrize(
    ("rules", "cause", "text"),
    [
        ({"per_address": 1}, Cause.LIMIT, "this address has 1 clients already (--clients-per-address)"),
        ({"capacity": 1}, Cause.FULL, "this server has 1 clients already (DIEM_*_CAPACITY)"),
    ],
)
def test_refusal_says_which_limit_was_reached_and_where_it_is_set(
    rules: dict[str, Any], cause: Cause, text: str
) -> None:
    gate = gate_with(**rules)
    assert isinstance(knock(gate, "192.0.2.1"), MessageAllowance)
    refused = refusal_of(gate, "192.0.2.1")
    assert (refused.cause, refused.detail) == (cause, text)
    assert gate.open == 1


def test_page_of_a_foreign_origin_is_told_which_option_admits_it() -> None:
    refused = refusal_of(gate_with(), "192.0.2.1", Origin="http://localhost:5173")
    assert (refused.status, refused.cause) == (403, Cause.ORIGIN)
    assert refused.detail == "http://localhost:5173 is not an allowed origin; start with --origin http://localhost:5173"


def test_address_at_its_limit_is_asked_to_wait_longer_than_one_that_was_too_fast() -> None:
    gate = gate_with(per_address=1)
    knock(gate, "192.0.2.1")
    assert refusal_of(gate, "192.0.2.1").retry_after_s == 10


def test_asking_for_the_reason_counts_nothing() -> None:
    gate = gate_with(per_address=1)
    headers = Headers({"Origin": f"http://localhost:{PAGE}", "X-Forwarded-For": "192.0.2.1"})
    assert [gate.refusal("127.0.0.1", headers, 0.0) for _ in range(1000)] == [None] * 1000
    assert isinstance(knock(gate, "192.0.2.1"), MessageAllowance)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.9", "::1"])
def test_clients_of_this_machine_have_no_limit_of_an_address_where_it_is_off(address: str) -> None:
    gate = gate_with(limit_loopback=False, per_address=2, capacity=300)
    admitted = [knock(gate, address) for _ in range(200)]
    allowances = [each for each in admitted if isinstance(each, MessageAllowance)]
    assert len(allowances) == 200
    for allowance in allowances:
        assert sum(allowance.messages.take(0) for _ in range(100)) == 62, "the limits of a client stay"
        gate.release(address, allowance, 0)
    assert gate.open == 0
    assert isinstance(knock(gate, address), MessageAllowance), "what others have used up does not count"
    for _ in range(2):
        knock(gate, "192.0.2.1")
    assert isinstance(knock(gate, "192.0.2.1"), RefusedClient)


def test_explanations_are_bounded_for_each_address_behind_the_proxies() -> None:
    gate = gate_with()

    def answered(address: str, now: float) -> bool:
        headers = Headers({"X-Forwarded-For": address})
        found, refusal = gate.beyond_explanations("127.0.0.1", headers, now)
        assert found == address
        return refusal is None

    assert [answered("192.0.2.1", 0.0) for _ in range(25)] == [True] * 20 + [False] * 5
    assert answered("192.0.2.2", 0.0)
    assert [answered("192.0.2.1", 1.0) for _ in range(6)] == [True] * 5 + [False]


def test_refusal_of_this_machine_names_its_share_of_the_process() -> None:
    gate = gate_with(limit_loopback=False, capacity=5)
    outcomes = [knock(gate, "127.0.0.1") for _ in range(5)]
    assert isinstance(outcomes[-1], RefusedClient)
    assert outcomes[-1].detail == "this server has 4 clients already (DIEM_*_CAPACITY)"
    assert isinstance(knock(gate, "192.0.2.1"), MessageAllowance)


def test_clients_that_a_proxy_of_this_machine_forwards_are_limited_all_the_same() -> None:
    gate = gate_with(limit_loopback=False, per_address=1, trusted_proxies=())
    outcomes = []
    for _ in range(2):
        headers = Headers({"Origin": f"http://localhost:{PAGE}", "Via": "1.1 relay"})
        outcomes.append(gate.admit("127.0.0.1", headers, 0.0)[1])
    assert isinstance(outcomes[1], RefusedClient)


def test_clients_of_this_machine_may_begin_as_many_tls_handshakes_as_there_may_be_clients() -> None:
    limiter = gate_with(limit_loopback=False, per_address=1, trusted_proxies=()).handshakes()
    assert [limiter.begin("127.0.0.1", 0.0) for _ in range(300)] == [None] * 300
    assert [limiter.begin("192.0.2.1", 0.0) is None for _ in range(2)] == [True, False]
