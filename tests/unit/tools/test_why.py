"""The hop that explains a missing update, in modes that need Kafka or several processes to stage it."""

from typing import Any

import pytest

from diem.links.departures import MAX_DEPARTURES, Departure, Departures
from tests.unit.deploy.admin.statuses import (
    NOW_MS,
    change,
    composites,
    data,
    dead,
    process,
    replace,
    server,
    situation,
    status,
    z_client,
)
from tools.diagnosis import Diagnosis, State
from tools.why import ON_THE_WAY_MS, Evidence, cause_of, hops

ENDPOINT = "/dam/prices/GR"
STORED: dict[str, Any] = {
    "version": 7, "time": "2026-01-02T03:00:00.000Z", "gone": False, "source": None, "refused": None, "near": []
}  # fmt: skip
PUBLISHER = {"failure": None, "lag": 0, "partitions": 12}


def place(*clients: dict[str, Any], version: int | None = 7, role: str = "serving", **more: Any) -> dict[str, Any]:
    known = {"version": version, "role": role, "subscribers": len(clients)}
    return {**known, "matching": len(clients), "clients": list(clients), "departures": [], **more}


def client(**differences: Any) -> dict[str, Any]:
    known = {"session": "ab", "address": "192.0.2.1", "user": None, "subscribed": True, "subscriptions": 1}
    return {**known, "allowed": True, "unsent": 0, "blocked": False, "names": [ENDPOINT], **differences}


def of_two_servers(**differences: Any) -> dict[str, Any]:
    return status(
        "x",
        *(process(f"kafka-{n}", {}) for n in (1, 2, 3)),
        data(publisher={**PUBLISHER, **differences}),
        *(process(f"bridge-{n}", {"live": True, "lag": 0}) for n in (1, 2)),
        *(server(f"websocket-{n}") for n in (1, 2)),
    )


def chain(of: dict[str, Any], edges: dict[str, Any], name: str | None = "192.0.2.1", **stored: Any) -> list[Diagnosis]:
    return hops(Evidence(ENDPOINT, name, situation(of), STORED | stored, edges))


def cause(of: dict[str, Any], edges: dict[str, Any], **stored: Any) -> tuple[str, str] | None:
    found = cause_of(chain(of, edges, **stored))
    return None if found is None else (found.name, found.state)


def test_hops_are_those_of_the_servers_of_the_client() -> None:
    found = chain(of_two_servers(), {"websocket-1": place(client()), "websocket-2": place()})
    assert cause_of(found) is None
    assert [hop.name for hop in found] == [
        *("data", "endpoint", "kafka-1", "kafka-2", "kafka-3", "publisher", "bridge-1", "websocket-1", "client")
    ]


def test_dead_bridge_explains_only_what_clients_of_its_server_miss() -> None:
    of = replace(of_two_servers(), dead("bridge-2"))
    edges = {"websocket-1": place(client()), "websocket-2": place()}
    assert cause(of, edges) is None
    assert cause(of, {"websocket-1": place(), "websocket-2": place(client())}) == ("bridge-2", "fault")


def test_process_of_another_host_that_does_not_answer_is_unknown_and_the_client_may_be_there() -> None:
    of = replace(of_two_servers(), process("websocket-2", None, state="no answer"))
    of["processes"] = [each | {"name": f"{each['name']} on b"} for each in of["processes"]]
    now = situation(of)._replace(logs=None)
    edges = {"websocket-1 on b": place(), "websocket-2 on b": None}
    for name, known in (("ab", "it is not connected, and was not lately"), (None, "nobody is subscribed")):
        found = hops(Evidence(ENDPOINT, name, now, STORED, edges))
        reason = cause_of(found)
        assert reason is not None
        assert (reason.name, reason.state) == ("websocket-2 on b", State.UNKNOWN)
        assert reason.remedy == "Read `journalctl -u diem@websocket-2` on b."
        assert found[-1].state is State.UNKNOWN
        assert found[-1].text.startswith(known)
        assert found[-1].text.endswith(", unless at websocket-2 on b, which cannot be asked")
    found = hops(Evidence(ENDPOINT, "ab", now, STORED, edges | {"websocket-1 on b": place(client())}))
    assert cause_of(found) is None


def test_dead_broker_is_the_cause_once_nothing_is_written_and_worth_a_look_before() -> None:
    edges = {"websocket-1": place(client()), "websocket-2": place()}
    assert cause(replace(of_two_servers(), dead("kafka-2")), edges) == ("kafka-2", "note")
    of = replace(of_two_servers(failure="too few replicas in sync"), dead("kafka-2"))
    assert cause(of, edges) == ("kafka-2", "fault")
    assert cause(of_two_servers(failure="no broker answers"), edges) == ("publisher", "fault")


