"""Other servers on the trace of R1."""

import os
from typing import Any

import orjson
import pytest

from tests.bench.modes import peers
from tests.bench.modes.peers import (
    DIALECTS,
    STARTED,
    Measured,
    NoPeer,
    Peer,
    beside_single,
    measure,
    measure_all,
    parse_peer,
)
from tests.load.trace import Change, Trace, Visit, Write
from tests.support.patience import FACTOR
from tests.support.required import unavailable

UPDATE = {"type": "update", "endpoint": "/a/b", "version": 1}
# Three clients: one that stays, one that swaps, one that comes later and leaves. Times are far enough apart for a slow
# machine to do one thing after the other.
TRACE = Trace(
    seconds=2.5 * FACTOR,
    visits=[
        Visit(0.0, ("/a", "/b")),
        Visit(0.0, ("/a",), [Change(1.0 * FACTOR, ("/c",), ("/a",))]),
        Visit(1.0 * FACTOR, ("/a", "/c"), end=3.0 * FACTOR),
    ],
    writes=[Write(0.1, ("/a", "/b", "/c")), Write(2.0 * FACTOR, ("/a", "/c"))],
    endpoints=["/a", "/b", "/c"],
    batch=3,
)


@pytest.mark.parametrize("name", STARTED)
async def test_peers_that_are_started_get_the_clients_and_updates_of_the_trace(name: str) -> None:
    try:
        async with STARTED[name]() as peer:
            found = await measure(peer, TRACE)
    except NoPeer as error:
        # The package of nchan would be loaded by every nginx of the machine: it is no part of the tests.
        if name == "nchan":
            pytest.skip(str(error))
        unavailable("the ws package", error)
    # First /a twice and /b once; then /a for two clients, and /c for two.
    assert (found.frames, found.expected_frames) == (7, 7)
    assert found.cpu_s > 0
    assert found.as_json()["us_per_frame"] > 0


async def test_a_peer_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "CLIENT", peers.CLIENT / "missing")
    monkeypatch.setattr(peers, "NCHAN_FOLDERS", ())
    nobody = Peer("nchan", "ws://127.0.0.1:1/sub", "http://127.0.0.1:1/pub", os.getpid())
    found, absent = await measure_all([nobody], TRACE)
    assert found == []
    assert set(absent) == {"ws", "nchan", "centrifugo"}
    assert "not installed" in absent["ws"]
    assert absent["nchan"].startswith("nchan: ")
    _, absent = await measure_all([], TRACE)
    assert "libnginx-mod-nchan" in absent["nchan"]


def test_nchan_has_its_channels_in_the_url() -> None:
    nchan = DIALECTS["nchan"]
    assert nchan.url("ws://h/sub", ["/a/b", "/c"]) == "ws://h/sub?id=a-b,c"
    assert (nchan.subscribe(["/a"], []), nchan.resubscribes) == ([], False)
    (request,) = nchan.publish("http://h/pub", [UPDATE])
    assert (request.url, orjson.loads(request.body)) == ("http://h/pub?id=a-b", UPDATE)
    assert nchan.receive(b"{}") == (1, None)


def test_centrifugo_connects_subscribes_and_answers_pings() -> None:
    centrifugo = DIALECTS["centrifugo"]
    (message,) = centrifugo.subscribe(["/a/b"], [])
    assert [orjson.loads(line) for line in message.splitlines()] == [
        {"id": 1, "connect": {}},
        {"id": 2, "subscribe": {"channel": "a-b"}},
    ]
    (message,) = centrifugo.subscribe(["/c"], ["/a/b"])
    assert [next(iter(orjson.loads(line).keys() - {"id"})) for line in message.splitlines()] == [
        "subscribe",
        "unsubscribe",
    ]
    publication = orjson.dumps({"push": {"channel": "a-b", "pub": {"data": UPDATE}}})
    joined = orjson.dumps({"push": {"channel": "a-b", "join": {}}})
    assert centrifugo.receive(publication + b"\n" + publication + b"\n" + joined) == (2, None)
    assert centrifugo.receive(b"{}") == (0, b"{}")
    (request,) = centrifugo.publish("http://h/api/publish?api_key=k", [UPDATE])
    assert orjson.loads(request.body) == {"channel": "a-b", "data": UPDATE}


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["socketio", "ws://h", "http://h", "1"], "known are ws, nchan, centrifugo"),
        (["nchan", "ws://h", "http://h", "x"], "there is no process x"),
        (["nchan", "ws://h", "http://h", "4194305"], "there is no process 4194305"),
    ],
    ids=["a name", "a word", "a number"],
)
def test_peers_that_cannot_be_measured_are_refused_at_once(words: list[str], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        parse_peer(words)
    assert parse_peer(["nchan", "ws://h", "http://h", str(os.getpid())]).name == "nchan"


def test_single_is_beside_peers_where_it_was_measured() -> None:
    row: dict[str, Any] = {"regime": "R1", "configuration": "single", "frames_per_s": 5000.0}
    row["cpu_ms"] = {"websocket": 50.0, "data": 100.0}
    assert beside_single([row]) == {"server": 10.0, "server_and_data_service": 30.0}
    assert beside_single([]) is None
    assert Measured("ws", 2.0, 0.1, 0, 10).us_per_frame is None
