import pytest

from tests.load.meter import kind_of, measured

BEFORE = {
    "nginx": {"cpu": 1.0, "rss_kib": 10.0},
    "websocket-1": {"cpu": 1.0, "rss_kib": 20.0, "clients": 8.0, "updates_not_subscribed_total": 5.0},
    "composite-1/websocket-1": {"cpu": 2.0, "rss_kib": 30.0, "proxy_links": 2.0},
}
AFTER = {
    "nginx": {"cpu": 1.1, "rss_kib": 10.0},
    "websocket-1": {
        "cpu": 1.2,
        "rss_kib": 24.0,
        "clients": 10.0,
        "updates_not_subscribed_total": 15.0,
        "updates_fanned_out_total": 30.0,
        "updates_stale_total": 2.0,
    },
    "composite-1/websocket-1": {"cpu": 2.2, "rss_kib": 30.0, "proxy_links": 2.0},
}


def test_processes_of_a_kind_are_added_also_those_in_composites() -> None:
    found = measured(BEFORE, AFTER, 2.0)
    assert found["cpu_ms"] == {"nginx": 50.0, "websocket": 200.0}
    assert found["memory_kib"] == {"nginx": 10, "websocket": 54}
    assert found["connections"] == 11.0
    assert (found["taken"], found["not_subscribed"], found["waste"]) == (40, 10, 0.25)
    assert kind_of("composite-2/websocket-1") == "websocket"


def test_process_that_came_or_began_anew_is_an_error() -> None:
    with pytest.raises(LookupError, match=r"come or gone.*nginx"):
        measured({name: BEFORE[name] for name in BEFORE if name != "nginx"}, AFTER, 2.0)
    with pytest.raises(LookupError, match="nginx began anew"):
        measured(BEFORE, {**AFTER, "nginx": {"cpu": 0.1, "rss_kib": 10.0}}, 2.0)