def test_server_with_an_older_version_is_at_fault_once_the_update_cannot_be_on_its_way() -> None:
    edges = {"websocket-1": place(client(), version=6), "websocket-2": place()}
    assert cause(of_two_servers(), edges) == ("websocket-1", "fault")
    just = f"2026-01-02T03:04:{5 - ON_THE_WAY_MS / 2000:06.3f}Z"
    assert NOW_MS % 60_000 == 5000
    assert cause(of_two_servers(), edges, time=just) == ("websocket-1", "note")


def test_only_the_owner_of_the_endpoint_is_on_the_way_where_servers_divide_them() -> None:
    of = replace(z_client(), dead("websocket-1"))
    owner = {"websocket-1": None, "websocket-2": place(client())}
    assert cause(of, owner) is None
    assert "websocket-1" not in [hop.name for hop in chain(of, owner)]
    lost = {"websocket-1": None, "websocket-2": place(role="not_owned")}
    assert cause(of, lost) == ("websocket-1", "fault")


def test_composites_of_other_clients_are_not_on_the_way_and_a_stale_endpoint_is_the_proxys_fault() -> None:
    of = composites(2)
    servers = {
        f"composite-{c}/websocket-{n}": place(role="serving" if n == 1 else "not_owned") for c in (1, 2) for n in (1, 2)
    }
    proxies = {"composite-1/proxy": place(client(), stale=False), "composite-2/proxy": place()}
    names = [hop.name for hop in chain(of, {**servers, **proxies})]
    assert names[names.index("composite-1/metadata") :] == [
        "composite-1/metadata",
        *("composite-1/bridge-1", "composite-1/websocket-1", "composite-1/proxy", "composite-1", "composite-2"),
        *("nginx", "client"),
    ]
    proxies["composite-1/proxy"] = place(client(), stale=True, server=None)
    assert cause(of, {**servers, **proxies}) == ("composite-1/proxy", "fault")


@pytest.mark.parametrize(
    ("stored", "text"),
    [
        ({"gone": True}, "it was deleted at 2026-01-02T03:00:00.000Z"),
        ({"version": None}, "there is no such endpoint"),
        ({"version": None, "near": ["/dam/price/GR", "/x"]}, "there is no such endpoint; did you mean /dam/price/GR?"),
        (
            {"version": None, "refused": {"time": "T", "detail": "not JSON"}},
            "it was never stored: the last write (T) was refused: not JSON",
        ),
    ],
)
def test_missing_endpoint_has_a_reason(stored: dict[str, Any], text: str) -> None:
    of = change(of_two_servers(), "data")
    found = cause_of(chain(of, {"websocket-1": place(client())}, **stored))
    assert found is not None
    assert found[:3] == ("endpoint", State.FAULT, text)


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (client(subscribed=False, allowed=False, user="ann"), f"the token of ann does not cover {ENDPOINT}"),
        (client(subscribed=False, allowed=False), "it has presented no token yet"),
        (client(subscribed=False, names=["/dam/prices/GX"]), "it is subscribed to /dam/prices/GX instead"),
        (client(blocked=True, unsent=3), "it reads too slowly: 3 updates wait for it at websocket-1"),
    ],
)
def test_connected_client_has_a_reason(found: dict[str, Any], text: str) -> None:
    reason = cause_of(chain(of_two_servers(), {"websocket-1": place(found)}))
    assert reason is not None
    assert reason[:3] == ("client", State.FAULT, text)


def test_departures_are_bounded_and_the_latest_of_a_client_comes_first() -> None:
    left = Departures()
    for n in range(MAX_DEPARTURES + 2):
        left.add(Departure(float(n), f"{n:x}", "192.0.2.1", "", 0, 4002, "retry=1000"))
    found = list(left.of("192.0.2.1", 300.0))
    assert len(found) == MAX_DEPARTURES
    assert (found[0]["session"], found[0]["ago_s"]) == (f"{MAX_DEPARTURES + 1:x}", 300.0 - MAX_DEPARTURES - 1)
    assert not list(left.of("0", 300.0))
    edges = {"websocket-1": place(departures=found), "websocket-2": place()}
    reason = cause_of(chain(of_two_servers(), edges))
    assert reason is not None
    assert reason.text.endswith("s ago with 4002: it did not read for 10 s")
    assert reason.remedy.endswith("It reconnects by itself.")
