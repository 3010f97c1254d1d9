"""What a client of a load test counts of the events that it is sent."""

from collections.abc import Sequence

import pytest

from diem.client import Event
from tools.load.client import MAX_REASONS, OTHER_REASONS, LoadClient, Reasons, Received

NOW_S = 1_700_000_000.0
NOW = 1_700_000_000_000


def made(names: Sequence[str] = ("/a",), before: dict[str, int] | None = None) -> tuple[LoadClient, Received]:
    received = Received()
    return LoadClient(1, names, before or {}, received), received


def apply(client: LoadClient, *events: Event, now_s: float = NOW_S) -> None:
    for event in events:
        client.apply(event, now_s)


def update(version: int, name: str = "/a") -> Event:
    return Event("update", name, version)


def test_updates_after_the_subscription_count_with_their_delay() -> None:
    client, received = made()
    received.measure()
    apply(client, Event("subscribed", "/a", NOW - 5000), update(NOW - 5000), update(NOW - 8))
    assert (received.updates, received.delays.max_ms) == (1, 8.0)


def test_what_was_there_before_the_test_is_no_update_even_if_the_subscription_does_not_state_it() -> None:
    client, received = made(before={"/a": NOW - 9000})
    received.measure()
    apply(client, Event("subscribed", "/a", None), update(NOW - 9000))
    assert received.updates == 0
    apply(client, update(NOW - 1))
    assert received.updates == 1


def test_the_update_that_follows_a_reconnect_counts_with_its_whole_delay() -> None:
    client, received = made()
    received.measure()
    apply(client, Event("open"), Event("subscribed", "/a", NOW - 9000), Event("closed", code=1006))
    apply(client, Event("open"), Event("subscribed", "/a", NOW - 3000), update(NOW - 3000))
    assert (received.updates, received.delays.max_ms) == (1, 3000.0)


def test_afterwards_only_updates_count_that_the_catalogue_had() -> None:
    client, received = made()
    apply(client, Event("subscribed", "/a", 1), update(5))
    assert received.updates == 0
    received.measure()
    apply(client, update(6))
    received.finish({"/a": 8})
    apply(client, update(8), update(9))
    assert received.updates == 2


def test_a_client_is_complete_once_every_endpoint_was_answered() -> None:
    client, received = made(("/a", "/b"))
    apply(client, Event("subscribed", "/a", 1))
    assert (client.is_complete, client.is_subscribed, received.complete) == (False, True, 0)
    apply(client, Event("rejected", "/b", message="forbidden: no"), Event("subscribed", "/a", 1))
    assert (client.is_complete, received.complete) == (True, 1)
    assert received.rejected.counts == {"forbidden: no": 1}
    # Without a connection the versions are unknown; what was rejected is not subscribed.
    assert [(each.endpoint, each.subscribed, each.version) for each in client.holdings()] == [
        ("/a", True, None),
        ("/b", False, None),
    ]


def test_what_ends_a_connection_is_a_refusal_until_the_client_is_complete() -> None:
    client, received = made()
    apply(
        client,
        Event("closed"),
        Event("closed", code=429, message="429: too many"),
        Event("error", message="rate: slowly"),
    )
    apply(client, Event("open"), Event("subscribed", "/a", 1))
    apply(
        client, Event("closed", code=1012, message="restart retry=500"), Event("closed", code=1012, message="restart")
    )
    apply(client, Event("closed", code=4003, message="retry=9000"), Event("closed", code=1006))
    assert received.refused.counts == {"no connection": 1, "429: too many": 1, "rate: slowly": 1}
    assert received.interrupted.counts == {"1012: restart": 2, "4003": 1, "1006": 1}
    assert not client.is_connected


def test_a_resync_lasts_until_the_next_update() -> None:
    client, _ = made()
    apply(client, Event("subscribed", "/a", 1), Event("resync", "/a"))
    assert [each.resync for each in client.holdings()] == [True]
    apply(client, update(2))
    assert [each.resync for each in client.holdings()] == [False]


@pytest.mark.parametrize("count", [MAX_REASONS, 5 * MAX_REASONS])
def test_different_reasons_are_bounded(count: int) -> None:
    reasons = Reasons()
    for number in range(count):
        reasons.add(f"reason {number}")
    assert sum(reasons.counts.values()) == count
    assert len(reasons.counts) <= MAX_REASONS + 1
    assert reasons.counts[OTHER_REASONS] == count - MAX_REASONS
