"""Where the load is from."""

from typing import Any

import pytest

from deploy.topology import Mode
from learning.modes.configuration import Configuration, Size
from learning.modes.load import Data, Load, touched
from learning.recommend.source import (
    LEAST_UPTIME_S,
    LoadSource,
    NoLoad,
    from_numbers,
    mean_source_of,
    overridden,
    source_of,
)


def process(name: str, kind: str = "", **report: Any) -> dict[str, Any]:
    return {"name": name, "process": kind or name.partition("-")[0], "report": report}


def status(mode: str, *processes: dict[str, Any], sequence: int = 0, **more: Any) -> dict[str, Any]:
    data = process("data", endpoints=200, sequence=sequence)
    return {"mode": mode, "servers": 2, "clones": 1, **more, "processes": [data, *processes]}


def edges(clients: int, subscriptions: int, kind: str = "websocket") -> list[dict[str, Any]]:
    return [process(f"{kind}-{n}", clients=clients, subscriptions=subscriptions) for n in (1, 2)]


def test_numbers_that_are_missing_are_named() -> None:
    with pytest.raises(NoLoad, match="--endpoints and --updates: required"):
        from_numbers({"clients": 5, "endpoints": None})
    found = from_numbers({"clients": 5, "endpoints": 6, "updates": 7, "batch": None, "data": Data.GET}).load
    assert found == Load(5, 6, 7, data=Data.GET)


def test_a_running_system_is_counted_twice() -> None:
    before, after = (status("x", *edges(30, 300), sequence=sequence) for sequence in (100, 160))
    found = source_of(before, after, 3.0)
    assert found.load == Load(60, 200, 20, 10)
    assert (found.present, found.size) == (Configuration.X, Size(2, 1))
    assert found.text == "the running x, updates of 3 s"


def running(uptime_seconds: float, **report: Any) -> dict[str, Any]:
    now = status("x", *edges(30, 300))
    now["processes"][0] |= {"uptime_seconds": uptime_seconds, "report": {"endpoints": 200, **report}}
    return now


def test_one_reply_has_the_mean_rate_of_updates_since_the_start() -> None:
    found = mean_source_of(running(120.0, changes=2400))
    assert found is not None
    assert found.load == Load(60, 200, 20, 10)
    assert (found.present, found.size) == (Configuration.X, Size(2, 1))


@pytest.mark.parametrize(("commits", "batch"), [(0, 10), (99, 10), (100, 24), (2400, 1), (4800, 1)])
def test_updates_that_are_written_together_are_those_of_a_commit(commits: int, batch: float) -> None:
    found = mean_source_of(running(120.0, changes=2400, commits=commits))
    assert found is not None
    assert found.load.batch == batch


def test_a_data_service_that_has_just_started_or_does_not_answer_has_no_mean_rate() -> None:
    assert mean_source_of(running(LEAST_UPTIME_S - 1, changes=2400)) is None
    assert mean_source_of(running(120.0)) is None
    assert mean_source_of({"mode": "single", "processes": []}) is None


def test_clients_of_proxies_are_counted_there_and_not_at_their_servers() -> None:
    proxy = process("proxy-1", clients=50, subscriptions=500)
    now = status("z-proxy", *edges(50, 250), proxy)
    found = source_of(now, now, 1.0)
    assert (found.load.clients, found.load.subscriptions) == (50, 10)
    assert found.present is Configuration.Z_PROXY


def test_clients_of_z_client_count_once_however_many_connections_they_have() -> None:
    connections = round(1000 * touched(2, 3))
    now = status("z-client", *edges(connections // 2, 1500))
    found = source_of(now, now, 1.0)
    assert found.load.clients == pytest.approx(1000, rel=0.01)
    assert found.load.subscriptions == pytest.approx(3, rel=0.01)


def test_composites_are_the_clones_of_xz() -> None:
    children = [
        {"name": "websocket-1", "process": "websocket", "report": {"clients": 1}},
        {"name": "websocket-2", "process": "websocket", "report": {"clients": 1}},
        {"name": "proxy-1", "process": "proxy", "report": {"clients": 40, "subscriptions": 80}},
    ]
    now = status("xz", *(process(f"composite-{n}", children=children) for n in (1, 2, 3)), servers=3, clones=3)
    found = source_of(now, now, 1.0)
    assert found.size == Size(2, 3)
    assert found.load.clients == 120


@pytest.mark.parametrize("mode", Mode)
def test_every_mode_is_one_of_the_model(mode: Mode) -> None:
    found = source_of(status(mode), status(mode), 1.0).present
    assert found is not None
    assert str(found) == mode


def test_given_numbers_replace_those_of_the_source() -> None:
    source = LoadSource(Load(60, 200, 20, 10, subscribers=4), "the running x")
    found = overridden(source, {"updates": 300, "batch": None})
    assert found.load == Load(60, 200, 300, 10, subscribers=4)
    assert found.text == "the running x, with updates as given"
    # The subscribers of an update were those of other clients.
    assert overridden(source, {"clients": 600}).load.subscribers is None
    with pytest.raises(NoLoad, match="it has no --updates; give the numbers"):
        overridden(LoadSource(Load(60, 200, 0), "the running x"), {})
